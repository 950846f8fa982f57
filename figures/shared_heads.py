"""Tables 3 and 4: do powers and word problems use the heads of the four operations?"""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame

from arith_lens.effects import key_heads
from arith_lens.knockout import OutcomeChange, Outcomes, drop
from arith_lens.operations import FOUR
from arith_lens.paper import paper_model
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments import results
from figures.common import TableOptions, chosen_run, sample_size
from figures.exhibit import Table

Row = tuple[dict[str, str], dict[str, Any]]
"""One row, as text and as numbers."""
POWER_CONTROLS = {"random": "as many random heads", "matched": "random heads, same layers"}
WORDINGS = {
    template.name.replace("/", "-"): template.text.replace("{op}", template.word)
    for template in TEMPLATES["exponentiation"]
}


def table3(options: TableOptions) -> list[Table]:
    """Table 3: key heads of exponentiation, and what knocking them out costs.

    Reads a run of `experiments do_powers_use_them`, without loading a model; prints the table
    and writes it as HTML and its numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_powers_use_them")
    of_four = {head for name in FOUR for head in key_heads(results.MAP.load(run, name))}
    rows = [_power_row(run, name, of_four) for name in WORDINGS]
    notes = [
        "Key heads: mean effect of path patching below -5% of the answer's logit. Knockout: mean "
        "over the counterfactuals of the same wording and position, every position but BOS. "
        "Accuracy before is 100% by the filter. Intervals: bootstrap over problems.",
        f"Random heads: {run.config['controls']} draws of as many heads, from all heads, and from "
        "the other heads of the same layers.",
    ]
    paper = paper_model(run.config["model"])
    if paper is not None and paper.exponent_heads:
        named = ", ".join(map(str, paper.exponent_heads))
        notes.append(f"The paper, {paper.name}: {named}; -66% and -62%.")
    return [
        Table(
            name="table3",
            title=f"Table 3: key heads of exponentiation, {run.config['model']}",
            look="Whether powers, which no other experiment asks for, use heads of the four "
            "operations too, and fall with them. In the paper some are the same.",
            notes=notes,
            runs=(run,),
            numbers=DataFrame([numbers for _, numbers in rows]),
            cells=DataFrame([text for text, _ in rows]),
        )
    ]


def _power_row(run: Run, name: str, of_four: set[Any]) -> Row:
    """One wording; `of_four` are the heads that are key for any of the four operations."""
    effects, curves = results.MAP.load(run, name), results.KNOCKOUT_CURVES.load(run, name)
    key, facts = key_heads(effects), results.KNOCKOUT_CURVES.facts(run, name)
    means = effects.heads.mean()
    shared = [head for head in key if head in of_four]
    change = curves["effect"].drop(len(key)).accuracy
    low, high = change.relative_ci
    numbers = {
        "wording": WORDINGS[name],
        "references": facts["distinct"],
        "pairs": facts["pairs"],
        "key_heads": " ".join(map(str, key)),
        "also_of_the_four_operations": " ".join(map(str, shared)),
        "accuracy_before": change.before,
        "accuracy_after": change.after,
        "relative": change.relative,
        "relative_low": low,
        "relative_high": high,
    }
    text = {
        "X_r": WORDINGS[name],
        "prompts": sample_size(facts),
        "key heads (effect)": ", ".join(f"{h} ({means[h.layer, h.index]:+.1%})" for h in key)
        or "none",
        "key in + − × ÷ too": ", ".join(map(str, shared)) or "none",
        "accuracy": f"{change.before:.0%} to {change.after:.0%}",
        "relative [95%]": _relative_text(change),
    }
    for kind, draws in results.controls_at(curves, len(key)).items():
        losses = _losses(curves["effect"].at(0), draws)
        mean, worst = sum(losses) / len(losses), min(losses)
        numbers |= {f"{kind}_mean": mean, f"{kind}_worst": worst}
        text[POWER_CONTROLS[kind]] = f"{mean:+.0%} (worst {worst:+.0%})"
    return text, numbers


def _relative_text(change: OutcomeChange) -> str:
    low, high = change.relative_ci
    return f"{change.relative:+.0%} [{low:+.0%}, {high:+.0%}]"


def _losses(before: Outcomes, draws: Sequence[Outcomes]) -> list[float]:
    """The relative change of accuracy without each draw of heads."""
    return [drop(before, after).accuracy.relative for after in draws]


HEAD_SET_NAMES = {
    "generated": "strongest on generated prompts",
    "word_problems": "strongest on word problems",
    "overlap": "in both",
    "generated_only": "on generated prompts only",
    "word_problems_only": "on word problems only",
}
SETS_LOOK = (
    "The heads that both kinds of prompts have among their strongest should cost both alike; in "
    "the paper they cost most of what all ten cost."
)
HEADS_LOOK = "Whether a head looks at the same kind of token in both."
HEAD_NOTES = (
    "Looks at: share of the attention weight from END, on reference prompts; a tenth or more.",
)
SET_CONTROLS = {
    "random": "{} heads drawn from all",
    "matched": "{} others in the layers of the strongest on the same prompts",
}
PROMPT_SOURCES = {"generated": "generated prompts", "word_problems": "word problems"}


def table4(options: TableOptions) -> list[Table]:
    """Table 4: strongest heads on generated prompts and on word problems, knocked out crosswise.

    Reads a run of `experiments do_word_problems_use_them`, without loading a model; prints two
    tables, of sets of heads and of heads, and writes them as HTML and their numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_word_problems_use_them")
    title, model = "Table 4: heads for generated prompts and for word problems", run.config["model"]
    return [
        Table(
            name=name,
            title=f"{title}: {title_part}, {model}",
            look=look,
            notes=notes,
            runs=(run,),
            numbers=DataFrame([numbers for _, numbers in rows]),
            cells=DataFrame([text for text, _ in rows]),
        )
        for name, title_part, look, notes, rows in (
            ("table4", "sets", SETS_LOOK, _set_notes(run), _set_rows(run)),
            ("table4_heads", "heads", HEADS_LOOK, HEAD_NOTES, _head_rows(run)),
        )
    ]


def _set_rows(run: Run) -> list[Row]:
    """What the knockout of each set of heads costs on both data."""
    before = {data: results.OUTCOMES.load(run, "none", data) for data in PROMPT_SOURCES}
    rows: list[Row] = []
    for label, title in HEAD_SET_NAMES.items():
        heads = results.OUTCOMES.facts(run, label, "generated")["heads"]
        text = {"heads": title, "which": ", ".join(heads) or "none"}
        numbers: dict[str, Any] = {"set": label, "heads": " ".join(heads)}
        for data, name in PROMPT_SOURCES.items():
            change = drop(before[data], results.OUTCOMES.load(run, label, data)).accuracy
            low, high = change.relative_ci
            text[f"accuracy, {name}"] = (
                f"{change.before:.0%} to {change.after:.0%}: {_relative_text(change)}"
            )
            numbers |= {f"{data}_before": change.before, f"{data}_after": change.after}
            numbers |= {f"{data}_relative": change.relative}
            numbers |= {f"{data}_relative_low": low, f"{data}_relative_high": high}
        rows.append((text, numbers))
    controls = {data: results.control_outcomes(run, data) for data in PROMPT_SOURCES}
    return rows + [_control_row(run, before, controls, kind) for kind in controls["generated"]]


def _control_row(
    run: Run,
    before: Mapping[str, Outcomes],
    controls: Mapping[str, Mapping[str, Sequence[Outcomes]]],
    kind: str,
) -> Row:
    """As many control heads: the mean and the range over draws."""
    n_draws = len(controls["generated"][kind])
    text = {"heads": SET_CONTROLS[kind].format(run.config["heads"]), "which": f"{n_draws} draws"}
    numbers: dict[str, Any] = {"set": kind, "heads": ""}
    for data, name in PROMPT_SOURCES.items():
        losses = _losses(before[data], controls[data][kind])
        mean = sum(losses) / len(losses)
        text[f"accuracy, {name}"] = f"{mean:+.0%} ({min(losses):+.0%} to {max(losses):+.0%})"
        numbers |= {f"{data}_relative": mean, f"{data}_relative_least": min(losses)}
        numbers[f"{data}_relative_most"] = max(losses)
    return text, numbers


def _head_rows(run: Run) -> list[Row]:
    """The effect of each head on both data, and where it looks from END."""
    effects = {
        "generated": results.POOLED_MAP.load(run).heads.mean(),
        "word_problems": results.MAP.load(run, "word_problems").heads.mean(),
    }
    looks = {data: results.CLASS_ATTENTION.load(run, data) for data in PROMPT_SOURCES}
    rows: list[Row] = []
    for row_index, name in enumerate((looks["generated"].labels or {})["head"]):
        layer, index = map(int, name.split("."))
        text: dict[str, str] = {"head": name}
        numbers: dict[str, Any] = {"head": name}
        for data, source in PROMPT_SOURCES.items():
            effect = float(effects[data][layer, index])
            classes = (looks[data].labels or {})["class"]
            weights = dict(zip(classes, looks[data].mean()[row_index].tolist(), strict=True))
            most = sorted(weights.items(), key=lambda item: -item[1])
            text[f"effect, {source}"] = f"{effect:+.1%}"
            text[f"looks at, {source}"] = ", ".join(
                f"{name} {weight:.0%}" for name, weight in most if weight >= 0.1
            )
            numbers |= {f"{data}_effect": effect}
            numbers |= {f"{data}_{key}": value for key, value in weights.items()}
        rows.append((text, numbers))
    return sorted(rows, key=lambda row: row[1]["generated_effect"])


def _set_notes(run: Run) -> list[str]:
    """How to read the table, what replaces GSM8K, and the paper's numbers."""
    sizes = {
        "generated": sample_size(results.POOLED_MAP.facts(run)),
        "word_problems": sample_size(results.MAP.facts(run, "word_problems")),
    }
    source = "GSM8K's questions, rewritten"
    if run.config["data_dir"] is None:
        source = "the closed world's word problems, which stand in for GSM8K here"
    ours, theirs = (
        results.OUTCOMES.facts(run, name, "generated")["heads"] for name in PROMPT_SOURCES
    )
    lines = [
        f"Generated prompts: the four operations, {sizes['generated']}. "
        f"Word problems: {source}, {sizes['word_problems']}. All are "
        "answered right with every head in place, so that accuracy before is 100% by the filter; "
        "word problems whose counterfactual is answered with C as well are left out.",
        f"Strongest: the {run.config['heads']} heads with the most negative mean effect; "
        f"{len({*ours} & {*theirs})} of {len(ours)} are the same.",
        "Knockout: mean over the counterfactuals of the same data (generated prompts: of the same "
        "template and position; word problems: one vector a head), every position but BOS. "
        "Relative change with its 95% interval; at most "
        f"{run.config['most']} pairs of each kind, evenly spread.",
    ]
    paper = paper_model(run.config["model"])
    if paper is not None and paper.name == "LLaMA2-7B":
        lines.append(
            "The paper, LLaMA2-7B on its prompts / on GSM8K: own ten heads -69% / -65%; the six in "
            "both -56% / -52%; the four of GSM8K only -2% / -26%."
        )
    return lines
