"""`evaluate`: a model answers benchmarks, through the lm-evaluation-harness."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from arith_lens.components import NamedHook
from arith_lens.evaluation.result import EvaluationResult
from arith_lens.hooks import describe_hooks, hooks_digest
from arith_lens.model import load_model
from arith_lens.runs import ResultSlot, Run


def evaluate(
    model: Any,
    tasks: str | Sequence[str],
    *,
    hooks: Iterable[NamedHook] = (),
    hook_steps: Literal["all", "prompt"] = "all",
    limit: int | None = None,
    data_dir: str | Path | None = None,
    held_out: bool = False,
    shots: int | Mapping[str, int] | None = None,
    max_new_tokens: int | None = None,
    too_long: Literal["error", "truncate"] = "error",
    batch_size: int | None = None,
    seed: int = 1234,
    run: Run | None = None,
    name: str = "evaluation",
    facts: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> EvaluationResult:
    """Ask a model the questions of benchmarks, with or without interventions.

    The lm-evaluation-harness makes the prompts and scores the answers. It uses its own tasks
    (`gsm8k`, `commonsense_qa`, `mmlu`, `mmlu_humanities`, ...) and tasks of this package in its
    format (`svamp`, `addsub`, `singleeq`; `world_word_problems`, `world_generic` and
    `world_two_digit` for the shipped models). Choices are compared by likelihood. A number is read
    from the text by one rule (`arith_lens.benchmarks`) and compared by its value; the harness's own
    metrics are in `scores`.

    Args:
        model: a HookedModel, or an argument of `load_model`: a directory (also of a tuned model), a
            hub id, a shipped model's name, `(hf_model, tokenizer)`.
        tasks: one name or several.
        hooks: interventions that act during the answers, such as `knockout_hooks(...)`. They need a
            loaded model.
        hook_steps: as in `HookedModel.generate`; "prompt" for hooks with positions.
        limit: the number of questions per task (per subject of MMLU); the first ones are used, as
            in the harness. None: all.
        data_dir: the folder of gsm8k/, svamp/, addsub/, singleeq/, mmlu/, csqa/ as published. None:
            the hub, which has neither AddSub nor SingleEq.
        held_out: whether to ask only the test parts of SVAMP, AddSub and SingleEq, for models that
            were trained on the train parts (`training_set`).
        shots: the number of worked examples before each question, for all tasks or by task. None: 8
            for GSM8K, 5 for MMLU, 7 for CommonsenseQA, 8 for the other word problems, none for the
            closed world.
        max_new_tokens: the largest length of a written answer. None: the task's own, mostly 256.
        too_long: whether a prompt beyond the model's context is an error or cut on its left.
        batch_size: the largest number of prompts at once; fewer if memory is short.
        seed: the seed of the shots that the harness draws (GSM8K, CommonsenseQA).
        run: an open run that stores answers as they are finished, so a killed evaluation continues.
        name: the name of the result in the run.
        facts: JSON values to store in the run, such as which heads are out.
        progress: whether to show a progress bar with the remaining time.

    Raises:
        ImportError: the harness is not installed.
        TypeError: there are hooks, but no loaded model.
        ValueError: a task is unknown, a limit or shots are not valid, a prompt is too long, or
            files have another schema.
        FileNotFoundError: the data folder lacks a file, or the hub cannot be reached.
        ConnectionError: the hub cannot be reached for a task that only the harness can read.
    """
    _check_harness()
    hooks = list(hooks)
    _check_counts(limit=limit, max_new_tokens=max_new_tokens, batch_size=batch_size)
    from arith_lens.evaluation import harness
    from arith_lens.evaluation.hooked_lm import HookedLM

    names = [tasks] if isinstance(tasks, str) else list(tasks)
    built = harness.build(
        names,
        data_dir=data_dir,
        shots=shots,
        max_new_tokens=max_new_tokens,
        seed=seed,
        held_out=held_out,
    )
    loaded = _loaded(model, hooks)
    settings = harness.settings_of(built, loaded, limit=limit, seed=seed, too_long=too_long)
    settings |= {"hooks": describe_hooks(hooks), "hook_steps": hook_steps}
    question = {"evaluation": settings, "hooks": hooks_digest(hooks) if run else None}
    slot = ResultSlot.of(run, name, loaded, None, **question)
    if (arrays := slot.stored(progress=progress, **(facts or {}))) is not None:
        return EvaluationResult.from_arrays(arrays)
    lm = HookedLM(
        loaded,
        hooks,
        hook_steps=hook_steps,
        batch_size=batch_size,
        too_long=too_long,
        slot=slot,
        progress=progress,
    )
    samples = harness.run(lm, built, limit=limit)
    return slot.save(harness.read_samples(samples, built, settings, lm), **(facts or {}))


def _check_harness() -> None:
    if find_spec("lm_eval") is None:
        raise ImportError(
            "expected the lm-evaluation-harness, found none installed; install the extra: "
            "pip install 'arith-lens[evaluation]'"
        )


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or count < 1):
            raise ValueError(f"expected {name} of 1 or more, or None, found {count!r}")


def _loaded(model: Any, hooks: Sequence[NamedHook]) -> Any:
    if not isinstance(model, str | Path | tuple):
        return model
    if hooks:
        source = model if isinstance(model, str | Path) else "a model in memory"
        raise TypeError(
            f"expected a loaded model with hooks, found {source!r}: what hooks put in place was "
            "measured on a model, and acts on that one; model = load_model(...), make the hooks "
            "with it, and pass it"
        )
    return load_model(model)
