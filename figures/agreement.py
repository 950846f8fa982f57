"""Agreement: do other counterfactuals, problems and methods give the same effects of heads?"""

from collections.abc import Iterator, Sequence

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.plotting import COLOURS
from arith_lens.plotting.page import reach
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import agreement as numbers
from figures.tables.effects import EFFECT
from figures.tables.table import keys_of, records, select
from figures.views import maps
from figures.views.lines import dots
from figures.views.words import LENS, listed, span_text

PAIR_MARKS = {
    "circle": (-0.26, plotting.BLUE),
    "circle-open": (0.0, COLOURS["chosen"]),
    "diamond-open": (0.26, COLOURS["chosen"]),
}
"""The mark of each pair of counterfactuals: how far it is from the middle of its row, its hue."""
COUNTERFACTUAL_NAMES = {
    "word": ("a word", "3 void 5"),
    "operator": ("another operator", "3 minus 5"),
    "operands": ("other numbers", "4 plus 2"),
}
"""What a counterfactual of `3 plus 5` has, and an example."""
PROBLEM_SET_NAMES = {
    "one-digit": ("one-digit", "one-digit problems"),
    "computed": ("larger", "larger problems, whose answer is not in the prompt"),
}
"""What the group of heads, and the marks, of a set of problems are called."""
N_SHOWN = 4
"""How many of the strongest heads of each set of problems have a row."""
SET_COLOURS = (COLOURS["chosen"], plotting.BLUE)


def counterfactuals(options: Options) -> list[Chart]:
    """How far the heads of three kinds of counterfactual agree, two and two.

    Reads a run of `experiments which_counterfactual` and draws it without loading a model: the rank
    correlation of the heads' effects and the share of the ten strongest heads that two kinds have
    in common, with 95% intervals over problems. The table has the maps, too.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "which_counterfactual")
    return [
        chart_of(
            lambda: numbers.counterfactuals(run),
            [run],
            name="counterfactuals",
            title="Do the heads depend on the counterfactual?",
            caption=_counterfactuals_caption,
            notes=_counterfactuals_notes,
            draw=_draw_counterfactuals,
        )
    ]


def _counterfactuals_caption(table: DataFrame) -> str:
    """Which two counterfactuals agree best in each model, and what all share."""
    best: dict[str, list[str]] = {}
    others = []
    for name in keys_of(table, "model"):
        pair, spans, rest = _best_pair(select(table, model=name))
        best.setdefault(pair, []).append(f"{spans} in `{name}`")
        others.append(rest.replace(" (", f" in `{name}` (", 1))
    texts = (f"{pair} ({', '.join(spans)})" for pair, spans in best.items())
    return (
        "Effects on C's logit depend on the counterfactual: rank correlation is highest for "
        f"{'; '.join(texts)}. Other pairs have {'; '.join(others)}. Of their "
        f"{numbers.N_STRONGEST} strongest heads{_by_chance(table)}, {_shared(table)}. A mark is "
        "one pair in one operation, with its 95% interval over problems."
    )


def _best_pair(table: DataFrame) -> tuple[str, str, str]:
    """The two counterfactuals with the highest mean correlation, and all correlations.

    Returns:
        The pair, its correlations in words, and those of the others with the operations in which
        no interval of theirs overlaps with that of the pair.
    """
    correlations = _by_pair(table, numbers.CORRELATION)
    best = max(correlations, key=lambda pair: float(correlations[pair].value.mean()))
    own, others = correlations[best], [one for pair, one in correlations.items() if pair != best]
    apart = [OPERATIONS[name].sign for name in _highest(own, others, "low", "high")]
    where = "each operation" if len(apart) == len(own) else listed(apart)
    rest = span_text([value for one in others for value in one.value], ".2f") if others else "none"
    return best, span_text(own.value, ".2f"), f"{rest} (intervals apart in {where})"


def _by_pair(table: DataFrame, measure: str) -> dict[str, DataFrame]:
    """The rows of a measure by operation, for each two counterfactuals: `word and operator`."""
    return {
        f"{a} and {b}": select(rows, measure=measure).set_index("operation")
        for a, b, rows in _pairs(table)
    }


def _highest(own: DataFrame, others: list[DataFrame], end: str, their_end: str) -> list[str]:
    """The operations in which an end of the own interval is above that of all others."""
    names = map(str, own.index)
    return [name for name in names if all(own[end][name] > one[their_end][name] for one in others)]


def _counterfactuals_heading(table: DataFrame, model: str) -> str:
    """Which two counterfactuals agree most by rank, and in how many operations by both measures."""
    best, *_ = _best_pair(table)
    counts = []
    for measure in (numbers.CORRELATION, numbers.IN_COMMON):
        own = _by_pair(table, measure)
        others = [one for pair, one in own.items() if pair != best]
        most, apart = (
            len(_highest(own[best], others, *ends))
            for ends in (("value", "value"), ("low", "high"))
        )
        counts.append((f"{most} of {len(own[best])}", apart))
    (ranks, apart), (shares, _) = counts
    pair = _pair_name(*best.split(" and "))
    by_rank = f"{ranks}, intervals apart in {apart}"
    return f"{model}: {pair} agree most by rank ({by_rank}), share ({shares})"


def _counterfactuals_notes(_: DataFrame, config: Settings) -> list[str]:
    """What the counterfactuals are."""
    return [
        f"An effect is the {maps.COLOUR_TITLES[config['metric']].lower()} when one head gets its "
        "output from a prompt with a word, another operator or other numbers. Lines "
        "are 95% intervals over problems (in brackets). That of a share can end at the share.",
    ]


def _pairs(table: DataFrame) -> Iterator[tuple[str, str, DataFrame]]:
    """Each two counterfactuals, and the rows of how far they agree."""
    rows = select(table, measure=numbers.CORRELATION)
    for a in keys_of(rows, "counterfactual"):
        for b in keys_of(select(rows, counterfactual=a), "other"):
            yield a, b, select(table, counterfactual=a, other=b)


def _shared(table: DataFrame) -> str:
    """How many of the strongest heads each two maps share: `word and operator share 5 to 8, …`."""
    shares: dict[str, list[float]] = {}
    for a, b, rows in _pairs(table):
        own = select(rows, measure=numbers.IN_COMMON).value
        shares.setdefault(f"{a} and {b}", []).extend(numbers.N_STRONGEST * own)
    texts = [f"{pair} {span_text(values, '.0f')}" for pair, values in shares.items()]
    return f"they share: {', '.join(texts)}"


def _chance(table: DataFrame) -> float | None:
    """The share of as many random heads that two sets have in common; None without a map."""
    heads = DataFrame(table[table["index"].notna()]) if "index" in table else table[:0]
    return numbers.N_STRONGEST / heads.component.nunique() if len(heads) else None


def _by_chance(table: DataFrame) -> str:
    """How many of the strongest heads as many random ones share, if that is known."""
    chance = _chance(select(table, model=keys_of(table, "model")[0]))
    return "" if chance is None else f" (by chance {numbers.N_STRONGEST * chance:.0f})"


def _draw_counterfactuals(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row per model: how all heads correlate, and how many of the strongest are shared."""
    titles = {
        numbers.CORRELATION: ("Rank correlation", "of all heads"),
        numbers.IN_COMMON: ("Share in common", f"of {numbers.N_STRONGEST} strongest heads"),
    }
    models = keys_of(table, "model")
    return plotting.dot_panels(
        [
            _agreement(select(table, model=model), measure, maps.title(*words))
            for model in models
            for measure, words in titles.items()
        ],
        plotting.DotAxis((-0.28, 1.04)),
        across=len(titles),
        headings=[_counterfactuals_heading(select(table, model=model), model) for model in models],
        row=36,
        notes=notes,
    )


def _agreement(table: DataFrame, measure: str, title: str) -> plotting.DotPanel:
    """One measure of how far counterfactuals agree: a row per operation, a mark per pair."""
    operations = keys_of(select(table, measure=measure), "operation")
    series = []
    for (a, b, rows), (symbol, style) in zip(_pairs(table), PAIR_MARKS.items(), strict=False):
        shift, colour = style
        own = select(rows, measure=measure).set_index("operation")
        name = _pair_name(a, b, examples=True)
        series.append(dots(own, operations, name, colour, symbol, shift, scale=1))
    chance = _chance(table)
    if chance is not None:
        level = np.full(len(operations), chance if measure == numbers.IN_COMMON else 0.0)
        series.append(plotting.Dots(level, "by chance", COLOURS["control"], symbol="line-ns-open"))
    sizes = select(table, measure="problems").drop_duplicates("operation")
    n = dict(zip(sizes.operation, sizes.value, strict=True))
    rows = (f"{name.capitalize()}{f' ({n[name]:.0f})' if name in n else ''}" for name in operations)
    return plotting.DotPanel(title, tuple(rows), tuple(series))


def _pair_name(a: str, b: str, *, examples: bool = False) -> str:
    """`a word and another operator`, with an example of each or without."""
    names = (COUNTERFACTUAL_NAMES.get(one, (one, one)) for one in (a, b))
    return " and ".join(f"{name} ({prompt})" if examples else name for name, prompt in names)


def computed(options: Options) -> list[Chart]:
    """The strongest heads where no answer can be copied, and in all one-digit problems.

    Reads a run of `experiments do_copies_decide` and draws it without loading a model. The table
    has the maps, the rank correlation of the heads' effects and the share of the ten strongest
    heads that both sets of problems have in common, with 95% intervals over problems.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_copies_decide")
    return [
        chart_of(
            lambda: numbers.problem_sets(run),
            [run],
            name="computed",
            title="Do the same heads matter where no answer can be copied?",
            caption=_computed_caption,
            notes=_computed_notes,
            draw=_draw_computed,
        )
    ]


def _computed_caption(table: DataFrame) -> str:
    """Which head only larger problems use, and how many strongest heads stay in each model."""
    by_model = {f"`{name}`": select(table, model=name) for name in keys_of(table, "model")}
    new = [f"{head} in {name}" for name, own in by_model.items() if (head := _new_head(own))]
    kept = (f"{name} {' and '.join(_kept_heads(own))}" for name, own in by_model.items())
    signs = listed(OPERATIONS[name].sign for name in keys_of(table, "operation"))
    return (
        f"Only larger problems use {' and '.join(new)}. "
        * bool(new)
        + f"Of one-digit problems' {numbers.N_STRONGEST} strongest heads, these stay in {signs}: "
        f"{', '.join(kept)}{_by_chance(table)}. A mark is {LENS} when one head gets its output "
        "from that prompt, with its 95% interval over problems."
    )


def _computed_notes(table: DataFrame, config: Settings) -> list[str]:
    """What the sets of problems are, and how many problems they have."""
    return [
        f"Rows: the {N_SHOWN} strongest heads (layer.head) of each set. Bold: how many of the "
        f"{numbers.N_STRONGEST} strongest are in both sets{_by_chance(table)}, or in one. n: "
        "problems answered right. Lines are 95% intervals; that of a count can end at it.",
    ]


def _draw_computed(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row of operations per model: the heads that are strongest in either set of problems."""
    models, operations = keys_of(table, "model"), keys_of(table, "operation")
    panels = [
        _strongest(select(table, model=model, operation=operation), operation)
        for model in models
        for operation in operations
    ]
    ends = [end for panel in panels for one in panel.series for end in (one.low, one.high)]
    return plotting.dot_panels(
        panels,
        plotting.DotAxis(reach(ends), "change of C's logit", "%", every_line=True),
        across=len(operations),
        headings=[_computed_heading(select(table, model=model), model) for model in models],
        row=14,
        notes=notes,
    )


def _computed_heading(table: DataFrame, model: str) -> str:
    """Which head only larger problems use, and how many strongest heads stay in each operation."""
    new = _new_head(table)
    use = f"only larger problems use {new}; " if new else ""
    kept = " and ".join(_kept_heads(table))
    return f"{model}: {use}{kept} of {numbers.N_STRONGEST} strongest stay"


def _strongest(table: DataFrame, operation: str) -> plotting.DotPanel:
    """The strongest heads of each set of problems, in groups below how many of ten they stand for.

    A group has heads that are among the ten strongest of both sets, or of one alone.
    """
    sets = _effects_of_sets(table)
    orders = [[*of_set.value.sort_values().index] for of_set in sets.values()]
    one_digit, larger = (order[: numbers.N_STRONGEST] for order in orders)
    names = [name for name, _ in PROBLEM_SET_NAMES.values()]
    groups = {
        "both": [head for head in one_digit if head in larger],
        names[0]: [head for head in one_digit if head not in larger],
        names[1]: [head for head in larger if head not in one_digit],
    }
    shown = {head for order in orders for head in order[:N_SHOWN]}
    titles = {}
    for name, heads in groups.items():
        n_drawn = len(shown.intersection(heads))
        if heads:
            titles[f"{name}: {len(heads)}" + f" ({n_drawn} shown)" * (n_drawn < len(heads))] = heads
    rows = [
        row
        for title, heads in titles.items()
        for row in (title, *(head for head in heads if head in shown))
    ]
    series = []
    for (key, of_set), symbol, shift, colour in zip(
        sets.items(), ("circle", "circle-open"), (-0.2, 0.2), SET_COLOURS, strict=True
    ):
        series.append(dots(of_set, rows, PROBLEM_SET_NAMES[key][1], colour, symbol, shift))
    sizes = select(table, measure="problems").set_index("problems").value
    n = " and ".join(f"{sizes[key]:.0f}" for key in sets if key in sizes)
    strong = tuple(row in titles for row in rows)
    title = maps.title(operation, f"n = {n}" if n else "")
    return plotting.DotPanel(title, tuple(rows), tuple(series), strong, linked=True)


def _effects_of_sets(table: DataFrame) -> dict[str, DataFrame]:
    """The heads' effects in each set of problems, by component."""
    effects = select(table, measure=EFFECT, other="")
    of_heads = DataFrame(effects[effects["index"].notna()])
    return {key: select(of_heads, problems=key).set_index("component") for key in PROBLEM_SET_NAMES}


def _new_head(table: DataFrame) -> str:
    """The strongest head that only larger problems use, and its effects: `8.4 (× −12%, ÷ −15%)`.

    In each operation its interval has 0 in one-digit problems, and is below that one in larger
    problems. Empty if no head is such.
    """
    effects = {}
    for operation in keys_of(table, "operation"):
        one_digit, larger = _effects_of_sets(select(table, operation=operation)).values()
        is_new = (one_digit.low <= 0) & (one_digit.high >= 0)
        is_new &= larger.high < one_digit.low
        effects[operation] = larger.value.where(is_new)
    new = DataFrame(effects).dropna()
    if new.empty:
        return ""
    head = new.sum(axis="columns").idxmin()
    values = ", ".join(
        f"{OPERATIONS[str(operation)].sign} {value:.0%}".replace("-", "−")
        for operation, value in new.loc[head].items()
    )
    return f"head {head} ({values})"


def _kept_heads(table: DataFrame) -> list[str]:
    """How many of the strongest heads stay in larger problems, by operation: `4 [4, 6]`."""
    n = numbers.N_STRONGEST
    return [
        f"{n * one.value:.0f} [{n * one.low:.0f}, {n * one.high:.0f}]"
        for one in records(select(table, measure=numbers.IN_COMMON))
    ]
