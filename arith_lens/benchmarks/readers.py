"""Readers of benchmarks, one for each, from the published files or from the Hugging Face hub."""

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

from arith_lens.benchmarks.parsing import parse_number, same_number, without_separators
from arith_lens.benchmarks.records import Record, flag_of
from arith_lens.options import check_choice
from arith_lens.untrusted import json_lines, parse_json

RawRecord = Mapping[str, Any]


def _objects(path: Path) -> Iterator[RawRecord]:
    """The objects of a file of JSON lines."""
    for where, row in json_lines(path.read_text(encoding="utf-8-sig").split("\n"), path):
        if not isinstance(row, dict):
            raise ValueError(f"{where}: expected a JSON object, found {row!r:.80}; mend it")
        yield row


def json_list(path: Path) -> list[RawRecord]:
    """The objects of a file that is one JSON list."""
    try:
        rows = parse_json(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(
            f"{path}: expected a JSON list, found other text ({error}); download it again"
        ) from error
    if not isinstance(rows, list):
        raise ValueError(f"{path}: expected a JSON list of objects, found {type(rows).__name__}")
    return rows


def hub_rows(source: str, configuration: str | None, split: str, advice: str) -> list[RawRecord]:
    """A split of a dataset on the Hugging Face hub, or of a local folder of the same form.

    Raises:
        FileNotFoundError: the id, configuration or split does not exist, or there is no network.
            The message ends in `advice`.
    """
    from datasets import load_dataset

    named = () if configuration is None or Path(source).is_dir() else (configuration,)
    try:
        return cast(list[RawRecord], list(load_dataset(source, *named, split=split)))
    except (OSError, ValueError, RuntimeError) as error:
        raise FileNotFoundError(
            f"expected a dataset with the split {split!r} at {source!r}, found none that loads "
            f"({type(error).__name__}: {error}). {advice}"
        ) from error


Records = str | Path | Iterable[Mapping[str, Any]]


def read_gsm8k(questions: Records, *, split: str = "test") -> list[dict[str, str]]:
    """The records, each with `question` and `answer` (solution, then "#### " and the number).

    Args:
        questions: a JSONL file, a folder of `<split>.jsonl`, a Hugging Face dataset id, or records
            with the keys `question` and `answer`.
        split: the split of a folder or a dataset id.

    Raises:
        ValueError: a line is not JSON, or a record lacks one of the keys.
        FileNotFoundError: there is no such file, folder or dataset id.
    """
    where = str(questions) if isinstance(questions, str | Path) else "record"
    rows = _gsm8k_rows(questions, split) if isinstance(questions, str | Path) else questions
    records = []
    for number, row in enumerate(rows, 1):
        missing = [key for key in ("question", "answer") if not isinstance(row.get(key), str)]
        if missing:
            raise ValueError(
                f"{where}, {number}: expected the keys question and answer with text, found "
                f"{sorted(row)}; {', '.join(missing)} is missing"
            )
        records.append({"question": row["question"], "answer": row["answer"]})
    if not records:
        raise ValueError(
            f"{where}: expected records with question and answer, found none; add some"
        )
    return records


def gold_answer(solution: str) -> str:
    """The number after "####", without thousands separators or currency; "" if there is none."""
    return without_separators(solution.rpartition("####")[2]) if "####" in solution else ""


def right_number(text: str, gold: str) -> bool:
    """Whether a text gives the gold answer, written as a number or as GSM8K writes a solution."""
    written = gold_answer(gold) if "####" in gold else gold
    return same_number(parse_number(text), float(written.replace(",", "")))


def _gsm8k_rows(source: str | Path, split: str) -> Iterable[RawRecord]:
    path = Path(source)
    file = path / f"{split}.jsonl" if path.is_dir() else path
    if file.is_file():
        return _objects(file)
    if path.suffix in (".jsonl", ".json") or (isinstance(source, Path) and not path.is_dir()):
        raise FileNotFoundError(
            f"expected JSON lines with question and answer at {path}, found no file; give a folder "
            f"of {split}.jsonl, or a dataset id such as openai/gsm8k"
        )
    advice = "Give a JSONL file, a folder with train.jsonl and test.jsonl, or records."
    return hub_rows(str(source), "main", split, advice)


LETTERS = "ABCDE"
HUMANITIES = (
    *("formal_logic", "high_school_european_history", "high_school_us_history"),
    *("high_school_world_history", "international_law", "jurisprudence", "logical_fallacies"),
    *("moral_disputes", "moral_scenarios", "philosophy", "prehistory", "professional_law"),
    "world_religions",
)
"""The subjects that the authors of MMLU call humanities."""
_FINISHED = re.compile(
    r"The following are multiple choice questions[^\n]*\n\n(.*)"
    r"\nA\. (.*?)\nB\. (.*?)\nC\. (.*?)\nD\. (.*?)\nAnswer:",
    re.DOTALL,
)


def mmlu_rows(folder: Path, split: str, subjects: str | Sequence[str]) -> list[RawRecord]:
    """Rows in the hub's schema: question, subject, choices, answer (index or letter)."""
    if split == "val":
        return chosen_subjects(_finished_rows(folder), subjects, source=str(folder / split))
    paths = sorted((folder / split).glob(f"*_{split}.csv"))
    if not paths:
        raise FileNotFoundError(
            f"expected MMLU's files, one per subject, as {folder / split}/*_{split}.csv, found "
            "none; give data_dir= the folder that holds mmlu/"
        )
    files = {path.name.removesuffix(f"_{split}.csv"): path for path in paths}
    wanted = _wanted(subjects, tuple(files), str(folder / split))
    return [row for subject in wanted for row in _csv_questions(files[subject], subject)]


def chosen_subjects(
    rows: Iterable[RawRecord], subjects: str | Sequence[str], *, source: str
) -> list[RawRecord]:
    """The rows of some subjects, sorted by subject."""
    by_subject: dict[str, list[RawRecord]] = {}
    for row in rows:
        by_subject.setdefault(row["subject"], []).append(row)
    return [row for s in _wanted(subjects, tuple(by_subject), source) for row in by_subject[s]]


def _wanted(subjects: str | Sequence[str], available: Sequence[str], source: str) -> Sequence[str]:
    named = {"all": tuple(sorted(available)), "humanities": HUMANITIES}
    wanted = named.get(subjects, (subjects,)) if isinstance(subjects, str) else tuple(subjects)
    unknown = [subject for subject in wanted if subject not in available]
    if unknown:
        raise ValueError(
            f"expected subjects='all', 'humanities' or names of {', '.join(sorted(available))} in "
            f"{source}, found {', '.join(unknown)}; leave them out"
        )
    return wanted


def _csv_questions(path: Path, subject: str) -> list[RawRecord]:
    """The rows of a csv file. The authors' own files have no header, and letters as answers."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    if rows and rows[0][0] == "question":
        rows = rows[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != 6:
            raise ValueError(
                f"{path}, question {number}: expected question, four choices and the answer (A to "
                f"D, or 0 to 3), found {row}"
            )
    return [
        {"question": question, "subject": subject, "choices": choices, "answer": answer.strip()}
        for question, *choices, answer in rows
    ]


def _finished_rows(folder: Path) -> list[RawRecord]:
    """The rows of val, from its prompts."""
    paths = sorted((folder / "val").glob("*_val.jsonl"))
    if not paths:
        raise FileNotFoundError(
            f"expected MMLU's files, prompts with their letters, as {folder / 'val'}/*_val.jsonl, "
            "found none; give another split"
        )
    rows: list[RawRecord] = []
    for path, i, row in ((p, i, row) for p in paths for i, row in enumerate(_objects(p))):
        match = _FINISHED.fullmatch(str(row.get("input")))
        if match is None or "subject" not in row or "output" not in row:
            raise ValueError(
                f"{path}, record {i}: expected subject, input (a prompt with choices A to D) and "
                f"output (a letter), found {row!r:.200}"
            )
        question, *choices = match.groups()
        own = {"question": question, "choices": choices, "answer": row["output"].strip()}
        rows.append({"subject": row["subject"], **own})
    return rows


def _gsm8k(row: RawRecord, split: str, i: int) -> Record:
    gold = gold_answer(row["answer"])
    number = parse_number(f"#### {gold}")
    if number is None:
        raise ValueError(
            f"expected a number after '####', found {row['answer'][-40:]!r}; leave the record out"
        )
    question = row["question"].strip()
    return Record(f"gsm8k/{split}/{i}", question, gold, number, solution=row["answer"])


def _svamp(row: RawRecord, split: str, i: int) -> Record:
    number = float(row["Answer"])
    question = f"{row['Body'].strip()} {row['Question'].strip()}"
    return Record(f"svamp/{row.get('ID', f'{split}-{i}')}", question, _written(number), number)


def _equations(name: str) -> Callable[[RawRecord, str, int], Record]:
    """The reader of AddSub, SingleEq and MAWPS, in the schema of the whole set or of a split."""

    def read(row: RawRecord, split: str, i: int) -> Record:
        if "instruction" in row:
            question, answer, solution = row["instruction"], row["answer"], row["output"].strip()
        else:
            (answer,), question, solution = row["lSolutions"], row["sQuestion"], ""
        own = split == "whole" and "iIndex" in row
        id = f"{name}/{row['iIndex']}" if own else f"{name}/{split}/{i}"
        number = float(answer)
        return Record(id, question.strip(), _written(number), number, solution=solution)

    return read


def _csqa(row: RawRecord, split: str, i: int) -> Record:
    """A record in the authors' schema (question.stem, choices) or the hub's (question, lists)."""
    question = row["question"]
    if isinstance(question, str):
        labels, texts = row["choices"]["label"], row["choices"]["text"]
    else:
        labels = [choice["label"] for choice in question["choices"]]
        texts = [choice["text"] for choice in question["choices"]]
        question = question["stem"]
    if list(labels) != list(LETTERS):
        raise ValueError(f"expected choices labelled A to E in order, found {list(labels)}")
    gold = row["answerKey"]
    if gold not in labels:
        raise ValueError(f"expected an answer A to E, found {gold!r} (test answers are not public)")
    return Record(f"csqa/{row['id']}", question.strip(), gold, choices=tuple(texts))


def _mmlu(row: RawRecord, split: str, i: int) -> Record:
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
    """The location of a benchmark: files in its folder, and splits of a dataset on the hub."""

    read: Callable[[RawRecord, str, int], Record]
    """Makes a record of a row, its split and its position."""
    default: str
    """The split on which results are reported."""
    files: dict[str, str]
    """The file of each split."""
    hub: tuple[str, str | None] | None = None
    """The dataset's id and configuration."""
    hub_splits: dict[str, str] = field(default_factory=dict)
    """The name of each split on the hub."""


_PARTS = {"train": "train.json", "test": "test.json"}
SOURCES = {
    "gsm8k": _Source(
        _gsm8k, "test", {"train": "train.jsonl", "test": "test.jsonl"}, ("openai/gsm8k", "main")
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
"""The location of each benchmark. `whole` is the set that its authors publish, train and test."""


def load_records(
    name: str,
    data_dir: str | Path | None = None,
    *,
    split: str | None = None,
    subjects: str | Sequence[str] = "all",
    hub_id: str | None = None,
) -> list[Record]:
    """A benchmark's records. Nothing is dropped or corrected; known faults are flagged.

    Args:
        name: gsm8k, svamp, addsub, singleeq, mmlu, csqa (CommonsenseQA) or mawps.
        data_dir: the folder that contains the benchmarks' folders with their published files; None:
            the hub.
        split: train, dev, val, test or whole, if the benchmark has it. The default is the split on
            which results are reported (whole for SVAMP, AddSub and SingleEq, dev for csqa).
        subjects: the subjects of MMLU: "all", "humanities", or names.
        hub_id: another dataset of the same schema on the hub, or a local folder of one.

    Raises:
        ValueError: the benchmark, split or subject is unknown, or a record has another schema.
        FileNotFoundError: a file or a dataset does not exist, or there is no network.
    """
    check_choice("a benchmark", name, SOURCES)
    source = SOURCES[name]
    split = split or source.default
    if split not in source.files:
        raise ValueError(
            f"expected a split of {name}, {', '.join(source.files)}, found {split!r}; give one of "
            "them"
        )
    if data_dir is None:
        where, rows = _from_hub(name, split, subjects, hub_id)
    else:
        where, rows = _from_files(name, Path(data_dir) / name, split, subjects)
    positions = defaultdict[str, Iterator[int]](count)  # of MMLU, within each subject
    groups = [row.get("subject", "") if name == "mmlu" else "" for row in rows]
    records = [
        _checked(source.read, row, split, next(positions[group]), where)
        for row, group in zip(rows, groups, strict=True)
    ]
    if not records:
        raise ValueError(f"{where}: expected questions, found none; download it again")
    return [
        replace(record, flags=(flag,)) if (flag := flag_of(record)) else record
        for record in records
    ]


def _from_files(
    name: str, folder: Path, split: str, subjects: str | Sequence[str]
) -> tuple[str, Sequence[RawRecord]]:
    file = SOURCES[name].files[split]
    path = folder / file
    if name == "mmlu":
        return str(path), mmlu_rows(folder, split, subjects)
    if not path.is_file():
        raise FileNotFoundError(
            f"expected {name}'s published {file} (split {split!r}) at {path}, found no file; give "
            "data_dir= the folder that holds the benchmarks' folders, or leave it out to read the "
            "hub"
        )
    if name == "gsm8k":
        return str(path), read_gsm8k(path)
    return str(path), list(_objects(path)) if path.suffix == ".jsonl" else json_list(path)


def _from_hub(
    name: str, split: str, subjects: str | Sequence[str], hub_id: str | None
) -> tuple[str, Sequence[RawRecord]]:
    source = SOURCES[name]
    if source.hub is None and hub_id is None:
        raise ValueError(
            f"expected data_dir= with the files of {name}, or hub_id= of a dataset with its "
            "schema, found neither, and no such dataset on the hub is known here; give one of them"
        )
    known, configuration = source.hub or ("", None)
    advice = (
        f"Check the network and HF_HUB_OFFLINE, or give data_dir= with {name}'s published files."
    )
    rows = hub_rows(hub_id or known, configuration, source.hub_splits.get(split, split), advice)
    if name == "mmlu":
        rows = chosen_subjects(rows, subjects, source=hub_id or known)
    return hub_id or known, rows


def _checked(
    read: Callable[[RawRecord, str, int], Record], row: RawRecord, split: str, i: int, where: str
) -> Record:
    try:
        return read(row, split, i)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{where}, record {i}: expected the benchmark's schema, found {row!r:.200} "
            f"({type(error).__name__}: {error}); give the published files"
        ) from error


def _written(number: float) -> str:
    """A number as text: 51.0 as 51."""
    return f"{number:.10g}"
