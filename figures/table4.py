"""Table 4: the strongest heads on generated prompts and on word problems, knocked out crosswise.

Reads a run of `experiments do_word_problems_use_them`, without loading a model; prints two
tables, of sets of heads and of heads, and writes them as HTML and their numbers as CSV.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame

from arith_lens.knockout import OutcomeChange, Outcomes, drop
from arith_lens.paper import paper_model
from arith_lens.runs import Run
from experiments import results
from figures.common import TableOptions, chosen_run, sample_size
from figures.exhibit import Table

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
CONTROL_NAMES = {
    "random": "{} heads drawn from all",
    "matched": "{} others in the layers of the strongest on the same prompts",
}
PROMPT_SOURCES = {"generated": "generated prompts", "word_problems": "word problems"}


def exhibits(options: TableOptions) -> list[Table]:
    """Two tables of a run: sets of heads, and heads. Raises RunError if there is no run."""
    run = chosen_run(options, "do_word_problems_use_them")
    title, model = "Table 4: heads for generated prompts and for word problems", run.config["model"]
    return [
        Table(
            name=name,
            title=f"{title}: {title_part}, {model}",
            look=look,
            notes=small,
            runs=(run,),
            numbers=DataFrame([numbers for _, numbers in rows]),
            cells=DataFrame([text for text, _ in rows]),
        )
        for name, title_part, look, small, rows in (
            ("table4", "sets", SETS_LOOK, notes(run), set_rows(run)),
            ("table4_heads", "heads", HEADS_LOOK, HEAD_NOTES, head_rows(run)),
        )
    ]


def set_rows(run: Run) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """What the knockout of each set of heads costs on both data, as text and as numbers."""
    rows = []
    for label, title in HEAD_SET_NAMES.items():
        heads = results.OUTCOMES.facts(run, label, "generated")["heads"]
        text = {"heads": title, "which": ", ".join(heads) or "none"}
        numbers: dict[str, Any] = {"set": label, "heads": " ".join(heads)}
        for data, name in PROMPT_SOURCES.items():
            change = _change(run, label, data)
            text[f"accuracy, {name}"] = _change_text(change)
            numbers |= {f"{data}_{key}": value for key, value in _numbers(change).items()}
        rows.append((text, numbers))
    controls = {data: results.control_outcomes(run, data) for data in PROMPT_SOURCES}
    return rows + [_control_row(run, controls, kind) for kind in controls["generated"]]


def _control_row(
    run: Run, controls: Mapping[str, Mapping[str, Sequence[Outcomes]]], kind: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """As many control heads: the mean and the range over draws."""
    n_draws = len(controls["generated"][kind])
    text = {"heads": CONTROL_NAMES[kind].format(run.config["heads"]), "which": f"{n_draws} draws"}
    numbers: dict[str, Any] = {"set": kind, "heads": ""}
    for data, name in PROMPT_SOURCES.items():
        before = results.OUTCOMES.load(run, "none", data)
        losses = [drop(before, after).accuracy.relative for after in controls[data][kind]]
        mean = sum(losses) / len(losses)
        text[f"accuracy, {name}"] = f"{mean:+.0%} ({min(losses):+.0%} to {max(losses):+.0%})"
        numbers |= {f"{data}_relative": mean, f"{data}_relative_low": min(losses)}
        numbers[f"{data}_relative_high"] = max(losses)
    return text, numbers


def _change(run: Run, label: str, data: str) -> OutcomeChange:
    before, after = (results.OUTCOMES.load(run, name, data) for name in ("none", label))
    return drop(before, after).accuracy


def _change_text(change: OutcomeChange) -> str:
    low, high = change.relative_ci
    return (
        f"{change.before:.0%} to {change.after:.0%}: {change.relative:+.0%} "
        f"[{low:+.0%}, {high:+.0%}]"
    )


def _numbers(change: OutcomeChange) -> dict[str, float]:
    low, high = change.relative_ci
    return {
        "before": change.before,
        "after": change.after,
        "relative": change.relative,
        "relative_low": low,
        "relative_high": high,
    }


def head_rows(run: Run) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The effect of each head on both data, and where it looks from END."""
    effects = {
        "generated": results.POOLED_MAP.load(run).heads,
        "word_problems": results.MAP.load(run, "word_problems").heads,
    }
    looks = {data: results.CLASS_ATTENTION.load(run, data) for data in PROMPT_SOURCES}
    names = (looks["generated"].labels or {})["head"]
    rows = []
    for row_index, name in enumerate(names):
        layer, index = map(int, name.split("."))
        text, numbers = {"head": name}, {"head": name}
        for data in PROMPT_SOURCES:
            effect = float(effects[data].mean()[layer, index])
            classes = (looks[data].labels or {})["class"]
            weights = dict(zip(classes, looks[data].mean()[row_index].tolist(), strict=True))
            text[f"effect, {PROMPT_SOURCES[data]}"] = f"{effect:+.1%}"
            text[f"looks at, {PROMPT_SOURCES[data]}"] = _where(weights)
            numbers |= {f"{data}_effect": effect}
            numbers |= {f"{data}_{key}": value for key, value in weights.items()}
        rows.append((text, numbers))
    return sorted(rows, key=lambda row: row[1]["generated_effect"])


def _where(weights: dict[str, float]) -> str:
    """The classes with at least 10% of the weight, the largest first."""
    most = sorted(weights.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {weight:.0%}" for name, weight in most if weight >= 0.1)


def notes(run: Run) -> list[str]:
    """How to read the table, what replaces GSM8K, and the paper's numbers."""
    facts = {
        "generated": results.POOLED_MAP.facts(run),
        "word_problems": results.MAP.facts(run, "word_problems"),
    }
    source = "GSM8K's questions, rewritten"
    if run.config["data_dir"] is None:
        source = "the closed world's word problems, which stand in for GSM8K here"
    ours, theirs = (
        results.OUTCOMES.facts(run, name, "generated")["heads"] for name in PROMPT_SOURCES
    )
    lines = [
        f"Generated prompts: the four operations, {sample_size(facts['generated'])}. "
        f"Word problems: {source}, {sample_size(facts['word_problems'])}. All are "
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
