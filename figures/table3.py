"""Table 3: key heads of exponentiation, and what knocking them out costs.

Reads a run of `experiments do_powers_use_them`, without loading a model; prints the table and
writes it as HTML and its numbers as CSV.
"""

from typing import Any

from pandas import DataFrame

from arith_lens.effects import key_heads
from arith_lens.knockout import drop
from arith_lens.operations import FOUR
from arith_lens.paper import paper_model
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments import results
from figures.common import TableOptions, chosen_run, sample_size
from figures.exhibit import Table

CONTROL_NAMES = {"random": "as many random heads", "matched": "random heads, same layers"}
WORDINGS = {
    template.name.replace("/", "-"): template.text.replace("{op}", template.word)
    for template in TEMPLATES["exponentiation"]
}


def exhibits(options: TableOptions) -> list[Table]:
    """The table of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "do_powers_use_them")
    rows = [row(run, name) for name in WORDINGS]
    cells, numbers = (DataFrame([row_parts[i] for row_parts in rows]) for i in (0, 1))
    return [
        Table(
            name="table3",
            title=f"Table 3: key heads of exponentiation, {run.config['model']}",
            look="Whether powers, which no other experiment asks for, use heads of the four "
            "operations too, and fall with them. In the paper some are the same.",
            notes=notes(run),
            runs=(run,),
            numbers=numbers,
            cells=cells,
        )
    ]


def row(run: Run, name: str) -> tuple[dict[str, str], dict[str, Any]]:
    """One wording, as text and as numbers."""
    effects, curves = results.MAP.load(run, name), results.KNOCKOUT_CURVES.load(run, name)
    key, facts = key_heads(effects), results.KNOCKOUT_CURVES.facts(run, name)
    means = effects.heads.mean()
    shared = [head for head in key if head in of_four_operations(run)]
    k = len(key)
    change = curves["effect"].drop(k).accuracy
    before, draws = curves["effect"].at(0), results.controls_at(curves, k)
    others = {
        kind: [drop(before, one).accuracy.relative for one in after]
        for kind, after in draws.items()
    }
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
        "relative [95%]": f"{change.relative:+.0%} [{low:+.0%}, {high:+.0%}]",
    }
    for kind, losses in others.items():
        mean, worst = sum(losses) / len(losses), min(losses)
        numbers |= {f"{kind}_mean": mean, f"{kind}_worst": worst}
        text[CONTROL_NAMES[kind]] = f"{mean:+.0%} (worst {worst:+.0%})"
    return text, numbers


def of_four_operations(run: Run) -> set[Any]:
    """Heads that are key for any of the four operations."""
    return {head for name in FOUR for head in key_heads(results.MAP.load(run, name))}


def notes(run: Run) -> list[str]:
    """How to read the table, and the paper's numbers."""
    lines = [
        "Key heads: mean effect of path patching below -5% of the answer's logit. Knockout: mean "
        "over the counterfactuals of the same wording and position, every position but BOS. "
        "Accuracy before is 100% by the filter. Intervals: bootstrap over problems.",
        f"Random heads: {run.config['controls']} draws of as many heads, from all heads, and from "
        "the other heads of the same layers.",
    ]
    paper = paper_model(run.config["model"])
    if paper is not None and paper.exponent_heads:
        named = ", ".join(map(str, paper.exponent_heads))
        lines.append(f"The paper, {paper.name}: {named}; -66% and -62%.")
    return lines
