"""Find, check, explain and improve the parts of a language model that do arithmetic.

After "Interpreting and Improving Large Language Models in Arithmetic Calculation"
(Zhang et al., ICML 2024, arXiv 2409.01659). `__all__` has the names to begin with. All others are
in namespaces such as `arith_lens.hooks`; they are listed in `__init__.pyi`, and work here too.
Importing this package imports no other module of it: each name is imported on its first use.

Idle OpenMP threads sleep instead of spinning: a spinning thread takes the processor from the other
threads. PyTorch reads the policy when it is imported, so it is set here. A value of the user's own
wins.
"""

# pyright: reportUnsupportedDunderAll=false

import os
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import lazy_loader

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.2.0"

_public_name, _, _NAMES = lazy_loader.attach_stub(__name__, __file__)
__all__ = [
    "Head",
    "Mlp",
    "Neuron",
    "PromptPairs",
    "Role",
    "Site",
    "attention_by_role",
    "attribute",
    "audit",
    "circuit_curve",
    "circuit_graph",
    "compare",
    "edge_effects",
    "empty_model",
    "evaluate",
    "explore",
    "fine_tune",
    "interchange",
    "keep_correct",
    "keep_only",
    "key_heads",
    "knock_out",
    "knockout_curve",
    "load_model",
    "load_run",
    "logit_attribution",
    "logit_lens",
    "mlp_probe",
    "open_run",
    "path_patch",
    "plan",
    "sample_pairs",
]


def __dir__() -> list[str]:
    """The names to begin with, and the namespaces."""
    return sorted({*__all__, *(name for name in _NAMES if find_spec(f"{__name__}.{name}"))})


def __getattr__(name: str) -> Any:
    """A public name; an error has the nearest one."""
    from arith_lens.imports import without_collections

    try:
        with without_collections():
            return _public_name(name)
    except AttributeError as error:
        if name in _NAMES or name.startswith("_"):  # of its module's import; no user's slip
            raise
        near = get_close_matches(name, _NAMES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "; docs/api.md lists the public names"
        raise AttributeError(
            f"expected a public name of arith_lens, found no attribute {name!r}{hint}"
        ) from error
