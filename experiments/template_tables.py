"""What do the paper's templates become under a tokenizer? (Figures 8 and 10)

For each template: an example prompt, its counterfactual, how many tokens both have, how many
problems have a one-token answer after it, how many distinct prompts that makes, how many null words
(or, in stories, other words) keep every token in its place, and the piece that C is. Loads a
tokenizer only, never weights. Prints the table and saves it as CSV and HTML.
"""

import html
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas
import tyro

from arith_lens.model.checkpoints import find_checkpoint, load_tokenizer, read_config
from arith_lens.operations import IN_PAPER
from arith_lens.pairs import template_facts
from arith_lens.templates import FIGURE_10
from experiments import published_tokenizers

TITLES = {
    "8": "Figure 8: templates of the operations",
    "10": "Figure 10: further templates of addition",
}
STYLE = (
    "body{font:14px sans-serif;margin:2em;color:#222}table{border-collapse:collapse}"
    "td,th{padding:.25em .7em;text-align:left;border-bottom:1px solid #ddd;white-space:pre-wrap}"
    "th{background:#f4f4f4}"
)


@dataclass(frozen=True)
class Config:
    """What do the paper's templates become under a tokenizer?"""

    figure: Literal["8", "10"] = "8"
    """The operations' own templates, or the stories of addition."""
    tokenizers: tuple[str, ...] = ("reference",)
    """A shipped model's name, a Hugging Face id, or a folder that holds a tokenizer."""
    operands: tuple[int, int] = (1, 9)
    """First and last number that A and B are taken from."""
    answer_token: Literal["whole", "first", "last"] = "whole"
    """What the token after END says: C, or the first or last token of a longer C."""
    seed: int = 0
    """Of the examples."""


def main(config: Annotated[Config, tyro.conf.arg(name="")], *, out: Path | None = None) -> None:
    """Print and save `fig8` or `fig10`, as CSV and HTML.

    Args:
        config: which table, of which tokenizers.
        out: where the files go; figures/<tokenizer> if not given.
    """
    for name in config.tokenizers:
        try:
            table = facts(tokenizer_of(name), config)
        except (OSError, ValueError) as error:
            sys.exit(f"{type(error).__name__}: {error}")
        print(f"\n{TITLES[config.figure]}, tokenizer {name}\n")
        print(*map(shown, table.to_dict("records")), sep="\n")
        folder = out or Path("figures") / (Path(name).name or "tokenizer")
        print("", *save(table, folder / f"fig{config.figure}", name, config), sep="\n")


def tokenizer_of(name: str) -> Any:
    """The tokenizer of a model's name, or of a folder, which needs no weights."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return published_tokenizers.load_tokenizer(folder)
    checkpoint = find_checkpoint(name)
    return load_tokenizer(checkpoint, read_config(checkpoint))


def facts(tokenizer: Any, config: Config) -> pandas.DataFrame:
    """A row a template; prompts as Python writes them, so that a trailing space is seen."""
    first, last = config.operands
    operations = IN_PAPER if config.figure == "8" else ("addition",)
    names = "operation" if config.figure == "8" else [story.name for story in FIGURE_10]
    rows = [
        asdict(row)
        for operation in operations
        for row in template_facts(
            tokenizer,
            operation,
            templates=names,
            operands=range(first, last + 1),
            answer_token=config.answer_token,
            seed=config.seed,
        )
    ]
    complete = not any(row["refused"] for row in rows)
    table = pandas.DataFrame(rows).rename(columns={"answer_piece": "C"})
    for column in ("reference", "counterfactual"):
        table[column] = [repr(text) if text else "" for text in table[column]]
    return table.drop(columns="refused") if complete else table


def shown(row: dict[str, Any]) -> str:
    """A template in three lines: its numbers, its example, and that one's counterfactual."""
    if row.get("refused"):
        return f"{row['template']:<18}{row['refused']}"
    return (
        f"{row['template']:<18}{row['tokens']} tokens, {row['problems']} problems, "
        f"{row['references']} prompts, {row['candidates']} counterfactuals of the example, "
        f"C {row['C']}\n{'':18}{row['reference']}\n{'':18}{row['counterfactual']}"
    )


def save(table: pandas.DataFrame, stem: Path, name: str, config: Config) -> list[Path]:
    """Write `<stem>.csv` and `<stem>.html`, every cell escaped; and give their paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_suffix(".csv"), stem.with_suffix(".html")]
    table.to_csv(files[0], index=False)
    title = html.escape(f"{TITLES[config.figure]}, tokenizer {name}")
    first, last = config.operands
    note = f"Operands {first} to {last}, answer token: {config.answer_token}."
    body = table.to_html(index=False, escape=True, border=0)
    files[1].write_text(
        f"<!doctype html><meta charset='utf-8'><title>{title}</title><style>{STYLE}</style>"
        f"<h1>{title}</h1><p>{note}</p>{body}\n",
        encoding="utf-8",
    )
    return files


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments template_tables", description=__doc__)
