"""Are tokens prompt pairs? Checks of bare tokens, masks and padding."""

from jaxtyping import Bool
from torch import Tensor

from arith_lens.model import PAD


def check_shapes(
    reference: Tensor,
    counterfactual: Tensor,
    answer: Tensor,
    mask: Tensor | None,
    counterfactual_answer: Tensor | None = None,
) -> None:
    """Raise ValueError, with the shapes, if tensors cannot be aligned pairs.

    Raises:
        TypeError: something else than tensors of whole numbers.
    """
    for name, tokens in (
        *(("reference", reference), ("counterfactual", counterfactual), ("answer", answer)),
        *([("counterfactual_answer", counterfactual_answer)] * (counterfactual_answer is not None)),
    ):
        kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.is_complex():
            raise TypeError(
                f"expected {name} as a tensor of token ids, which are whole numbers, found {kind}; "
                "make one with torch.tensor"
            )
    if reference.ndim != 2 or reference.shape != counterfactual.shape:
        raise ValueError(
            "expected reference and counterfactual of one shape [pair, pos], found "
            f"{list(reference.shape)} and {list(counterfactual.shape)}; give both prompts of a "
            "pair the same number of tokens, because patching moves activations position by "
            "position"
        )
    if not reference.numel():
        raise ValueError(
            f"expected at least one pair, found none (reference has shape "
            f"{list(reference.shape)}); give prompts with tokens"
        )
    if answer.shape != reference.shape[:1]:
        raise ValueError(
            f"expected one answer token per pair, [{len(reference)}], found {list(answer.shape)}; "
            "give the token that follows each reference prompt"
        )
    if counterfactual_answer is not None and counterfactual_answer.shape != answer.shape:
        raise ValueError(
            f"expected one counterfactual_answer per pair [{len(answer)}], found "
            f"{list(counterfactual_answer.shape)}; give -1 where a counterfactual has no answer"
        )
    if mask is not None and mask.shape != reference.shape:
        raise ValueError(
            f"expected attention_mask of the prompts' shape {list(reference.shape)}, found "
            f"{list(mask.shape)}; give one entry per token, False at padding"
        )


def refuse_negative(name: str, tokens: Tensor) -> None:
    """Raise ValueError for ids that no vocabulary has. Methods compare the others with a model."""
    if bool((tokens < 0).any()):
        raise ValueError(
            f"expected token ids of 0 or more, found {int(tokens.min())} in {name}; where it is "
            "padding, give the mask"
        )


def check_mask(mask: Bool[Tensor, "pair pos"]) -> None:
    """Raise ValueError for rows without a token, and for masks with holes."""
    if not mask.any(1).all():
        row = int((~mask.any(1)).nonzero()[0])
        raise ValueError(
            f"expected a token in each row, found attention_mask False everywhere in pair {row}; "
            "leave the pair out, or correct its mask"
        )
    starts = mask[:, 0].int() + (mask.int().diff(dim=1) == 1).sum(1)
    if (starts > 1).any():
        row = int((starts > 1).nonzero()[0])
        raise ValueError(
            f"pair {row}: expected attention_mask as one run of True, found a hole in it; put all "
            "padding on the left or on the right"
        )


def refuse_padding(reference: Tensor, counterfactual: Tensor, pad_token: int | None) -> None:
    """Raise ValueError for padded rows, which need a mask.

    These are rows that begin with two padding tokens or end in one, and rows that this package has
    padded on the left.
    """
    padded = (reference[:, 0] == PAD) & (counterfactual[:, 0] == PAD)
    if padded.any() and not padded.all():
        raise ValueError(
            f"expected attention_mask with padded prompts, found none: pair "
            f"{int(padded.nonzero()[0])} starts with token {PAD}, with which this package pads; "
            "give the mask, True where a token is to be read (all ones, if that token is meant)"
        )
    if pad_token is None:
        return
    for name, tokens in (("reference", reference), ("counterfactual", counterfactual)):
        is_pad = tokens == pad_token
        padded = is_pad[:, -1] | is_pad[:, :2].all(1)
        if padded.any():
            raise ValueError(
                f"expected attention_mask with padded prompts, found none: {name} of pair "
                f"{int(padded.nonzero()[0])} starts or ends with the padding token {pad_token}; "
                "give the mask, True where a token is to be read (all ones, if that token is meant)"
            )
