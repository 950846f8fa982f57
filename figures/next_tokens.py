"""Figures 4 and 9: the likeliest next tokens of prompts, before and after a change.

They read runs of one model (by their settings, or `--run PATH`) and are drawn without loading a
model.
"""

from collections.abc import Sequence

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import FOUR
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import next_tokens as numbers
from figures.tables.table import has, keys_of, select, value

EXERCISE_TITLES = {
    "word_problem": "Word problems",
    "integers": "Three-digit sums",
    "time_span": "Time spans",
    "decimals": "Decimals",
}
"""The kinds of prompts of Figure 4, with their titles."""
PAIR_TITLES = {
    **{name: name.capitalize() for name in FOUR},
    "two_digits": "Last digit of two-digit sums",
    "stories": "Stories of objects",
}
"""The kinds of pairs of Figure 9, with their titles."""


def fig4(options: Options) -> list[Chart]:
    """Figure 4: the likeliest next tokens before and after the key heads are knocked out.

    Reads a run of `experiments what_comes_instead` (by its settings, or `--run PATH`) and draws it
    without loading a model. For each kind, it shows the first prompt that is answered right with
    every head in place. The small print has the share of right answers.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_comes_instead")
    return [
        chart_of(
            numbers.instead_table(run),
            [run],
            name="fig4",
            title="Figure 4: the likeliest next tokens before and after the knockout",
            caption=_knockout_caption,
            notes=_knockout_notes,
            draw=_draw_knockout,
        )
    ]


def fig9(options: Options) -> list[Chart]:
    """Figure 9: the likeliest next tokens with the calculation, and without it.

    Reads a run of `experiments what_the_calculation_does` (by its settings, or `--run PATH`) and
    draws it without loading a model. For each kind of prompt, it shows one pair, which is drawn at
    random by the run's seed.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_the_calculation_does")
    return [
        chart_of(
            numbers.calculation_table(run),
            [run],
            name="fig9",
            title="Figure 9: the likeliest next tokens with the calculation, and without it",
            caption=calculation_caption,
            notes=_calculation_notes,
            draw=_draw_calculation,
        )
    ]


def _draw_knockout(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """The prompt of each kind, with all heads and without some."""
    n_heads = len(keys_of(table, "head"))
    names = ("all heads in place", f"{n_heads} heads knocked out")
    panels = [_panel(table, kind, "when", numbers.TIMES) for kind in _shown(table, EXERCISE_TITLES)]
    return plotting.next_token_panels(panels, names=names, notes=notes)


def _draw_calculation(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """The pair of each kind."""
    names = ("with the calculation", "without it")
    panels = [_panel(table, kind, "side", numbers.SIDES) for kind in _shown(table, PAIR_TITLES)]
    return plotting.next_token_panels(panels, names=names, notes=notes)


def _shown(table: DataFrame, titles: dict[str, str]) -> list[str]:
    """The kinds of which a prompt is shown."""
    return [kind for kind in titles if has(table, kind=kind, measure=numbers.PROBABILITY)]


def _panel(
    table: DataFrame, kind: str, key: str, sides: tuple[str, str]
) -> plotting.NextTokenPanel:
    """The likeliest tokens of one prompt, on both sides of the change that `key` names."""
    rankings, prompts = [], []
    for side in sides:
        rows = select(table, kind=kind, measure=numbers.PROBABILITY, **{key: side})
        rows = rows.sort_values("rank")
        rankings.append(plotting.Ranking(tuple(rows.token), rows.value.to_numpy()))
        prompts += keys_of(rows, "prompt")
    (answer,) = select(table, kind=kind, measure=numbers.PROBABILITY).answer.unique()
    prompt_after = prompts[1] if key == "side" else None
    before, after = rankings
    return plotting.NextTokenPanel(prompts[0], before, after, answer, prompt_after=prompt_after)


def _knockout_caption(table: DataFrame) -> str:
    """What to look for, and how often this run's model says a number at all."""
    after = select(table, when="after")
    parts = [
        f"{title} {value(after, kind=kind, measure=numbers.A_NUMBER):.0%} a number, "
        f"{value(after, kind=kind, measure=numbers.RIGHT):.0%} the right one"
        for kind, title in EXERCISE_TITLES.items()
    ]
    return (
        "What the model says in place of the answer (blue). In the paper it still says a number, "
        "but a wrong one: what is lost is the calculation, not the format. Here the likeliest "
        f"token after the knockout is: {'; '.join(parts)}."
    )


def _knockout_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read Figure 4, what it was made from, and how often the answer is right."""
    right = select(table, measure=numbers.RIGHT)
    shares = [
        f"{title}: {value(right, kind=kind, when='before'):.0%} right before, "
        f"{value(right, kind=kind, when='after'):.0%} after"
        for kind, title in EXERCISE_TITLES.items()
    ]
    return [
        f"Model: {config['model']}. Knocked out: "
        f"{', '.join(keys_of(table, 'head'))}, the strongest by mean effect "
        "over the four operations, each replaced by its mean over counterfactuals.",
        "Of each kind, the first prompt drawn that is answered right with all heads in place. "
        "Blue: the right token.",
        f"First token of the answer, {config['prompts']} prompts a kind. {'; '.join(shares[:2])};",
        f"{'; '.join(shares[2:])}.",
    ]


def calculation_caption(table: DataFrame) -> str:
    """What to look for, and the probability of the answer on both sides of this run."""
    p_answer = select(table, measure=numbers.P_ANSWER)
    likeliest = select(table, measure=numbers.ANSWER_LIKELIEST, side="counterfactual")
    shares, stays = [], {}
    for kind in _kinds(table):
        title = PAIR_TITLES[kind]
        p, p_without = (value(p_answer, kind=kind, side=side) for side in numbers.SIDES)
        shares.append(f"{title} {p:.0%} → {p_without:.0%}")
        stays[value(likeliest, kind=kind)] = title
    most = max(stays)
    return (
        "Whether the right answer (blue) leads on the left and not on the right: path patching "
        "needs counterfactual prompts that differ in the calculation. Mean p(C) with the "
        f"calculation → without it: {'; '.join(shares)}. Without it C stays the likeliest token in "
        f"{min(stays):.0%} to {most:.0%} of the pairs (most: {stays[most]})."
    )


def _kinds(table: DataFrame) -> list[str]:
    """The kinds of pairs that were measured."""
    return [kind for kind in PAIR_TITLES if has(table, kind=kind, measure=numbers.P_ANSWER)]


def _calculation_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read Figure 9, and what it was made from."""
    filter_note = "(where any is answered right, of those) " if config["keep"] == "correct" else ""
    return [
        f"Model: {config['model']}. Of each kind, one pair {filter_note}drawn at random (seed "
        f"{config['seed']}). Blue: the right answer of the calculation.",
        "Means over all pairs, wordings weighed equally: p(C) with the calculation → without it, "
        "and how often C is still the likeliest token without it.",
        *(_statistics(select(table, kind=kind), kind) for kind in _kinds(table)),
    ]


def _statistics(rows: DataFrame, kind: str) -> str:
    p, p_without = (value(rows, measure=numbers.P_ANSWER, side=side) for side in numbers.SIDES)
    right_without = value(rows, measure=numbers.ANSWER_LIKELIEST, side="counterfactual")
    n = f"{value(rows, measure=numbers.PAIRS):.0f}"
    n_pairs = f"{n} pairs, right or not"
    if has(rows, measure=numbers.PAIRS_DRAWN):
        n_pairs = f"{n} of {value(rows, measure=numbers.PAIRS_DRAWN):.0f} pairs"
    return (
        f"{PAIR_TITLES[kind]} ({n_pairs}): {p:.1%} → {p_without:.1%}; C likeliest in "
        f"{right_without:.1%}."
    )
