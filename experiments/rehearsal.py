"""A rehearsal: a whole command in small, on the shipped model, in a folder that is then removed.

It finds a wrong option before a large model is loaded, and leaves nothing that looks like a result.
"""

import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from arith_lens.progress import working
from experiments.catalogue import exhibits, imported

SMALL = {
    **{"n": 18, "drawn": 18, "kept_on": 9, "prompts": 4, "problems": 18, "context_pairs": 18},
    **{"limit": 2, "control_limit": 2},
    **{"controls": 1, "random_pairs": 1, "candidates": 2, "masked": 1, "most": 4, "draws": 1},
    **{"heads": 2, "mlps": 1, "top": 2, "steps": 1},
    **{"examples": 8, "batch": 4, "epochs": 1, "questions": 2},
}
"""The largest value of each setting, where it is a number, that makes a command long."""
FIRST = ("operations", "counterfactuals", "metrics", "rates", "several", "more")
"""Settings of which the first value alone is computed."""
ELSEWHERE: dict[str, Any] = {
    **{"model": "reference", "which_heads": (), "which_mlps": ()},
    **{"shots": 0, "pairs": None, "data_dir": None, "form": "solution", "tasks": ()},
    **{"max_new_tokens": None},
}
"""Settings of prompts, data and heads that the shipped model has not; the plan has read them."""


def in_small(config: Any) -> Any:
    """The settings of the rehearsal of these settings."""
    own = vars(config)
    names = {field.name for field in fields(config) if field.init}
    small = {
        name: min(own[name] or most, most)
        for name, most in SMALL.items()
        if name in names and (own[name] is None or type(own[name]) in (int, float))
    }
    small |= {name: own[name][:1] for name in names & {*FIRST}}
    return replace(config, **small | {name: ELSEWHERE[name] for name in names & {*ELSEWHERE}})


def rehearse(compute: Callable[..., Any], config: Any, figure: str, model: Any) -> None:
    """Compute and draw in small, in a folder of its own, and print what was done.

    Args:
        compute: what computes, from settings and the folder of runs.
        figure: the exhibit that draws it; "": none.
        model: the large model without its weights.
    """
    small, started = in_small(config), time.perf_counter()
    parameters = getattr(model, "bridge", model).parameters()
    weights = sum(one.numel() * one.element_size() for one in parameters)
    print(f"the model's weights: {weights:.3g} bytes")
    with (
        TemporaryDirectory(prefix="rehearsal-") as folder,
        working("rehearsing on the model reference"),
        redirect_stdout(StringIO()),
    ):
        compute(small, root=Path(folder))
        if figure:
            _draw(figure, Path(folder))
    changed = {name: value for name, value in vars(small).items() if value != vars(config)[name]}
    settings = ", ".join(f"{name} {value}" for name, value in changed.items())
    print(f"rehearsed in {time.perf_counter() - started:.0f} s ({settings}); nothing is stored")


def _draw(figure: str, root: Path) -> None:
    """Draw the exhibit of the only run under a root, into the same folder."""
    exhibit = exhibits()[figure]
    options = imported(exhibit.takes[0])
    (run,) = root.glob("*/*/run.json")
    names = {field.name for field in fields(options)}
    values = {"out": root / "figures", "run": run.parent, "root": root, "formats": ()}
    imported("figures.exhibit:show")(
        exhibit.load(), options(**{name: values[name] for name in names & {*values}})
    )
