"""What MLPs read and write, and heads write, at END: cosines with W_U, and the logit lens.

`mlp_probe` and `head_probe` read the numbers' columns of W_U, `logit_lens` the answer's rank and
probability. All apply the model's own final norm, W_U, factor and cap (`LogitHead`), and refuse a
model that makes its logits otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from arith_lens.components import (
    Head,
    Heads,
    as_heads,
    attn_out_name,
    check_components,
    mlp_out_name,
    resid_mid_name,
    resid_post_name,
    resid_pre_name,
    z_name,
)
from arith_lens.effects import Effects
from arith_lens.hooks import capture
from arith_lens.memory import free_bytes
from arith_lens.model import (
    HookedLike,
    LogitScale,
    PartWrites,
    active_hooks,
    check_writes,
    checked_columns,
    columns_alone,
    compute_device,
    end_logits,
    in_float32,
    record,
    require_finite,
    weights_loaded,
    without_patterns,
)
from arith_lens.model.faithful import tolerated_difference
from arith_lens.options import check_choice
from arith_lens.pairs import (
    PromptPairs,
    Role,
    check_kinds,
    check_pairs,
    encode,
    tokenizer_of,
    tokens_after,
)
from arith_lens.tensor_parallel import full_weight

HOOKS = {"mlp_in": resid_mid_name, "write": mlp_out_name, "mlp_out": resid_post_name}
"""The residual stream before a layer's MLP; what the MLP adds; the stream after it. In a block
whose attention and MLP run in parallel, the MLP reads the block's input (`resid_pre`)."""

DIGITS = tuple(range(10))
BATCH = 64


def _end_states(
    model: HookedLike, pairs: PromptPairs, read: str
) -> Float[Tensor, "layer pair d_model"]:
    """The stream, or what the MLP adds, in every layer at END of the references: float32, on the
    CPU."""
    check_choice("read", read, HOOKS)
    check_pairs(model, pairs)
    parallel = getattr(model.cfg, "parallel_attn_mlp", False)
    name_of = resid_pre_name if parallel and read == "mlp_in" else HOOKS[read]
    names = [name_of(layer) for layer in range(int(model.cfg.n_layers))]
    parts = []
    for batch in pairs.batches(BATCH):
        used = int(batch.attention_mask.any(0).float().argmax())
        tokens, mask = batch.reference[:, used:], batch.attention_mask[:, used:]
        try:
            with without_patterns(
                model, [(name, capture) for name in names], fused=False, at_end=True
            ):
                recorded = record(model, tokens, names, attention_mask=mask, positions=-1)
        except FloatingPointError:
            require_finite(model, tokens, attention_mask=mask)  # names the first layer
            raise
        parts.append(torch.stack([recorded[name][:, -1].float().cpu() for name in names]))
    return torch.cat(parts, dim=1)


def _require_final_norm(model: HookedLike) -> None:
    """Raise ValueError if the model's logits are not W_U applied to a final norm."""
    if getattr(model, "ln_final", None) is None:
        architecture = getattr(model.cfg, "architecture", "this model")
        raise ValueError(
            f"expected a final norm before W_U, found none in {architecture}; its stream cannot be "
            "set beside columns of W_U"
        )


def _refuse_not_finite(values: Tensor, what: str) -> None:
    """Raise FloatingPointError if `what` gave NaN or infinity for finite activations."""
    if not bool(values.isfinite().all()):
        raise FloatingPointError(
            f"expected finite numbers, found NaN or infinity from {what} on; check its weights"
        )


def _operand_tokens(pairs: PromptPairs) -> Int[Tensor, "pair a_b=2"]:
    """The tokens of A and B in the references."""
    if pairs.spans is None:
        raise ValueError(
            "expected pairs that know where A and B are, found pairs without roles; sample them "
            "from the templates, or give rows the keys template ('addition/0'), a and b"
        )
    spans = torch.stack([pairs.spans[Role.OPERAND_A], pairs.spans[Role.OPERAND_B]], dim=1)
    lengths = spans[..., 1] - spans[..., 0]
    if bool((lengths != 1).any()):
        row = int((lengths != 1).any(1).nonzero()[0])
        raise ValueError(
            f"expected operands of one token, found {lengths[row].tolist()} tokens for A and B of "
            f"pair {row}; a column of W_U belongs to one token: sample operands from 1 to 9"
        )
    return pairs.reference.gather(1, spans[..., 0])


def digit_tokens(model: HookedLike, pairs: PromptPairs) -> Int[Tensor, "pair digit=10"]:
    """The token of each digit after END, with the blank before it that the answer has.

    Raises:
        ValueError: the pairs have no text, or a digit is not a single token after END.
    """
    if pairs.reference_text is None:
        raise ValueError(
            "expected pairs with text, found bare tokens: which tokens are digits after END is "
            "read from the text; make pairs with sample_pairs or from_jsonl"
        )
    tokenizer = tokenizer_of(model)
    answers = pairs.answer_text or ("",) * len(pairs)
    blanks = [answer[: len(answer) - len(answer.lstrip())] for answer in answers]
    ends = list(zip(pairs.reference_text, blanks, strict=True))
    unique = list(dict.fromkeys(ends))
    digits_after = {}
    for (text, blank), prompt in zip(
        unique, encode(tokenizer, [text for text, _ in unique]), strict=True
    ):
        continuations = encode(tokenizer, [f"{text}{blank}{digit}" for digit in DIGITS])
        after = [tokens_after(prompt.ids, continuation.ids) for continuation in continuations]
        if any(len(tokens) != 1 for tokens in after):
            raise ValueError(
                f"expected each digit to be one token after {text!r}, found "
                f"{[len(tokens) for tokens in after]} tokens for 0 to 9 under this tokenizer"
            )
        digits_after[text, blank] = [tokens[0] for tokens in after]
    return torch.tensor([digits_after[end] for end in ends])


PROBE_ROLES = ("A", "B", "C", "others without C", "others without A, B, C")
"""The operands, the answer, and means over the other digits."""


@torch.no_grad()
def mlp_probe(
    model: HookedLike,
    pairs: PromptPairs,
    *,
    read: str = "mlp_in",
    final_norm: bool = False,
    tokens: str = "roles",
    unit: str = "cosine",
) -> Effects:
    """The cosine at END of what each layer's MLP reads or writes with the numbers' columns of W_U.

    These are the paper's Figures 6, 13 and 14 (section 5.2, Appendix C). A cosine shows that a
    direction is present, not what the model does with it: a stream that holds a digit for copying
    looks the same as one that computes with it.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        read: "mlp_in" (the stream before the MLP, hook_resid_mid; or the block's input,
            hook_resid_pre, if attention and MLP run in parallel), "write" (what the MLP adds,
            hook_mlp_out) or "mlp_out" (the stream after it, hook_resid_post).
        final_norm: whether to apply the final norm with its weight first, as in the logit lens. The
            paper's cosines are without it.
        tokens: "roles" (`PROBE_ROLES`: A, B, C, and two means over other digits) or "digits" (0
            to 9, as they are written after END).
        unit: "cosine"; or "logit": the tokens' logits if the model ended here, as in `logit_lens`,
            always through the final norm.

    Returns:
        Cosines between -1 and 1, or logits, [layer token pair]. NaN if a pair has no other digits.

    Raises:
        ValueError: the pairs have no roles or no text, an operand has several tokens, or an
            argument is not valid.
        FloatingPointError: an activation is NaN or infinite; the message says where.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> probe = al.mlp_probe(model, pairs, read="write")
        >>> probe.per_pair.shape                   # [layer token pair]: cosines
        torch.Size([12, 5, 6])
    """
    columns = _tokens_to_read(model, pairs, tokens, unit)
    states = _end_states(model, pairs, read)
    reads: Any = {"tokens": tokens, "unit": unit, "final_norm": final_norm}
    normed = " through the final norm" if final_norm else ""
    return Effects(
        _read_tokens(model, pairs, states, columns, **reads),
        ("layer", "token"),
        f"logit of {read}" if unit == "logit" else f"cosine of {read}{normed} with W_U",
        **pairs.units,
        labels={"token": _names_of(tokens)},
    )


@torch.no_grad()
def head_probe(
    model: HookedLike,
    pairs: PromptPairs,
    heads: Heads,
    *,
    tokens: str = "roles",
    unit: str = "logit",
) -> Effects:
    """What each head writes at END in terms of numbers, as `mlp_probe` shows it of MLPs.

    A head's write is what it adds to the residual stream: `z @ W_O` and, where the family has them,
    the norm after the attention, its scale held at that of the whole attention, and the factor.
    With `unit="logit"` it is the logit lens of the head's write alone. The final norm then brings
    each write to the same length, so a weak head looks as strong as any other.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        heads: the heads to read.
        tokens, unit: as in `mlp_probe`.

    Returns:
        Logits, or cosines between -1 and 1, [head token pair].

    Raises:
        ValueError, FloatingPointError: as in `mlp_probe`; no head is given; or the heads' writes do
            not add up to what the attention adds.
        IndexError: the model does not have a head.
    """
    check_kinds(model, pairs)
    chosen = as_heads(heads)
    if not chosen:
        raise ValueError("expected heads to read, found none; see key_heads(effects.heads)")
    check_components(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    columns = _tokens_to_read(model, pairs, tokens, unit)
    writes = _head_writes(model, pairs, chosen)
    return Effects(
        _read_tokens(model, pairs, writes, columns, tokens=tokens, unit=unit),
        ("head", "token"),
        "logit of the head's write" if unit == "logit" else "cosine of the head's write with W_U",
        **pairs.units,
        labels={"head": tuple(map(str, chosen)), "token": _names_of(tokens)},
    )


def _head_writes(
    model: HookedLike, pairs: PromptPairs, heads: Sequence[Head]
) -> Float[Tensor, "head pair d_model"]:
    """What each head adds to the stream at END, without the bias (`PartWrites`)."""
    check_pairs(model, pairs)
    layers = sorted({head.layer for head in heads})
    names = [name(layer) for layer in layers for name in (z_name, attn_out_name)]
    parts = []
    for batch in pairs.batches(BATCH):
        mask = batch.attention_mask
        recorded = record(model, batch.reference, names, attention_mask=mask, positions=-1)
        of_layers = {
            layer: _layer_writes(
                model.blocks[layer],
                recorded[z_name(layer)][:, -1],
                recorded[attn_out_name(layer)][:, -1],
                f"the attention of layer {layer}",
            )
            for layer in layers
        }
        parts.append(torch.stack([of_layers[head.layer][head.index] for head in heads]))
    return torch.cat(parts, dim=1)


def _layer_writes(
    block: Any,
    z: Float[Tensor, "pair n_heads d_head"],
    added: Float[Tensor, "pair d_model"],
    name: str,
) -> Float[Tensor, "n_heads pair d_model"]:
    """What each head of a block adds, where all of them add `added`."""
    with weights_loaded(block):
        w_o = full_weight(block.attn.W_O).float()
        bias = full_weight(getattr(block.attn, "b_O", None))
        if w_o.shape[:2] != z.shape[1:]:
            raise ValueError(
                f"expected heads of {list(w_o.shape[:2])} (W_O), found {list(z.shape[1:])} (z) in "
                f"{name}; path_patch with engine='hooks' computes effects of its components"
            )
        writes = einsum(z.to(w_o.device).float(), w_o, "pair h d, h d d_model -> h pair d_model")
        output = writes.sum(0) + (0.0 if bias is None else bias.float())
        of_parts = PartWrites.of(block, Head, output)
        check_writes(of_parts.whole, added, name)
        return of_parts(writes).cpu()


def _names_of(tokens: str) -> tuple[str, ...]:
    return PROBE_ROLES if tokens == "roles" else tuple(map(str, DIGITS))


def _tokens_to_read(
    model: HookedLike, pairs: PromptPairs, tokens: str, unit: str
) -> Int[Tensor, "pair token"]:
    """The digits' tokens; for roles, those of A, B and C before them.

    Raises ValueError for tokens or units that probes do not read, or a model without a final norm.
    """
    check_choice("tokens", tokens, ("roles", "digits"))
    check_choice("unit", unit, ("cosine", "logit"))
    _require_final_norm(model)
    digits = digit_tokens(model, pairs)
    if tokens == "digits":
        return digits
    return torch.cat([_operand_tokens(pairs), pairs.answer[:, None], digits], dim=1)


def _read_tokens(
    model: HookedLike,
    pairs: PromptPairs,
    states: Float[Tensor, "place pair d_model"],
    columns: Int[Tensor, "pair token"],
    *,
    tokens: str,
    unit: str,
    final_norm: bool = False,
) -> Float[Tensor, "place token_or_role pair"]:
    """The tokens' logits or cosines in each state."""
    with weights_loaded(model.ln_final, model.unembed):
        if unit == "logit":
            head = LogitHead.of(model)
            values, last = head.logits_of(states, columns), head.logits(states[-1, -1:])[0]
        else:
            states = in_float32(model.ln_final)(states).cpu() if final_norm else states
            _refuse_not_finite(states, "the final norm")
            values = _products(normalize(states, dim=-1), columns_of(model, columns))
    _refuse_not_finite(values, "the final norm or W_U" if unit == "logit" else "W_U")
    if unit == "logit":
        _require_the_models_logits(model, pairs, states[-1, -1], last)
    return _by_role(values, columns, pairs.operands) if tokens == "roles" else values


def _products(
    states: Float[Tensor, "layer pair d_model"], columns: Float[Tensor, "pair token d_model"]
) -> Float[Tensor, "layer token pair"]:
    return einsum(states, columns, "layer pair d_model, pair token d_model -> layer token pair")


def columns_of(
    model: Any, tokens: Int[Tensor, "pair token"]
) -> Float[Tensor, "pair token d_model"]:
    """The tokens' columns of W_U, normalised to length 1."""
    unique, places = tokens.unique(return_inverse=True)
    columns = model.W_U[:, unique.to(model.W_U.device)].float().T.cpu()
    return normalize(columns, dim=-1)[places]


def _by_role(
    cosines: Float[Tensor, "layer token pair"],
    tokens: Int[Tensor, "pair token"],
    operands: Int[Tensor, "pair a_b=2"] | None,
) -> Float[Tensor, "layer role=5 pair"]:
    """The cosines of A, B and C, and the means over the other digits.

    An operand may be another token in the prompt than after END (" 3" and "3"). So digits are also
    compared with operands by their value.
    """
    named, digits = tokens[:, :3], tokens[:, 3:]
    parts = [cosines[:, :3]]
    for left_out in (named[:, 2:], named):
        other = (digits[:, :, None] != left_out[:, None, :]).all(-1)
        if left_out is named and operands is not None:
            other &= (torch.tensor(DIGITS)[:, None] != operands[:, None, :]).all(-1)
        parts.append(cosines[:, 3:].masked_fill(~other.T, float("nan")).nanmean(1, keepdim=True))
    return torch.cat(parts, dim=1)


@torch.no_grad()
def logit_lens(model: HookedLike, pairs: PromptPairs, *, read: str = "mlp_out") -> Effects:
    """Rank (1 is the most likely token) and probability of C at END, layer by layer.

    The model's own final norm, W_U, logit factor and soft cap are applied to a layer. Early layers
    are not trained to be read in this way: a bad rank there means that C is not yet in the final
    basis, not that the layer has no information about C.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        read: "mlp_in" (the stream before the layer's MLP), "write" (what the MLP adds, alone), or
            "mlp_out" (the stream after it; in the last layer this is the model's own prediction).

    Returns:
        [layer measure pair], with the measures "rank" and "probability".

    Raises:
        ValueError: `read` is not valid, or the model computes its logits in another way.
        FloatingPointError: an activation is NaN or infinite; the message says where.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> lens = al.logit_lens(model, pairs)
        >>> lens.per_pair.shape                    # [layer measure pair]: rank and probability of C
        torch.Size([12, 2, 6])
    """
    _require_final_norm(model)
    states = _end_states(model, pairs, read)
    n_layers, n_pairs, _ = states.shape
    with weights_loaded(model.ln_final, model.unembed):
        head = LogitHead.of(model)
        row_bytes = 4 * 4 * head.w_u.shape[1]  # logits, their exponentials, comparisons
        rows = max(1, min(2 * BATCH, free_bytes(head.w_u.device) // 4 // row_bytes))
        parts = zip(
            states.flatten(0, 1).split(rows), pairs.answer.repeat(n_layers).split(rows), strict=True
        )
        measured = []
        for some, answer in parts:
            logits = head.logits(some)
            measured.append(_rank_and_probability(logits, answer))
    values = torch.cat(measured, 1).unflatten(1, (n_layers, n_pairs)).movedim(0, 1)
    _refuse_not_finite(values, "the final norm or W_U")
    _require_the_models_logits(model, pairs, states[-1, -1], logits[-1])
    return Effects(
        values,
        ("layer", "measure"),
        f"logit lens of {read}: C",
        **pairs.units,
        labels={"measure": ("rank", "probability")},
    )


@dataclass(frozen=True)
class LogitHead:
    """From the residual stream to the logits, in float32: final norm, W_U, bias, factor, cap."""

    norm: Callable[[Tensor], Tensor]
    w_u: Float[Tensor, "d_model d_vocab"]
    b_u: Float[Tensor, " d_vocab"] | None
    scale: LogitScale

    @classmethod
    def of(cls, model: HookedLike) -> "LogitHead":
        """The head of a model whose unembedding has its weights loaded."""
        bias = getattr(model.unembed, "b_U", None)
        return cls(
            in_float32(model.ln_final),
            model.W_U.float(),
            None if bias is None else bias.float(),
            LogitScale.of(model.cfg),
        )

    def logits(self, stream: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_vocab"]:
        """The logits that the model computes from this stream."""
        logits = self.norm(stream).to(self.w_u.device) @ self.w_u
        return self.scale(logits if self.b_u is None else logits + self.b_u)

    def logits_of(
        self, streams: Float[Tensor, "layer pair d_model"], tokens: Int[Tensor, "pair token"]
    ) -> Float[Tensor, "layer token pair"]:
        """The logits of each pair's own tokens alone, on the CPU."""
        logits = _products(self.norm(streams).cpu(), self.w_u.T[tokens.to(self.w_u.device)].cpu())
        if self.b_u is not None:
            logits = logits + self.b_u.cpu()[tokens].T
        return self.scale(logits)


def _require_the_models_logits(
    model: HookedLike,
    pairs: PromptPairs,
    state: Float[Tensor, " d_model"],
    logits: Float[Tensor, " d_vocab"],
) -> None:
    """Compare the lens of a state at END of the last pair with what the model's own code makes of
    this state after its last layer, for tokens evenly over the vocabulary."""
    row = state[None].to(compute_device(model.unembed), model.W_U.dtype)
    tokens = checked_columns(pairs.answer[-1:], int(model.cfg.d_vocab))
    if active_hooks(model.unembed):  # they may read the whole vocabulary
        tokens = None
    with columns_alone(model.unembed, tokens) as tokens:
        expected = end_logits(model, pairs.reference[-1:, -1], row)[0].float()
    logits = (logits if tokens is None else logits[tokens]).to(expected.device)
    difference = float((logits - expected).norm() / (expected - expected.mean()).norm())
    if not difference <= tolerated_difference(model.W_U.dtype):
        architecture = getattr(model.cfg, "architecture", "this model")
        raise ValueError(
            "expected logits that are W_U after the final norm, with a factor or a cap that the "
            f"configuration names, found that {architecture} makes them otherwise: they differ by "
            f"{difference:.1%} of their spread; the logit lens cannot read this architecture"
        )


def _rank_and_probability(logits: Tensor, answer: Tensor) -> Tensor:
    """Rank and probability of C, [measure pair]. Between equal logits, C has the worse rank."""
    index = answer.to(logits.device)[:, None]
    answers = logits.gather(1, index)
    rank = (logits >= answers).sum(1).float()
    probability = logits.log_softmax(-1).gather(1, index)[:, 0].exp()
    return torch.stack([rank, probability]).cpu()
