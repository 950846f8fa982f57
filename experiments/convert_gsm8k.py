"""How many of GSM8K's questions become prompt pairs? (the paper's Appendix E)

For each tokenizer, split and mode: the questions whose words that ask for a number can be replaced
at the same number of tokens, and why the others cannot. With a model, the share that it answers
right as well, which path patching keeps. Prints a table and saves it as CSV.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas
import tyro

import arith_lens as al
from arith_lens.pairs import keep_correct
from arith_lens.word_problems import gsm8k_pairs
from experiments.published_tokenizers import load_tokenizer


@dataclass(frozen=True)
class Config:
    """How many of GSM8K's questions become prompt pairs?"""

    data_dir: Path
    """Holds gsm8k/train.jsonl and gsm8k/test.jsonl, and a folder for each tokenizer."""
    tokenizers: tuple[str, ...] = ("llama2", "mistral", "llama3")
    """Folders in <data-dir>/tokenizers, or paths of folders."""
    model: str | None = None
    """A model that answers them too, with its own tokenizer instead: an id or a directory."""
    modes: tuple[str, ...] = ("question", "equation")
    """After the question, or before the result of the solution's last annotation."""
    splits: tuple[str, ...] = ("train", "test")
    """Files to read."""
    seed: int = 0
    """Of the draw among replacements."""
    examples: int = 0
    """Conversions to print for each row of the table."""


Row = dict[str, Any]


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Convert, print, save `<root>/convert_gsm8k/conversions.csv`.

    Args:
        config: what to convert.
        root: where results are kept.
        dry_run: print what would be read, and stop.
    """
    files = [config.data_dir / "gsm8k" / f"{split}.jsonl" for split in config.splits]
    names = (config.model,) if config.model else config.tokenizers
    if dry_run:
        print(*files, *names, sep="\n")
        return
    try:
        rows = [row for name in names for row in _rows(name, config)]
    except (OSError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    table = pandas.DataFrame(rows).fillna(0)
    path = root / "convert_gsm8k" / "conversions.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)
    print(table.to_string(index=False))
    print(f"\nsaved in {path}")


def _rows(name: str, config: Config) -> list[Row]:
    """The table's rows of one tokenizer or model."""
    if config.model:
        model = tokenizer = al.load_model(config.model)
    else:
        folder = Path(name) if Path(name).is_dir() else config.data_dir / "tokenizers" / name
        model, tokenizer = None, load_tokenizer(folder)
    rows = []
    for split in config.splits:
        for mode in config.modes:
            pairs, conversion = gsm8k_pairs(
                tokenizer,
                config.data_dir / "gsm8k" / f"{split}.jsonl",
                mode=mode,
                seed=config.seed,
            )
            row: Row = {"tokenizer": Path(name).name, "split": split, "mode": mode}
            row |= {"questions": conversion.n_questions, "converted": conversion.n_converted}
            row |= {"computed": int(pairs.computed.sum()) if pairs.computed is not None else 0}
            if model is not None:
                row |= _answered(model, pairs)
            rows.append(row | dict(conversion.left_out))
            for pair in pairs[: config.examples]:
                print(f"{pair.reference_text}\n{pair.counterfactual_text}\n{pair.answer_text}\n")
    return rows


def _answered(model: Any, pairs: al.PromptPairs) -> Row:
    """How many pass the filter: C is the top token."""
    try:
        chosen = keep_correct(model, pairs).selection
    except ValueError:  # none is answered right
        return {"answered right": 0}
    assert chosen is not None
    return {"answered right": chosen.n_kept, "X_c still answered C": chosen.counterfactual_correct}


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments convert_gsm8k", description=__doc__)
