"""Maps of neurons: the activation, or the effect, of each neuron for each A and B."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import (
    Mlp,
    Mlps,
    Neuron,
    as_mlps,
    check_components,
    every_mlp,
    mlp_out_name,
    neurons_name,
    resid_post_name,
)
from arith_lens.metrics import METRICS, Targets
from arith_lens.model import HookedLike, PartWrites, check_writes, n_neurons, record, weights_loaded
from arith_lens.operations import OPERATIONS, operation_of
from arith_lens.options import check_choice
from arith_lens.pairs import PromptPairs, candidate_tokens, check_pairs, sample_pairs
from arith_lens.path_patching import Trunk, trunk_of
from arith_lens.tensor_parallel import full_weight

if TYPE_CHECKING:
    from pandas import DataFrame

Read = Literal["activation", "effect"]
NO_RESULT = -1
"""The result where a problem does not exist."""
BATCH = 128


@dataclass(frozen=True)
class NeuronMaps:
    """One number for each neuron, A and B; NaN where no such problem exists."""

    values: Float[Tensor, "mlp neuron a b"]
    mlps: tuple[Mlp, ...]
    operands: tuple[int, ...]
    """The values of A, and of B."""
    results: Int[Tensor, "a b"]
    """C, or `NO_RESULT`."""
    operation: str
    read: str
    """`activation`, or `effect`."""

    @property
    def cells(self) -> Bool[Tensor, "a b"]:
        """Where a problem exists."""
        return self.results != NO_RESULT

    @property
    def neurons(self) -> list[Neuron]:
        """All neurons, those of the first MLP first."""
        width = self.values.shape[1]
        return [Neuron(mlp.layer, index) for mlp in self.mlps for index in range(width)]

    def flat(self) -> Float[Tensor, "neuron cell"]:
        """The values of existing problems, for `neurons`."""
        return self.values.flatten(0, 1)[:, self.cells]

    def __getitem__(self, neuron: Neuron | str) -> Float[Tensor, "a b"]:
        """The map of one neuron, such as `maps["MLP 11.57"]`. KeyError if it has none."""
        one = neuron if isinstance(neuron, Neuron) else Neuron.parse(neuron)
        if Mlp(one.layer) not in self.mlps or one.index >= self.values.shape[1]:
            raise KeyError(
                f"expected a neuron of {', '.join(map(str, self.mlps))} with "
                f"{self.values.shape[1]} neurons each, found {one}; make the maps of its MLP, too"
            )
        return self.values[self.mlps.index(Mlp(one.layer)), one.index]

    def to_dataframe(self) -> "DataFrame":
        """One row per neuron: the mean of its map, and its spread over the problems."""
        from pandas import DataFrame

        flat = self.flat()
        return DataFrame(
            {
                "neuron": [str(neuron) for neuron in self.neurons],
                "mean": flat.mean(1).tolist(),
                "spread": flat.std(1).tolist(),
            }
        )

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        header = {
            "kind": "neuron_maps",
            "mlps": [mlp.layer for mlp in self.mlps],
            "operands": [*self.operands],
            "operation": self.operation,
            "read": self.read,
        }
        return Arrays({"values": self.values, "results": self.results}, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "NeuronMaps":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        arrays.require("neuron_maps")
        header = arrays.header
        return cls(
            values=arrays.tensors["values"],
            results=arrays.tensors["results"],
            mlps=tuple(map(Mlp, header["mlps"])),
            operands=tuple(header["operands"]),
            operation=header["operation"],
            read=header["read"],
        )


@torch.no_grad()
def neuron_maps(
    model: HookedLike,
    operation: str | PromptPairs,
    operands: Iterable[int] = range(10, 100),
    mlps: Mlps | None = None,
    *,
    read: str = "activation",
    template: str | None = None,
) -> NeuronMaps:
    """What each neuron does at END, for each A and B (not in the paper).

    Args:
        model: HookedModel or TransformerBridge.
        operation: the name of an operation; or pairs of one operation, with each problem once.
        operands: the values of A and of B. With pairs, problems with other values are left out.
        mlps: the MLPs; None: all.
        read: `"activation"`; or `"effect"`: the change of C's logit less the mean of the other
            digits' logits if the neuron is removed, on the direct path with the scales held of the
            final norm and, where there is one, of the norm after the MLP. C is the answer's first
            token.
        template: the wording, such as `"addition/0"`; None: the operation's first.

    Returns:
        The maps, [mlp neuron a b], on the CPU.

    Raises:
        ValueError: `read` is not valid; an operand occurs in no problem; pairs have no problems,
            several operations, or a problem twice; an MLP that is not neurons times W_out, or adds
            something else to the stream than these; or the tokenizer cannot write the problems in
            this wording.
        IndexError: the model does not have an MLP.
    """
    check_choice("read", read, get_args(Read))
    n_layers = int(model.cfg.n_layers)
    chosen = every_mlp(n_layers) if mlps is None else as_mlps(mlps)
    if not chosen:
        raise ValueError("expected MLPs, found none; name one at least")
    check_components(chosen, n_layers, int(model.cfg.n_heads))
    widths = {n_neurons(model, mlp.layer) for mlp in chosen}
    if len(widths) > 1:
        raise ValueError(
            f"expected MLPs of one width, found {sorted(widths)} neurons; make maps of each alone"
        )
    values = _operands(operands)
    pairs = _pairs_of(model, operation, values, template)
    a, b, c, name = _numbers(pairs)
    wanted = torch.tensor([x in values and y in values for x, y in zip(a, b, strict=True)])
    pairs, a, b, c = (
        pairs[wanted],
        *([n for n, w in zip(part, wanted, strict=True) if w] for part in (a, b, c)),
    )
    _check_cells(values, a, b)
    place = {value: index for index, value in enumerate(values)}
    rows, columns = (torch.tensor([place[n] for n in part]) for part in (a, b))
    results = torch.full((len(values), len(values)), NO_RESULT)
    results[rows, columns] = torch.tensor(c)
    maps = torch.full((len(chosen), widths.pop(), *results.shape), float("nan"))
    maps[:, :, rows, columns] = torch.cat(list(_values(model, pairs, chosen, read)), dim=-1)
    return NeuronMaps(maps, tuple(chosen), values, results, name, read)


def _operands(operands: Iterable[int]) -> tuple[int, ...]:
    if not isinstance(operands, Iterable):
        raise TypeError(f"expected operands, found {operands!r}; give range(10, 100)")
    values = tuple(operands)
    if len(values) < 2 or len({*values}) < len(values):
        raise ValueError(f"expected two different operands or more, found {list(values)}")
    return values


def _pairs_of(
    model: HookedLike, operation: str | PromptPairs, operands: Sequence[int], template: str | None
) -> PromptPairs:
    """The problems in one wording."""
    if isinstance(operation, PromptPairs):
        check_pairs(model, operation)
        return operation
    operation_of(operation)
    wording = template or f"{operation}/0"
    return sample_pairs(
        model,
        operation,
        operands=list(operands),
        templates=[wording],
        keep="all",
        answer_token="first",
    )


def _numbers(pairs: PromptPairs) -> tuple[list[int], list[int], list[int], str]:
    """A, B and C of each pair, and the operation. Raises the errors of `neuron_maps`."""
    operations = sorted({*(pairs.operation or ())})
    if pairs.problem is None or len(operations) != 1:
        raise ValueError(
            "expected pairs with problems of one operation, found "
            f"{', '.join(operations) or 'none'}; choose the pairs of one of them"
        )
    if len({*pairs.problem}) < len(pairs):
        raise ValueError("expected each problem once, found one twice; choose one wording")
    (name,) = operations
    symbol = f" {OPERATIONS[name].symbol} "
    numbers = [tuple(map(int, problem.split(symbol))) for problem in pairs.problem]
    a, b = ([pair[i] for pair in numbers] for i in (0, 1))
    results = [int(OPERATIONS[name].value(x, y) or 0) for x, y in numbers]
    return a, b, results, name


def _check_cells(operands: Sequence[int], a: Sequence[int], b: Sequence[int]) -> None:
    absent = sorted({*operands} - {*a, *b})
    if absent:
        raise ValueError(
            f"expected operands that stand in a problem, found {', '.join(map(str, absent))} in "
            "none; leave these values out. Problems of an operation's name have an answer of "
            "several tokens; for others give pairs"
        )


def _values(
    model: HookedLike, pairs: PromptPairs, mlps: Sequence[Mlp], read: str
) -> Iterable[Float[Tensor, "mlp neuron pair"]]:
    """The activations or effects, batch by batch."""
    names = [neurons_name(mlp.layer) for mlp in mlps]
    if read == "activation":
        for some in pairs.batches(BATCH):
            seen = record(
                model, some.reference, names, attention_mask=some.attention_mask, positions=-1
            )
            yield torch.stack([seen[name][:, -1].float().T.cpu() for name in names])
        return
    trunk = trunk_of(model, advice="read='activation' needs no sweep")
    if trunk.logit_scale.cap is not None:
        raise ValueError(
            "expected logits that are linear in the stream for read='effect', found a soft cap "
            f"of {trunk.logit_scale.cap}; use neuron_effects, which computes each effect alone"
        )
    last = resid_post_name(int(model.cfg.n_layers) - 1)
    candidates = torch.tensor(candidate_tokens(model, pairs.answer.tolist()))
    outputs = [mlp_out_name(mlp.layer) for mlp in mlps]
    for some in pairs.batches(BATCH):
        shared: Any = {"attention_mask": some.attention_mask, "positions": -1}
        seen = record(model, some.reference, [*names, *outputs, last], **shared)
        seen = {name: value[:, -1] for name, value in seen.items()}
        targets = Targets.of(some, METRICS["digit_contrast"].reads, candidates=candidates)
        gradient = _gradient(trunk, seen[last].float(), targets)
        yield torch.stack([_effects(model, mlp, seen, gradient) for mlp in mlps])


def _effects(
    model: HookedLike, mlp: Mlp, seen: Mapping[str, Tensor], gradient: Float[Tensor, "pair d_model"]
) -> Float[Tensor, "neuron pair"]:
    """The effect of removing each neuron. With the norms' scales held, the contrast is linear."""
    block = model.blocks[mlp.layer]
    with weights_loaded(block):
        w_out = full_weight(block.mlp.W_out).float()
        bias = full_weight(getattr(block.mlp, "b_out", None))
        activations = seen[neurons_name(mlp.layer)].float().to(w_out.device)
        output = activations @ w_out + (0.0 if bias is None else bias.float())
        added = PartWrites.of(block, Mlp, output)
        check_writes(added.whole, seen[mlp_out_name(mlp.layer)], mlp)
        of_outputs = added.pulled_back(gradient)
    return -(activations * (of_outputs.to(w_out.device) @ w_out.T)).T.cpu()


def _gradient(
    trunk: Trunk, end: Float[Tensor, "pair d_model"], targets: Targets
) -> Float[Tensor, "pair d_model"]:
    """How C's contrast grows with END's stream while the final norm's scale is held."""
    with torch.enable_grad():
        rows = end[None].clone().requires_grad_()
        contrast = METRICS["digit_contrast"].value(trunk.read(rows, targets, scale_of=end))
        (gradient,) = torch.autograd.grad(contrast.sum(), rows)
    return gradient[0]
