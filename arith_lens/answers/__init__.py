"""Questions and answers: by greedy generation, or by the most likely of some letters.

`answering` reads the questions of benchmarks and asks a model, with or without hooks. `result`
stores which questions were right, so that answers before and after a knockout can be compared
question by question. It also compares several trainings.
"""

from arith_lens.answers.answering import Question as Question
from arith_lens.answers.answering import answer_questions as answer_questions
from arith_lens.answers.answering import load_questions as load_questions
from arith_lens.answers.result import AccuracyChange as AccuracyChange
from arith_lens.answers.result import Answers as Answers
from arith_lens.answers.result import OverSeeds as OverSeeds
from arith_lens.answers.result import change_over_seeds as change_over_seeds
from arith_lens.answers.result import changes_by_question as changes_by_question
from arith_lens.answers.result import over_seeds as over_seeds
