"""What the sweep needs of a model: the path from a head's z at END to the logits, as functions.

The trunk must be additive and pre-norm: `x += attn_out; x += mlp(norm(x))`, then a final norm and
W_U. Rows are float32 throughout; only what enters an MLP is cast to the model's dtype.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import NamedHook
from arith_lens.metrics import Readout, mean_of_others
from arith_lens.model import (
    HookedLike,
    compute_device,
    in_float32,
    is_offloaded,
    lacks_weights,
    layers_with_weights,
    own_module,
    weights_loaded,
)

VOCABULARY_CHUNK = 4096

MLP_BYTES = {"cpu": 2**21, "cuda": 2**28}
"""Size of one MLP activation at a time: in a CPU's cache it costs no trip to memory."""
LEAST_MLP_ROWS = 512
"""Fewer rows would read the weights too often."""

FACTORS = ("residual_multiplier", "logits_scaling", "logit_scale", "lm_head_multiplier")
"""Numbers of a configuration by which some families multiply what is added, or the logits."""


_RECORDED = re.compile(
    r"(hook_embed|hook_pos_embed|embed\b|pos_embed\b|rotary|blocks\.0\.hook_(in|resid_pre)$|"
    r"blocks\.\d+\.(attn\b|ln1\b|hook_(attn|q_|k_|v_)))"
)
"""Hook points whose values are recorded with the hooks in place, and not computed again."""


class UnsupportedTrunk(ValueError):
    """The sweep's arithmetic is not this model's; `engine="hooks"` is general."""


def refuse_uneven_hooks(hooks: Iterable[NamedHook]) -> None:
    """Raise UnsupportedTrunk for a hook that may act on some prompts or positions alone, at a point
    that the sweep computes again: there its rows are neither prompts nor positions."""
    for name, function in hooks:
        if not _RECORDED.match(name) and not getattr(function, "is_uniform", False):
            raise UnsupportedTrunk(
                "expected hooks that act alike on every prompt and position, found "
                f"{function!r:.80} at {name}, where the sweep computes END's rows again; take the "
                "hook off, or use "
                "engine='hooks', which is general and slower (ablate_mlps and scale_mlps without "
                "positions= act alike everywhere)"
            )


@dataclass(frozen=True)
class Trunk:
    """One model's additive trunk. Every function takes and gives float32 rows.

    Of an offloaded layer, weights are there only while `layers` is at it.
    """

    blocks: Sequence[Any]

    mlps: Sequence[Callable[[Float[Tensor, "row d_model"]], Float[Tensor, "row d_model"]]]
    """For each layer, what its MLP adds: `mlp(norm(x))`."""
    attentions: Sequence[Any]
    """For each layer, what has W_O [n_heads d_head d_model], and b_O [d_model] if there is one."""
    final_norm: Callable[[Float[Tensor, "*row d_model"]], Float[Tensor, "*row d_model"]]
    final_scale: "NormScale"
    """What the final norm divides by."""
    unembed: Any
    """What has W_U [d_model d_vocab], and b_U [d_vocab] where there is one."""
    last: tuple[Any, ...]
    """The modules after the last layer."""
    mlp_rows: int
    """How many rows enter an MLP at once."""
    offloaded: bool = True
    """Whether some layers' weights may be elsewhere while no one reads them."""

    @property
    def n_layers(self) -> int:
        return len(self.mlps)

    def layers(self) -> Iterator[int]:
        """Each layer in order, with its weights in place."""
        return layers_with_weights(self.blocks) if self.offloaded else iter(range(self.n_layers))

    def add_mlp(self, layer: int, rows: Float[Tensor, "row d_model"]) -> None:
        """`rows += mlp(norm(rows))`, in place, a few rows at a time."""
        for some in rows.split(self.mlp_rows):
            some += self.mlps[layer](some)

    def b_o(self, layer: int) -> Float[Tensor, "d_model"] | None:
        """The bias of a layer's attention, where it has one."""
        return getattr(self.attentions[layer], "b_O", None)

    def head_writes(
        self, layer: int, z: Float[Tensor, "pair n_heads d_head"], heads: Sequence[int]
    ) -> Float[Tensor, "chosen pair d_model"]:
        """What each of `heads` adds to the stream for its z: `z @ W_O`, without the bias."""
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
        answer: Int[Tensor, "pair"],
        foil: Int[Tensor, "pair"] | None = None,
        candidates: Int[Tensor, "candidate"] | None = None,
        *,
        vocabulary: bool = False,
        scale_of: Float[Tensor, "pair d_model"] | None = None,
    ) -> Readout:
        """Final norm and the columns of W_U that are wanted; the vocabulary in chunks.

        Args:
            scale_of: rows whose scale the final norm divides by, in place of each row's own
        """
        with weights_loaded(*self.last):
            ends = _Unembedding.of(self.unembed)
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
    def bias(self) -> Float[Tensor, "d_model"] | float:
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
    b_u: Float[Tensor, "d_vocab"] | None

    @classmethod
    def of(cls, module: Any) -> "_Unembedding":
        bias = getattr(module, "b_U", None)
        return cls(module.W_U, bias if bias is not None and bool(bias.any()) else None)

    def logit_of(
        self, final: Float[Tensor, "row pair d_model"], token: Int[Tensor, "pair"]
    ) -> Float[Tensor, "row pair"]:
        token = token.to(self.w_u.device)
        logits = einsum(
            final, self.w_u[:, token].float(), "row pair d_model, d_model pair -> row pair"
        )
        return logits if self.b_u is None else logits + self.b_u[token].float()

    def logits_of(
        self, final: Float[Tensor, "row pair d_model"], tokens: Int[Tensor, "token"]
    ) -> Float[Tensor, "row pair token"]:
        tokens = tokens.to(self.w_u.device)
        logits = final @ self.w_u[:, tokens].float()
        return logits if self.b_u is None else logits + self.b_u[tokens].float()

    def log_total(self, final: Float[Tensor, "row pair d_model"]) -> Float[Tensor, "row pair"]:
        flat = final.flatten(0, 1)
        total = flat.new_full((len(flat),), float("-inf"))
        for start in range(0, self.w_u.shape[1], VOCABULARY_CHUNK):
            part = slice(start, start + VOCABULARY_CHUNK)
            logits = flat @ self.w_u[:, part].float()
            if self.b_u is not None:
                logits += self.b_u[part].float()
            total = torch.logaddexp(total, logits.logsumexp(-1))
        return total.reshape(final.shape[:2])


def trunk_of(model: HookedLike) -> Trunk:
    """The trunk of `model`. Raises UnsupportedTrunk, naming the model and what does not fit."""
    blocks = list(model.blocks)
    misfit = unsupported_reason(model, blocks)
    if misfit is not None:
        raise UnsupportedTrunk(
            "expected an additive pre-norm trunk (x += attention; x += MLP(norm(x))), found "
            f"{misfit} in {_name_of(model)}; use engine='hooks', which is general and slower"
        )
    return Trunk(
        blocks=blocks,
        mlps=[_mlp_path(block) for block in blocks],
        attentions=[block.attn for block in blocks],
        final_norm=in_float32(model.ln_final),
        final_scale=NormScale(own_module(model.ln_final), in_float32(model.ln_final)),
        unembed=model.unembed,
        last=(model.ln_final, model.unembed),
        mlp_rows=mlp_rows(model),
        offloaded=any(map(is_offloaded, blocks)),
    )


def unsupported_reason(model: HookedLike, blocks: Sequence[Any]) -> str | None:
    """What keeps the sweep from this model, in words; None where nothing that shows does.

    What does not show in the configuration or the modules is left to the certificate. These are
    named all the same, since a factor near 1 would pass a half-precision model's tolerance.
    """
    if getattr(model.cfg, "parallel_attn_mlp", False):
        return "blocks whose attention and MLP run in parallel"
    if (getattr(model.cfg, "output_logits_soft_cap", None) or 0) > 0:  # -1 is none
        return "soft-capped logits"
    for factor in FACTORS:
        if getattr(model.cfg, factor, None) not in (None, 1):
            return f"a factor on the trunk or the logits ({factor}={getattr(model.cfg, factor)})"
    if getattr(model, "ln_final", None) is None:
        return "no final norm"
    for layer, block in enumerate(blocks):
        found = _unsupported_in_block(block, model.cfg)
        if found is not None:
            return f"{found} in layer {layer}"
    if lacks_weights(model.ln_final) or lacks_weights(model.unembed):
        return "a final norm or unembedding without weights (on the meta device)"
    return None


def _unsupported_in_block(block: Any, cfg: Any) -> str | None:
    if hasattr(block, "ln1_post") or hasattr(block, "ln2_post"):
        return "a norm after the attention or the MLP"
    missing = [part for part in ("ln2", "mlp", "attn") if not hasattr(block, part)]
    if lacks_weights(block):
        return "no weights (they are on the meta device)"
    if missing:
        return f"no {', '.join(missing)}"
    try:
        with weights_loaded(getattr(block.attn, "o", block.attn)):
            shape = tuple(block.attn.W_O.shape)
    except (AttributeError, ValueError) as error:  # upstream's word for heads of several sizes
        return f"no W_O that splits into heads ({str(error).split(': ')[0]})"
    expected = (cfg.n_heads, cfg.d_head, cfg.d_model)
    if shape != expected:
        return f"a W_O of shape {shape}, not {expected},"
    return _unsupported_mlp(block.mlp)


def _unsupported_mlp(mlp: Any) -> str | None:
    """Some families write an MLP into the block, or give it the stream to add to."""
    if getattr(mlp, "name", "mlp") is None:
        return "an MLP that is no module of its own"
    given = inspect.signature(getattr(mlp, "original_component", mlp).forward).parameters.values()
    needed = [p.name for p in given if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return f"an MLP that takes more than its input ({needed[1]})" if len(needed) > 1 else None


def mlp_rows(model: HookedLike) -> int:
    """How many rows enter an MLP at once."""
    size = MLP_BYTES.get(compute_device(model.unembed).type, 2**24)
    return max(LEAST_MLP_ROWS, size // (4 * mlp_width(model)))


def mlp_width(model: HookedLike) -> int:
    """d_mlp; what it mostly is where a configuration does not say."""
    return getattr(model.cfg, "d_mlp", None) or 4 * model.cfg.d_model


def _name_of(model: HookedLike) -> str:
    """What the user called it, and its architecture where that says more."""
    cfg = model.cfg
    name = getattr(model, "name", None) or getattr(cfg, "model_name", None) or "this model"
    architecture = getattr(cfg, "architecture", None)
    return f"{name} ({architecture})" if architecture and architecture != name else str(name)


def _mlp_path(block: Any) -> Callable[[Float[Tensor, "row d_model"]], Float[Tensor, "row d_model"]]:
    norm, mlp = in_float32(block.ln2), block.mlp

    def path(rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
        # a prompt of one token each, so that a hook at END acts on every row
        out = mlp(norm(rows).to(next(mlp.parameters()))[:, None])
        out = out[0] if isinstance(out, tuple) else out  # experts give their routing beside
        return out[:, 0].to(rows.device)

    return path
