"""Are a few heads needed, and no others? Knockouts of the strongest heads and of the late MLPs.

For each operation, the strongest heads are chosen on one half of the problems. On the other half
they are knocked out, and so are sets of other heads of the same layers. The MLPs from the last of
these heads on are knocked out too: on that half, and on computed problems of larger numbers, where
no answer can be copied. With `--data-dir`, plain sentences show what the model predicts without the
heads: the Kullback-Leibler divergence per token. Saves a run under results/are_they_specific/,
which `figures/predictions.py` reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

import arith_lens as al
from arith_lens.benchmarks import load_records
from arith_lens.components import (
    Component,
    NamedHook,
    as_heads,
    every_head,
    every_mlp,
)
from arith_lens.knockout import (
    completed,
    counterfactual_means,
    halves,
    knockout_curves,
    knockout_hooks,
)
from arith_lens.model import left_pad
from arith_lens.operations import FOUR
from arith_lens.pairs import encode, keep_correct
from arith_lens.runs import Run
from experiments.command import continue_after_part, exit_on_user_error
from experiments.results import CIRCUIT_CURVE, CONTROL_CURVES, DIVERGENCE, SEARCH_MAP
from experiments.selection import LARGEST_OPERAND, some_of
from experiments.settings import (
    Experiment,
    Metric,
    Operation,
    PooledSampleSettings,
    control_sets,
    fitting_engine,
    random_pairs,
    sampled_operation,
    strongest_heads,
)

STRONGEST_SET, LATE_SET, COMPUTED_SET = "strongest", "late", "late-on-computed"
"""Which components are knocked out, and on which problems; the last word of a result's name."""
BATCH = 8


@dataclass(frozen=True)
class SpecificityConfig(PooledSampleSettings):
    """Are a few heads needed, and no others?"""

    operations: tuple[Operation, ...] = FOUR
    """The operations to use."""
    data_dir: Path | None = None
    """Holds csqa/, whose questions are the plain sentences; without it they are left out."""
    heads: int = 7
    """How many of the strongest heads are knocked out."""
    controls: int = 20
    """Sets of other heads of the same layers."""
    computed: int | None = 200
    """Computed problems of larger numbers, before the filter; None: all."""
    sentences: int = 60
    """Plain sentences."""
    metric: Metric = "digit_contrast"
    """What heads are chosen by, and what is read from the logits beside the answer."""
    counterfactual: Literal["word", "operands", "operator"] = "operands"
    """What the counterfactual changes. Means over these prompts replace outputs."""


def compute(run: Run, model: al.HookedModel, config: SpecificityConfig) -> None:
    """The knockouts of each operation, then the divergence on plain sentences."""
    for operation in config.operations:
        with continue_after_part():
            pairs = sampled_operation(
                model, operation, config, counterfactual=config.counterfactual
            )
            chosen_on, drawn_on = halves(pairs, config.seed)
            settings: dict[str, Any] = {"metric": config.metric, "engine": fitting_engine(model)}
            name = SEARCH_MAP.name(operation)
            effects = al.path_patch(model, chosen_on, run=run, name=name, **settings)
            heads = strongest_heads(effects, config.heads)
            late = late_mlps(heads, model.n_layers)
            for positions in ("all", "end"):
                _knock_out(run, model, drawn_on, operation, heads, STRONGEST_SET, positions, config)
                _knock_out(run, model, drawn_on, operation, late, LATE_SET, positions, config)
            controls = {  # under the names that stored results have
                label.replace("-", " "): others
                for label, others in control_sets(heads, model, config).items()
                if label.startswith("matched")
            }
            sizes = {label: (len(heads),) for label in controls}
            name = CONTROL_CURVES.name(operation)
            knockout_curves(model, drawn_on, controls, ks=sizes, run=run, name=name)
            if config.data_dir is not None:
                sets = {STRONGEST_SET: heads, **dict([*controls.items()][:1])}
                DIVERGENCE.compute(
                    run,
                    divergence,
                    model,
                    drawn_on,
                    operation,
                    sets={label: [*map(str, some)] for label, some in sets.items()},
                    sentences=plain_sentences(config),
                )
            if operation in LARGEST_OPERAND:
                computed = computed_pairs(model, operation, config)
                for positions in ("all", "end"):
                    _knock_out(
                        run, model, computed, operation, late, COMPUTED_SET, positions, config
                    )


def computed_pairs(
    model: al.HookedModel, operation: str, config: SpecificityConfig
) -> al.PromptPairs:
    """Some of the pairs of larger numbers whose answer cannot be copied, if answered right.

    Their counterfactuals replace the operator: "3 * 7 = 2" has too few with other operands.
    """
    with exit_on_user_error():
        every = sampled_operation(model, operation, config, problems="computed", n=None, keep="all")
        return keep_correct(model, random_pairs(every, config.computed, config.seed))


def late_mlps(heads: Sequence[al.Head], n_layers: int) -> list[al.Mlp]:
    """The MLPs that come after the last of these heads; its own layer's MLP comes after it."""
    return [mlp for mlp in every_mlp(n_layers) if mlp.layer >= max(head.layer for head in heads)]


def _knock_out(
    run: Run,
    model: al.HookedModel,
    pairs: al.PromptPairs,
    operation: str,
    components: Sequence[Component],
    label: str,
    positions: str,
    config: SpecificityConfig,
) -> None:
    """The answer and the metric with these components out, and with nothing out."""
    among = "heads" if label == STRONGEST_SET else "mlps"
    every = every_mlp(model.n_layers)
    if among == "heads":
        every = every_head(model.n_layers, model.n_heads)
    al.circuit_curve(
        model,
        pairs,
        completed(components, every),
        kind="knock_out",
        among=among,
        metric=config.metric,
        positions=positions,
        fractions=(len(components) / len(every),),
        run=run,
        name=CIRCUIT_CURVE.name(operation, among, positions, "knock_out", label),
    )


def plain_sentences(config: SpecificityConfig) -> list[str]:
    """Questions of CommonsenseQA, without their choices."""
    with exit_on_user_error():
        records = load_records("csqa", config.data_dir)
    return some_of([record.question for record in records], config.sentences, config.seed)


def divergence(
    model: al.HookedModel,
    pairs: al.PromptPairs,
    *,
    sets: Mapping[str, Sequence[str]],
    sentences: Sequence[str],
) -> al.Effects:
    """How far predictions on sentences are from the model's own, without each set of heads.

    Args:
        model: the model.
        pairs: means over their counterfactuals replace the heads' outputs.
        sets: the heads of each set, by the set's name.
        sentences: the texts.

    Returns:
        The mean Kullback-Leibler divergence per token, in nats, [set sentence].
    """
    means = counterfactual_means(model, pairs)
    hooks = [knockout_hooks(model, heads, means) for heads in map(as_heads, sets.values())]
    return al.Effects(
        torch.cat([*_divergences(model, sentences, hooks)], dim=1),
        ("set",),
        "Kullback-Leibler divergence per token",
        problem=tuple(sentences),
        cluster=torch.arange(len(sentences)),
        labels={"set": tuple(sets)},
    )


@torch.no_grad()
def _divergences(
    model: al.HookedModel, sentences: Sequence[str], hooks: Sequence[list[NamedHook]]
) -> Iterator[Float[Tensor, "set sentence"]]:
    rows = [prompt.ids for prompt in encode(model.tokenizer, sentences)]
    for start in range(0, len(rows), BATCH):
        tokens, mask = (part.to(model.device) for part in left_pad(rows[start : start + BATCH]))

        def logprobs(
            hooks: list[NamedHook], tokens: Tensor = tokens, mask: Tensor = mask
        ) -> Tensor:
            logits = model.run_with_hooks(tokens, fwd_hooks=hooks, attention_mask=mask)
            return logits.float().log_softmax(-1)

        before = logprobs([])
        p = before.exp()
        parts = []
        for of_set in hooks:
            per_token = (p * (before - logprobs(of_set))).sum(-1)
            parts.append((per_token * mask).sum(-1) / mask.sum(-1))
        yield torch.stack(parts).cpu()


def _plan(model: al.HookedModel, config: SpecificityConfig) -> str:
    """The computation in words."""
    engine = fitting_engine(model)
    lines = []
    for operation in config.operations:
        pairs = sampled_operation(
            model, operation, config, counterfactual=config.counterfactual, keep="all"
        )
        lines.append(
            f"{operation}: {al.plan(model, halves(pairs, config.seed)[0], engine=engine)}; "
            f"{8 + config.controls} knockouts on the other half; of these before the filter"
        )
    return "\n".join(lines)


def report(run: Run) -> None:
    """For each operation, print what each knockout costs."""
    for operation in run.config["operations"]:
        print(f"\n{operation}")
        for label, among in ((STRONGEST_SET, "heads"), (LATE_SET, "mlps"), (COMPUTED_SET, "mlps")):
            for positions in ("all", "end"):
                name = operation, among, positions, "knock_out", label
                if CIRCUIT_CURVE.is_in(run, *name):
                    curve = CIRCUIT_CURVE.load(run, *name)
                    out = ", ".join(map(str, curve.order[: curve.sizes[1]]))
                    (before, after, _), (m, m_out, _) = curve.effects().mean().tolist()
                    print(
                        f"  {label}, {positions}, {curve.value.shape[1]} prompts without {out}: "
                        f"{before:.1%} to {after:.1%} right, {curve.metric} {m:.2f} to {m_out:.2f}"
                    )
        for label, curve in CONTROL_CURVES.load(run, operation).items():
            print(f"  {label}: {curve.drop(curve.ks[-1]).accuracy}")
        if DIVERGENCE.is_in(run, operation):
            values = DIVERGENCE.load(run, operation)
            print(f"  divergence per token: {STRONGEST_SET} {values.mean()[0]:.3f}")


main = Experiment(
    "are_they_specific", SpecificityConfig, compute, _plan, report, figure="predictions"
)
