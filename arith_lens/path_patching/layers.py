"""What END's row passes: the layers, the final norm and the unembedding.

In path patching all heads but the sender keep their output, so the attention is not computed again.
Most families add attention and MLP to the stream, with a norm before each (`AdditiveLayer`). The
others run their own code, with a constant instead of the attention (`ModelLayer`). So norms after
attention or MLP, blocks in which both run in parallel, and factors on the additions need no code
here.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.memory import is_out_of_memory
from arith_lens.model import LogitScale, in_float32, mlp_exit, own_module, with_parts

HOOKS_OF_PATCHING = "use path_patch with engine='hooks', which is general and slower"


class UnsupportedTrunk(ValueError):
    """The sweep cannot compute this model. `engine="hooks"` can."""


@contextmanager
def running(part: Any) -> Iterator[None]:
    """A context in which a part of a model runs otherwise than in the model's own forward.

    Args:
        part: the module.

    Raises:
        UnsupportedTrunk: its code does not run so, as an error of a shape, a name or a type shows.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, RuntimeError) as error:
        own = not isinstance(error, RuntimeError) or type(error) is RuntimeError
        if not own or (isinstance(error, RuntimeError) and is_out_of_memory(error)):
            raise
        raise UnsupportedTrunk(
            "expected layers whose code runs on END's row alone, found that "
            f"{type(own_module(part)).__name__} does not ({type(error).__name__}: {error}); "
            f"{HOOKS_OF_PATCHING}"
        ) from error


Rows = Float[Tensor, "row d_model"]


@dataclass(frozen=True)
class LayerInput:
    """What a layer computes from. Rows are END's residual stream in float32."""

    rows: Float[Tensor, "row pair d_model"]
    """One row per sender; row 0 is unpatched. The layer overwrites them."""
    attention: Float[Tensor, "pair d_model"]
    """The attention's output in the reference run."""
    own_heads: slice
    """The rows whose sender is a head of this layer. They begin as row 0."""
    head_deltas: Float[Tensor, "own_head pair d_model"] | None
    """What is added to the attention's output in the rows of `own_heads`; None: there are none."""


@dataclass(frozen=True)
class AdditiveLayer:
    """`x += attention; x += mlp(norm(x))`."""

    block: Any
    """The bridge's block."""
    mlp: Callable[[Rows], Rows]
    """What the MLP adds: `mlp(norm(x))`."""
    mlp_rows: int
    """The number of rows that enter the MLP at once."""

    @classmethod
    def of(cls, block: Any, mlp_rows: int) -> "AdditiveLayer":
        """The layer of one of the bridge's blocks. Its MLP passes the bridge's hook points."""
        norm, mlp = in_float32(block.ln2), block.mlp

        def added(rows: Rows) -> Rows:
            # each row is a prompt of one token, so that a hook at END acts on every row
            return _in_own_dtype(mlp, norm(rows)[:, None])[:, 0].to(rows.device)

        return cls(block, added, mlp_rows)

    def advance(self, inputs: LayerInput) -> None:
        """Take the rows from the layer's entry to its exit, in place."""
        rows, own_heads = inputs.rows, inputs.own_heads
        rows[: own_heads.start] += inputs.attention
        rows[own_heads.stop :] += inputs.attention
        if inputs.head_deltas is not None:
            torch.add(inputs.head_deltas, rows[0], out=rows[own_heads])
        for some in rows.view(-1, rows.shape[-1]).split(self.mlp_rows):
            with running(self.block):
                some += self.mlp(some)

    def written(
        self, attention: Float[Tensor, "*row d_model"], mlp_out: Float[Tensor, "*row d_model"]
    ) -> Float[Tensor, "*row d_model"]:
        """What the layer adds to the stream, from the outputs of its attention and MLP."""
        return attention.float() + mlp_out.float()

    def written_change(
        self, attention: Float[Tensor, "pair d_model"], changes: Float[Tensor, "sent pair d_model"]
    ) -> Float[Tensor, "sent pair d_model"]:
        """What `changes` of the attention's output add to the stream while the MLP's is held."""
        return changes


@dataclass(frozen=True)
class ModelLayer:
    """The model's own layer with a constant in the place of its attention, in float32.

    Only the MLP computes in the model's dtype.
    """

    layer: Any
    """A copy of the layer that shares its weights; `constants` replace its attention."""
    constants: "_Constants"
    """What attention and MLP return."""
    mlp_rows: int
    """The number of rows that pass at once."""

    @classmethod
    def of(cls, block: Any, mlp_rows: int) -> "ModelLayer":
        """The layer of one of the bridge's blocks.

        Raises:
            UnsupportedTrunk: attention or MLP are not modules of the layer.
        """
        constants, exit_ = _Constants(), mlp_exit(block)
        direct = list(own_module(block)._modules.values())
        for name, part in (("attention", block.attn), ("MLP", exit_)):
            if not any(part is module for module in direct):
                raise UnsupportedTrunk(f"an {name} that is not a module of the layer")

        def part(child: Any) -> Any:
            if child is block.attn:
                return constants.attention_out
            if child is exit_:
                return partial(constants.mlp_out, _computed(child, block))
            if child is block.mlp:  # a norm comes after it
                return partial(constants.before_mlp_out, _computed(child, block))
            return _computed(child, block)

        return cls(with_parts(block, part), constants, mlp_rows)

    def advance(self, inputs: LayerInput) -> None:
        """See `AdditiveLayer`."""
        rows, own_heads = inputs.rows, inputs.own_heads
        rows[own_heads] = rows[0]
        outputs = inputs.attention.float().repeat(len(rows), 1, 1)
        if inputs.head_deltas is not None:
            outputs[own_heads] += inputs.head_deltas
        flat = (part.view(-1, rows.shape[-1]).split(self.mlp_rows) for part in (rows, outputs))
        for some, output in zip(*flat, strict=True):
            some.copy_(self._exit(some, output))

    def written(
        self, attention: Float[Tensor, "*row d_model"], mlp_out: Float[Tensor, "*row d_model"]
    ) -> Float[Tensor, "*row d_model"]:
        """See `AdditiveLayer`. Where both outputs are known, the entry does not matter: it is 0."""
        shape, d_model = attention.shape, attention.shape[-1]
        attention, mlp_out = (part.float().reshape(-1, d_model) for part in (attention, mlp_out))
        return self._exit(torch.zeros_like(attention), attention, mlp_out).view(shape)

    def written_change(
        self, attention: Float[Tensor, "pair d_model"], changes: Float[Tensor, "sent pair d_model"]
    ) -> Float[Tensor, "sent pair d_model"]:
        """See `AdditiveLayer`."""
        changed = attention.float() + changes
        before = self.written(attention, torch.zeros_like(attention))
        return self.written(changed, torch.zeros_like(changed)) - before

    def _exit(self, entry: Rows, attention: Rows, mlp_out: Rows | None = None) -> Rows:
        """The stream at the layer's exit. Each row is a prompt of one token."""
        self.constants.attention = attention[:, None]
        self.constants.mlp = None if mlp_out is None else mlp_out[:, None]
        with running(self.layer):
            out = type(self.layer).forward(self.layer, entry[:, None], **_no_values(self.layer))
        out = out[0] if isinstance(out, tuple) else out
        return out[:, 0].to(entry.device)


Layer: TypeAlias = AdditiveLayer | ModelLayer


class _Constants:
    """The constants that replace the outputs of a layer's attention and MLP."""

    attention: Float[Tensor, "row 1 d_model"]
    mlp: Float[Tensor, "row 1 d_model"] | None = None
    """None: the MLP computes."""

    def attention_out(self, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        """In the place of the attention; the second value replaces its weights."""
        return self.attention, None

    def mlp_out(self, compute: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """In the place of the module whose output the MLP adds."""
        return compute(rows) if self.mlp is None else self.mlp.clone().view(rows.shape)

    def before_mlp_out(self, compute: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """In the place of an MLP before that module; it does not compute if nothing reads it."""
        return compute(rows) if self.mlp is None else rows


def _computed(part: Any, block: Any) -> Callable[[Tensor], Tensor]:
    """A part of a layer for rows in float32: the MLP in its own dtype, all else in float32.

    All pass their hook points, so that uniform hooks act.
    """
    if part is block.mlp:
        return partial(_in_own_dtype, part)
    if next(own_module(part).parameters(), None) is None:
        return own_module(part)
    compute = in_float32(part)
    point = getattr(part, "hook_out", None)

    def of_rows(rows: Tensor) -> Tensor:
        out = compute(rows).to(rows.device)
        return out if point is None else point(out)

    return of_rows


def _in_own_dtype(mlp: Any, rows: Tensor) -> Tensor:
    out = mlp(rows.to(next(mlp.parameters())))
    out = out[0] if isinstance(out, tuple) else out  # experts also return their routing
    if out.shape != rows.shape:
        raise UnsupportedTrunk(
            f"expected an MLP that returns its input's shape {[*rows.shape]}, found "
            f"{[*out.shape]}; {HOOKS_OF_PATCHING}"
        )
    return out.to(rows)


def _no_values(layer: Any) -> dict[str, None]:
    """None for each argument that the layer needs beside the stream."""
    parameters = list(inspect.signature(type(layer).forward).parameters.values())[2:]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name: None for p in parameters if p.default is p.empty and p.kind in kinds}


VOCABULARY_CHUNK = 4096


@dataclass(frozen=True)
class Unembedding:
    w_u: Float[Tensor, "d_model d_vocab"]
    b_u: Float[Tensor, " d_vocab"] | None
    scale: LogitScale

    @classmethod
    def of(cls, module: Any, scale: LogitScale) -> "Unembedding":
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
        for _, logits in self._chunks(flat):
            total = torch.logaddexp(total, logits.logsumexp(-1))
        return total.reshape(final.shape[:2])

    def likeliest(self, final: Float[Tensor, "row pair d_model"]) -> Int[Tensor, "row pair"]:
        """The token with the largest logit of the vocabulary."""
        flat = final.flatten(0, 1)
        largest = flat.new_full((len(flat),), float("-inf"))
        token = torch.zeros(len(flat), dtype=torch.long, device=flat.device)
        for start, logits in self._chunks(flat):
            value, index = logits.max(-1)
            token = torch.where(value > largest, start + index, token)
            largest = torch.maximum(largest, value)
        return token.reshape(final.shape[:2])

    def whole(self, final: Float[Tensor, "pair d_model"]) -> Float[Tensor, "pair d_vocab"]:
        """The logits of the whole vocabulary."""
        return torch.cat([logits for _, logits in self._chunks(final)], dim=-1)

    def _chunks(
        self, flat: Float[Tensor, "flat d_model"]
    ) -> Iterator[tuple[int, Float[Tensor, "flat chunk"]]]:
        """The logits of some tokens at a time, and the first one of them."""
        for start in range(0, self.w_u.shape[1], VOCABULARY_CHUNK):
            part = slice(start, start + VOCABULARY_CHUNK)
            logits = flat @ self.w_u[:, part].float()
            if self.b_u is not None:
                logits += self.b_u[part].float()
            yield start, self.scale(logits)
