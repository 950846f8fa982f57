"""Every sender's effect on the logits in one pass over the layers (Algorithm 1, Appendix B).

All heads but the sender are frozen at the reference run. So attention outputs at END are constants,
and only END's residual stream can change. A patched run is therefore one row of `d_model` numbers,
which goes from its sender's layer to the last one. All rows pass each layer's MLP together, so the
weights of an MLP are read once per chunk. This is exact, not an approximation.

The `Trunk` is the part of a model that the sweep computes: from a head's z at END to the logits.
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
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import NamedHook, mlp_out_name, z_name
from arith_lens.methods import Senders
from arith_lens.metrics import Readout, Targets, mean_of_others
from arith_lens.model import (
    HookedLike,
    LogitScale,
    NormScale,
    compute_device,
    family_of,
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
    LayerInput,
    ModelLayer,
    Unembedding,
    UnsupportedTrunk,
)
from arith_lens.path_patching.recording import Recording
from arith_lens.tensor_parallel import full_weight


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
    final_scale: NormScale
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

    def w_o(self, layer: int) -> Float[Tensor, "n_heads d_head d_model"]:
        """The output matrix of each head of a layer."""
        return full_weight(self.attentions[layer].W_O)

    def b_o(self, layer: int) -> Float[Tensor, " d_model"] | None:
        """The bias of a layer's attention; None if it has none."""
        return full_weight(getattr(self.attentions[layer], "b_O", None))

    def head_writes(
        self, layer: int, z: Float[Tensor, "pair n_heads d_head"], heads: Sequence[int]
    ) -> Float[Tensor, "chosen pair d_model"]:
        """What each head adds to the attention's output for its z: `z @ W_O`, without the bias."""
        w_o = self.w_o(layer)
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
        targets: Targets,
        *,
        scale_of: Float[Tensor, "pair d_model"] | None = None,
    ) -> Readout:
        """Apply the final norm and read logits.

        Args:
            rows: END's residual stream after the last layer.
            targets: what is read. The vocabulary is read in chunks.
            scale_of: rows whose scale the final norm divides by, instead of each row's own.
        """
        with weights_loaded(*self.last):
            ends = Unembedding.of(self.unembed, self.logit_scale)
            final = self.final_norm(rows)
            if scale_of is not None:
                final = self.final_scale.exchanged(final, rows, scale_of)
            return _readout(ends, final.to(ends.w_u.device), targets)


def _readout(
    ends: Unembedding, final: Float[Tensor, "row pair d_model"], targets: Targets
) -> Readout:
    """The logits that are read of rows after the final norm."""
    others, other_answer = None, None
    answer = ends.logit_of(final, targets.answer)
    if (candidates := targets.candidates) is not None:
        others = mean_of_others(ends.logits_of(final, candidates), candidates, targets.answer)
    if targets.other_answer is not None:
        none = (targets.other_answer == targets.answer).to(answer.device)
        other_answer = torch.where(none, answer, ends.logit_of(final, targets.other_answer))
    own = None
    if targets.function is not None:
        own = torch.stack([targets.function(ends.whole(row)) for row in final])
    return Readout(
        answer=answer,
        foil=None if targets.foil is None else ends.logit_of(final, targets.foil),
        log_total=ends.log_total(final) if targets.vocabulary else None,
        others=others,
        other_answer=other_answer,
        answers_other=targets.is_other(ends.likeliest(final)) if targets.likeliest else None,
        own=own,
    )


def sweep_rows(
    trunk: Trunk, recording: Recording, senders: Senders
) -> Float[Tensor, "row pair d_model"]:
    """END's residual stream before the final norm, unpatched and for each sender.

    This is `paths="via_mlps"`: attention outputs stay those of the reference, and MLPs from the
    first sender's layer on are computed again.
    """
    n_pairs, d_model = recording.stream.shape[1:]
    rows = torch.empty(senders.n_rows, n_pairs, d_model, device=recording.stream.device)
    rows[0] = recording.stream[0]
    live = 1
    for layer in trunk.each_layer():
        if layer < senders.first_layer:
            written = trunk.layers[layer].written
            rows[0] += written(recording.attn_out[0, layer], recording.mlp_out[0, layer])
        else:
            live = advance_senders(trunk, recording, senders, layer, rows, live)
    return rows


def advance_senders(
    trunk: Trunk,
    recording: Recording,
    senders: Senders,
    layer: int,
    rows: Float[Tensor, "row pair d_model"],
    live: int,
) -> int:
    """Take the first `live` rows through one layer, in place, and begin those of its senders.

    Returns:
        The number of live rows after it.
    """
    heads, attention = senders.heads[layer], recording.attn_out[0, layer]
    after_mlp = None
    if layer in senders.mlps:  # this row begins after the MLP and must not enter it
        mlp_out = recording.mlp_out[1, layer]
        after_mlp = rows[0] + trunk.layers[layer].written(attention, mlp_out)
    own = slice(live, live + len(heads))
    deltas = head_changes(trunk, recording, layer, heads) if heads else None
    trunk.layers[layer].advance(LayerInput(rows[: own.stop], attention, own, deltas))
    if after_mlp is not None:
        rows[own.stop] = after_mlp
    return own.stop + (after_mlp is not None)


def direct_rows(
    trunk: Trunk, recording: Recording, senders: Senders
) -> Float[Tensor, "row pair d_model"]:
    """END's residual stream before the final norm, with MLPs frozen too: `paths="direct"`.

    Each sender's own change is added to the unpatched stream. This is the closed form of Algorithm
    1 to the letter. The final norm is computed again by the caller.
    """
    run = recording.stream[0].float()
    written = [torch.zeros_like(run)[None]]
    for index in trunk.each_layer():
        layer, attention = trunk.layers[index], recording.attn_out[0, index]
        run = run + layer.written(attention, recording.mlp_out[0, index])
        written += direct_changes(trunk, recording, senders, index)
    return run + torch.cat(written)


def direct_changes(
    trunk: Trunk, recording: Recording, senders: Senders, index: int
) -> list[Float[Tensor, "sent pair d_model"]]:
    """What the senders of a layer change in the stream at its exit: its heads, then its MLP."""
    layer, heads = trunk.layers[index], senders.heads[index]
    attention, changes = recording.attn_out[0, index], []
    if heads:
        deltas = head_changes(trunk, recording, index, heads)
        changes.append(layer.written_change(attention, deltas))
    if index in senders.mlps:
        written, other = (layer.written(attention, out) for out in recording.mlp_out[:, index])
        changes.append((other - written)[None])
    return changes


def head_changes(
    trunk: Trunk, recording: Recording, layer: int, heads: Sequence[int]
) -> Float[Tensor, "chosen pair d_model"]:
    """The change of the attention's output at END if a head has its z of the counterfactual run."""
    reference, counterfactual = recording.z[:, layer].float()
    return trunk.head_writes(layer, counterfactual - reference, heads)


def rows_bytes(n_rows: int, d_model: int) -> int:
    """The bytes that one pair needs at the end of a sweep: its rows in float32, and two copies in
    the norm."""
    return 3 * 4 * d_model * n_rows


MLP_BYTES = {"cpu": 2**21, "cuda": 2**28}
"""The largest size of one MLP activation, by device. On a CPU it fits in the cache."""
LEAST_MLP_ROWS = 512
"""The smallest number of rows that enter an MLP at once; fewer would read the weights too often."""


_RECORDED = re.compile(
    r"(hook_embed|hook_pos_embed|embed\b|pos_embed\b|rotary|blocks\.0\.hook_(in|resid_pre)$|"
    r"blocks\.\d+\.(attn\b|hook_(attn|q_|k_|v_)))"
)
"""Hook points whose values are recorded with hooks active, and not computed again by the sweep."""
HOOK_ENGINE = "use engine='hooks', which is general and slower"
NO_ENGINE = (
    "no engine can patch its components, because some layers have no hook point at the outputs of "
    "heads or of an MLP"
)
_FIRST_NORM = re.compile(r"blocks\.\d+\.ln1\b")
"""Hook points of the norm before the attention, which some layers' own code computes again."""


def trunk_of(model: HookedLike, *, advice: str = HOOK_ENGINE) -> Trunk:
    """The trunk of a model.

    Args:
        advice: what the error tells to do instead, if the model has the hook points of all
            components.

    Raises:
        UnsupportedTrunk: the sweep cannot compute the model. The message names the reason.
    """
    blocks = list(model.blocks)
    reason = _unsupported_model(model)
    layers: list[Layer] = []
    for index, block in enumerate(blocks if reason is None else ()):
        try:
            layers.append(_layer(block, model))
        except UnsupportedTrunk as error:
            reason = f"{error} in layer {index}"
            break
    if reason is not None:
        raise UnsupportedTrunk(
            "expected layers that compute END's row from their attention's output alone, found "
            f"{reason} in {_name_of(model)}; "
            + (advice if has_component_points(model) else NO_ENGINE)
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


def has_component_points(model: HookedLike) -> bool:
    """Whether every layer has the hook points of its heads and of its MLP."""
    bridge: Any = getattr(model, "bridge", model)
    layers = range(int(model.cfg.n_layers))
    points = bridge.hook_dict
    return all(name(layer) in points for layer in layers for name in (z_name, mlp_out_name))


def _layer(block: Any, model: HookedLike) -> Layer:
    """The layer of a block; its own code where it is not the usual sum."""
    reason = _unsupported_block(block, model.cfg)
    if reason is not None:
        raise UnsupportedTrunk(reason)
    kind = AdditiveLayer if is_additive(block, model.cfg) else ModelLayer
    return kind.of(block, mlp_rows(model))


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
    bridge: Any = getattr(model, "bridge", model)
    config = bridge.original_model.config
    if reason := family_of(config.get_text_config()).refusals.get("sweep"):
        return reason
    if lacks_weights(bridge):
        return "weights without values (on the meta device)"
    return None


def _unsupported_block(block: Any, cfg: Any) -> str | None:
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
        return "an MLP that is not a module of its own"
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
        if name.endswith(".forward"):
            raise UnsupportedTrunk(
                f"expected the model's own modules, found another forward in place of {name} "
                f"({function!r:.80}), as nnsight's NNsight(model) and other libraries put there; "
                "load the model again for this, or use engine='hooks', which runs what is there"
            )
        if not recorded and not getattr(function, "is_uniform", False):
            raise UnsupportedTrunk(
                "expected hooks that act alike on every prompt and position, found "
                f"{function!r:.80} at {name}, where the sweep computes END's rows again; take the "
                "hook off, or use engine='hooks', which is general and slower (ablate_mlps and "
                "scale_mlps without positions= act alike everywhere)"
            )


def mlp_rows(model: HookedLike) -> int:
    """The number of rows that enter an MLP at once."""
    return rows_at_once(compute_device(model.unembed), mlp_width(model))


def rows_at_once(device: torch.device, width: int) -> int:
    """How many rows of this width are computed at once."""
    return max(LEAST_MLP_ROWS, MLP_BYTES.get(device.type, 2**24) // (4 * width))


def mlp_width(model: HookedLike) -> int:
    """d_mlp; four times d_model if the configuration does not say."""
    return getattr(model.cfg, "d_mlp", None) or 4 * model.cfg.d_model


def _name_of(model: HookedLike) -> str:
    """The name that the user gave the model, and its architecture if that is another name."""
    cfg = model.cfg
    name = getattr(model, "name", None) or getattr(cfg, "model_name", None) or "this model"
    architecture = getattr(cfg, "architecture", None)
    return f"{name} ({architecture})" if architecture and architecture != name else str(name)
