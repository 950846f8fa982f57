"""What decides an evaluation's numbers, written down."""

import hashlib
import json
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from arith_lens.evaluation.harness import Built
from arith_lens.evaluation.scoring import EXTRACTOR
from arith_lens.runs.files import plain
from arith_lens.runs.provenance import describe_model

PINNED = (
    *("description", "doc_to_text", "doc_to_target", "doc_to_choice", "target_delimiter"),
    *("fewshot_delimiter", "generation_kwargs", "filter_list", "metric_list", "metadata"),
)


def settings_of(built: Built, model: Any, **told: Any) -> dict[str, Any]:
    """The settings that an EvaluationResult carries, before anything is asked."""
    about = describe_model(model)
    return {
        "tasks": {name: _task(task) for name, task in built.tasks.items()},
        "groups": {name: list(leaves) for name, leaves in built.groups.items()},
        "harness": f"lm_eval {version('lm_eval')}",
        "model": {key: about[key] for key in ("name", "dtype", "attn_implementation")},
        **told,
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
        "prompt": {name: _told(getattr(config, name)) for name in PINNED},
        "n_questions": len(task.eval_docs),
        "data_sha256": digest(task.eval_docs),
        "shots_sha256": digest(task.sampler.df) if shots else None,
    }


def digest(docs: Iterable[Any]) -> str:
    """SHA-256 of questions, answers and all, in their order."""
    text = "".join(json.dumps(dict(doc), sort_keys=True, default=str) + "\n" for doc in docs)
    return hashlib.sha256(text.encode()).hexdigest()


def _told(value: Any) -> Any:
    """In JSON's types; a function by its name."""
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, dict):
        # where the harness is installed is no part of what is asked
        return {str(k): _told(v) for k, v in value.items() if k != "config_source"}
    if isinstance(value, list | tuple):
        return [_told(item) for item in value]
    return plain(value)
