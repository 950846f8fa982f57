"""`audit`: ask a model seven questions about a task, and say a verdict for each."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from math import isnan
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from arith_lens.attention import attention_by_role
from arith_lens.auditing import measures, verdicts
from arith_lens.auditing.measures import Replacing, Scale, problems
from arith_lens.auditing.result import Audit
from arith_lens.auditing.tasks import LEAD, LOGIT, fitting_metric
from arith_lens.auditing.verdicts import Measure, Verdict
from arith_lens.components import Mlp
from arith_lens.edges import UnsupportedReceiver, edge_effects
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.interchanges import Site, TooFewPairs, interchange
from arith_lens.knockout import NoAlignedPrompt, counterfactual_means, half_of_problems, knock_out
from arith_lens.model import HookedLike, UnsupportedEndRuns
from arith_lens.neurons import untrained_model
from arith_lens.pairs import NO_ANSWER, PromptPairs, check_kinds, check_pairs
from arith_lens.path_patching import UnsupportedTrunk, fitting_engine, path_patch
from arith_lens.progress import working
from arith_lens.runs import ResultSlot, Run, describe_pairs

VERSION = 6
"""The version of the questions; a stored audit of another one is asked anew."""
LEAST_PROBLEMS = 6
"""Fewer problems that are answered right are too few for two halves."""
OWN = "the pairs' own"
"""The name of the counterfactual of pairs without one."""
UNKNOWN = Measure()
"""What was not measured."""
MOST_READERS = 5
"""The number of heads whose edges are computed."""
MEANS, RESAMPLED = "means at END", "another prompt's outputs at END"
OTHERS, GAIN = "means over more prompts at END", f"{MEANS} less {RESAMPLED}"
"""What replaces the outputs of heads at END."""
SAME, SAME_ANSWER = "the same problem", "a problem of the same answer"
"""The controls in which nothing changes that matters."""
WORDS = {LEAD: "C's lead", LOGIT: "C's logit"}
"""By metric, its name in a table."""
LARGEST_UNTRAINED = 10**9
"""The most weights of a model that is drawn a second time, untrained."""


def audit(
    model: HookedLike,
    pairs: PromptPairs | Mapping[str, PromptPairs],
    *,
    means_over: PromptPairs | None = None,
    draws: int = 100,
    seed: int = 0,
    run: Run | None = None,
    progress: bool = True,
) -> Audit:
    """Ask seven questions about a model and a task: can it do it, and do few heads (not in the
    paper)?

    Heads are chosen on one half of the problems that the model answers right, and shown on the
    other. Each question has controls in which the claim is not true (docs/audit.md). If the model
    cannot do the task, nothing else is measured.

    Args:
        model: HookedModel or TransformerBridge, of any family.
        pairs: prompts of any task with their answers, also those that the model answers wrong
            (`keep="all"`). Several sets by the name of their counterfactual, such as `{"operands":
            ..., "operator": ...}`: all questions are asked of the first one, and which heads are
            the strongest of each.
        means_over: more pairs, such as of other operations. Heads are also kept alone, and left
            out, with means over their counterfactuals.
        draws: the number of random sets of heads, and as many of the same layers. Lenses beside
            the first one have a fifth of it.
        seed: the seed of the halves and of all draws.
        run: an open run, which stores each part when it is finished. The same call goes on from
            there.
        progress: whether to show what is computed.

    Returns:
        The verdicts and what they rest on.

    Raises:
        TypeError: no model, or no pairs.
        ValueError: no pairs, fewer than two draws, or pairs that do not fit the model.

    Example:
        >>> import arith_lens as al
        >>> model, pairs, truth = al.built_model("table", counterfactual="operands")
        >>> audit = al.audit(model, pairs, draws=5, progress=False)
        >>> sorted(map(str, audit.sufficient))
        ['0.0', '0.1', '0.2']
        >>> audit.verdicts.verdict[0]
        'holds'
    """
    lenses = dict(pairs) if isinstance(pairs, Mapping) else {OWN: pairs}
    every = lenses if means_over is None else {**lenses, OTHERS: means_over}
    _check(model, every, draws)
    scale = Scale.of(model, seed, draws)
    settings = {"method": "audit", "version": VERSION, "draws": draws, "seed": seed}
    digests = {name: describe_pairs(own)["data_sha256"] for name, own in every.items()}
    first = next(iter(lenses.values()))
    slot = ResultSlot.of(run, "audit", model, first, **settings, lenses=digests)
    if (arrays := slot.stored(progress=progress)) is not None:
        return Audit.from_arrays(arrays)
    with torch.no_grad():
        return slot.save(_Auditor(model, lenses, means_over, scale, run, progress).result())


def _check(model: Any, lenses: Mapping[str, Any], draws: int) -> None:
    """Raise the errors of `audit`."""
    for own in lenses.values():
        check_kinds(model, own)
    if not lenses or not all(map(len, lenses.values())):
        raise ValueError("expected pairs to audit, found none; sample_pairs gives some")
    for own in lenses.values():
        check_pairs(model, own)
    if not isinstance(draws, int) or draws < 2:
        raise ValueError(f"expected draws of 2 or more, found {draws!r}; 100 is the default")


@dataclass
class _Auditor:
    """Asks the questions in turn, and collects the verdicts."""

    model: HookedLike
    lenses: dict[str, PromptPairs]
    means_over: PromptPairs | None
    scale: Scale
    run: Run | None
    progress: bool
    verdicts: list[Verdict] = field(default_factory=list)
    alone: dict[str, Tensor] = field(default_factory=dict)
    """By what replaces the others, which answers are right with the heads alone."""
    facts: dict[str, Any] = field(default_factory=dict)

    def result(self) -> Audit:
        """The audit."""
        pairs = self._answered()
        if pairs is not None:
            self._inspect(pairs)
        answered = {one.question for one in self.verdicts}
        reason = self.facts.pop("reason", "")
        left = [
            Verdict(q, "", verdicts.OPEN, reason=reason)
            for q in verdicts.QUESTIONS
            if q not in answered
        ]
        heads = {"n_heads": len(self.scale.heads), "few": self.scale.few}
        name = str(getattr(self.model, "name", "model"))
        return Audit((*self.verdicts, *left), name, **heads, **self.facts)

    def _say(
        self, question: str, lens: str, verdict: str, measure: Measure = UNKNOWN, reason: str = ""
    ) -> None:
        if isnan(measure.value):
            reason = reason or "there are too few problems, or nothing has an effect"
        elif verdict == verdicts.OPEN and isnan(measure.control_high):
            reason = "there is no other part to compare with"
        self.verdicts.append(Verdict(question, lens, verdict, measure, reason))

    def _answered(self) -> PromptPairs | None:
        """The first lens's pairs that are answered right; None if nothing can be asked of them."""
        name, pairs = next(iter(self.lenses.items()))
        with working("audit: does the model answer?", visible=self.progress):
            outcomes = knock_out(self.model, pairs, [], progress=False)
        measure = measures.task(outcomes, pairs, self.scale)
        verdict = verdicts.above(measure)
        lens = "all prompts" if pairs.selection is None else "kept prompts"
        self._say(verdicts.TASK, lens, verdict, measure)
        right = pairs[outcomes.correct]
        if verdict != verdicts.HOLDS:
            self.facts["reason"] = "the model cannot do the task better than its controls"
            return None
        if problems(right) < LEAST_PROBLEMS:
            few = f"{problems(right)} problems are answered right"
            self.facts["reason"] = f"{few}, and two halves need {LEAST_PROBLEMS}"
            return None
        self.lenses[name] = right
        return right

    def _inspect(self, pairs: PromptPairs) -> None:
        """Ask all questions about parts of the model."""
        inside = half_of_problems(pairs.problem, self.scale.seed)
        effects = self._effects(pairs, fitting_metric(pairs), "effects")
        self.facts["effects"] = effects
        untrained = self._untrained(pairs, inside)
        self._concentrated(effects.heads, inside, untrained)
        order = effects.heads.select(inside).top(len(self.scale.heads))
        heads = self._few(pairs, inside, order)
        looks = measures.attention_to_changes(self.model, pairs[~inside], heads, self.scale)
        self._say(verdicts.READ, "attention of END", verdicts.above(looks), looks)
        self._reads(pairs[~inside], heads[:MOST_READERS])
        self._origin(pairs)
        self._other_lenses(effects, inside)

    def _effects(self, pairs: PromptPairs, metric: dict[str, Any], name: str) -> ComponentEffects:
        engine = fitting_engine(self.model)
        storage: dict[str, Any] = {"run": self.run, "name": name, "progress": self.progress}
        return path_patch(self.model, pairs, engine=engine, **metric, **storage)

    def _untrained(self, pairs: PromptPairs, inside: Bool[Tensor, " pair"]) -> list[float]:
        """The share of effects in few heads of an untrained model of the same shape."""
        bridge: Any = getattr(self.model, "bridge", self.model)
        if sum(weight.numel() for weight in bridge.original_model.parameters()) > LARGEST_UNTRAINED:
            return []
        slot = ResultSlot.of(self.run, "untrained", self.model, pairs, method="untrained effects")
        if (arrays := slot.stored(progress=self.progress)) is not None:
            effects = Effects.from_arrays(arrays)
        else:
            fresh = untrained_model(self.model, self.scale.seed)
            options: dict[str, Any] = {**fitting_metric(pairs), "progress": self.progress}
            effects = path_patch(fresh, pairs, engine=fitting_engine(fresh), **options).heads
            slot.save(effects)
        return [measures.concentration(effects, inside, self.scale, 2).value]

    def _concentrated(
        self, effects: Effects, inside: Bool[Tensor, " pair"], untrained: list[float]
    ) -> None:
        measure = measures.concentration(effects, inside, self.scale, self.scale.draws, untrained)
        self._say(verdicts.PARTS, WORDS[effects.metric], verdicts.above(measure), measure)

    def _few(
        self, pairs: PromptPairs, inside: Bool[Tensor, " pair"], order: list[Any]
    ) -> list[Any]:
        """Ask whether few heads suffice and are needed. Returns the heads."""
        storage: dict[str, Any] = {"run": self.run, "progress": self.progress}
        chosen_on, few = pairs[inside], self.scale.few
        sizes, accuracy = measures.curve_of_kept(
            self.model, chosen_on, order, few, name="kept-by-effect", **storage
        )
        enough = smallest = measures.smallest_enough(sizes, accuracy)
        self.facts |= {"smallest": smallest, "curve": tuple(zip(sizes, accuracy, strict=True))}
        if smallest is None or smallest > few:
            grown = measures.grown(self.model, chosen_on, order, few, name="alone", **storage)
            all_grown = [*grown, *(head for head in order if head not in grown)]
            along = measures.curve_of_kept(
                self.model, chosen_on, all_grown, few, name="kept-grown", **storage
            )
            enough = measures.smallest_enough(*along)
            if enough is not None and enough <= few:
                order = grown
        reached = enough is not None and enough <= few
        heads = order[: enough if reached else few]
        self.facts["heads"] = tuple(heads)
        for question, way in product((verdicts.FEW, verdicts.NEED), self._ways()):
            self._replaced(question, pairs[~inside], heads, way, reached)
        return heads

    def _ways(self) -> list[Replacing]:
        """What replaces the outputs of heads; the first way has all draws of controls."""
        draws = max(2, self.scale.draws // 5)
        ways = [
            Replacing(MEANS, "mean", "end", self.scale.draws),
            Replacing(RESAMPLED, "resample", "end", draws),
            Replacing("means at every token", "mean", "all", draws),
        ]
        if (more := self.means_over) is not None:
            means = counterfactual_means(self.model, more, self.scale.heads, positions="end")
            ways.append(Replacing(OTHERS, "mean", "end", draws, means))
        return ways

    def _replaced(
        self, question: str, pairs: PromptPairs, heads: list[Any], way: Replacing, reached: bool
    ) -> None:
        alone, storage = question == verdicts.FEW, {"run": self.run, "progress": self.progress}
        try:
            measure, right = measures.sets_replaced(
                self.model, pairs, heads, self.scale, way, alone=alone, **storage
            )
        except NoAlignedPrompt:
            self._say(
                question, way.name, verdicts.OPEN, reason="no other prompt is aligned with each"
            )
            return
        if alone:
            self.alone[way.name] = right
        verdict = verdicts.suffices(measure, reached) if alone else verdicts.below(measure)
        if way.draws == self.scale.draws and verdict == verdicts.HOLDS:
            self.facts["sufficient" if alone else "needed"] = tuple(heads)
        self._say(question, way.name, verdict, measure)

    def _reads(self, pairs: PromptPairs, heads: list[Any]) -> None:
        """Which tokens the heads read, by which input: attention, and exact edges into q, k, v."""
        if pairs.spans is not None:
            self.facts["attention"] = attention_by_role(self.model, pairs, heads)
        by_place = pairs.spans is not None or len(pairs.lengths.unique()) == 1
        with suppress(UnsupportedTrunk, UnsupportedReceiver):
            self.facts["reads"] = edge_effects(
                self.model,
                pairs,
                heads,
                senders="together",
                positions="each" if by_place else "all",
                group="head",
                metric=LOGIT,
                run=self.run,
                progress=self.progress,
            )

    def _origin(self, pairs: PromptPairs) -> None:
        """Exchange END's stream after each layer, and each MLP, with the other problem's."""
        other = pairs.counterfactual_answer
        pairs = pairs[(other != NO_ANSWER) & (other != pairs.answer)]
        layers = range(self.scale.n_layers)
        sites = [*map(Site, layers), *map(Mlp, layers)]
        try:
            if problems(pairs) < LEAST_PROBLEMS:
                raise TooFewPairs(
                    f"expected counterfactuals with an answer of their own in {LEAST_PROBLEMS} "
                    f"problems, found {problems(pairs)}; other operands, or counterfactual_answer, "
                    "give some"
                )
            with working("audit: where does the answer arise?", visible=self.progress):
                exchanged = interchange(self.model, pairs, sites).effects  # pyright: ignore
        except (TooFewPairs, UnsupportedEndRuns) as error:
            self._say(
                verdicts.ORIGIN, "stream", verdicts.OPEN, reason=str(error).partition("; ")[0]
            )
            return
        inside = half_of_problems(pairs.problem, self.scale.seed)
        values = exchanged.per_pair[:, 0]
        stream, mlps = (
            Effects(part, ("layer",), "answers C'", **pairs.units)
            for part in values.split(self.scale.n_layers)
        )
        layer, measure = measures.rise(stream, inside, pairs)
        self._say(verdicts.ORIGIN, "stream of END", verdicts.above(measure), measure)
        mlp, of_mlp = measures.strongest_writer(mlps, inside, pairs)
        self._say(verdicts.ORIGIN, "one MLP at END", verdicts.above(of_mlp), of_mlp)
        self._same_answer(pairs, inside, layer)
        self.facts |= {"origin": exchanged, "layer": layer, "mlp": Mlp(mlp)}

    def _same_answer(self, pairs: PromptPairs, inside: Bool[Tensor, " pair"], layer: int) -> None:
        """Exchange END's stream after a layer with that of a problem of the same answer."""
        rows, same = measures.other_prompts(pairs, self.scale.seed, same_problem=False)
        rows, same = rows[~inside[rows]], same[~inside[rows]]
        if problems(same) < LEAST_PROBLEMS / 2:
            reason = "too few problems have the answer of another one in the same words"
            self._say(verdicts.ORIGIN, SAME_ANSWER, verdicts.OPEN, reason=reason)
            return
        stay = measures.unmoved(self.model, pairs[rows], same, layer)
        self._say(verdicts.ORIGIN, SAME_ANSWER, verdicts.above(stay), stay)

    def _other_lenses(self, effects: ComponentEffects, inside: Bool[Tensor, " pair"]) -> None:
        """The strongest heads under another metric, and under other counterfactuals."""
        (_, pairs), *others = self.lenses.items()
        compared: dict[str, ComponentEffects] = {}
        if effects.heads.metric != LOGIT:
            other = self._effects(pairs, {"metric": LOGIT}, "effects-logit")
            self._concentrated(other.heads, inside, [])
            compared[f"heads by {WORDS[LOGIT]}"] = other
        for number, (name, own) in enumerate(others):
            right = own[knock_out(self.model, own, [], progress=False).correct]
            if problems(right) < LEAST_PROBLEMS:
                continue
            other = self._effects(right, fitting_metric(right), f"effects-{number}")
            compared[f"heads under {name}"] = other
        self.verdicts.append(verdicts.agreement(verdicts.LENS, self.verdicts))
        self._list(f"heads under {next(iter(self.lenses))}", effects.heads)
        for lens, other in compared.items():
            measure = measures.overlap(effects.heads, other.heads, self.scale)
            self._say(verdicts.LENS, lens, verdicts.below(measure), measure)
            self._list(lens, other.heads)
        self._nothing_changed(pairs, effects.heads, inside)
        if RESAMPLED in self.alone:
            more = measures.change(self.alone[RESAMPLED], self.alone[MEANS], pairs[~inside])
            self._say(verdicts.LENS, GAIN, verdicts.above(more), more)

    def _list(self, lens: str, effects: Effects) -> None:
        self.facts.setdefault("strongest", {})[lens] = tuple(effects.top(self.scale.few))

    def _nothing_changed(
        self, pairs: PromptPairs, effects: Effects, inside: Bool[Tensor, " pair"]
    ) -> None:
        """Ask which heads answer to the same problem after other examples, or in other words."""
        rows, same = measures.other_prompts(pairs, self.scale.seed, same_problem=True)
        if problems(same) < LEAST_PROBLEMS:
            reason = "too few problems are asked by two prompts of one length"
            self._say(verdicts.LENS, f"heads under {SAME}", verdicts.OPEN, reason=reason)
            return
        other = self._effects(same, fitting_metric(pairs), "effects-same-problem").heads
        self._list(f"heads under {SAME}", other)
        both = effects.select(rows), other
        for name, measure in {
            "heads": measures.overlap(*both, self.scale),
            "strength": measures.strength(*both, inside[rows], self.scale),
        }.items():
            self._say(verdicts.LENS, f"{name} under {SAME}", verdicts.below(measure), measure)
