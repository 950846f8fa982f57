"""Models whose circuit is known exactly, to judge methods that look for circuits.

`models` has the entry and makes the Hugging Face model of a circuit, `circuits` has the circuits,
`circuit` their equations and closed-form effects.
"""

from arith_lens.built.circuit import Circuit as Circuit
from arith_lens.built.circuit import Edge as Edge
from arith_lens.built.circuit import Truth as Truth
from arith_lens.built.models import BUILT_NAMES as BUILT_NAMES
from arith_lens.built.models import BuiltModel as BuiltModel
from arith_lens.built.models import built_model as built_model
