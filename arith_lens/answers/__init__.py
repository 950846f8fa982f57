"""Questions asked and answered: by greedy generation, or by the likeliest of some letters.

`answering` reads benchmarks' questions and asks a model (with hooks, if given). `result` keeps what
was right, question by question, so that before and after a knockout compare pairwise; it compares
over several trainings, and over a long series of answers.
"""

from arith_lens.answers.answering import Question as Question
from arith_lens.answers.answering import answer_questions as answer_questions
from arith_lens.answers.answering import load_questions as load_questions
from arith_lens.answers.result import Answers as Answers
from arith_lens.answers.result import Change as Change
from arith_lens.answers.result import OverSeeds as OverSeeds
from arith_lens.answers.result import Trend as Trend
from arith_lens.answers.result import change_over_seeds as change_over_seeds
from arith_lens.answers.result import over_seeds as over_seeds
from arith_lens.answers.result import trend as trend
