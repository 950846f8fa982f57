"""Prepare data sets: templates under a tokenizer, and train parts without test questions.

Two commands: `template_tables` and `training_splits`. Each prints a table and saves it as CSV.
"""

import base64
from pathlib import Path
from typing import Any

import pandas

from arith_lens.benchmarks import (
    TrainingPart,
    find_overlaps,
    flag_summary,
    held_out,
    to_dataset,
    training_parts,
)
from arith_lens.model import find_checkpoint, load_tokenizer, read_config
from arith_lens.operations import IN_PAPER
from arith_lens.pairs import template_facts
from arith_lens.plotting import document
from arith_lens.templates import FIGURE_10
from experiments.command import exit_on_user_error
from experiments.configs.data import SplitConfig, TemplateConfig

FIGURE_TITLES = {
    "8": "Figure 8: templates of the operations",
    "10": "Figure 10: further templates of addition",
}
BEGIN = "<|begin_of_text|>"


def template_tables(config: TemplateConfig, *, out: Path | None = None) -> None:
    """Print and save the table of templates, as `TemplateConfig` says; `out` is its folder."""
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


def template_table(tokenizer: Any, config: TemplateConfig) -> pandas.DataFrame:
    """One row per template; prompts in quotes, so that trailing spaces are visible."""
    first, last = config.operands
    operations = IN_PAPER if config.figure == "8" else ("addition",)
    names = "operation" if config.figure == "8" else [story.name for story in FIGURE_10]
    rows = [
        row
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


def save_table(
    table: pandas.DataFrame, stem: Path, name: str, config: TemplateConfig
) -> list[Path]:
    """Write `<stem>.csv` and `<stem>.html`, every cell escaped; and return their paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_suffix(".csv"), stem.with_suffix(".html")]
    table.to_csv(files[0], index=False)
    first, last = config.operands
    note = f"Operands {first} to {last}, answer token: {config.answer_token}."
    title = f"{FIGURE_TITLES[config.figure]}, tokenizer {name}"
    cells = table.to_html(index=False, escape=True, border=0, justify="left")
    files[1].write_text(document(title, cells, notes=[note]), encoding="utf-8")
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


def training_splits(
    config: SplitConfig,
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Write the training set and its counts, as `SplitConfig` says."""
    with exit_on_user_error():
        tests = held_out(config.names, config.data_dir)
        for name, records in tests.items():
            print(f"{name}: {flag_summary(records)}")
        if dry_run:
            return
        parts = training_parts(
            config.names, config.data_dir, form=config.form, tests=tests, mawps=config.mawps
        )
    print("", *parts, sep="\n")
    for part in parts:
        _print_examples(part, config.examples)
    records = [record for part in parts for record in part.records]
    stories = find_overlaps(records, tests, rules=("story",))
    print(
        f"\n{len({o.train for o in stories})} of {len(records)} kept share a run of 13 words "
        "with one"
    )
    path = root / "training_splits" / f"{config.form}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    to_dataset(parts, config.form).to_json(path)
    _counts(parts).to_csv(path.with_name(f"{config.form}_counts.csv"), index=False)
    print(f"saved {path}")


def _print_examples(part: TrainingPart, n: int) -> None:
    n_printed: dict[tuple[str, str], int] = {}
    for overlap in part.overlaps:
        key = overlap.test_set, overlap.rule
        n_printed[key] = n_printed.get(key, 0) + 1
        if n_printed[key] <= n:
            print(f"\n{overlap.train} is {overlap.test} ({overlap.rule})")
            print(f"  {overlap.train_question}\n  {overlap.test_question}")


def _counts(parts: list[TrainingPart]) -> pandas.DataFrame:
    rows = []
    for part in parts:
        reasons = [f"{o.rule} in {o.test_set}" for o in part.overlaps]
        counts = dict(sorted((reason, reasons.count(reason)) for reason in set(reasons)))
        counts |= {
            "doubtful gold": len(part.doubtful),
            "solution ends elsewhere": len(part.unsolved),
            "repeated": len(part.repeated),
        }
        sizes = {"read": part.n_read, **counts, "kept": len(part.records)}
        rows += [{"source": part.name, "what": what, "n": n} for what, n in sizes.items()]
    return pandas.DataFrame(rows)
