"""Tables 3 and 4: do powers and word problems use the heads of the four operations?"""

from functools import partial

from pandas import DataFrame

from figures.common import chosen_run
from figures.exhibit import Table, text_table_of
from figures.options import TableOptions
from figures.tables import powers, word_problems
from figures.tables.answers import AFTER, BEFORE, HEADS, RELATIVE_CHANGE
from figures.tables.table import keys_of, records, select, value
from figures.views.words import components_text, size_text

POWER_CONTROLS = {"random": "as many random heads", "same layers": "random heads, same layers"}
Texts = dict[str, str]


def table3(options: TableOptions) -> list[Table]:
    """Table 3: key heads of exponentiation, and what knocking them out costs."""
    run = chosen_run(options, "do_powers_use_them")
    return [
        text_table_of(
            partial(powers.table, run),
            [run],
            name="table3",
            title=f"Table 3: key heads of exponentiation, {run.config['model']}",
            caption="Key heads: mean effect of path patching below −5% of the answer's logit that "
            "differs from zero. Knockout: mean over the counterfactuals of the same wording and "
            "position, every position but BOS. Accuracy before is 100% by the filter. Intervals: "
            "bootstrap over problems. Random heads: draws of as many heads, from all, and from the "
            "other heads of the same layers.",
            cells=lambda rows: DataFrame(
                _power_texts(select(rows, wording=wording)) for wording in keys_of(rows, "wording")
            ),
        )
    ]


def _power_texts(rows: DataFrame) -> Texts:
    """One wording."""
    heads = select(rows, measure=powers.EFFECT)
    shared = [head.component for head in records(heads) if head.of_four == "yes"]
    named = [f"{one.component} ({one.value:+.1%})" for one in records(heads)]
    text = {
        "X_r": str(rows.wording.iloc[0]),
        "prompts": size_text(rows),
        "key heads (effect)": ", ".join(named) or "none",
        "key in + − × ÷ too": ", ".join(shared) or "none",
    }
    text["accuracy"], text["relative [95%]"] = _accuracy_texts(rows, powers.KEY_HEADS)
    for kind, title in POWER_CONTROLS.items():
        for one in records(select(rows, measure=RELATIVE_CHANGE, knocked_out=kind)):
            text[title] = f"{one.value:+.0%} (worst {one.low:+.0%})"
    return text


def _accuracy_texts(rows: DataFrame, heads: str) -> tuple[str, str]:
    """`100% to 22%`, and the relative change with its interval, without a set of heads."""
    without = select(rows, knocked_out=heads)
    (change,) = records(select(without, measure=RELATIVE_CHANGE))
    return (
        f"{value(rows, measure=BEFORE):.0%} to {value(without, measure=AFTER):.0%}",
        f"{change.value:+.0%} [{change.low:+.0%}, {change.high:+.0%}]",
    )


SET_CONTROLS = {
    "random": "{} heads drawn from all",
    "same layers": "{} others in the layers of the strongest on the same prompts",
}


def table4(options: TableOptions) -> list[Table]:
    """Table 4: strongest heads on generated prompts and on word problems, knocked out crosswise."""
    run = chosen_run(options, "do_word_problems_use_them")
    title, model = "Table 4: heads for generated prompts and for word problems", run.config["model"]

    return [
        text_table_of(
            partial(word_problems.table, run),
            [run],
            name="table4",
            title=f"{title}: sets, {model}",
            caption="Strongest: the heads with the most negative mean effects. All prompts are "
            "answered right with every head in place; word problems whose counterfactual is "
            "answered with C as well are left out. Knockout: mean over the counterfactuals of the "
            "same data, every position but BOS. Relative change with its 95% interval. In place of "
            "GSM8K, models of the closed world have its word problems.",
            cells=_set_cells,
        ),
        text_table_of(
            partial(word_problems.table, run),
            [run],
            name="table4_heads",
            table_of="table4",
            title=f"{title}: heads, {model}",
            caption="Looks at: share of the attention weight from END, on reference prompts; a "
            "tenth or more.",
            cells=_head_cells,
        ),
    ]


def _set_cells(rows: DataFrame) -> DataFrame:
    """What the knockout of each set of heads costs on both kinds of prompts."""
    cells = []
    for name in word_problems.SETS.values():
        which = components_text(select(rows, knocked_out=name)) or "none"
        text = {"heads": name, "which": which}
        for prompts in word_problems.PROMPTS.values():
            after, change = _accuracy_texts(select(rows, prompts=prompts), name)
            text[f"accuracy, {prompts}"] = f"{after}: {change}"
        cells.append(text)
    n_heads = value(rows, measure=HEADS, knocked_out=word_problems.SETS["generated"])
    for kind, title in SET_CONTROLS.items():
        losses = records(select(rows, measure=RELATIVE_CHANGE, knocked_out=kind))
        if losses:
            text = {"heads": title.format(f"{n_heads:.0f}"), "which": f"{losses[0].n:.0f} draws"}
            for one in losses:
                ends = f"{one.low:+.0%} to {one.high:+.0%}"
                text[f"accuracy, {one.prompts}"] = f"{one.value:+.0%} ({ends})"
            cells.append(text)
    return DataFrame(cells)


def _head_cells(rows: DataFrame) -> DataFrame:
    """The effect of each head on both kinds of prompts, and where it looks from END."""
    effects = select(rows, measure=word_problems.EFFECT)
    by_effect = select(effects, prompts=word_problems.PROMPTS["generated"]).sort_values("value")
    return DataFrame(
        _head_texts(select(rows, component=name, knocked_out="")) for name in by_effect.component
    )


def _head_texts(rows: DataFrame) -> Texts:
    """One head."""
    text = {"head": str(rows.component.iloc[0])}
    for prompts in word_problems.PROMPTS.values():
        of_prompts = select(rows, prompts=prompts)
        weights = select(of_prompts, measure=word_problems.ATTENTION)
        most = records(weights.sort_values("value", ascending=False, kind="stable"))
        text[f"effect, {prompts}"] = f"{value(of_prompts, measure=word_problems.EFFECT):+.1%}"
        text[f"looks at, {prompts}"] = ", ".join(
            f"{one.token} {one.value:.0%}" for one in most if one.value >= 0.1
        )
    return text
