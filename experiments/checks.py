"""Arguments are refused here, before anything is imported that computes, and before a model loads.

The checks read the settings by their names, so they are the same for all experiments and exhibits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from arith_lens.named_models import PRETRAINED, REFERENCE_MODELS
from arith_lens.operations import FOUR, OPERATIONS
from arith_lens.problems import all_problems, check_operands
from arith_lens.templates import FIGURE_10, TEMPLATES

POSITIVE = (
    *("batch", "batch_size", "d_mlp", "d_model", "draws", "epochs"),
    *("exemplar_sets", "k", "length", "log_every", "max_new_tokens", "memory_pairs"),
    *("micro_batch", "n", "n_heads", "n_layers", "processes", "prompts", "repeats", "rows"),
    *("save_every", "search_every", "seeds", "tokens"),
)
"""Counts of at least one; every other whole number can be zero."""
EXISTING = ("folder", "others", "pairs", "run", "runs", "tuned")
"""Files or folders that a command reads."""
DATA_FOLDERS = ("gsm8k", "svamp", "addsub", "singleeq", "mawps", "mmlu", "csqa")
"""The benchmarks' folders, any of which a data folder can hold."""
OF_TEMPLATES = (
    *("templates", "shots", "exemplars", "exemplar_sets", "n", "seed", "operations", "problems"),
    *("operands", "answer_token", "counterfactual", "draws"),
)
"""Settings of prompts that are made from templates. A file of prompts has none of them."""
WORDINGS = ("operation", "symbols", "all")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The names that are spelled like a word, as the end of a sentence: `; did you mean fig2?`."""
    names = [*known]
    plain = word.lower().replace("-", "_")
    close = [plain] if plain in names else get_close_matches(plain, names, n=3, cutoff=0.7)
    if len(plain) > 2:
        close = close or [name for name in names if plain in name][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""


def option(name: str) -> str:
    """The option of a setting: `--data-dir` for `data_dir`."""
    return f"--{name.replace('_', '-')}"


def check_settings(values: Mapping[str, Any]) -> None:
    """Refuse settings with which nothing can be computed.

    Args:
        values: the arguments of a command, by name; of a dataclass, its fields are checked.

    Raises:
        ValueError: a number is too small or too large, or a name is not known.
        FileNotFoundError, NotADirectoryError: a file or folder is missing.
    """
    settings: dict[str, Any] = {}
    for name, value in values.items():
        if is_dataclass(value):
            _check_own_prompts(value)
            settings |= {field.name: getattr(value, field.name) for field in fields(value)}
        else:
            settings[name] = value
    for name, value in settings.items():
        _check_count(name, value)
    _check_model_names(settings)
    _check_paths(settings)
    if "templates" in settings:  # prompts are names
        _check_sample(settings)


def _check_own_prompts(config: Any) -> None:
    """Refuse a file of prompts together with settings that it cannot have."""
    if getattr(config, "pairs", None) is None:
        return
    unused = [
        option(field.name)
        for field in fields(config)
        if field.name in OF_TEMPLATES and getattr(config, field.name) != field.default
    ]
    if unused:
        raise ValueError(
            f"expected --pairs without settings of the templates, found {', '.join(unused)}: the "
            "file's own prompts are used as they are. Leave these options out, or --pairs"
        )


def _check_count(name: str, value: Any) -> None:
    least = int(name in POSITIVE)
    if isinstance(value, int) and not isinstance(value, bool) and value < least:
        raise ValueError(f"expected {option(name)} of {least} or more, found {value}")


def _check_model_names(settings: Mapping[str, Any]) -> None:
    """Refuse a name that is almost that of a shipped model, if nothing else has this name."""
    shipped = [*REFERENCE_MODELS, *PRETRAINED]
    for name in [settings.get("model"), *(settings.get("models") or ())]:
        if not isinstance(name, str) or name in shipped:
            continue
        if name and Path(name).expanduser().exists():
            continue
        close = get_close_matches(name.lower(), shipped, n=1, cutoff=0.8)
        if not name or (close and "/" not in name):
            meant = f"; did you mean {close[0]}?" if close else ";"
            raise ValueError(
                f"expected a shipped model ({', '.join(shipped)}), a folder or a hub id, found "
                f"{name!r}{meant} A folder of this name can be given as ./{name}"
            )


def _check_paths(settings: Mapping[str, Any]) -> None:
    for name in EXISTING:
        value = settings.get(name)
        for path in value if isinstance(value, tuple) else (value,):
            is_filter = name == "pairs" and "templates" not in settings  # of a stored run
            if isinstance(path, Path) and not is_filter and not path.exists():
                raise FileNotFoundError(
                    f"expected a file or folder as {name}, found nothing at {path}; check the path"
                )
    for name in ("root", "out", "output", "to"):
        path = settings.get(name)
        if isinstance(path, Path) and path.exists() and not path.is_dir():
            raise NotADirectoryError(
                f"expected {option(name)} to name a folder, found a file at {path}; name another"
            )
    folder = settings.get("data_dir")
    if isinstance(folder, Path) and not any((folder / name).is_dir() for name in DATA_FOLDERS):
        content = "nothing" if not folder.exists() else "none of them"
        raise FileNotFoundError(
            f"expected --data-dir to name the folder that holds {', '.join(DATA_FOLDERS)} or some "
            f"of them, found {content} in {folder}; check the path"
        )


def _check_sample(settings: Mapping[str, Any]) -> None:
    """Refuse a sample that cannot be names."""
    operations = settings.get("operations", FOUR)
    if not operations or len({*operations}) < len(operations):
        raise ValueError(
            f"expected operations, each of them once, found {' '.join(operations) or 'none'}; "
            f"name some of {', '.join(OPERATIONS)}, or leave --operations out"
        )
    first, last = settings.get("operands", (1, 9))
    if first > last:
        raise ValueError(
            f"expected --operands as the first and the last number, such as 1 9, found {first} "
            f"{last}; exchange them"
        )
    check_operands(range(first, last + 1))
    names = settings["templates"]
    chosen = {name: _templates(name, names) for name in operations}
    n, from_file = settings.get("n"), settings.get("pairs") is not None
    computed = settings.get("problems", "any") == "computed"
    if n is None or from_file or computed or any(story.name in names for story in FIGURE_10):
        return
    for operation, templates in chosen.items():
        problems = all_problems(operation, range(first, last + 1))
        most = len(problems) * len(templates)
        if n > most and "all" not in names:
            raise ValueError(
                f"expected --n (N= of make) of at most {most} in {operation} "
                f"({len(problems)} problems in {len(templates)} wordings; fewer where the "
                f"tokenizer splits answers), found {n}; "
                "leave it out to take all, or take more --operands or --templates all"
            )


def _templates(operation: str, names: tuple[str, ...]) -> set[str]:
    """The names of an operation's chosen templates, without stories. Raises ValueError."""
    own = {template.name: template for template in TEMPLATES[operation]}
    stories = [story.name for story in FIGURE_10 if story.operation == operation]
    for name in names or ("",):
        if name not in (*WORDINGS, *own, *stories):
            raise ValueError(
                f"expected --templates operation, symbols, all, or names of {operation} such as "
                f"{next(iter(own))}, found {name!r}{suggestion(name, [*WORDINGS, *own, *stories])}"
            )
    if "symbols" in names:
        return {name for name, template in own.items() if template.kind == "symbol"}
    return {*own} if {"operation", "all"} & {*names} else {*own} & {*names}
