"""Which neurons of an MLP write the answer: the exact effect of each neuron at END.

A neuron that has another activation adds a multiple of its row of `W_out` to END's residual stream.
Nothing before END changes. So each patched run is one row of `d_model` numbers: the direct effect
reads it at once, and the effect via MLPs takes it through the later MLPs, as the sweep does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Unpack, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import Mlp, Mlps, as_mlps, check_components, neurons_name
from arith_lens.effects import Effects
from arith_lens.methods import MetricTokenOptions, MetricTokens
from arith_lens.metrics import Metric, Readout, Targets, get_metric
from arith_lens.model import (
    HookedLike,
    active_hooks,
    check_writes,
    n_neurons,
    record,
    weights_loaded,
)
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import PromptPairs, candidate_tokens, check_pairs
from arith_lens.path_patching import (
    LayerInput,
    Recording,
    Trunk,
    record_pairs,
    trunk_of,
    warn_of_left_out,
)
from arith_lens.runs import ResultSlot, Run
from arith_lens.tensor_parallel import full_weight

NeuronPaths = Literal["direct", "via_mlps"]
BATCH = 32
"""The number of pairs that run together."""
ROW_NUMBERS = 2**23
"""The largest number of values of all rows that go through a layer together."""


@torch.no_grad()
def neuron_effects(
    model: HookedLike,
    pairs: PromptPairs,
    mlps: Mlps,
    *,
    paths: str = "direct",
    metric: str = "relative_logit",
    top: int | None = None,
    run: Run | None = None,
    name: str = "neuron_effects",
    **tokens: Unpack[MetricTokenOptions],
) -> Effects:
    """The effect on the answer of giving one neuron at END its counterfactual activation (not in
    the paper).

    With `paths="direct"` only the residual stream leads to the logits: everything else is held at
    the reference run, and the final norm divides by the reference run's scale. So effects of an
    MLP's neurons on the logit sum to `path_patch(paths="direct").mlps.without_norm_scale()` of this
    MLP. With `paths="via_mlps"` all heads are held, later MLPs and all norms are computed again.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        mlps: the MLPs.
        paths: `"direct"` or `"via_mlps"`.
        metric: as in `path_patch`, by its name.
        top: for each MLP, only the `top` neurons with the largest mean direct effect (either sign)
            are computed; the others are NaN. A neuron that acts through later MLPs alone is then
            missed. None: all.
        run: an open run, which stores the result as `name`.
        name: the name of the result in the run.
        foil, candidates: as in `path_patch`.

    Returns:
        [mlp neuron pair], in the unit of the metric; NaN for pairs that the metric leaves out, and
        for neurons that a smaller MLP does not have.

    Raises:
        ValueError: no MLP is given; paths, metric or `top` are not valid; the MLP is not neurons
            times W_out (such as a mixture of experts); or the model does not fit the sweep of
            `path_patch`.
        IndexError: the model does not have an MLP.
    """
    refuse_unknown_options(neuron_effects, tokens, MetricTokens)
    chosen = as_mlps(mlps)
    if not chosen:
        raise ValueError("expected MLPs, found none; see effects.mlps.top(3)")
    check_choice("paths", paths, get_args(NeuronPaths))
    check_pairs(model, pairs)
    check_components(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    widths = [n_neurons(model, mlp.layer) for mlp in chosen]
    if top is not None and not 1 <= top <= min(widths):
        raise ValueError(f"expected top from 1 to the {min(widths)} neurons of an MLP, found {top}")
    reading = _LogitMetric.of(model, pairs, metric, value_object(MetricTokens, tokens))
    slot = ResultSlot.of(
        run,
        name,
        model,
        pairs,
        method="neuron_effects",
        mlps=[*map(str, chosen)],
        paths=paths,
        metric=metric,
        top=top,
        **reading.identity,
    )
    if (arrays := slot.stored(progress=True)) is not None:
        return Effects.from_arrays(arrays)
    trunk = trunk_of(model, advice="use path_patch with engine='hooks', which patches whole MLPs")
    parts = list(_of_batches(model, trunk, pairs, chosen, reading))
    direct = torch.cat([_joined(part.direct() for part in of) for of in parts], dim=-1)
    logit = torch.cat([of[0].own[0].answer.cpu() for of in parts])
    rows = torch.cat([logit[None], direct.flatten(0, 1)])
    warn_of_left_out(rows, pairs, metric, reading.metric)
    values = direct
    strongest = None if top is None else direct.nanmean(-1).abs().nan_to_num(-1).topk(top).indices
    if paths == "via_mlps":
        through = [
            _joined(
                part.via_mlps(None if strongest is None else strongest[row])
                for row, part in enumerate(of)
            )
            for of in parts
        ]
        values = torch.cat(through, dim=-1)
    elif strongest is not None:
        rows = strongest[..., None].expand(-1, -1, len(pairs))
        values = torch.full_like(direct, float("nan")).scatter(1, rows, direct.gather(1, rows))
    return slot.save(
        Effects(
            values,
            ("mlp", "neuron"),
            metric,
            "direct, norm scale held" if paths == "direct" else paths,
            **pairs.units,
            labels={"mlp": tuple(map(str, chosen))},
        )
    )


@dataclass(frozen=True)
class _LogitMetric:
    """What is read of the logits."""

    metric: Metric
    foil: Int[Tensor, " pair"] | None
    candidates: tuple[int, ...] | None

    @classmethod
    def of(
        cls, model: HookedLike, pairs: PromptPairs, metric: str, tokens: MetricTokens
    ) -> "_LogitMetric":
        """Raises ValueError for a metric that cannot be, as `path_patch`."""
        chosen = get_metric(metric, tokens.foil, tokens.candidates)
        candidates = None
        if chosen.reads == "candidates":
            candidates = candidate_tokens(model, pairs.answer.tolist(), tokens.candidates)
        return cls(chosen, tokens.foil, candidates)

    @property
    def identity(self) -> dict[str, object]:
        """For the identity of a result."""
        foil = None if self.foil is None else self.foil.tolist()
        return {"candidates": self.candidates, "foil": foil}

    def targets(self, pairs: PromptPairs, rows: slice) -> Targets:
        """What is read of the pairs of some rows."""
        candidates = None if self.candidates is None else torch.tensor(self.candidates)
        foil = None if self.foil is None else self.foil[rows]
        return Targets.of(pairs[rows], self.metric.reads, foil=foil, candidates=candidates)


@dataclass(frozen=True)
class _Batch:
    """One MLP and some pairs, recorded."""

    trunk: Trunk
    recording: Recording
    mlp: Mlp
    targets: Targets
    metric: Metric
    change: Float[Tensor, "pair neuron"]
    """The counterfactual activation less that of the reference."""
    w_out: Float[Tensor, "neuron d_model"]
    own: tuple[Readout, Readout]
    """What is read of the reference run, and of the counterfactual run."""

    def direct(self) -> Float[Tensor, "neuron pair"]:
        """The effects on the direct path, with the final norm's scale held."""
        end = self.recording.end[0].float()
        rows = []
        for part in self._parts(torch.arange(len(self.w_out))):
            readout = self.trunk.read(end + self._written(part), self.targets, scale_of=end)
            rows.append(self.metric.effect(readout, *self.own).cpu())
        return torch.cat(rows)

    def via_mlps(self, neurons: Int[Tensor, " chosen"] | None) -> Float[Tensor, "neuron pair"]:
        """The effects with later MLPs computed again; NaN for neurons that are not chosen."""
        n = len(self.w_out)
        chosen = torch.arange(n) if neurons is None else neurons
        effects = torch.full((n, self.change.shape[0]), float("nan"))
        base = self._exit()
        for part in self._parts(chosen):
            rows = torch.cat([base[None], base + self._written(part)])
            for layer in range(self.mlp.layer + 1, self.trunk.n_layers):
                with weights_loaded(self.trunk.blocks[layer]):
                    attention = self.recording.attn_out[0, layer]
                    nothing = slice(len(rows), len(rows))
                    self.trunk.layers[layer].advance(LayerInput(rows, attention, nothing, None))
            readout = self.trunk.read(rows[1:], self.targets)
            effects[part] = self.metric.effect(readout, *self.own).cpu()
        return effects

    def _exit(self) -> Float[Tensor, "pair d_model"]:
        """The reference run's stream at END after the MLP."""
        stream = self.recording.stream[0].float()
        for layer in range(self.mlp.layer + 1):
            outputs = (part[0, layer] for part in (self.recording.attn_out, self.recording.mlp_out))
            stream = stream + self.trunk.layers[layer].written(*outputs)
        return stream

    def _written(self, part: Int[Tensor, " part"]) -> Float[Tensor, "part pair d_model"]:
        """What each neuron's change adds to the stream at the layer's exit."""
        layer = self.trunk.layers[self.mlp.layer]
        attention, before = (
            of[0, self.mlp.layer].float()
            for of in (self.recording.attn_out, self.recording.mlp_out)
        )
        change = self.change[:, part].T[..., None] * self.w_out[part][:, None]
        many = attention.expand(len(part), -1, -1)
        return layer.written(many, before + change) - layer.written(many, before.expand_as(many))

    def _parts(self, neurons: Int[Tensor, " chosen"]) -> tuple[Int[Tensor, " part"], ...]:
        size = self.change.shape[0] * self.w_out.shape[1]
        return neurons.split(max(1, ROW_NUMBERS // size))


def _of_batches(
    model: HookedLike, trunk: Trunk, pairs: PromptPairs, mlps: Sequence[Mlp], reading: _LogitMetric
) -> Iterator[list[_Batch]]:
    """For each batch of pairs, its MLPs."""
    names = [neurons_name(mlp.layer) for mlp in mlps]
    hooked = bool(active_hooks(model))
    for start in range(0, len(pairs), BATCH):
        rows = slice(start, start + BATCH)
        some = pairs[rows]
        recording, _ = record_pairs(model, some, hooked=hooked)
        both = [
            record(model, tokens, names, attention_mask=some.attention_mask, positions=-1)
            for tokens in (some.reference, some.counterfactual)
        ]
        targets = reading.targets(pairs, rows)
        ends = [trunk.read(end[None].float(), targets).unpatched() for end in recording.end]
        batches = []
        for mlp in mlps:
            before, after = (run[neurons_name(mlp.layer)][:, -1].float() for run in both)
            with weights_loaded(model.blocks[mlp.layer]):
                w_out = full_weight(model.blocks[mlp.layer].mlp.W_out).float()
            change = after - before
            outputs = recording.mlp_out[:, mlp.layer]
            by_neurons, size = change.to(w_out.device) @ w_out, float(outputs.float().norm())
            check_writes(by_neurons, outputs[1] - outputs[0], mlp, rounded=size)
            batches.append(
                _Batch(
                    trunk,
                    recording,
                    mlp,
                    targets,
                    reading.metric,
                    change,
                    w_out,
                    (ends[0], ends[1]),
                )
            )
        yield batches


def _joined(of_mlps: Iterator[Float[Tensor, "neuron pair"]]) -> Float[Tensor, "mlp neuron pair"]:
    """The MLPs together; NaN where one has fewer neurons than another."""
    parts = list(of_mlps)
    width = max(map(len, parts))
    joined = parts[0].new_full((len(parts), width, parts[0].shape[1]), float("nan"))
    for row, part in zip(joined, parts, strict=True):
        row[: len(part)] = part
    return joined
