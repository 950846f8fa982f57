"""What do the paper's templates become under a tokenizer? (Figures 8 and 10)

For each template, the table has an example prompt, its counterfactual, the number of their tokens,
the number of problems with a one-token answer, the number of distinct prompts, the number of null
words (in stories: other words) that keep the tokens aligned, and the token of C. Loads only a
tokenizer, never weights. Prints the table and saves it as CSV and HTML.
"""

import base64
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas
import tyro

from arith_lens.model.checkpoints import find_checkpoint, load_tokenizer, read_config
from arith_lens.operations import IN_PAPER
from arith_lens.pairs import template_facts
from arith_lens.plotting.markup import render
from arith_lens.templates import FIGURE_10
from experiments.command import exit_on_user_error

FIGURE_TITLES = {
    "8": "Figure 8: templates of the operations",
    "10": "Figure 10: further templates of addition",
}
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{ title }}</title>
<style>
body { font: 14px sans-serif; margin: 2em; color: #222 }
table { border-collapse: collapse }
td, th { padding: .25em .7em; text-align: left; border-bottom: 1px solid #ddd;
  white-space: pre-wrap }
th { background: #f4f4f4 }
</style>
<h1>{{ title }}</h1><p>{{ note }}</p>{{ table|safe }}</html>
"""


BEGIN = "<|begin_of_text|>"


@dataclass(frozen=True)
class Config:
    """What do the paper's templates become under a tokenizer?"""

    figure: Literal["8", "10"] = "8"
    """8: the operations' own templates; 10: the stories of addition."""
    tokenizers: tuple[str, ...] = ("reference",)
    """A shipped model's name, a Hugging Face id, or a folder that holds a tokenizer."""
    operands: tuple[int, int] = (1, 9)
    """The smallest and the largest number for A and B."""
    answer_token: Literal["whole", "first", "last"] = "whole"
    """The token after END: C, or the first or last token of a longer C."""
    seed: int = 0
    """The seed of the examples."""


def main(config: Annotated[Config, tyro.conf.arg(name="")], *, out: Path | None = None) -> None:
    """Print and save `fig8` or `fig10`, as CSV and HTML.

    Args:
        config: which table, of which tokenizers.
        out: the folder for the files; by default figures/<tokenizer>.
    """
    for name in config.tokenizers:
        with exit_on_user_error():
            table = template_table(named_tokenizer(name), config)
        print(f"\n{FIGURE_TITLES[config.figure]}, tokenizer {name}\n")
        print(*map(row_text, table.to_dict("records")), sep="\n")
        folder = out or Path("figures") / (Path(name).name or "tokenizer")
        print("", *save_table(table, folder / f"fig{config.figure}", name, config), sep="\n")


def named_tokenizer(name: str) -> Any:
    """The tokenizer of a model's name or of a folder; weights are not needed."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return published_tokenizer(folder)
    checkpoint = find_checkpoint(name)
    return load_tokenizer(checkpoint, read_config(checkpoint))


def template_table(tokenizer: Any, config: Config) -> pandas.DataFrame:
    """One row per template; prompts in quotes, so that trailing spaces are visible."""
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


def row_text(row: dict[str, Any]) -> str:
    """A template in three lines: its numbers, its example, and the example's counterfactual."""
    if row.get("refused"):
        return f"{row['template']:<18}{row['refused']}"
    return (
        f"{row['template']:<18}{row['tokens']} tokens, {row['problems']} problems, "
        f"{row['references']} prompts, {row['candidates']} counterfactuals of the example, "
        f"C {row['C']}\n{'':18}{row['reference']}\n{'':18}{row['counterfactual']}"
    )


def save_table(table: pandas.DataFrame, stem: Path, name: str, config: Config) -> list[Path]:
    """Write `<stem>.csv` and `<stem>.html`, every cell escaped; and return their paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_suffix(".csv"), stem.with_suffix(".html")]
    table.to_csv(files[0], index=False)
    first, last = config.operands
    note = f"Operands {first} to {last}, answer token: {config.answer_token}."
    page = render(
        PAGE,
        title=f"{FIGURE_TITLES[config.figure]}, tokenizer {name}",
        note=note,
        table=table.to_html(index=False, escape=True, border=0),
    )
    files[1].write_text(page, encoding="utf-8")
    return files


def published_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder, without a model: Hugging Face files, or a `tokenizer.model`.

    A `tokenizer.model` is SentencePiece's (LLaMA-2, Mistral) or a list of base64 tokens with their
    ranks (Llama-3).

    Raises:
        FileNotFoundError: the folder has neither.
    """
    from transformers import AutoTokenizer, LlamaTokenizer

    if (folder / "tokenizer.json").is_file():
        return AutoTokenizer.from_pretrained(folder)
    path = folder / "tokenizer.model"
    if not path.is_file():
        raise FileNotFoundError(
            f"expected tokenizer.json or tokenizer.model in {folder}, found neither"
        )
    ranks = _ranks(path.read_bytes())
    if ranks:
        return _byte_level(path, ranks)
    return LlamaTokenizer.from_pretrained(folder, add_bos_token=True)


def _ranks(content: bytes) -> dict[bytes, int]:
    """Tokens and their ranks in Llama-3's format; empty if the file has another format."""
    lines = [line.split() for line in content.splitlines()]
    if not all(len(line) == 2 and line[1].isdigit() for line in lines):
        return {}
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def _byte_level(path: Path, ranks: dict[bytes, int]) -> Any:
    """A byte-level BPE with Llama-3's pattern, with BOS in front."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    converter = TikTokenConverter(str(path), extra_special_tokens=[BEGIN])
    # else it needs the package tiktoken
    converter.load_tiktoken_bpe = lambda _: ranks  # pyright: ignore[reportAttributeAccessIssue]
    backend = converter.converted()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, backend.token_to_id(BEGIN))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=BEGIN)
