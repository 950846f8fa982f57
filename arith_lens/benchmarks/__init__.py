"""Benchmarks as data: what a text answers.

`parsing` reads the number that a text gives as its answer.
"""

from arith_lens.benchmarks.parsing import parse_number as parse_number
from arith_lens.benchmarks.parsing import same_number as same_number
