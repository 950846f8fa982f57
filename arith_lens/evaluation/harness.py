"""The lm-evaluation-harness: its tasks by name, its evaluation of our models, and its logs.

Only this file makes the harness load and run tasks. It is imported when `evaluate` is called.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lm_eval
import lm_eval.api.task
import torch
from lm_eval.evaluator import evaluate as run_harness
from lm_eval.tasks import TaskManager

from arith_lens.answers import Answers
from arith_lens.benchmarks import gold_answer
from arith_lens.evaluation.result import EvaluationResult
from arith_lens.evaluation.sources import (
    EXTRACTOR,
    SPLITS,
    Splits,
    as_datasets,
    reader,
    right_number,
)
from arith_lens.runs.files import plain_value
from arith_lens.runs.manifest import describe_model

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
    changes = {} if splits is None else {"custom_dataset": partial(_given, splits)}
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


def _given(splits: Splits, **_: Any) -> Any:
    """The function that the harness calls for a task's data."""
    return as_datasets(splits)


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


LoggedSample = Mapping[str, Any]


def read_samples(
    samples: Mapping[str, Sequence[LoggedSample]],
    built: Built,
    settings: Mapping[str, Any],
    lm: Any,
) -> EvaluationResult:
    """The outcomes of all tasks, in the order of the tasks and of their questions."""
    outcomes: list[tuple[bool, str, str, str]] = []
    numbers: list[int] = []
    flags: list[str] = []
    scores: list[dict[str, float]] = []
    prompts = {}
    for name, task in built.tasks.items():
        by_number = _by_question(samples[name])
        prompts[name] = questions_digest(
            {"prompt": of[0]["arguments"][0][0]} for of in by_number.values()
        )
        for number, of in by_number.items():
            doc = of[0]["doc"]
            label = f"{name}/{doc['kind']}" if "kind" in doc else name
            outcomes.append((*_outcome(task, of[0]), label))
            numbers.append(number)
            flags.append(doc.get("flag", ""))
            scores.append(_scores(of))
    correct, written, expected, label = zip(*outcomes, strict=True)
    names = dict.fromkeys(score for of in scores for score in of)
    columns = {name: [of.get(name, float("nan")) for of in scores] for name in names}
    tasks = {
        name: {
            **about,
            "prompts_sha256": prompts[name],
            "truncated": int(lm.truncated[name]),
        }
        for name, about in settings["tasks"].items()
    }
    return EvaluationResult(
        Answers(torch.tensor(correct), tuple(written), tuple(expected), tuple(label)),
        torch.tensor(numbers),
        tuple(flags),
        {name: torch.tensor(column, dtype=torch.float64) for name, column in columns.items()},
        {**settings, "tasks": tasks},
        dict(lm.seconds),
    )


def _by_question(samples: Sequence[LoggedSample]) -> dict[int, list[LoggedSample]]:
    """The samples of each question, one per filter."""
    by_number: dict[int, list[LoggedSample]] = {}
    for sample in samples:
        by_number.setdefault(int(sample["doc_id"]), []).append(sample)
    return dict(sorted(by_number.items()))


def _scores(of: Sequence[LoggedSample]) -> dict[str, float]:
    return {
        f"{metric},{sample['filter']}": float(sample[metric])
        for sample in of
        for metric in sample["metrics"]
        if isinstance(sample[metric], int | float)
    }


def _outcome(task: Any, sample: LoggedSample) -> tuple[bool, str, str]:
    """Whether the answer is right, the answer, and the expected answer."""
    if task.OUTPUT_TYPE == "multiple_choice":
        return _chosen(task, sample)
    text, target = sample["resps"][0][0], str(sample["target"])
    if "follows" in sample:  # the closed world's
        return bool(sample["follows"]), text, target.strip()
    if "number" in sample:
        return bool(sample["number"]), text, target
    if "####" in target:  # GSM8K's
        return right_number(text, target), text, gold_answer(target)
    metric = sample["metrics"][0]  # of another task of the harness: its own verdict
    return bool(sample[metric]), text, target


def _chosen(task: Any, sample: LoggedSample) -> tuple[bool, str, str]:
    choices = task.doc_to_choice(sample["doc"])
    likelihoods = [float(response[0][0]) for response in sample["resps"]]
    choice = choices[max(range(len(choices)), key=likelihoods.__getitem__)]
    target = sample["target"]
    return bool(sample["acc"]), choice, choices[target] if isinstance(target, int) else str(target)
