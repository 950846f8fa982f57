"""How a model represents numbers: shapes of class means, with controls that can fail.

`values` says which number each prompt holds and where it is read. `shapes` has the terms of a
helix, of waves and of a polynomial, and fits them. `subspace` fits one of them to class means.
`swap` exchanges it between problems, and writes values that it was not fitted to. `result` is what
that returns. `spectrum` has the power of each frequency.
"""

from arith_lens.numbers.result import OWN as OWN
from arith_lens.numbers.result import UNSEEN as UNSEEN
from arith_lens.numbers.result import UNSEEN_LABELS as UNSEEN_LABELS
from arith_lens.numbers.result import WHOLE as WHOLE
from arith_lens.numbers.result import Swaps as Swaps
from arith_lens.numbers.shapes import Shape as Shape
from arith_lens.numbers.spectrum import number_spectrum as number_spectrum
from arith_lens.numbers.spectrum import power_by_frequency as power_by_frequency
from arith_lens.numbers.subspace import NumberSpace as NumberSpace
from arith_lens.numbers.subspace import number_subspace as number_subspace
from arith_lens.numbers.swap import CONTROLS as CONTROLS
from arith_lens.numbers.swap import swap_values as swap_values
