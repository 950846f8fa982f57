"""What a token of a prompt is for."""

from collections.abc import Mapping
from enum import StrEnum

from jaxtyping import Int
from torch import Tensor


class Role(StrEnum):
    """What a token is for in "The sum of 31 and 47 is "."""

    OPERAND_A = "operand a"
    OPERATOR = "operator"
    OPERAND_B = "operand b"
    END = "END"  # last prompt token: the logits here predict the answer
    BOS = "BOS"
    OTHER = "other"


Spans = Mapping[Role, Int[Tensor, "pair start_stop=2"]]
