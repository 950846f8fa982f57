"""Benchmarks read: one reader each, from the published files or from the hub."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from arith_lens.benchmarks.flags import flags_of
from arith_lens.benchmarks.gsm8k import gold_answer, read_gsm8k
from arith_lens.benchmarks.mmlu import LETTERS, chosen_subjects, mmlu_rows
from arith_lens.benchmarks.parsing import parse_number
from arith_lens.benchmarks.record import Record
from arith_lens.benchmarks.sources import Row, hub_rows, json_lines, json_list


def _gsm8k(row: Row, split: str, i: int) -> Record:
    gold = gold_answer(row["answer"])
    number = parse_number(f"#### {gold}")
    if number is None:
        raise ValueError(f"no number after '####' in {row['answer'][-40:]!r}")
    question = row["question"].strip()
    return Record(f"gsm8k/{split}/{i}", question, gold, number, solution=row["answer"])


def _svamp(row: Row, split: str, i: int) -> Record:
    number = float(row["Answer"])
    question = f"{row['Body'].strip()} {row['Question'].strip()}"
    return Record(f"svamp/{row.get('ID', f'{split}-{i}')}", question, _written(number), number)


def _equations(name: str) -> Callable[[Row, str, int], Record]:
    """AddSub, SingleEq and MAWPS: the whole set's schema, or that of the split files."""

    def read(row: Row, split: str, i: int) -> Record:
        if "instruction" in row:
            question, answer, solution = row["instruction"], row["answer"], row["output"].strip()
        else:
            (answer,), question, solution = row["lSolutions"], row["sQuestion"], ""
        own = split == "whole" and "iIndex" in row
        number = float(answer)
        name_of_it = str(row["iIndex"]) if own else f"{split}/{i}"
        return Record(
            f"{name}/{name_of_it}", question.strip(), _written(number), number, solution=solution
        )

    return read


def _csqa(row: Row, split: str, i: int) -> Record:
    """The authors' schema (question.stem, choices), or the hub's (question, lists of choices)."""
    asked = row["question"]
    if isinstance(asked, str):
        labels, texts = row["choices"]["label"], row["choices"]["text"]
    else:
        labels = [choice["label"] for choice in asked["choices"]]
        texts = [choice["text"] for choice in asked["choices"]]
        asked = asked["stem"]
    if list(labels) != list(LETTERS):
        raise ValueError(f"expected choices labelled A to E in order, found {list(labels)}")
    gold = row["answerKey"]
    if gold not in labels:
        raise ValueError(f"expected an answer A to E, found {gold!r} (test answers are not public)")
    return Record(f"csqa/{row['id']}", asked.strip(), gold, choices=tuple(texts))


def _mmlu(row: Row, split: str, i: int) -> Record:
    texts, answer, subject = tuple(row["choices"]), row["answer"], row["subject"]
    letters = LETTERS[:4]
    gold = letters[int(answer)] if str(answer) in ("0", "1", "2", "3") else str(answer)
    if len(texts) != 4 or gold not in letters or not gold:
        raise ValueError(
            f"expected question, four choices and the answer (A to D, or 0 to 3), found {row}"
        )
    question = row["question"].strip()
    return Record(f"mmlu/{split}/{subject}/{i}", question, gold, choices=texts, subject=subject)


@dataclass(frozen=True)
class _Source:
    """Where a benchmark is: files in its folder, and splits of a dataset on the hub."""

    read: Callable[[Row, str, int], Record]
    default: str  # the split that results are reported on
    files: dict[str, str]
    hub: tuple[str, str | None] | None = None  # id, configuration
    hub_splits: dict[str, str] = field(default_factory=dict)


_PARTS = {"train": "train.json", "test": "test.json"}
SOURCES = {
    "gsm8k": _Source(
        _gsm8k,
        "test",
        {"train": "train.jsonl", "test": "test.jsonl"},
        ("openai/gsm8k", "main"),
    ),
    "svamp": _Source(
        _svamp,
        "whole",
        {"whole": "SVAMP.json", **_PARTS},
        ("ChilleD/SVAMP", None),
        {"whole": "train+test"},
    ),
    "addsub": _Source(_equations("addsub"), "whole", {"whole": "AddSub.json", **_PARTS}),
    "singleeq": _Source(_equations("singleeq"), "whole", {"whole": "questions.json", **_PARTS}),
    "mawps": _Source(
        _equations("mawps"),
        "test",
        {"train": "trainset.json", "val": "validset.json", "test": "testset.json"},
    ),
    "csqa": _Source(
        _csqa,
        "dev",
        {"train": "train_rand_split.jsonl", "dev": "dev_rand_split.jsonl"},
        ("tau/commonsense_qa", None),
        {"dev": "validation"},
    ),
    "mmlu": _Source(
        _mmlu,
        "test",
        {"dev": "dev/*_dev.csv", "val": "val/*_val.jsonl", "test": "test/*_test.csv"},
        ("cais/mmlu", "all"),
        {"val": "validation"},
    ),
}
"""Each benchmark's place; `whole` is the set that its authors publish, of train and test."""


def load_records(
    name: str,
    data_dir: str | Path | None = None,
    *,
    split: str | None = None,
    subjects: str | Sequence[str] = "all",
    hub_id: str | None = None,
) -> list[Record]:
    """A benchmark's records, nothing dropped or corrected; what is known to be wrong is flagged.

    Args:
        name: gsm8k, svamp, addsub, singleeq, mmlu, csqa (CommonsenseQA) or mawps.
        data_dir: the folder of the benchmarks' folders, with their published files; without it,
            the hub.
        split: train, dev, val, test or whole, as the benchmark has them; the one that results are
            reported on if not given (whole for SVAMP, AddSub and SingleEq, dev for csqa).
        subjects: of MMLU: "all", "humanities", or names.
        hub_id: another dataset of the same schema on the hub, or a local folder of one.

    Raises:
        ValueError: an unknown benchmark, split or subject, or a record of another schema.
        FileNotFoundError: no such file, or no such dataset, or no network.
    """
    if name not in SOURCES:
        raise ValueError(f"no reader for {name!r}: expected one of {', '.join(SOURCES)}")
    source = SOURCES[name]
    split = split or source.default
    if split not in source.files:
        raise ValueError(f"{name} has no split {split!r}: expected {', '.join(source.files)}")
    if data_dir is None:
        place, rows = _from_hub(name, split, subjects, hub_id)
    else:
        place, rows = _from_files(name, Path(data_dir) / name, split, subjects)
    numbered = _numbered(name, rows)
    records = [_checked(source.read, row, split, i, place) for i, row in numbered]
    if not records:
        raise ValueError(f"{place}: no questions")
    flagged = zip(records, flags_of(records), strict=True)
    return [replace(record, flags=flags) if flags else record for record, flags in flagged]


def _numbered(name: str, rows: Sequence[Row]) -> Iterator[tuple[int, Row]]:
    """Rows with their position, of MMLU within the subject."""
    seen: dict[str, int] = {}
    for row in rows:
        group = row.get("subject", "") if name == "mmlu" else ""
        yield seen.setdefault(group, 0), row
        seen[group] += 1


def _from_files(
    name: str, folder: Path, split: str, subjects: str | Sequence[str]
) -> tuple[str, Sequence[Row]]:
    file = SOURCES[name].files[split]
    path = folder / file
    if name == "mmlu":
        return str(path), mmlu_rows(folder, split, subjects)
    if not path.is_file():
        raise FileNotFoundError(
            f"no file {path}: expected {name}'s published {file} (split {split!r}); give data_dir= "
            "the folder that holds the benchmarks' folders, or leave it out to read the hub"
        )
    if name == "gsm8k":
        return str(path), read_gsm8k(path)
    return str(path), list(json_lines(path)) if path.suffix == ".jsonl" else json_list(path)


def _from_hub(
    name: str, split: str, subjects: str | Sequence[str], hub_id: str | None
) -> tuple[str, Sequence[Row]]:
    source = SOURCES[name]
    if source.hub is None and hub_id is None:
        raise ValueError(
            f"{name} has no dataset of its published schema on the hub that is known here: give "
            "data_dir= with its files, or hub_id= of such a dataset"
        )
    known, configuration = source.hub or ("", None)
    advice = (
        f"Check the network and HF_HUB_OFFLINE, or give data_dir= with {name}'s published files."
    )
    rows = hub_rows(hub_id or known, configuration, source.hub_splits.get(split, split), advice)
    if name == "mmlu":
        rows = chosen_subjects(rows, subjects, place=hub_id or known)
    return hub_id or known, rows


def _checked(
    read: Callable[[Row, str, int], Record], row: Row, split: str, i: int, place: str
) -> Record:
    try:
        return read(row, split, i)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{place}, record {i}: not in the benchmark's schema ({type(error).__name__}: "
            f"{error}); found {row!r:.200}"
        ) from error


def _written(number: float) -> str:
    """A number as it is written: 51.0 as 51."""
    return f"{number:.10g}"
