"""Questions asked and answered: by greedy generation, or by the likeliest of some letters.

`questions` reads benchmarks' files, `answering` asks a model (with hooks, if given), `result` keeps
what was right, question by question, so that before and after a knockout compare pairwise; `seeds`
compares over several trainings, `drift` over a long series of answers.
"""

from arith_lens.answers.answering import answer_questions as answer_questions
from arith_lens.answers.drift import Trend as Trend
from arith_lens.answers.drift import trend as trend
from arith_lens.answers.questions import Question as Question
from arith_lens.answers.questions import load_questions as load_questions
from arith_lens.answers.result import Answers as Answers
from arith_lens.answers.result import Change as Change
from arith_lens.answers.seeds import OverSeeds as OverSeeds
from arith_lens.answers.seeds import change_over_seeds as change_over_seeds
from arith_lens.answers.seeds import over_seeds as over_seeds
