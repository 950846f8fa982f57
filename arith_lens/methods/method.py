"""A method of the user's: a function of one batch of pairs, which `run_method` applies to all."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import Component, Components
from arith_lens.effects import HEAD_AXES, MLP_AXES, ComponentEffects, Effects
from arith_lens.methods.certificate import Certificate
from arith_lens.methods.computation import Computation
from arith_lens.methods.senders import Senders, as_senders
from arith_lens.methods.shards import HOOKS_SHARD, Notes, shard_size
from arith_lens.metrics import logit_tolerance
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs, check_kinds, check_pairs
from arith_lens.runs import Run, method_identity, plain_value


@dataclass(frozen=True)
class Method:
    """How one number per component and pair is computed, for a batch of pairs.

    `run_method` computes it for all pairs. `plan(model, pairs, method=...)` says first what that
    costs.
    """

    name: str
    """The title of the progress bar, and the name of the result in a run."""
    effects: Callable[..., Tensor]
    """The function `effects(model, pairs, components, **settings)`. It returns one number for each
    component and pair of a batch, [component pair]: NaN where a pair is left out. It runs without
    gradients, unless it enables them. A run knows it by its code."""
    components: Components | None = None
    """The heads and MLPs, which the function gets layer by layer; None: all."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function: numbers, texts, components."""
    metric: str = "logit"
    """What the numbers are: a name of `metrics.METRICS`, or a word of your own."""
    paths: str | None = None
    """The paths of the change, such as `"via_mlps"`, if results are to be compared with those of
    `path_patch`."""
    check: Callable[..., Mapping[str, float]] | None = None
    """The function `check(model, pairs, effects)`, which computes something in two ways on the
    first batch. It returns a relative difference for each thing that it checks, by name. Each must
    be below the rounding of the model's dtype."""


def run_method(
    method: Method,
    model: HookedLike,
    pairs: PromptPairs,
    *,
    batch_size: int | None = None,
    run: Run | None = None,
    name: str | None = None,
    progress: bool = True,
) -> ComponentEffects:
    """Compute a method of your own on all pairs (not in the paper).

    Batches that do not fit in memory are halved. With a run, finished batches are stored, so that a
    computation that was stopped continues where it was, and a finished result is read.

    Args:
        method: the function of one batch, its components and its settings.
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        batch_size: the number of pairs in a batch; None: 8.
        run: an open run (`with open_run(...) as run`).
        name: the name of the result in the run. The default is the method's.
        progress: whether to show a progress bar.

    Returns:
        One number per pair, for heads [layer head pair] and for MLPs [layer pair], on the CPU. It
        has the statistics, tables and maps of the effects of `path_patch`. Its `logit` is NaN, for
        the method need not read it.

    Raises:
        CertificateError: a check of the method did not pass.
        FloatingPointError: a number is infinite; the message names the component.
        IndexError: the model does not have a component.
        ValueError: there are no pairs, or the function returns an array of another shape.
        RunError: the run is not open or was opened with another model; the function refers to
            something that cannot be recognised next time; or the disk cannot be written, and
            finished batches are kept.
    """
    components = method_components(method, model, pairs)
    identity = {
        "components": [str(component) for component in components],
        "paths": method.paths,
    }
    if run is not None:
        functions = {"effects": method.effects, "check": method.check}
        identity |= {
            part: method_identity(function)
            for part, function in functions.items()
            if function is not None
        }

    def result(values: Tensor, computation: Notes) -> ComponentEffects:
        return _component_effects(values, model, pairs, method, components, computation)

    settings = {
        "method": method.name,
        "metric": method.metric,
        "settings": plain_value(method.settings),
    }
    computation = Computation(
        title=method.name,
        make_engine=lambda: MethodEngine(method, model, components),
        result=result,
        read=ComponentEffects.from_arrays,
        settings=settings,
        identity=identity,
        shard_size=shard_size(batch_size, HOOKS_SHARD),
    )
    return computation.run(model, pairs, run=run, name=name or method.name, progress=progress)


def method_components(
    method: Method, model: HookedLike, pairs: PromptPairs
) -> tuple[Component, ...]:
    """The components of a method, layer by layer. Raises the errors of `run_method`."""
    check_kinds(model, pairs)
    if not len(pairs):
        raise ValueError("expected at least one pair, found none; sample more, or filter less")
    check_pairs(model, pairs)
    return as_senders(method.components, int(model.cfg.n_layers), int(model.cfg.n_heads))


@dataclass
class MethodEngine:
    """Calls the method's function on a batch of pairs. The first batch is checked."""

    method: Method
    model: HookedLike
    components: tuple[Component, ...]
    certificate: Certificate | None = None
    """That of the first batch, once it is computed."""
    pending_notes: Notes = field(default_factory=dict)
    """What `notes` will return next."""

    def __call__(
        self, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None = None
    ) -> Float[Tensor, "component pair"]:
        method, names = self.method, [str(component) for component in self.components]
        values = method.effects(self.model, pairs, self.components, **method.settings)
        expected = (len(names), len(pairs))
        if not isinstance(values, Tensor) or tuple(values.shape) != expected:
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"expected numbers [component pair] of shape {expected} from {method.name}, found "
                f"{shape}; return one row per component, and one column per pair"
            )
        values = values.detach().float()
        infinite = [name for name, row in zip(names, values, strict=True) if row.isinf().any()]
        if infinite:
            raise FloatingPointError(
                f"expected finite numbers from {method.name}, found infinite ones of "
                f"{', '.join(infinite[:5])}; load the model in a wider dtype, or return NaN for "
                "pairs that are left out"
            )
        if method.check is not None and self.certificate is None:
            errors = dict(method.check(self.model, pairs, values))
            self.certificate = Certificate(
                errors, logit_tolerance(self.model.W_U.dtype), len(pairs)
            )
            self.certificate.require(f"{method.name} to pass its checks", "Correct the method.")
            self.pending_notes["certificate"] = asdict(self.certificate)
        return values

    def notes(self) -> Notes:
        notes, self.pending_notes = self.pending_notes, {}
        return notes


def _component_effects(
    values: Float[Tensor, "component pair"],
    model: HookedLike,
    pairs: PromptPairs,
    method: Method,
    components: tuple[Component, ...],
    computation: Notes,
) -> ComponentEffects:
    senders = Senders.of(components, int(model.cfg.n_layers))
    heads, mlps = senders.split(values, int(model.cfg.n_heads))
    common: dict[str, Any] = {"metric": method.metric, "paths": method.paths, **pairs.units}
    return ComponentEffects(
        heads=Effects(heads, HEAD_AXES, **common),
        mlps=Effects(mlps, MLP_AXES, **common),
        logit=torch.full((len(pairs),), float("nan")),
        n_left_out=int(values.isnan().all(0).sum()),
        computation={**computation, "n_senders": len(components)},
    )
