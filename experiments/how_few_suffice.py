"""How few heads suffice after solved examples? The first k kept, under two counterfactuals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor

import arith_lens as al
from arith_lens.components import every_head
from arith_lens.knockout import (
    completed,
    halves,
    knockout_curves,
    matched_order,
    random_order,
)
from arith_lens.model import left_pad
from arith_lens.operations import OPERATIONS
from arith_lens.pairs import NO_ANSWER, Role, encode, keep_correct, pieces
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.results import (
    CIRCUIT_CURVE,
    COUNTERFACTUAL_MAP,
    EXAMPLE_ATTENTION,
    EXAMPLE_MAP,
    EXAMPLE_SWAP,
    KEPT_ORDERS,
)
from experiments.settings import Experiment, ModelSettings, patch_and_store, strongest_heads

EFFECT, RANDOM, MATCHED = "effect", "random-", "matched-"
"""The order by effect, and how the names of the control orders begin."""
DIGITS = range(2, 10)
"""The one-digit operands of larger problems."""
OPERANDS, WORD = "operands", "word"
"""The counterfactuals of which orders and means are made: other operands, or the paper's."""


@dataclass(frozen=True)
class Case:
    """What stands before END: an operation, the size of its numbers, and solved examples."""

    operation: str
    shots: int = 4
    larger: bool = False
    """Whether a product has two digits (the first one is read), or a dividend has two digits and
    the divisor one. No operand is 1."""
    lenses: tuple[str, ...] = (OPERANDS,)
    """The counterfactuals under which it is measured."""
    control_sizes: tuple[int, ...] = ()
    """How many heads of a control order are kept; there are no controls if it is empty."""

    def pairs(
        self, model: al.HookedModel, counterfactual: str, exemplar_set: int
    ) -> al.PromptPairs:
        """All problems after one set of examples, also those that the model answers wrongly."""
        options: dict[str, Any] = {}
        if self.larger and self.operation == "multiplication":
            options = {"operands": DIGITS, "answer_token": "first"}
        elif self.larger:
            options = {"operands": [*sorted({*DIGITS, *(a * b for a in DIGITS for b in DIGITS)})]}
        pairs = al.sample_pairs(
            model,
            self.operation,
            templates="symbols",
            shots=self.shots,
            exemplar_set=exemplar_set,
            counterfactual=counterfactual,
            keep="all",
            **options,
        )
        if self.larger and self.operation == "division":
            numbers = pairs.to_dataframe()
            pairs = pairs.filter([a > 9 >= b for a, b in zip(numbers.a, numbers.b, strict=True)])
        return pairs

    @property
    def examined(self) -> bool:
        """Whether the parts on examples are computed."""
        return self.operation in OTHER_OPERATION and not self.larger


CASES: Mapping[str, Case] = {
    "multiplication": Case(
        "multiplication", lenses=(OPERANDS, WORD), control_sizes=(1, 3, 5, 7, 14)
    ),
    "division": Case("division", control_sizes=(5, 7)),
    "addition_one_example": Case("addition", shots=1),
    "multiplication_two_digits": Case("multiplication", larger=True),
    "division_two_digits": Case("division", larger=True),
}
CaseName = Literal[
    "multiplication",
    "division",
    "addition_one_example",
    "multiplication_two_digits",
    "division_two_digits",
]
OTHER_OPERATION = {"multiplication": "addition", "division": "subtraction"}
"""The operation of the changed examples."""
ANSWERS, OPERATOR, OPERATION = "answers", "operator", "operation"
EXAMPLE_CHANGES = (ANSWERS, OPERATOR, OPERATION)
"""The changes of the examples alone."""
EXAMPLE_PARTS = ("operands", "operators", "answers", "other tokens")


@dataclass(frozen=True)
class FewConfig(ModelSettings):
    """How few heads suffice after solved examples?"""

    cases: tuple[CaseName, ...] = (
        "multiplication",
        "division",
        "addition_one_example",
        "multiplication_two_digits",
        "division_two_digits",
    )
    """What stands before END."""
    metric: Literal["digit_contrast", "logit"] = "digit_contrast"
    """What effects and faithfulness are made of."""
    exemplar_sets: int = 5
    """How many sets of examples are drawn; each problem stands after each of them."""
    most: int = 14
    """The curves are read at every number of heads up to this."""
    controls: int = 20
    """Random orders, and as many orders of other heads of the same layers."""
    attended: int = 7
    """The strongest heads whose attention is read."""
    seed: int = 0
    """The seed of the halves and of the control orders."""


def compute(run: Run, model: al.HookedModel, config: FewConfig) -> None:
    """The curves of every case under each of its lenses, then the parts on examples."""
    for lens in (OPERANDS, WORD):
        for name in config.cases:
            if lens in CASES[name].lenses:
                with continue_after_part():
                    _save_case(run, model, config, name, lens)
    for name in config.cases:
        if CASES[name].examined:
            with continue_after_part():
                _save_examples(run, model, config, name)


def case_halves(
    model: al.HookedModel, config: FewConfig, name: str, lens: str
) -> tuple[al.PromptPairs, al.PromptPairs]:
    """The pairs of a case that are answered right, in two halves without a common problem."""
    sets = range(config.exemplar_sets)
    sampled = reduce(add, (CASES[name].pairs(model, lens, number) for number in sets))
    return halves(keep_correct(model, sampled), config.seed)


def _save_case(run: Run, model: al.HookedModel, config: FewConfig, name: str, lens: str) -> None:
    chosen_on, drawn_on = case_halves(model, config, name, lens)
    at = run, model, chosen_on, COUNTERFACTUAL_MAP, name, lens
    effects = patch_and_store(*at, metric=config.metric)
    order = strongest_heads(effects, model.n_layers * model.n_heads)
    sizes, n = range(1, config.most + 1), len(order)
    al.circuit_curve(
        model,
        drawn_on,
        order,
        metric=config.metric,
        positions="end",
        fractions=[k / n for k in sizes],
        run=run,
        name=CIRCUIT_CURVE.name(name, "heads", "end", "keep_only", lens),
    )
    of_controls = CASES[name].control_sizes if lens == OPERANDS else ()
    orders = _kept_orders(model, order, config, controls=bool(of_controls))
    read_at = {label: sizes if label == EFFECT else of_controls for label in orders}
    knockout_curves(
        model,
        drawn_on,
        {label: one[::-1] for label, one in orders.items()},
        ks={label: [n - k for k in (0, *of_order)] for label, of_order in read_at.items()},
        positions="end",
        run=run,
        name=KEPT_ORDERS.name(name, lens),
    )


def _kept_orders(
    model: al.HookedModel, order: tuple[al.Head, ...], config: FewConfig, *, controls: bool
) -> dict[str, list[Any]]:
    """The order by effect, and the controls. The last heads of an order are replaced first.

    The heads of a matched order are none of the `config.most` strongest.
    """
    shape, orders = (model.n_layers, model.n_heads), {EFFECT: [*order]}
    for seed in range(config.seed, config.seed + config.controls * controls):
        matched = matched_order(order[: config.most], *shape, seed)
        orders[f"{RANDOM}{seed}"] = [*random_order(*shape, seed)]
        orders[f"{MATCHED}{seed}"] = [*completed(matched, every_head(*shape))]  # pyright: ignore
    return orders


def _save_examples(run: Run, model: al.HookedModel, config: FewConfig, name: str) -> None:
    """Attention to the parts of the examples, and the effects of changes of the examples alone."""
    pairs = case_halves(model, config, name, OPERANDS)[1]
    effects = COUNTERFACTUAL_MAP.load(run, name, OPERANDS)
    heads = strongest_heads(effects, config.attended)
    EXAMPLE_ATTENTION.compute(run, attention_to_examples, model, pairs, name, heads=heads)
    for change in EXAMPLE_CHANGES:
        changed = changed_examples(model, pairs, CASES[name], change)
        patch_and_store(run, model, changed, EXAMPLE_MAP, name, change, metric=config.metric)
        swapped = replace(changed, reference=changed.counterfactual)
        EXAMPLE_SWAP.compute(run, al.knock_out, model, swapped, name, change, components=())


def attention_to_examples(
    model: al.HookedModel, pairs: al.PromptPairs, *, heads: Sequence[al.Head]
) -> al.Effects:
    """The attention of heads from END to the roles of the problem and the parts of the examples."""
    roles = (Role.BOS, Role.OPERAND_A, Role.OPERATOR, Role.OPERAND_B, Role.OTHER, Role.END)
    groups = {str(role): pairs.role_mask(role) for role in roles} | example_masks(model, pairs)
    return al.attention_by_role(model, pairs, heads, groups=groups)


def example_masks(
    model: al.HookedModel, pairs: al.PromptPairs
) -> dict[str, Bool[Tensor, "pair pos"]]:
    """Which tokens of the examples are operands, operators, answers, or anything else.

    An example is a line such as "2 * 4 = 8".
    """
    inside = pairs.role_mask(Role.EXAMPLES)
    masks = {part: torch.zeros_like(inside) for part in EXAMPLE_PARTS}
    symbols = {operation.symbol for operation in OPERATIONS.values()}
    texts = pieces(model.tokenizer, [pairs.reference[inside].tolist()])
    for row, columns in enumerate(inside):
        answered = False
        for column in columns.nonzero().flatten().tolist():
            text = texts[int(pairs.reference[row, column])].strip(" ▁Ġ")
            part = "operators" if text in symbols else "other tokens"
            if text.isdigit():
                part = "answers" if answered else "operands"
            elif text:  # no blank: "=", an operator, or the end of the line
                answered = text == "="
            masks[part][row, column] = True
    return {f"examples' {part}": mask for part, mask in masks.items()}


def changed_examples(
    model: al.HookedModel, pairs: al.PromptPairs, case: Case, change: str
) -> al.PromptPairs:
    """The same prompts, whose counterfactuals have other examples before the same problem.

    Args:
        model: the model.
        pairs: prompts of the case.
        case: one of × or ÷, with answers of one digit.
        change: one of `EXAMPLE_CHANGES`. "answers": each example has the answer of the next
            one. "operator": + for ×, − for ÷, with the answers as they were. "operation": right
            examples of that operation, without the answer of the problem if there are such.

    Raises:
        ValueError: a changed prompt has another number of tokens.
    """
    assert pairs.examples is not None and pairs.exemplar_set is not None
    other = replace(case, operation=OTHER_OPERATION[case.operation])
    own, new = (OPERATIONS[one.operation].symbol for one in (case, other))
    right = _examples_by_answer(model, other, pairs) if change == OPERATION else {}
    texts = []
    keys = zip(pairs.exemplar_set, pairs.answer.tolist(), strict=True)
    for text, before, (sampled, answer) in zip(
        pairs.to_dataframe().reference, pairs.examples, keys, strict=True
    ):
        after = text.removeprefix(before)
        if change == ANSWERS:
            lines = [line.rpartition(" ") for line in before.splitlines()]
            turned = [*lines[1:], lines[0]]
            both = zip(lines, turned, strict=True)
            before = "".join(f"{line[0]} {other_line[2]}\n" for line, other_line in both)
        elif change == OPERATOR:
            before = before.replace(f" {own} ", f" {new} ")
        else:
            before = right.get((sampled, answer), right[sampled, None])
        texts.append(before + after)
    tokens, mask = left_pad([prompt.ids for prompt in encode(model.tokenizer, texts)])
    if tokens.shape != pairs.reference.shape or not torch.equal(mask, pairs.attention_mask):
        raise ValueError(
            f"expected changed examples with as many tokens as before, found {tuple(tokens.shape)} "
            f"for {tuple(pairs.reference.shape)}; take examples of single digits"
        )
    answers = torch.full_like(pairs.answer, NO_ANSWER)
    return replace(pairs, counterfactual=tokens, counterfactual_answer=answers)


def _examples_by_answer(
    model: al.HookedModel, case: Case, pairs: al.PromptPairs
) -> dict[tuple[str, int | None], str]:
    """Right examples of a case by their set and an answer that they do not have; None: any."""
    assert pairs.exemplar_set is not None
    texts: dict[tuple[str, int | None], str] = {}
    for number in range(len({*pairs.exemplar_set})):
        sampled = case.pairs(model, OPERANDS, number)
        assert sampled.examples is not None and sampled.exemplar_set is not None
        both = zip(sampled.exemplar_set, sampled.answer.tolist(), sampled.examples, strict=True)
        for label, answer, examples in both:
            for key in (answer, None):
                texts.setdefault((label, key), examples)
    return texts


def _plan(model: al.HookedModel, config: FewConfig) -> str:
    """The cost in words."""
    parts = sum(len(CASES[name].lenses) for name in config.cases)
    sizes = max(len(CASES[name].control_sizes) for name in config.cases)
    variants = config.most + 1 + 2 * config.controls * sizes
    return (
        f"{parts} times, of all problems after {config.exemplar_sets} sets of examples: a path "
        f"patching of every head on half of the problems; on the other half {config.most + 2} and "
        f"up to {variants} sets of kept heads, each of which costs one token's forward"
    )


def report(run: Run) -> None:
    """For each case and lens, print accuracy and faithfulness at each number of heads."""
    for name in run.config["cases"]:
        for lens in CASES[name].lenses:
            curve = CIRCUIT_CURVE.load(run, name, "heads", "end", "keep_only", lens)
            print(f"\n{name}, {lens}: {', '.join(map(str, curve.order[: curve.sizes[-2]]))}")
            print(curve.to_dataframe().to_string(index=False, float_format="{:.2f}".format))


how_few_suffice = Experiment(
    "how_few_suffice", FewConfig, compute, _plan, report, figure="few_heads", shares=True
)
"""How few heads suffice after solved examples? Orders and means of two counterfactuals.

For multiplication and division, addition after one example, and two-digit problems: heads are
ordered on one half of the problems by their effects under other operands (and under the paper's
counterfactual), and the first k are kept at END on the other half. Random orders, and orders of
other heads of the same layers, are the controls. In one-digit multiplication and division, also
where the strongest heads attend among the examples, and what a change of the examples alone does.
Saves a run under results/how_few_suffice/, which `python -m figures few_heads` draws.
"""
