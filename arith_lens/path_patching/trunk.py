"""The part of a model that the sweep computes: from a head's z at END to the logits.

These are the layers with their attention given (`layers.py`), a final norm and W_U. All rows are
float32; only the input of an MLP is cast to the model's dtype.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import NamedHook
from arith_lens.metrics import Readout, mean_of_others
from arith_lens.model import (
    HookedLike,
    LogitScale,
    compute_device,
    in_float32,
    is_offloaded,
    lacks_weights,
    layers_with_weights,
    mlp_exit,
    own_module,
    weights_loaded,
)
from arith_lens.path_patching.layers import (
    AdditiveLayer,
    Layer,
    ModelLayer,
    UnsupportedTrunk,
    additive_layer,
)

VOCABULARY_CHUNK = 4096

MLP_BYTES = {"cpu": 2**21, "cuda": 2**28}
"""The largest size of one MLP activation, by device. On a CPU it fits in the cache."""
LEAST_MLP_ROWS = 512
"""The smallest number of rows that enter an MLP at once; fewer would read the weights too often."""


_RECORDED = re.compile(
    r"(hook_embed|hook_pos_embed|embed\b|pos_embed\b|rotary|blocks\.0\.hook_(in|resid_pre)$|"
    r"blocks\.\d+\.(attn\b|hook_(attn|q_|k_|v_)))"
)
"""Hook points whose values are recorded with hooks active, and not computed again by the sweep."""
_FIRST_NORM = re.compile(r"blocks\.\d+\.ln1\b")
"""Hook points of the norm before the attention, which some layers' own code computes again."""


@dataclass(frozen=True)
class Trunk:
    """One model's trunk. Every function takes and returns float32 rows.

    The weights of an offloaded layer are in memory only while `each_layer` is at this layer.
    """

    blocks: Sequence[Any]
    """The bridge's blocks, one per layer."""
    layers: Sequence[Layer]
    """Each layer with its attention given."""
    attentions: Sequence[Any]
    """For each layer, the module with W_O [n_heads d_head d_model] and, in some models, b_O
    [d_model]."""
    final_norm: Callable[[Float[Tensor, "*row d_model"]], Float[Tensor, "*row d_model"]]
    """The norm after the last layer."""
    final_scale: "NormScale"
    """What the final norm divides by."""
    unembed: Any
    """The module with W_U [d_model d_vocab] and, in some models, b_U [d_vocab]."""
    last: tuple[Any, ...]
    """The modules after the last layer."""
    logit_scale: LogitScale = field(default_factory=LogitScale)
    """What the model does to the logits after the unembedding."""
    offloaded: bool = True
    """Whether the weights of some layers may be offloaded."""

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    def each_layer(self) -> Iterator[int]:
        """The index of each layer in order, with its weights loaded."""
        return layers_with_weights(self.blocks) if self.offloaded else iter(range(self.n_layers))

    def b_o(self, layer: int) -> Float[Tensor, " d_model"] | None:
        """The bias of a layer's attention; None if it has none."""
        return getattr(self.attentions[layer], "b_O", None)

    def head_writes(
        self, layer: int, z: Float[Tensor, "pair n_heads d_head"], heads: Sequence[int]
    ) -> Float[Tensor, "chosen pair d_model"]:
        """What each head adds to the residual stream for its z: `z @ W_O`, without the bias."""
        w_o = self.attentions[layer].W_O
        if list(heads) != list(range(len(w_o))):  # indexing copies
            chosen = torch.as_tensor(heads, dtype=torch.long)
            z, w_o = z[:, chosen.to(z.device)], w_o[chosen.to(w_o.device)]
        writes = einsum(
            z.to(w_o.device).float(),
            w_o.float(),
            "pair head d_head, head d_head d_model -> head pair d_model",
        )
        return writes.to(z.device)

    def read(
        self,
        rows: Float[Tensor, "row pair d_model"],
        answer: Int[Tensor, " pair"],
        foil: Int[Tensor, " pair"] | None = None,
        candidates: Int[Tensor, " candidate"] | None = None,
        *,
        vocabulary: bool = False,
        scale_of: Float[Tensor, "pair d_model"] | None = None,
    ) -> Readout:
        """Apply the final norm and read logits.

        Args:
            rows: END's residual stream after the last layer.
            answer: the token of each pair's answer.
            foil: a second token per pair; None: no logit of a foil.
            candidates: tokens whose mean logit is read, without the answer's; None: no mean.
            vocabulary: whether to compute the log-sum of all logits (in chunks of the vocabulary).
            scale_of: rows whose scale the final norm divides by, instead of each row's own.
        """
        with weights_loaded(*self.last):
            ends = _Unembedding.of(self.unembed, self.logit_scale)
            final = self.final_norm(rows)
            if scale_of is not None:
                final = self.final_scale.exchanged(final, rows, scale_of)
            final, others = final.to(ends.w_u.device), None
            if candidates is not None:
                others = mean_of_others(ends.logits_of(final, candidates), candidates, answer)
            return Readout(
                answer=ends.logit_of(final, answer),
                foil=None if foil is None else ends.logit_of(final, foil),
                log_total=ends.log_total(final) if vocabulary else None,
                others=others,
            )


@dataclass(frozen=True)
class NormScale:
    """What a norm divides by: sqrt(mean(x^2) + eps), of x less its mean where it centres."""

    norm: Any
    """The model's own LayerNorm or RMSNorm."""
    of_rows: Callable[[Float[Tensor, "*row d_model"]], Float[Tensor, "*row d_model"]]
    """What it puts out, in float32."""

    def centres(self, rows: Float[Tensor, "*row d_model"]) -> bool:
        """Whether a constant that is added to a row changes nothing."""
        row = rows.flatten(0, -2)[:1].float()
        size = row.abs().mean()
        change = self.of_rows(row + size) - self.of_rows(row)
        return bool(change.abs().max() < 1e-3 * self.of_rows(row).abs().max())

    @property
    def bias(self) -> Float[Tensor, " d_model"] | float:
        """What the norm adds after the division."""
        bias = getattr(self.norm, "bias", None)
        return bias.float() if isinstance(bias, Tensor) else 0.0

    def __call__(self, rows: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row 1"]:
        """The scale of each row."""
        rows = rows.float()
        if self.centres(rows):
            rows = rows - rows.mean(-1, keepdim=True)
        eps = getattr(self.norm, "variance_epsilon", None) or getattr(self.norm, "eps", None) or 0.0
        return (rows.square().mean(-1, keepdim=True) + eps).sqrt()

    def exchanged(
        self,
        out: Float[Tensor, "*row d_model"],
        rows: Float[Tensor, "*row d_model"],
        scale_of: Float[Tensor, "*other d_model"],
    ) -> Float[Tensor, "*row d_model"]:
        """What the norm would put out for `rows`, divided by the scale of other rows.

        Args:
            out: what it puts out for `rows`
        """
        ratio = (self(rows) / self(scale_of)).to(out.device)
        return (out - self.bias) * ratio + self.bias


@dataclass(frozen=True)
class _Unembedding:
    w_u: Float[Tensor, "d_model d_vocab"]
    b_u: Float[Tensor, " d_vocab"] | None
    scale: LogitScale

    @classmethod
    def of(cls, module: Any, scale: LogitScale) -> "_Unembedding":
        bias = getattr(module, "b_U", None)
        return cls(module.W_U, bias if bias is not None and bool(bias.any()) else None, scale)

    def logit_of(
        self, final: Float[Tensor, "row pair d_model"], token: Int[Tensor, " pair"]
    ) -> Float[Tensor, "row pair"]:
        token = token.to(self.w_u.device)
        logits = einsum(
            final, self.w_u[:, token].float(), "row pair d_model, d_model pair -> row pair"
        )
        return self.scale(logits if self.b_u is None else logits + self.b_u[token].float())

    def logits_of(
        self, final: Float[Tensor, "row pair d_model"], tokens: Int[Tensor, " token"]
    ) -> Float[Tensor, "row pair token"]:
        tokens = tokens.to(self.w_u.device)
        logits = final @ self.w_u[:, tokens].float()
        return self.scale(logits if self.b_u is None else logits + self.b_u[tokens].float())

    def log_total(self, final: Float[Tensor, "row pair d_model"]) -> Float[Tensor, "row pair"]:
        flat = final.flatten(0, 1)
        total = flat.new_full((len(flat),), float("-inf"))
        for start in range(0, self.w_u.shape[1], VOCABULARY_CHUNK):
            part = slice(start, start + VOCABULARY_CHUNK)
            logits = flat @ self.w_u[:, part].float()
            if self.b_u is not None:
                logits += self.b_u[part].float()
            total = torch.logaddexp(total, self.scale(logits).logsumexp(-1))
        return total.reshape(final.shape[:2])


def trunk_of(model: HookedLike) -> Trunk:
    """The trunk of a model.

    Raises:
        UnsupportedTrunk: the sweep cannot compute the model. The message names the reason.
    """
    blocks = list(model.blocks)
    reason = _unsupported_model(model)
    layers: list[Layer] = []
    for index, block in enumerate(blocks if reason is None else ()):
        reason = _unsupported_block(block, model.cfg)
        try:
            layers += [_layer(block, model)] if reason is None else []
        except UnsupportedTrunk as error:
            reason = str(error)
        if reason is not None:
            reason = f"{reason} in layer {index}"
            break
    if reason is not None:
        raise UnsupportedTrunk(
            "expected layers that compute END's row from their attention's output alone, found "
            f"{reason} in {_name_of(model)}; use engine='hooks', which is general and slower"
        )
    return Trunk(
        blocks=blocks,
        layers=layers,
        attentions=[block.attn for block in blocks],
        final_norm=in_float32(model.ln_final),
        final_scale=NormScale(own_module(model.ln_final), in_float32(model.ln_final)),
        unembed=model.unembed,
        last=(model.ln_final, model.unembed),
        logit_scale=LogitScale.of(model.cfg),
        offloaded=any(map(is_offloaded, blocks)),
    )


def _layer(block: Any, model: HookedLike) -> Layer:
    """The layer of a block; its own code where it is not the usual sum."""
    if is_additive(block, model.cfg):
        return additive_layer(block, mlp_rows(model))
    return ModelLayer.of(block, mlp_rows(model))


def is_additive(block: Any, cfg: Any) -> bool:
    """Whether a block computes `x += attention; x += mlp(norm(x))`, with nothing else.

    This looks at the configuration and the modules. What they do not show, the certificate finds.
    """
    return (
        not getattr(cfg, "parallel_attn_mlp", False)
        and getattr(cfg, "residual_multiplier", None) in (None, 1)
        and not any(hasattr(block, name) for name in ("ln1_post", "ln2_post"))
        and hasattr(block, "ln2")
        and mlp_exit(block) is block.mlp
    )


def _unsupported_model(model: HookedLike) -> str | None:
    """Why the sweep cannot compute what comes after the layers; None if no reason is visible."""
    if getattr(model, "ln_final", None) is None:
        return "no final norm"
    if lacks_weights(model.ln_final) or lacks_weights(model.unembed):
        return "a final norm or unembedding without weights (on the meta device)"
    return None


def _unsupported_block(block: Any, cfg: Any) -> str | None:
    if lacks_weights(block):
        return "no weights (they are on the meta device)"
    missing = [part for part in ("mlp", "attn") if not hasattr(block, part)]
    if missing:
        return f"no {', '.join(missing)}"
    try:
        with weights_loaded(getattr(block.attn, "o", block.attn)):
            shape = tuple(block.attn.W_O.shape)
    except (AttributeError, ValueError) as error:  # raised by the bridge for heads of unequal size
        return f"no W_O that splits into heads ({str(error).split(': ')[0]})"
    expected = (cfg.n_heads, cfg.d_head, cfg.d_model)
    if shape != expected:
        return f"a W_O of shape {shape}, not {expected},"
    return _unsupported_mlp(block.mlp)


def _unsupported_mlp(mlp: Any) -> str | None:
    """Why the sweep cannot call this MLP: it is part of the layer, or needs a second input."""
    if getattr(mlp, "name", "mlp") is None:
        return "an MLP that is no module of its own"
    forward = getattr(mlp, "original_component", mlp).forward
    parameters = inspect.signature(forward).parameters.values()
    required = [
        p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    return f"an MLP that takes more than its input ({required[1]})" if len(required) > 1 else None


def refuse_uneven_hooks(hooks: Iterable[NamedHook], trunk: Trunk) -> None:
    """Check that the sweep can reproduce all hooks.

    The rows of the sweep are neither prompts nor positions. So at the points that it computes
    again, a hook must act on every prompt and position in the same way.

    Raises:
        UnsupportedTrunk: a hook may act on some prompts or positions only.
    """
    additive = all(isinstance(layer, AdditiveLayer) for layer in trunk.layers)
    for name, function in hooks:
        recorded = _RECORDED.match(name) or (additive and _FIRST_NORM.match(name))
        if not recorded and not getattr(function, "is_uniform", False):
            raise UnsupportedTrunk(
                "expected hooks that act alike on every prompt and position, found "
                f"{function!r:.80} at {name}, where the sweep computes END's rows again; take the "
                "hook off, or use "
                "engine='hooks', which is general and slower (ablate_mlps and scale_mlps without "
                "positions= act alike everywhere)"
            )


def mlp_rows(model: HookedLike) -> int:
    """The number of rows that enter an MLP at once."""
    size = MLP_BYTES.get(compute_device(model.unembed).type, 2**24)
    return max(LEAST_MLP_ROWS, size // (4 * mlp_width(model)))


def mlp_width(model: HookedLike) -> int:
    """d_mlp; four times d_model if the configuration does not say."""
    return getattr(model.cfg, "d_mlp", None) or 4 * model.cfg.d_model


def _name_of(model: HookedLike) -> str:
    """The name that the user gave the model, and its architecture if that is another name."""
    cfg = model.cfg
    name = getattr(model, "name", None) or getattr(cfg, "model_name", None) or "this model"
    architecture = getattr(cfg, "architecture", None)
    return f"{name} ({architecture})" if architecture and architecture != name else str(name)
