"""The lm-evaluation-harness: its tasks by name, and its evaluation of a model of ours.

The one file that asks it to load and to run; it is imported when `evaluate` is called.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lm_eval
import lm_eval.api.task
from lm_eval.evaluator import evaluate as run_harness
from lm_eval.tasks import TaskManager

from arith_lens.evaluation.sources import SPLITS, Splits, as_datasets, reader

HARNESS_TASKS = Path(lm_eval.__file__).parent / "tasks"
OURS = Path(__file__).parent / "tasks"
USUAL = ("gsm8k", "mmlu/default", "commonsense_qa")
ALIASES = {"csqa": "commonsense_qa"}
SHOTS = {"gsm8k": 8, "mmlu": 5, "commonsense_qa": 7}
"""Where the harness sets none, or other ones: as many as the numbers have that are published of
LLaMA-2, and that the paper's Table 1 starts from (14.6 on GSM8K is one with eight)."""
JUDGED = ("generate_until", "multiple_choice")


@dataclass(frozen=True)
class Built:
    """Tasks ready to run.

    Attributes:
        tasks: the harness's, by name
        groups: which tasks a name that was asked for stands for, where it is not one task
    """

    tasks: Mapping[str, Any]
    groups: Mapping[str, tuple[str, ...]]


def build(
    names: Sequence[str],
    *,
    data_dir: str | Path | None = None,
    shots: int | Mapping[str, int] | None = None,
    max_new_tokens: int | None = None,
    seed: int = 1234,
    held_out: bool = False,
) -> Built:
    """The tasks of these names, each with its data and its shots.

    Raises:
        ValueError: no name, a name that does not exist, shots that a task cannot have, a task whose
            answers are neither right nor wrong, or files of another schema
        FileNotFoundError: the data folder lacks a file, or the hub cannot be reached
        ConnectionError: a further task's data cannot be had from the hub
    """
    if not names:
        raise ValueError(f"expected a task, found none: name some of {', '.join(_known())}")
    manager = _manager()
    groups: dict[str, tuple[str, ...]] = {}
    for name in names:
        known = ALIASES.get(name, name)
        if known not in manager.task_index:
            manager = _with_others(manager, known)
        groups[known] = tuple(dict.fromkeys(_leaves(manager, known)))
    if isinstance(shots, Mapping):
        shots = {ALIASES.get(name, name): count for name, count in shots.items()}
    _check_shots(shots, groups)
    tasks: dict[str, Any] = {}
    read = reader(data_dir, held_out=held_out)
    for name, leaves in groups.items():
        for leaf in leaves:
            if leaf in tasks:
                continue
            splits = read(leaf)
            with quiet():
                tasks[leaf] = _task(manager, leaf, splits)
            _set_shots(tasks[leaf], _shots_of(shots, name, leaf), seed)
            if max_new_tokens and tasks[leaf].OUTPUT_TYPE == "generate_until":
                told = {"max_gen_toks": max_new_tokens}
                tasks[leaf].set_config("generation_kwargs", told, update=True)
    return Built(tasks, {n: v for n, v in groups.items() if v != (n,)})


def run(lm: Any, built: Built, *, limit: int | None) -> Mapping[str, Sequence[Any]]:
    """The harness's own evaluation: by task, what it logs of each question and filter."""
    with quiet():
        found = run_harness(
            lm, {"tasks": dict(built.tasks)}, limit=limit, bootstrap_iters=0, log_samples=True
        )
    assert found is not None and "samples" in found, "one process asks, and samples are logged"
    return found["samples"]


@contextmanager
def quiet() -> Iterator[None]:
    """Without the harness's log and its bars, one a task: `evaluate` shows one of its own."""
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
    """The names worth listing: not each subject."""
    index = _manager().task_index
    return sorted(
        name for name in index if not re.match(r"mmlu_.*", name) or _is_group(index[name])
    )


def _is_group(entry: Any) -> bool:
    return entry.kind.name == "GROUP"


def _with_others(manager: TaskManager, name: str) -> TaskManager:
    """A manager that knows a further task of the harness, found by its name in thousands of files.

    Raises ValueError where there is none.
    """
    defined = re.compile(
        rf"^[\"']?(?:task|group|tag)[\"']?:\s*[\"']?{re.escape(name)}[\"']?\s*$", re.M
    )
    for path in sorted(HARNESS_TASKS.rglob("*.yaml")):
        if defined.search(path.read_text(encoding="utf-8", errors="replace")):
            found = _manager(path.parent)
            if name in found.task_index:
                return found
    close = get_close_matches(name, manager.all_tasks, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    raise ValueError(
        f"expected a task, found {name!r}.{hint} There are {', '.join(_known())}, mmlu_<subject>, "
        f"and what `lm_eval ls tasks` lists"
    )


def _leaves(manager: TaskManager, name: str) -> Iterator[str]:
    """The tasks that a group or tag consists of; a task is its own."""
    entry = manager.task_index[name]
    if _is_group(entry):
        for child in (entry.cfg or {})["task"]:
            yield from _leaves(manager, child if isinstance(child, str) else child["task"])
    elif entry.kind.name == "TAG":
        yield from sorted(entry.tags)
    else:
        yield name


def _task(manager: TaskManager, leaf: str, splits: Splits | None) -> Any:
    """The harness's task, its own prompt, metric and filters; the data ours where we read it."""
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
    """What the harness calls for a task's data."""
    return as_datasets(splits)


def _shots_of(shots: int | Mapping[str, int] | None, name: str, leaf: str) -> int | None:
    """As told for the leaf, for the name that was asked for, or for all; else the default."""
    if isinstance(shots, int):
        return shots
    family = "mmlu" if leaf.startswith("mmlu_") else leaf
    told = {**SHOTS, **(shots or {})}
    return next((told[key] for key in (leaf, name, family) if key in told), None)


def _check_shots(shots: Any, groups: Mapping[str, tuple[str, ...]]) -> None:
    told = {"shots": shots} if isinstance(shots, int) else dict(shots or {})
    wrong = {
        n: k for n, k in told.items() if isinstance(k, bool) or not isinstance(k, int) or k < 0
    }
    if wrong:
        raise ValueError(f"expected shots of 0 or more, found {wrong}")
    asked = {"shots", "mmlu", *groups, *(leaf for leaves in groups.values() for leaf in leaves)}
    if unknown := sorted(set(told) - asked):
        raise ValueError(
            f"expected shots of the tasks {', '.join(groups)}, found shots of {', '.join(unknown)}"
        )


def _set_shots(task: Any, shots: int | None, seed: int) -> None:
    """As the harness's command line does: a task that is fixed at none stays so."""
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
