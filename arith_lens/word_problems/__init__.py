"""Real word problems as prompt pairs, with the words replaced that ask for a number (Appendix E).

`phrases` lists these words and their replacements. `convert` chooses replacements that keep the
number of tokens, makes the pairs and counts them. `gsm8k_pairs` uses GSM8K's questions and
solutions.
"""

from arith_lens.benchmarks import read_gsm8k as read_gsm8k
from arith_lens.word_problems.convert import Conversion as Conversion
from arith_lens.word_problems.convert import WordProblem as WordProblem
from arith_lens.word_problems.convert import gsm8k_pairs as gsm8k_pairs
from arith_lens.word_problems.convert import word_problem_pairs as word_problem_pairs
from arith_lens.word_problems.phrases import PhraseEdit as PhraseEdit
from arith_lens.word_problems.phrases import question_edits as question_edits
