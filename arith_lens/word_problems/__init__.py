"""Real word problems as prompt pairs: the words that ask for a number replaced (Appendix E).

`phrases` says which words those are and what may stand for them, `rewriting` chooses what keeps
the number of tokens, `gsm8k` takes questions and solutions, `convert` makes the pairs and counts.
"""

from arith_lens.benchmarks import read_gsm8k as read_gsm8k
from arith_lens.word_problems.convert import Conversion as Conversion
from arith_lens.word_problems.convert import WordProblem as WordProblem
from arith_lens.word_problems.convert import word_problem_pairs as word_problem_pairs
from arith_lens.word_problems.gsm8k import gsm8k_pairs as gsm8k_pairs
from arith_lens.word_problems.phrases import Edit as Edit
from arith_lens.word_problems.phrases import question_edits as question_edits
