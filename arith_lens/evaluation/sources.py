"""Functions for the harness's tasks: records of benchmarks as splits, scores, worked examples.

Each question has the harness's own fields, an `id`, and a `flag`: why its gold answer is not
reliable, or "".
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import lm_eval
import yaml

from arith_lens.answers import Question
from arith_lens.answers.answering import is_right
from arith_lens.benchmarks import Record, gold_answer, load_records, parse_number, same_number
from arith_lens.benchmarks.parsing import ANSWER_TOLERANCE
from arith_lens.benchmarks.readers import LETTERS
from arith_lens.reference.sets import by_task, load_set

Doc = dict[str, Any]
Splits = dict[str, list[Doc]]
Load = Callable[..., Sequence[Record]]
MMLU = "mmlu_"
SPLITS = {
    "gsm8k": ("gsm8k", {"train": "train", "test": "test"}),
    "commonsense_qa": ("csqa", {"train": "train", "validation": "dev"}),
    "commonsense_qa_text": ("csqa", {"validation": "dev"}),
    "svamp": ("svamp", {"test": "whole"}),
    "addsub": ("addsub", {"test": "whole"}),
    "singleeq": ("singleeq", {"test": "whole"}),
}
"""For each task: the benchmark, and its part for each of the harness's splits."""


def reader(
    data_dir: str | Path | None, *, held_out: bool = False
) -> Callable[[str], Splits | None]:
    """A function that reads a task's splits. It raises the errors of `load_records`.

    The function returns None for a task that only the harness can read.

    Args:
        data_dir: the folder of published files; None: the hub.
        held_out: whether to use only the test part of sets that are otherwise used whole.
    """
    folder = None if data_dir is None else str(data_dir)
    load = cache(load_records)  # all subjects of MMLU are one data set on the hub

    def read(task: str) -> Splits | None:
        if task in SPLITS:
            name, parts = SPLITS[task]
            return {
                split: [
                    _doc(name, record)
                    for record in load(name, folder, split=_part(part, held_out=held_out))
                ]
                for split, part in parts.items()
            }
        if task.startswith(MMLU):
            return _subject(task.removeprefix(MMLU), folder, load)
        return None

    return read


def _part(part: str, *, held_out: bool) -> str:
    return "test" if held_out and part == "whole" else part


def svamp(data_dir: str | Path | None = None, **_: Any) -> Any:
    """SVAMP's 1,000 questions, from `<data_dir>/svamp/SVAMP.json` or the hub."""
    return as_datasets(reader(data_dir)("svamp"))


def addsub(data_dir: str | Path | None = None, **_: Any) -> Any:
    """AddSub's 395 questions, from `<data_dir>/addsub/AddSub.json`."""
    return as_datasets(reader(data_dir)("addsub"))


def singleeq(data_dir: str | Path | None = None, **_: Any) -> Any:
    """SingleEq's 508 questions, from `<data_dir>/singleeq/questions.json`."""
    return as_datasets(reader(data_dir)("singleeq"))


def world_word_problems(**_: Any) -> Any:
    """The closed world's unseen word problems."""
    return as_datasets(_world("word_problems_test"))


def world_generic(**_: Any) -> Any:
    """The closed world's generic tasks."""
    return as_datasets(_world("generic_test"))


def world_two_digit(**_: Any) -> Any:
    """The closed world's held-out two-digit problems."""
    return as_datasets(_world("two_digit_test"))


def as_datasets(splits: Mapping[str, list[Doc]] | None) -> Any:
    """The splits in the classes of `datasets`."""
    from datasets import Dataset, DatasetDict

    return DatasetDict({name: Dataset.from_list(docs) for name, docs in (splits or {}).items()})


def _subject(subject: str, folder: str | None, load: Load) -> Splits:
    """The splits of one subject. A folder has one file per subject, the hub has all in one."""
    wanted = "all" if folder is None else (subject,)
    return {
        split: [
            _doc("mmlu", record)
            for record in load("mmlu", folder, split=split, subjects=wanted)
            if record.subject == subject
        ]
        for split in ("dev", "test")
    }


def _doc(name: str, record: Record) -> Doc:
    doc: Doc = {"question": record.question}
    if name == "csqa":
        doc["choices"] = {"label": list(LETTERS), "text": list(record.choices)}
        doc["answerKey"] = record.gold
    elif name == "mmlu":
        doc |= {"subject": record.subject, "choices": list(record.choices)}
        doc["answer"] = LETTERS.index(record.gold)
    else:
        doc["answer"] = record.solution if name == "gsm8k" else record.gold
    doubts = [flag.reason for flag in record.flags] if record.doubtful else []
    return {**doc, "id": record.id, "flag": "; ".join(doubts)}


def _world(name: str) -> Splits:
    """A frozen set of the closed world, with its kinds in turn, so the first questions have all."""
    kinds = by_task(load_set(name))
    listed = [
        [{"prompt": prompt, "answer": answer, "kind": kind} for prompt, answer in items]
        for kind, items in kinds.items()
    ]
    return {"test": [doc for doc in chain(*zip_longest(*listed)) if doc is not None]}


EXTRACTOR = f"arith_lens.benchmarks.parse_number, right within {ANSWER_TOLERANCE}"


def number(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, int]:
    """Whether the text's answer is the gold number."""
    return {"number": int(right_number(results[0], doc["answer"]))}


def right_number(text: str, gold: str) -> bool:
    """Whether a text gives the gold answer, written as a number or as GSM8K writes a solution."""
    written = gold_answer(gold) if "####" in gold else gold
    return same_number(parse_number(text), float(written.replace(",", "")))


def follows(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, int]:
    """Whether the text begins with the answer, by the rule of the closed world's model cards."""
    question = Question(doc["prompt"], doc["answer"])
    return {"follows": int(is_right(results[0], question, whole_words=False))}


def worked_examples() -> list[dict[str, str]]:
    """The eight examples of Wei et al. (2022), usual for all four word problem benchmarks.

    `question` and `target`; read from the harness, whose task gsm8k_cot has them.
    """
    path = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k-cot.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    return config["fewshot_config"]["samples"]
