"""The audits of pretrained and of shipped models, for docs/pretrained.md.

Each task of each model is audited into a folder of its own, and can be stopped and continued. The
table has the rows of all audits that are finished.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import arith_lens as al
from arith_lens.auditing import PARTS, READ, Audit, four_operations, measures, operation_pairs
from arith_lens.operations import FOUR
from arith_lens.pairs import Role

SHOTS = {"gemma-3-270m": 4}
"""Solved examples before a problem, where another number than usual is needed."""
FINISHED = "*/*/audit.safetensors"
"""The stored audits in their folder."""
MEAN_LAYER, EARLY = "mean layer", "heads below a third of the layers"
"""Where the negative effects are."""
LOOKS = {
    "the strongest head's attention to A": Role.OPERAND_A,
    "the second head's attention to B": Role.OPERAND_B,
}
"""What the two strongest heads look at; the controls are other roles but BOS."""
MIXED, CAPITALS = "all operations", "capitals"
"""The tasks beside the four operations: means over all four, and no arithmetic at all."""
CITIES = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
    "Russia": "Moscow", "China": "Beijing", "Egypt": "Cairo", "Greece": "Athens",
    "Austria": "Vienna", "Ireland": "Dublin", "Portugal": "Lisbon", "Poland": "Warsaw",
    "Norway": "Oslo", "Cuba": "Havana", "Iran": "Tehran", "Iraq": "Baghdad", "Israel": "Jerusalem",
    "Syria": "Damascus", "Turkey": "Ankara", "Canada": "Ottawa", "Kenya": "Nairobi",
    "Sweden": "Stockholm", "Hungary": "Budapest", "Denmark": "Copenhagen", "Afghanistan": "Kabul",
    "Colombia": "Bogota", "Vietnam": "Hanoi", "Taiwan": "Taipei", "Scotland": "Edinburgh",
    "Finland": "Helsinki", "Switzerland": "Bern", "Czechoslovakia": "Prague",
    "Ukraine": "Kiev", "Lebanon": "Beirut", "Peru": "Lima", "England": "London",
}  # fmt: skip
EXAMPLES = (("India: Delhi", "Belgium: Brussels"), ("Belgium: Brussels", "India: Delhi"))
"""Two sets of examples before each country."""


def audits(
    model: str = "smollm2-135m",
    tasks: tuple[str, ...] = FOUR,
    draws: int = 100,
    out: Path = Path("results/audits"),
) -> None:
    """Audit a model on some tasks: the four operations, `all operations`, `capitals`.

    Args:
        model: a name, a folder or a GGUF file.
        tasks: what the model is asked.
        draws: the number of random sets of heads.
        out: the folder of the audits; each has its page, its table and its arrays.
    """
    loaded = al.load_model(model)
    for task in tasks:
        folder = out / loaded.name / task.replace(" ", "-")
        options: dict[str, Any] = {"draws": draws}
        if task in FOUR:
            options["means_over"] = four_operations(loaded, shots=SHOTS.get(loaded.name))
        config = {"task": task, "draws": draws}
        with al.open_run("audit", config, model=loaded, root=out / "runs") as run:
            audit = al.audit(loaded, pairs_of(loaded, task), run=run, **options)
        audit.save(folder)
        print(f"{task}: {audit}\n{folder}", flush=True)


def pairs_of(model: al.HookedModel, task: str) -> Mapping[str, al.PromptPairs]:
    """The pairs of a task by their counterfactual, also those that are answered wrong."""
    if task == CAPITALS:
        return {"another country": capitals(model)}
    if task == MIXED:
        return {"operands": four_operations(model)}
    return operation_pairs(model, task, shots=SHOTS.get(model.name))


def capitals(model: al.HookedModel) -> al.PromptPairs:
    """Countries and capitals of one token each; the counterfactual asks another country."""

    def length(text: str) -> int:
        return len(model.tokenizer(text, add_special_tokens=False).input_ids)

    known: dict[int, list[tuple[str, str]]] = {}
    for country, city in CITIES.items():
        if length(f" {city}") == 1:
            known.setdefault(length(f"\n{country}:"), []).append((country, city))
    aligned = [
        (own, group[(number + len(group) // 2) % len(group)])
        for group in known.values()
        if len(group) > 1
        for number, own in enumerate(group)
    ]
    rows = []
    for examples in EXAMPLES:
        for (country, city), (other, other_city) in aligned:
            before = "\n".join(examples)
            rows.append(
                {
                    "reference": f"{before}\n{country}:",
                    "counterfactual": f"{before}\n{other}:",
                    "answer": f" {city}",
                    "counterfactual_answer": f" {other_city}",
                    "problem": country,
                }
            )
    return al.PromptPairs.from_rows(rows, model)


def audit_table(out: Path = Path("results/audits"), csv: Path | None = None) -> None:
    """Print the rows of all finished audits, and write them to a file.

    Args:
        out: the folder of the audits.
        csv: the file to write; audit_heads.csv beside it has what the heads look at and read.
    """
    import pandas as pd

    parts = []
    for file in sorted(out.glob(FINISHED)):
        audit = Audit.load(file)
        table = pd.concat([audit.verdicts, pd.DataFrame(_beside(audit))])
        table.insert(0, "task", file.parent.name.replace("-", " "))
        table.insert(0, "model", audit.model)
        table["heads"] = " ".join(map(str, audit.heads))
        table["strongest"] = " ".join(map(str, _strongest(audit)))
        table["smallest"] = audit.smallest
        table["layer"], table["mlp"] = audit.layer, str(audit.mlp or "")
        parts.append(table)
    table = pd.concat(parts)
    print(table.to_string(index=False, float_format="{:.3f}".format))
    if csv is not None:
        table.to_csv(csv, index=False, float_format="%.4f")
        heads = pd.concat([head_table(file) for file in sorted(out.glob(FINISHED))])
        heads.to_csv(csv.with_name("audit_heads.csv"), index=False, float_format="%.4f")


def head_table(file: Path) -> Any:
    """What each head that an audit kept looks at from END, by role, and what it reads by which
    input: a row per head."""
    audit = Audit.load(file)
    reads = audit.readers().set_index("head")
    if audit.attention is None:
        return reads.iloc[:0]
    looks: Any = audit.attention.to_dataframe().pivot(index="head", columns="role", values="mean")
    table = looks.join(reads).reindex([str(head) for head in audit.heads]).reset_index()
    table.insert(0, "task", file.parent.name.replace("-", " "))
    table.insert(0, "model", audit.model)
    return table.dropna(subset=["effect"])


def _strongest(audit: Audit) -> list[Any]:
    return audit.effects.heads.top(audit.few) if audit.effects else []


def _beside(audit: Audit) -> Iterator[dict[str, Any]]:
    """Rows of numbers on which the audit has no verdict: where its heads are, what they look at."""
    if audit.effects is None:
        return
    effects = audit.effects.heads
    means = measures.resampled_means(effects.sample(), slice(None), measures.N_RESAMPLES, 0)
    helpful = (-torch.cat([effects.mean().flatten()[:, None], means.float()], 1)).clamp(min=0)
    weights = helpful.unflatten(0, effects.per_pair.shape[:2]).sum(1)
    layers = torch.arange(len(weights))[:, None]
    numbers = {MEAN_LAYER: layers * weights, EARLY: (layers < len(weights) / 3) * weights}
    for lens, parts in numbers.items():
        value, *resampled = (parts.sum(0) / weights.sum(0)).tolist()
        low, high = measures.around(value, torch.tensor(resampled), most=float(len(weights)))
        n = measures.problems(effects)
        yield {"question": PARTS, "lens": lens, "value": value, "low": low, "high": high, "n": n}
    looks = audit.attention
    for head, (lens, role) in zip(_strongest(audit), LOOKS.items(), strict=False):
        if looks is None or str(head) not in (looks.labels or {})["head"]:
            continue
        of_head = looks[head]
        roles = (of_head.labels or {})["role"]
        on = dict(zip(roles, of_head.mean().tolist(), strict=True))
        low, high = of_head.ci()[:, roles.index(role)].clamp(0, 1).tolist()
        others = [share for name, share in on.items() if name not in (role, Role.BOS)]
        yield {
            **{"question": READ, "lens": lens, "value": on[role], "low": low, "high": high},
            **{"control_low": min(others), "control_high": max(others)},
            "n": measures.problems(of_head),
        }
