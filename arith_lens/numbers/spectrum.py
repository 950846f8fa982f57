"""`number_spectrum`: the power of each frequency of a number in a model's state or weights."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import mlp_out_name, resid_post_name, z_name
from arith_lens.effects import Effects
from arith_lens.interchanges import Site
from arith_lens.model import HookedLike
from arith_lens.model.state import weights_loaded
from arith_lens.numbers.values import (
    check_value,
    class_means,
    columns_at,
    rests_of,
    states_of,
    token_of,
    values_of,
)
from arith_lens.options import check_choice
from arith_lens.pairs import PromptPairs, Role
from arith_lens.statistics import permutation_p_value

STATE_NAMES = {"stream": resid_post_name, "heads": z_name, "mlps": mlp_out_name}
"""What can be read in each layer, with the name of its activation."""
SOURCES = (*STATE_NAMES, "W_E", "W_U")
POWER, P_VALUE = "share of the power", "p"


def number_spectrum(
    model: HookedLike,
    pairs: PromptPairs,
    of: str = "stream",
    at: Role | str = "end",
    value: str = "a",
    *,
    permutations: int = 999,
    seed: int = 0,
) -> Effects:
    """The discrete Fourier transform of class means over a number (not in the paper).

    Class means hold wording and other operand equal, as those of `number_subspace`. n values have
    n / 2 frequencies, so the periods are n, n/2, n/3, … and a period of 10 needs ten
    values. A power is a share of the variance between class means. Its p-value compares it with the
    largest power of any frequency after a permutation of the values.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: of `sample_pairs`; only reference prompts are read, all of them.
        of: `"stream"`, at each layer's exit; `"heads"`, what each head reads from its values (z);
            `"mlps"`, what each MLP adds; `"W_E"`, the embedding of the number's token; `"W_U"`, the
            unembedding of the answer's token.
        at: `"end"`, or the `Role` of an operand.
        value: `"a"`, `"b"`, `"answer"`, or a digit of an operand, such as `"a_ones"`.
        permutations: of the values.
        seed: of the permutations.

    Returns:
        [layer measure period 1], with heads [layer head measure period 1], and of weights
        [measure period 1]. The measures are the share of the power and its p-value. The last axis
        has one entry, because a spectrum is of all pairs together.

    Raises:
        ValueError: an unknown choice; fewer than four values, or values with gaps; the embedding at
            END, or the unembedding of an operand.
    """
    check_choice("of", of, SOURCES)
    if not isinstance(permutations, int) or permutations < 1:
        raise ValueError(f"expected permutations of at least 1, found {permutations!r}; give 999")
    check_value(model, pairs, value)
    numbers = values_of(pairs, value)
    classes = _consecutive(numbers, value)
    if of in ("W_E", "W_U"):
        means, axes = _weight_rows(model, pairs, of, at, value, classes), ()
    else:
        means = _activation_means(model, pairs, of, _site(pairs, at, value), value, classes)
        axes = ("layer", "head") if of == "heads" else ("layer",)
    power, p_values = _tested(means, permutations, seed)
    periods = tuple(f"{len(classes) / one:.3g}" for one in range(1, len(classes) // 2 + 1))
    return Effects(
        torch.stack([power, p_values], dim=-2).float()[..., None],
        (*axes, "measure", "period"),
        metric=f"spectrum of {value} in {of} at {Site(0, at).at}",
        labels={"measure": (POWER, P_VALUE), "period": periods},
    )


def _consecutive(numbers: Int[Tensor, " pair"], value: str) -> Int[Tensor, " value"]:
    classes = numbers.unique()
    gaps = classes.diff()
    if len(classes) < 4 or not bool((gaps == 1).all()):
        raise ValueError(
            f"expected four values of {value} or more without gaps, found {classes.tolist()}; draw "
            "pairs of operands such as range(10)"
        )
    return classes


def _site(pairs: PromptPairs, at: Role | str, value: str) -> Site:
    site = Site(0, at)
    if not site.is_end:
        site = Site(0, at, token_of(pairs, site.role, value))
    return site


def _weight_rows(
    model: HookedLike,
    pairs: PromptPairs,
    of: str,
    at: Role | str,
    value: str,
    classes: Int[Tensor, " value"],
) -> Float[Tensor, "value d_model"]:
    """The embedding or unembedding of each value's tokens, averaged over its tokens."""
    if (of == "W_U") != (value == "answer") or (of == "W_E" and Site(0, at).is_end):
        raise ValueError(
            f"expected 'W_E' at an operand, or 'W_U' of value='answer', found {of!r} of {value} at "
            f"{Site(0, at).at}; give at=Role.OPERAND_A with value='a', or value='answer'"
        )
    values = values_of(pairs, value)
    if of == "W_E":
        column = columns_at(pairs, _site(pairs, at, value))
        tokens = pairs.reference[torch.arange(len(pairs)), column]
        with weights_loaded(getattr(model, "bridge", model).embed):
            table = model.W_E.detach()
    else:
        tokens = pairs.answer
        with weights_loaded(model.unembed):
            table = model.W_U.detach().T
    rows = table[tokens.to(table.device)].double().cpu()
    return class_means(rows, values, classes)


def _activation_means(
    model: HookedLike,
    pairs: PromptPairs,
    of: str,
    site: Site,
    value: str,
    classes: Int[Tensor, " value"],
) -> Float[Tensor, "layer *head value width"]:
    """The class means of each layer, or of each head."""
    names = [STATE_NAMES[of](layer) for layer in range(int(model.cfg.n_layers))]
    states, values = states_of(model, pairs, names, site), values_of(pairs, value)
    means = class_means(states, values, classes, rests_of(pairs, value))
    return means.movedim(0, -2)


def power_by_frequency(
    means: Float[Tensor, "*place value width"],
) -> Float[Tensor, "*place frequency"]:
    """The share of the power of frequencies 1 to n/2 cycles per n values; they add up to 1."""
    n = means.shape[-2]
    waves = torch.fft.fft(means.double(), dim=-2).abs().square().sum(-1)[..., 1:]
    half = n // 2
    power = waves[..., :half] + waves.flip(-1)[..., :half]
    if n % 2 == 0:
        power[..., -1] /= 2  # the last frequency is its own mirror image
    return power / power.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)


def _tested(
    means: Float[Tensor, "*place value width"], permutations: int, seed: int
) -> tuple[Float[Tensor, "*place frequency"], Float[Tensor, "*place frequency"]]:
    """The powers, and p-values against the largest power of each permutation."""
    power = power_by_frequency(means)
    generator = torch.Generator().manual_seed(seed)
    n, largest = means.shape[-2], []
    for _ in range(permutations):
        order: Sequence[int] = torch.randperm(n, generator=generator).tolist()
        largest.append(power_by_frequency(means[..., order, :]).amax(-1, keepdim=True))
    return power, permutation_p_value(torch.stack(largest), power)
