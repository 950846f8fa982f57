"""Questions asked and answered: by greedy generation, or by the likeliest of some letters.

`questions` reads benchmarks' files, `answering` asks a model (with hooks, if given), `result` keeps
what was right, question by question, so that before and after a knockout compare pairwise.
"""

from arith_lens.answers.answering import answer_questions as answer_questions
from arith_lens.answers.questions import Question as Question
from arith_lens.answers.questions import load_questions as load_questions
from arith_lens.answers.result import Answers as Answers
from arith_lens.answers.result import Change as Change
