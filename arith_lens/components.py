"""The parts of a model that an intervention can name, and their hook names.

A component is a `Head`, printed `12.22` as in the paper (layer, then head, both counted from 0),
an `Mlp`, or a `Neuron` of an MLP. Hook names are TransformerLens' own. Nothing here knows a model.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

from torch import Tensor

Activations: TypeAlias = Mapping[str, Tensor]
"""Recorded activations by hook name, such as `blocks.3.attn.hook_z` [pair pos n_heads d_head]."""

NamedHook: TypeAlias = tuple[str, Callable[..., Any]]
"""A hook point's name and its function: `function(activation, hook) -> activation | None`."""

_HEAD = re.compile(r"(\d+)\.(\d+)|L(\d+)H(\d+)")
_MLP = re.compile(r"(?:MLP|mlp)[ .]?(\d+)")
_NEURON = re.compile(r"(?:MLP|mlp)[ .]?(\d+)(?:\.| neuron )(\d+)|L(\d+)N(\d+)")
_LAYER = re.compile(r"blocks\.(\d+)\.")


@dataclass(frozen=True, order=True)
class Head:
    """One attention head; `str(Head(12, 22)) == "12.22"`. Ordered by layer, then index."""

    layer: int
    index: int

    def __post_init__(self) -> None:
        _check_counts(self, "a head")

    def __str__(self) -> str:
        return f"{self.layer}.{self.index}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Read `12.22`, or TransformerLens' `L12H22`. Raises ValueError on anything else."""
        return cls(*_counts(_HEAD, text, "a head as layer.index, such as 12.22"))


@dataclass(frozen=True, order=True)
class Mlp:
    """The MLP of one layer; `str(Mlp(12)) == "MLP 12"`."""

    layer: int

    def __post_init__(self) -> None:
        if self.layer < 0:
            raise ValueError(f"expected a layer counted from 0, found Mlp({self.layer})")

    def __str__(self) -> str:
        return f"MLP {self.layer}"

    @classmethod
    def parse(cls, text: str) -> "Mlp":
        """Read `MLP 12`. Raises ValueError on anything else."""
        match = _MLP.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"expected an MLP by its layer, such as 'MLP 12', found {text!r}")
        return cls(int(match[1]))


@dataclass(frozen=True, order=True)
class Neuron:
    """One neuron of an MLP; `str(Neuron(11, 57)) == "MLP 11.57"`. Ordered by layer, then index.

    Its activation is what the MLP's output matrix reads (`neurons_name`): in a gated MLP the
    product of gate and up projection. The activation times its row of `W_out` is its part of the
    MLP's output.
    """

    layer: int
    index: int

    def __post_init__(self) -> None:
        _check_counts(self, "a neuron")

    def __str__(self) -> str:
        return f"MLP {self.layer}.{self.index}"

    @classmethod
    def parse(cls, text: str) -> "Neuron":
        """Read `MLP 11.57`, `mlp 11 neuron 57` or `L11N57`. Raises ValueError on anything else."""
        return cls(*_counts(_NEURON, text, "a neuron by layer and index, such as 'MLP 11.57'"))


def _check_counts(one: Head | Neuron, what: str) -> None:
    if one.layer < 0 or one.index < 0:
        raise ValueError(
            f"expected a layer and {what} counted from 0, found {one.layer} and {one.index}; "
            "count from the first layer, not from the last"
        )


def _counts(pattern: re.Pattern[str], text: str, expected: str) -> tuple[int, int]:
    """The layer and the index in a name."""
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected {expected}, found {text!r}; write both numbers, counted from 0")
    layer, index = filter(None, match.groups())
    return int(layer), int(index)


Component: TypeAlias = Head | Mlp | Neuron

_HeadLike: TypeAlias = Head | str | tuple[int, int]
_MlpLike: TypeAlias = Mlp | str | int
_NeuronLike: TypeAlias = Neuron | str
_ComponentLike: TypeAlias = Component | str | tuple[int, int]

Heads: TypeAlias = _HeadLike | Iterable[_HeadLike]
"""One head or several: `Head(5, 2)`, `"5.2"`, `"L5H2"`, `(5, 2)`, or a list of such."""

Mlps: TypeAlias = _MlpLike | Iterable[_MlpLike]
"""One MLP or several: `Mlp(3)`, `"MLP 3"`, the layer 3, or a list of such."""

Neurons: TypeAlias = _NeuronLike | Iterable[_NeuronLike]
"""One neuron or several: `Neuron(11, 57)`, `"MLP 11.57"`, or a list of such."""

Components: TypeAlias = _ComponentLike | Iterable[_ComponentLike]
"""Heads, MLPs and neurons in any mixture, one or several; a pair of numbers is a head."""


def parse_component(text: str) -> Component:
    """Read `12.22`, `MLP 12` or `MLP 12.57`. Raises ValueError on anything else."""
    if _NEURON.fullmatch(text.strip()):
        return Neuron.parse(text)
    return Mlp.parse(text) if "mlp" in text.lower() else Head.parse(text)


def as_heads(heads: Heads) -> list[Head]:
    """`Head` for each name, in the same order. Raises TypeError for a value that names no head, and
    ValueError for numbers below 0."""
    return [_as_kind(value, Head) for value in _several(heads)]


def as_mlps(mlps: Mlps) -> list[Mlp]:
    """`Mlp` for each name, in the same order. Raises TypeError for a value that names no MLP, and
    ValueError for a layer below 0."""
    values: list[Any] = [mlps] if isinstance(mlps, Mlp | str | int) else _several(mlps)
    return [_as_kind(Mlp(int(value)) if _is_count(value) else value, Mlp) for value in values]


def as_neurons(neurons: Neurons) -> list[Neuron]:
    """`Neuron` for each name, in the same order. Raises TypeError for a value that names no neuron,
    and ValueError for numbers below 0."""
    return [_as_kind(value, Neuron) for value in _several(neurons)]


def as_components(components: Components, *, neurons: bool = False) -> list[Component]:
    """Convert names of components to `Head`, `Mlp` and `Neuron`, in the same order.

    Args:
        neurons: whether neurons are components here.

    Raises:
        TypeError: a value does not name a component, or names a neuron where heads and MLPs alone
            are computed.
        ValueError: a layer, a head or a neuron is below 0.
    """
    chosen: list[Component] = [_as_kind(value, Component) for value in _several(components)]
    strange = [one for one in chosen if isinstance(one, Neuron)]
    if strange and not neurons:
        raise TypeError(
            f"expected heads and MLPs, found the neuron {strange[0]}; neuron_effects patches "
            "neurons, and knock_out and keep_only take them"
        )
    return chosen


def _several(values: Any) -> list[Any]:
    """The values of a list; a single value, a text or a pair of numbers gives a list of one."""
    if isinstance(values, Iterable) and not isinstance(values, str) and not _is_pair(values):
        return list(values)
    return [values]


def _is_pair(value: Any) -> bool:
    """Whether a value is (layer, index)."""
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_count, value))


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _named(value: Any) -> Component | None:
    """The component that a value names; None if it names none, as a mere layer does."""
    if isinstance(value, Head | Mlp | Neuron):
        return value
    if _is_pair(value):
        return Head(int(value[0]), int(value[1]))
    with suppress(ValueError):
        return parse_component(value) if isinstance(value, str) else None
    return None


_KINDS: dict[Any, tuple[str, str]] = {
    Head: ("heads such as Head(12, 22)", "'12.22' and (12, 22) name this head, too"),
    Mlp: ("MLPs such as Mlp(12), or layers such as 12", "'MLP 12' names this MLP, too"),
    Neuron: ("neurons such as Neuron(11, 57)", "'MLP 11.57' names this neuron, too"),
    Component: (
        "components such as Head(12, 22) and Mlp(12)",
        "'12.22', (12, 22) and 'MLP 12' name them, too",
    ),
}
"""What an error says of each kind, and how else it is named."""


def _as_kind(value: Any, kind: Any) -> Any:
    """The component that a value names. Raises TypeError if it names none of this kind."""
    component = _named(value)
    if isinstance(component, kind):
        return component
    expected, others = _KINDS[kind]
    mlps = "; patch_mlps and ablate_mlps take MLPs" * (kind is Head and isinstance(value, Mlp))
    raise TypeError(
        f"expected {expected}, found {value!r} ({type(value).__name__}){mlps}; {others}"
    )


def head_columns(heads: Iterable[Head | None]) -> dict[str, list[Any]]:
    """The columns that name heads in every table: `head` ("5.2"), its `layer` and its `index`.

    A row without a head has None in all three.
    """
    rows = list(heads)
    return {
        "head": [None if head is None else str(head) for head in rows],
        "layer": [None if head is None else head.layer for head in rows],
        "index": [None if head is None else head.index for head in rows],
    }


def every_head(n_layers: int, n_heads: int) -> list[Head]:
    """All heads of a model, in order."""
    return [Head(layer, index) for layer in range(n_layers) for index in range(n_heads)]


def every_mlp(n_layers: int) -> list[Mlp]:
    """All MLPs of a model, in order."""
    return [Mlp(layer) for layer in range(n_layers)]


def every_component(n_layers: int, n_heads: int) -> list[Component]:
    """All heads of a model, then all MLPs."""
    return [*every_head(n_layers, n_heads), *every_mlp(n_layers)]


def in_forward_order(components: Iterable[Component]) -> list[Component]:
    """The components layer by layer: the heads of a layer in order, its neurons, then its MLP."""
    kinds = (Head, Neuron, Mlp)
    return sorted(
        components, key=lambda one: (one.layer, kinds.index(type(one)), getattr(one, "index", 0))
    )


def check_components(components: Iterable[Component], n_layers: int, n_heads: int) -> None:
    """Raise IndexError for the first component that a model of this size does not have."""
    for component in components:
        if component.layer >= n_layers:
            raise IndexError(
                f"expected a layer from 0 to {n_layers - 1}, found {component} in layer "
                f"{component.layer}; choose among the model's {n_layers} layers"
            )
        if isinstance(component, Head) and component.index >= n_heads:
            raise IndexError(
                f"expected a head from 0 to {n_heads - 1} in each layer, found {component}; "
                "heads are written layer.index"
            )


def z_name(layer: int) -> str:
    """The hook name of a layer's heads before W_O, [batch pos n_heads d_head]."""
    return f"blocks.{layer}.attn.hook_z"


def pattern_name(layer: int) -> str:
    """The hook name of a layer's attention weights, [batch n_heads query key]."""
    return f"blocks.{layer}.attn.hook_pattern"


def attn_out_name(layer: int) -> str:
    """The hook name of what attention adds to the residual stream, [batch pos d_model]."""
    return f"blocks.{layer}.hook_attn_out"


def mlp_out_name(layer: int) -> str:
    """The hook name of what the MLP adds to the residual stream, [batch pos d_model]."""
    return f"blocks.{layer}.hook_mlp_out"


def neurons_name(layer: int) -> str:
    """The hook name of what the MLP's output matrix reads of its neurons, [batch pos d_mlp]."""
    return f"blocks.{layer}.mlp.hook_post"


def resid_pre_name(layer: int) -> str:
    """The hook name of the residual stream at a block's entry, [batch pos d_model]."""
    return f"blocks.{layer}.hook_resid_pre"


def resid_mid_name(layer: int) -> str:
    """The hook name of the residual stream between attention and MLP, [batch pos d_model].

    Read it, but never patch it: it is the input of the norm alone, so a returned tensor does not
    change the residual stream.
    """
    return f"blocks.{layer}.hook_resid_mid"


def resid_post_name(layer: int) -> str:
    """The hook name of the residual stream at a block's exit, [batch pos d_model]."""
    return f"blocks.{layer}.hook_resid_post"


def layer_of(name: str) -> int | None:
    """The layer that a hook name belongs to; None for names such as `hook_embed`."""
    match = _LAYER.match(name)
    return None if match is None else int(match[1])
