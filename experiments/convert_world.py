"""Which words make the closed world's word problems calculations? (the paper's Appendix E)

Its problems become pairs by replacing the words that ask, those that say what to calculate, the
things that are counted, "has", or several of them. For each model, family and choice: how many
convert, the share that the model answers right, and, of those, the share whose counterfactual it
still answers with C. Where nothing is left to calculate, that share should fall to the one of the
most frequent C ("constant"). Prints a table and saves it as CSV.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas
import torch
import tyro

import arith_lens as al
from arith_lens.pairs.correctness import answer
from arith_lens.reference.sets import world_pairs
from arith_lens.reference.word_problems import FAMILIES, PARTS


@dataclass(frozen=True)
class Config:
    """Which words make the closed world's word problems calculations?"""

    models: tuple[str, ...] = ("reference", "reference-mistral")
    """Reference models, by name or directory."""
    families: tuple[str, ...] = FAMILIES
    """Of the world's four."""
    changes: tuple[str, ...] = (
        *("question", "operators", "referents", "operators+referents"),
        *("question+operators+referents", "+".join(PARTS)),
    )
    """What is reworded: parts, joined by +."""
    split: str = "test"
    """Of the world's problems."""
    seed: int = 0
    """Of the draw among replacements."""
    examples: int = 0
    """Pairs to print for each row of the table."""


Row = dict[str, Any]
BATCH = 128


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Convert, ask the models, print, save `<root>/convert_world/conversions.csv`.

    Args:
        config: what to convert.
        root: where results are kept.
        dry_run: print what would be measured, and stop.
    """
    if dry_run:
        print(*config.models, *config.families, *config.changes, sep="\n")
        return
    rows = []
    for name in config.models:
        model = al.load_model(name)
        for family in config.families:
            rows += _rows(model, name, family, config)
    table = pandas.DataFrame(rows)
    path = root / "convert_world" / "conversions.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)
    print(table.round(3).to_string(index=False))
    print(f"\nsaved in {path}")


def _rows(model: Any, name: str, family: str, config: Config) -> list[Row]:
    """One family's rows; X_r is the same however X_c is made, and is asked once."""
    right: dict[int, bool] = {}
    rows = []
    for change in config.changes:
        pairs, conversion = world_pairs(
            model, family, change=change.split("+"), split=config.split, seed=config.seed
        )
        new = [i for i, question in enumerate(conversion.kept) if question not in right]
        if new:
            said = answer(model, pairs[new], "reference", BATCH)[0].tolist()
            right |= {conversion.kept[i]: r for i, r in zip(new, said, strict=True)}
        for pair in pairs[: config.examples]:
            print(f"{pair.reference_text}\n{pair.counterfactual_text}\n{pair.answer_text}\n")
        kept = pairs.filter(torch.tensor([right[question] for question in conversion.kept]))
        row: Row = {"model": Path(name).name, "family": family, "change": change}
        row |= {"questions": conversion.n_questions, "converted": conversion.n_converted}
        rows.append(row | {"right": len(kept) / len(pairs)} | _still(model, kept))
    return rows


def _still(model: Any, pairs: al.PromptPairs) -> Row:
    """How often X_c is answered with C, beside the most frequent C; where C is computed, too."""
    if not len(pairs):
        return {"kept": 0}
    still = answer(model, pairs, "counterfactual", BATCH)[0]
    assert pairs.computed is not None
    row: Row = {"kept": len(pairs), "still C": float(still.float().mean())}
    row |= {"constant": _constant(pairs), "computed": int(pairs.computed.sum())}
    if not pairs.computed.any():
        return row
    row |= {"still C, computed": float(still[pairs.computed].float().mean())}
    return row | {"constant, computed": _constant(pairs.filter(pairs.computed))}


def _constant(pairs: al.PromptPairs) -> float:
    """The share of the most frequent C."""
    return max(Counter(pairs.answer.tolist()).values()) / len(pairs)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments convert_world", description=__doc__)
