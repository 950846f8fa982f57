"""What experiments store: the name and the class of every result, and the facts beside it.

Experiments write results through this module, and figures and claims read them:

    results.MAP.load(run, "addition").heads

Beside a result of prompt pairs stand the facts `pairs`, `distinct` (reference prompts), `problems`
(None if not known), `tokens` and `selection` (None without a filter); beside a knockout `heads`;
beside a training its method, heads, MLPs, rate, seed, cost and losses.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from jaxtyping import Bool
from torch import Tensor

from arith_lens.answers import Answers
from arith_lens.arrays import Arrays, Storable
from arith_lens.attention import Patterns
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.evaluation import EvaluationResult
from arith_lens.exploration import Exploration
from arith_lens.interchanges import Interchange
from arith_lens.knockout import GreedyMask, KnockoutCurve, KnockoutCurves, Outcomes
from arith_lens.mediation import Mediation
from arith_lens.next_tokens import NextTokens
from arith_lens.numbers import Swaps
from arith_lens.runs import Run
from arith_lens.runs.manifest import RESULT_CLASSES, SavedPairs
from experiments.does_tuning_help import SelectedRates, TuningRow
from experiments.selection import some_questions

KIND_BY_CLASS = {name: kind for kind, (_, name) in RESULT_CLASSES.items()} | {
    "SelectedRates": "chosen_rates"
}
"""The kind of result in a run, by the name of its class."""


class Readable(Storable, Protocol):
    """A result whose class reads it back."""

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Any: ...


R = TypeVar("R", bound=Readable)


@dataclass(frozen=True)
class Stored(Generic[R]):
    """A kind of result: its name in a run, its class and its facts."""

    pattern: str
    """The name, with `{}` for each part such as the operation."""
    kind: type[R]

    def name(self, *parts: str) -> str:
        """The result's name in a run."""
        return self.pattern.format(*(part.replace("/", "-") for part in parts))

    def load(self, run: Run, *parts: str) -> R:
        """The result. Raises RunError if the run has none, or if it is damaged."""
        return cast(R, self.kind.from_arrays(run.load_arrays(self.name(*parts))))

    def facts(self, run: Run, *parts: str) -> Mapping[str, Any]:
        """The facts beside it. Raises RunError if the run has no such result."""
        return run.facts(self.name(*parts))

    def save(
        self,
        run: Run,
        result: R,
        *parts: str,
        pairs: SavedPairs | None = None,
        **facts: Any,
    ) -> None:
        """Store the result in the run, as `Run.save` does."""
        run.save(self.name(*parts), result, pairs=pairs, **facts)

    def compute(
        self,
        run: Run,
        method: Callable[..., Any],
        model: Any,
        pairs: SavedPairs,
        *parts: str,
        facts: Callable[[R], Mapping[str, Any]] | Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> R:
        """`method(model, pairs, **settings)`, unless it is stored, as `Run.compute` does."""
        name = self.name(*parts)
        return cast(R, run.compute(name, method, model, pairs, facts=facts, **settings))

    def is_in(self, run: Run, *parts: str) -> bool:
        """Whether the run has this result."""
        return self.name(*parts) in run.names

    def computed(self, run: Run, *parts: str) -> Bool[Tensor, " pair"] | None:
        """Which of its pairs have an answer that is neither operand; None if not known."""
        return run.computed(self.name(*parts))

    def labels(self, run: Run, *parts: str | None) -> tuple[str, ...]:
        """One part of the name of each result of this kind in a run, in order.

        Args:
            run: the run that is searched.
            parts: the parts of the name, with None for the part that is returned. They can be
                omitted if the name has one part: `MAP.labels(run)`.
        """
        known = parts or (None,)
        filled = (r"(.+)" if part is None else re.escape(part.replace("/", "-")) for part in known)
        pattern = re.compile(re.escape(self.pattern).replace(r"\{\}", "{}").format(*filled))
        matches = (
            pattern.fullmatch(name) for name in run.names_of(KIND_BY_CLASS[self.kind.__name__])
        )
        return tuple(match[1] for match in matches if match)


MAP = Stored("effects-{}", ComponentEffects)
"""The effects of every head and MLP; by operation (or "word_problems", or a wording of powers)."""
POOLED_MAP = Stored("effects", ComponentEffects)
"""The effects on the pairs of the four operations together."""
PATH_EFFECTS = Stored("paths-{}-{}", ComponentEffects)
"""The effects of the strongest heads; by operation, and by what may react to a change."""
NODES = Stored("nodes-{}-{}-{}", ComponentEffects)
"""The effects of every head and MLP; by operation, counterfactual and metric."""
EDGES = Stored("edges-{}-{}-{}", Effects)
"""The effects of edges [receiver input sender pair]; by operation, counterfactual and metric."""
EDGES_BY_ROLE = Stored("edges-by-role-{}-{}-{}", Effects)
"""The same with senders that act at the tokens of one role [receiver input sender role pair]."""
DIRECT_EDGES = Stored("direct-{}-{}-{}", Effects)
"""The effects of edges with the MLPs between sender and receiver held."""
EDGE_SCORES = Stored("scores-{}-{}-{}-{}", Effects)
"""What gradients make of these edges; by operation, counterfactual, metric and method."""
INPUT_EFFECTS = Stored("inputs-{}-{}-{}", Effects)
"""The effects of all senders together [receiver input sender pair], through each choice of inputs;
by operation, counterfactual and metric."""
KEPT = Stored("kept-{}-{}-{}-{}", Effects)
"""Graphs kept alone [measure set pair]; by operation, counterfactual, metric and positions."""
CARRY = Stored("carry-{}-{}", Interchange)
"""Interchanges [site space pair]; by variable and test."""
BUILT_CARRY = Stored("built-{}-exchanged-{}", Interchange)
"""Interchanges in a built model [site space pair]; by variant and subspace."""
CARRY_STEP = Stored("step", Effects)
"""The projection on the direction [layer ones_sum pair]: 0 without a carry, 1 with one."""
CARRY_PARTS = Stored("parts-{}", Effects)
"""What components write, what is left without some, and without one of those that read [component
pair]; by "writers", "held" or "readers"."""
BUILT_SWAPS = Stored("built-swaps-{}", Swaps)
"""Swaps of A in a built model [space swap]; by shape."""
WRONG_SUMS = Stored("wrong", Effects)
"""Whether the first digit of each sum below 100 is wrong [ones_sum pair]."""
EXACT = "exact"
"""The name of path patching among the methods: its effects are exact."""
KNOCKOUT_CURVES = Stored("knockout-{}", KnockoutCurves)
"""Accuracy without the first k heads of several orders; by operation, or by wording of powers."""
KNOCKOUT_CURVE = Stored("curve-{}-{}", KnockoutCurve)
"""One of those orders; by operation and order."""
CONTROL_CURVES = Stored("controls-{}", KnockoutCurves)
"""The control orders among them; by operation."""
MLP_CONTROL_CURVES = Stored("mlp-controls-{}", KnockoutCurves)
"""The random orders of MLPs among them; by operation."""
GREEDY_MASK = Stored("mask-{}", GreedyMask)
"""Iterative masking; by operation."""
NEXT_TOKENS = Stored("tokens-{}-{}", NextTokens)
"""Next tokens; by kind of prompt, and by "before", "after" the knockout, or a random one."""
LIKELIEST = Stored("likeliest-{}-{}", NextTokens)
"""Next tokens; by kind of prompt, and by side: "reference" or "counterfactual"."""
ANSWER_PROBABILITY = Stored("right-{}", Effects)
"""p(C) and whether C is the likeliest token [side measure pair]; by kind of prompt."""
ANSWERS = Stored("answers-{}", Answers)
"""Answers; by knocked-out set of heads."""
EVALUATION = Stored("evaluation-{}", EvaluationResult)
"""Benchmark answers; by knocked-out set of heads, or "plain" and "plain-for-controls"."""
OUTCOMES = Stored("outcomes-{}-on-{}", Outcomes)
"""Answers after a knockout; by set of heads, and by kind of prompts."""
CLASS_ATTENTION = Stored("attention-{}", Effects)
"""Attention from END to classes of tokens [head class pair]; by kind of prompts."""
ROLE_ATTENTION = Stored("roles-{}", Effects)
"""Attention of the strongest heads from END to roles [head role pair]; by operation."""
RANDOM_ATTENTION = Stored("random-{}", Effects)
"""Attention of random other heads; by operation."""
PATTERNS = Stored("patterns-{}", Patterns)
"""Whole patterns on a few prompts; "formats" or "words"."""
PROBE = Stored("probe-{}-{}", Effects)
"""Cosines with the numbers' columns of W_U; by operation, and by what is read."""
LENS = Stored("lens-{}-{}", Effects)
"""Rank and probability of C under the logit lens; by operation, and by what is read."""
DIGIT_COSINES = Stored("digits-{}", Effects)
"""Cosines of what MLPs write with the ten digits; by operation."""
CHANCE = Stored("chance-{}", Effects)
"""How often each kind of digit would win by chance; by operation."""
WINNERS = Stored("winners-{}", Effects)
"""Which kind of digit each layer writes most; by operation."""
EXPLORATION = Stored("exploration-{}", Exploration)
"""The tables of the explorer; by operation, or by operation and counterfactual."""
SUM_COSINES = Stored("sum-{}", Effects)
"""Cosines of what MLPs write with the ten digits, of one prompt."""
UNTUNED_ANSWERS = Stored("before", Answers)
"""The answers before tuning."""
TUNED_ANSWERS = Stored("{}", Answers)
"""The answers of a tuned model, by name of the training; `UNTUNED_ANSWERS` among them."""
CHOSEN_RATES = Stored("table-{}", SelectedRates)
"""The rows of a table of trainings, and the rate of each; by number of the table."""
BUILT_TRUTH = Stored("closed-form-{}", ComponentEffects)
"""The closed-form effects of a built model; by kind of paths, or by knockout."""
BUILT_EFFECTS = Stored("known-{}-{}", ComponentEffects)
"""The effects of a built model; by kind of paths, or by knockout, and by method."""
BUILT_EDGES = Stored("known-edges", Mediation)
"""Which MLPs carry the effects of a built model's heads."""


def trainings(run: Run) -> tuple[str, ...]:
    """The names of a run's trainings."""
    return tuple(name for name in TUNED_ANSWERS.labels(run) if name != UNTUNED_ANSWERS.name())


def tuned_by(facts: Mapping[str, Any]) -> TuningRow:
    """What a training tunes."""
    return TuningRow(facts["method"], facts["heads"], facts["mlps"])


def controls_at(curves: KnockoutCurves, k: int) -> dict[str, list[Outcomes]]:
    """The outcomes without k control heads, one per draw: `random` of all heads, and `matched`.

    A kind of control that was not computed for k heads is left out.
    """
    kinds = {"random": curves.starting("random "), "matched": curves.starting(f"matched {k} ")}
    outcomes = {
        kind: [curve.at(k) for curve in sampled if k in curve.ks] for kind, sampled in kinds.items()
    }
    return {kind: sampled for kind, sampled in outcomes.items() if sampled}


def control_questions(run: Run, answers: Answers) -> Answers:
    """The answers to those questions of a run that are also answered without control heads."""
    limit, seed = run.config.get("control_limit", 0), run.config["seed"]
    indices = {*some_questions(answers.task, limit, seed)}
    return answers.select([i in indices for i in range(len(answers))])


def control_answers(run: Run) -> dict[str, tuple[Answers, list[Answers]]]:
    """The answers to the same questions before, and without each draw of control heads, by kind.

    The kinds are `random` and `matched`; one that was not computed is left out.
    """
    same, answers = control_questions(run, ANSWERS.load(run, "none")), {}
    for kind in ("random", "matched"):
        names = [name for name in ANSWERS.labels(run) if name.startswith(f"{kind}-")]
        if names:
            answers[kind] = same, [ANSWERS.load(run, name) for name in names]
    return answers


def control_outcomes(run: Run, prompts: str) -> dict[str, list[Outcomes]]:
    """The outcomes on some prompts without each draw of control heads, by kind of control."""
    labels = OUTCOMES.labels(run, None, prompts)
    names = {kind: [n for n in labels if n.startswith(kind)] for kind in ("random", "matched")}
    return {
        kind: [OUTCOMES.load(run, name, prompts) for name in of_kind]
        for kind, of_kind in names.items()
        if of_kind
    }
