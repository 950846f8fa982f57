"""Benchmarks as data: questions, their gold answers, and what a text answers.

`parsing` reads the number that a text gives as its answer. `readers` reads each benchmark from its
published files or the hub into Records; `records` says what these are, and what is known to be
wrong with some. `training` finds training questions in test sets, and makes training sets without
them.
"""

from arith_lens.benchmarks.parsing import parse_number as parse_number
from arith_lens.benchmarks.parsing import same_number as same_number
from arith_lens.benchmarks.parsing import without_separators as without_separators
from arith_lens.benchmarks.readers import LETTERS as LETTERS
from arith_lens.benchmarks.readers import gold_answer as gold_answer
from arith_lens.benchmarks.readers import load_records as load_records
from arith_lens.benchmarks.readers import read_gsm8k as read_gsm8k
from arith_lens.benchmarks.readers import right_number as right_number
from arith_lens.benchmarks.records import Flag as Flag
from arith_lens.benchmarks.records import Record as Record
from arith_lens.benchmarks.records import flag_summary as flag_summary
from arith_lens.benchmarks.records import without_flags as without_flags
from arith_lens.benchmarks.training import Overlap as Overlap
from arith_lens.benchmarks.training import TrainingPart as TrainingPart
from arith_lens.benchmarks.training import find_overlaps as find_overlaps
from arith_lens.benchmarks.training import held_out as held_out
from arith_lens.benchmarks.training import refuse_overlap as refuse_overlap
from arith_lens.benchmarks.training import to_dataset as to_dataset
from arith_lens.benchmarks.training import training_parts as training_parts
from arith_lens.benchmarks.training import training_set as training_set
