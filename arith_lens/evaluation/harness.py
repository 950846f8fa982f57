"""The lm-evaluation-harness: its tasks by name, our tasks and data for it, and its evaluation.

This file alone makes the harness load and run tasks; it is imported when `evaluate` is called. The
tasks in `tasks/` name functions of this file: records of benchmarks as splits, scores, and worked
examples. Each question has the harness's own fields, an `id`, and a `flag`: why its gold answer is
not reliable, or "".
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lm_eval
import lm_eval.api.task
import yaml
from lm_eval.evaluator import evaluate as run_harness
from lm_eval.tasks import TaskManager

from arith_lens.answers import Question
from arith_lens.answers.answering import is_right
from arith_lens.benchmarks import LETTERS, Record, load_records, right_number
from arith_lens.benchmarks.parsing import ANSWER_TOLERANCE
from arith_lens.reference.sets import by_task, load_set
from arith_lens.runs import describe_model, plain_value

Doc = dict[str, Any]
Splits = dict[str, list[Doc]]
HARNESS_TASKS = Path(lm_eval.__file__).parent / "tasks"
OURS = Path(__file__).parent / "tasks"
USUAL = ("gsm8k", "mmlu/default", "commonsense_qa")
TASK_ALIASES = {"csqa": "commonsense_qa"}
DEFAULT_SHOTS = {"gsm8k": 8, "mmlu": 5, "commonsense_qa": 7}
"""The default numbers of shots where they differ from the harness's. They are those of the
published numbers of LLaMA-2, from which the paper's Table 1 starts (14.6 on GSM8K has eight)."""
JUDGED = ("generate_until", "multiple_choice")


@dataclass(frozen=True)
class Built:
    """Tasks that are ready to run."""

    tasks: Mapping[str, Any]
    """The harness's tasks, by name."""
    groups: Mapping[str, tuple[str, ...]]
    """The tasks of each requested name that is a group."""


def build(
    names: Sequence[str],
    *,
    data_dir: str | Path | None = None,
    shots: int | Mapping[str, int] | None = None,
    max_new_tokens: int | None = None,
    seed: int = 1234,
    held_out: bool = False,
) -> Built:
    """The tasks of these names, each with its data and its shots. Arguments as in `evaluate`.

    Raises:
        ValueError: there is no name, a name does not exist, a task cannot have these shots, answers
            of a task are neither right nor wrong, or files have another schema.
        FileNotFoundError: the data folder lacks a file, or the hub cannot be reached.
        ConnectionError: the hub cannot be reached for another task of the harness.
    """
    if not names:
        raise ValueError(f"expected a task, found none: name some of {', '.join(_known())}")
    manager = _manager()
    groups: dict[str, tuple[str, ...]] = {}
    for name in names:
        known = TASK_ALIASES.get(name, name)
        if known not in manager.task_index:
            manager = _with_others(manager, known)
        groups[known] = tuple(dict.fromkeys(_leaves(manager, known)))
    if isinstance(shots, Mapping):
        shots = {TASK_ALIASES.get(name, name): count for name, count in shots.items()}
    _check_shots(shots, groups)
    tasks: dict[str, Any] = {}
    read = reader(data_dir, held_out=held_out)
    for name, leaves in groups.items():
        for leaf in leaves:
            if leaf in tasks:
                continue
            splits = read(leaf)
            with quiet():
                tasks[leaf] = _harness_task(manager, leaf, splits)
            _set_shots(tasks[leaf], _shots_of(shots, name, leaf), seed)
            if max_new_tokens and tasks[leaf].OUTPUT_TYPE == "generate_until":
                options = {"max_gen_toks": max_new_tokens}
                tasks[leaf].set_config("generation_kwargs", options, update=True)
    return Built(tasks, {n: v for n, v in groups.items() if v != (n,)})


def run(lm: Any, built: Built, *, limit: int | None) -> Mapping[str, Sequence[Any]]:
    """Run the harness's own evaluation. Returns its logs of each question and filter, by task."""
    with quiet():
        results = run_harness(
            lm, {"tasks": dict(built.tasks)}, limit=limit, bootstrap_iters=0, log_samples=True
        )
    assert results is not None and "samples" in results, "one process asks, and samples are logged"
    return results["samples"]


@contextmanager
def quiet() -> Iterator[None]:
    """A context without the harness's log and bars; `evaluate` shows its own bar."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with patch.object(lm_eval.api.task, "tqdm", lambda docs, **_: docs):
            yield
    finally:
        logger.setLevel(level)


def _manager(*more: Path) -> TaskManager:
    folders = [*(HARNESS_TASKS / name for name in USUAL), OURS, *more]
    return TaskManager(include_defaults=False, include_path=list(folders))


def _known() -> list[str]:
    """The names to list in an error, without each subject."""
    index = _manager().task_index
    return sorted(
        name for name in index if not re.match(r"mmlu_.*", name) or _is_group(index[name])
    )


def _is_group(entry: Any) -> bool:
    return entry.kind.name == "GROUP"


def _with_others(manager: TaskManager, name: str) -> TaskManager:
    """A manager with another task of the harness, which is searched by name in thousands of files.

    Raises:
        ValueError: there is no such task.
    """
    defined = re.compile(
        rf"^[\"']?(?:task|group|tag)[\"']?:\s*[\"']?{re.escape(name)}[\"']?\s*$", re.M
    )
    for path in sorted(HARNESS_TASKS.rglob("*.yaml")):
        if defined.search(path.read_text(encoding="utf-8", errors="replace")):
            extended = _manager(path.parent)
            if name in extended.task_index:
                return extended
    close = get_close_matches(name, manager.all_tasks, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    raise ValueError(
        f"expected a task, found {name!r}.{hint} There are {', '.join(_known())}, mmlu_<subject>, "
        f"and what `lm_eval ls tasks` lists"
    )


def _leaves(manager: TaskManager, name: str) -> Iterator[str]:
    """The tasks of a group or tag; for a task, the task itself."""
    entry = manager.task_index[name]
    if _is_group(entry):
        for child in (entry.cfg or {})["task"]:
            yield from _leaves(manager, child if isinstance(child, str) else child["task"])
    elif entry.kind.name == "TAG":
        yield from sorted(entry.tags)
    else:
        yield name


def _harness_task(manager: TaskManager, leaf: str, splits: Splits | None) -> Any:
    """The harness's task with its prompt, metric and filters, and with our data if we have it."""
    changes = {} if splits is None else {"custom_dataset": partial(as_datasets, splits)}
    try:
        group = {"group": "asked", "task": [{"task": leaf, **changes}]}
        task = manager.load([group])["tasks"][leaf]
    except (OSError, ValueError) as error:
        if splits is not None or not (manager.task_index[leaf].cfg or {}).get("dataset_path"):
            raise
        raise ConnectionError(
            f"expected the data of {leaf} from the Hugging Face hub, found none "
            f"({type(error).__name__}: {str(error).splitlines()[0]:.160}); go online once, so that "
            "`datasets` keeps a copy. The tasks whose data data_dir= can give are "
            f"{', '.join(SPLITS)} and MMLU's"
        ) from error
    if task.OUTPUT_TYPE not in JUDGED:
        raise ValueError(
            f"expected a task whose answers are right or wrong ({', '.join(JUDGED)}), found "
            f"{leaf}, which asks for {task.OUTPUT_TYPE}: run it with the harness itself"
        )
    return task


def _shots_of(shots: int | Mapping[str, int] | None, name: str, leaf: str) -> int | None:
    """The number of shots for the task, for the requested name, or for all; else the default."""
    if isinstance(shots, int):
        return shots
    family = "mmlu" if leaf.startswith("mmlu_") else leaf
    counts = {**DEFAULT_SHOTS, **(shots or {})}
    return next((counts[key] for key in (leaf, name, family) if key in counts), None)


def _check_shots(shots: Any, groups: Mapping[str, tuple[str, ...]]) -> None:
    counts = {"shots": shots} if isinstance(shots, int) else dict(shots or {})
    wrong = {
        n: k for n, k in counts.items() if isinstance(k, bool) or not isinstance(k, int) or k < 0
    }
    if wrong:
        raise ValueError(f"expected shots of 0 or more, found {wrong}")
    known = {"shots", "mmlu", *groups, *(leaf for leaves in groups.values() for leaf in leaves)}
    if unknown := sorted(set(counts) - known):
        raise ValueError(
            f"expected shots of the tasks {', '.join(groups)}, found shots of {', '.join(unknown)}"
        )


def _set_shots(task: Any, shots: int | None, seed: int) -> None:
    """Set the shots as the harness's command line does: a task without shots keeps none."""
    default = task.get_config("num_fewshot")
    wanted = default if shots is None or default == 0 else shots
    task.set_config("num_fewshot", wanted or 0)
    task.set_fewshot_seed(seed)
    pool = len(task.sampler.df) if hasattr(task, "sampler") else 0
    if (wanted or 0) > pool:
        raise ValueError(
            f"expected at most {pool} shots of {task.config.task}, as many examples as it has, "
            f"found {wanted}"
        )


PINNED = (
    *("description", "doc_to_text", "doc_to_target", "doc_to_choice", "target_delimiter"),
    *("fewshot_delimiter", "generation_kwargs", "filter_list", "metric_list", "metadata"),
)


def settings_of(built: Built, model: Any, **settings: Any) -> dict[str, Any]:
    """The settings of an EvaluationResult, which are known before the evaluation."""
    about = describe_model(model)
    return {
        "tasks": {name: _task(task) for name, task in built.tasks.items()},
        "groups": {name: list(leaves) for name, leaves in built.groups.items()},
        "harness": f"lm_eval {version('lm_eval')}",
        "model": {key: about[key] for key in ("name", "dtype", "attn_implementation")},
        **settings,
    }


def _task(task: Any) -> dict[str, Any]:
    config = task.config
    shots = int(config.num_fewshot or 0)
    generates = task.OUTPUT_TYPE == "generate_until"
    return {
        "output_type": task.OUTPUT_TYPE,
        "shots": shots,
        "shots_drawn": type(task.sampler).__name__ if hasattr(task, "sampler") else None,
        "extractor": EXTRACTOR if generates else "the likeliest choice (acc)",
        "prompt": {name: _as_json(getattr(config, name)) for name in PINNED},
        "n_questions": len(task.eval_docs),
        "data_sha256": questions_digest(task.eval_docs),
        "shots_sha256": questions_digest(task.sampler.df) if shots else None,
    }


def questions_digest(docs: Iterable[Any]) -> str:
    """SHA-256 of questions with all their fields, in order."""
    text = "".join(json.dumps(dict(doc), sort_keys=True, default=str) + "\n" for doc in docs)
    return hashlib.sha256(text.encode()).hexdigest()


def _as_json(value: Any) -> Any:
    """A value in JSON's types; functions become their names."""
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, dict):
        # the folder of the harness does not matter
        return {str(k): _as_json(v) for k, v in value.items() if k != "config_source"}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return plain_value(value)


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
            if held_out:
                parts = {s: "test" if part == "whole" else part for s, part in parts.items()}
            return {
                split: [_doc(name, record) for record in load(name, folder, split=part)]
                for split, part in parts.items()
            }
        if task.startswith(MMLU):
            return _subject(task.removeprefix(MMLU), folder, load)
        return None

    return read


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


def as_datasets(splits: Splits | None, **_: Any) -> Any:
    """The splits in the classes of `datasets`. The harness calls this for a task's data."""
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


def follows(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, int]:
    """Whether the text begins with the answer, by the rule of the closed world's model cards."""
    question = Question(doc["prompt"], doc["answer"])
    return {"follows": int(is_right(results[0], question, whole_words=False))}


def worked_examples() -> list[dict[str, str]]:
    """The eight examples of Wei et al. (2022), usual for all four word problem benchmarks.

    `question` and `target`; read from the harness, whose task gsm8k_cot has them.
    """
    path = HARNESS_TASKS / "gsm8k" / "gsm8k-cot.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    return config["fewshot_config"]["samples"]
