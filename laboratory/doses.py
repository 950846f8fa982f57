"""What the direction of the carry must beat: its likeness to a principal component, and doses."""

from collections.abc import Iterator
from pathlib import Path

import torch

import arith_lens as al
from arith_lens.auditing import measures
from arith_lens.interchanges import FitData, mean_direction, principal_directions, site_runs
from laboratory.carries import carry_pairs
from laboratory.rows import of_measure, write_rows

DOSES = (0.25, 0.5, 0.75, 1.0, 2.0, 5.0)
"""Shares of the mean change along the direction between sums without and with a carry."""
N = 400
"""The number of pairs, half of them to fit and half to test."""


def doses(
    models: tuple[str, ...] = ("reference", "reference-mistral"),
    layers: tuple[int, ...] = (9, 6),
    shots: int = 0,
    csv: Path | None = None,
) -> None:
    """Write the direction of the carry of the ones in several doses, without a source.

    Args:
        models: names, folders or GGUF files.
        layers: the layer of each, at whose exit the direction is fitted and written, at END.
        shots: the number of solved examples before each sum.
        csv: the file to write.
    """
    both = zip(models, layers, strict=True)
    write_rows(
        (
            {"model": model, "layer": layer, "measure": measure, **of_measure(number)}
            for model, layer in both
            for measure, number in measured(al.load_model(model), al.Site(layer), shots)
        ),
        csv,
    )


def measured(
    model: al.HookedModel, site: al.Site, shots: int
) -> Iterator[tuple[str, measures.Measure]]:
    """The numbers of a model by name; correlations have no interval."""
    pairs = carry_pairs(model, n=N, shots=shots, templates=["addition/0"])
    fitted, tested = pairs[pairs.fit], pairs[pairs.test]
    assert tested.pairs.operands is not None
    ((known,),) = site_runs(model, fitted.pairs, [site], batch_size=N)
    data = FitData([known], fitted.expected, fitted.pairs.answer, fitted.values)
    states = torch.cat([known.base, known.source])
    direction = mean_direction(data)[:, 0]
    component = principal_directions(states - states.mean(0), 1)[:, 0]
    likeness = measures.Measure(abs(float(direction @ component)), n=len(fitted))
    yield "|cos| with the first principal component", likeness
    ((run,),) = site_runs(model, tested.pairs, [site], batch_size=N)
    along, carry = run.base.double() @ direction, tested.values[:, 0]
    ones = (tested.pairs.operands % 10).sum(1).double()
    for value in (0, 1):
        both = torch.stack([along, ones])[:, carry == value]
        graded = measures.Measure(float(both.corrcoef()[0, 1]), n=both.shape[1])
        yield f"correlation with the ones' sum, carry {value}", graded
    step = (data.differences @ direction).mean() * (1 - 2 * carry)
    for dose in DOSES:
        state = run.base + (dose * step)[:, None].float() * direction.float()
        follows = (run.answers(state[None])[0] == tested.expected).float()
        no_control = torch.empty(0, len(follows))
        yield f"follow a dose of {dose:g}", measures.share(follows, tested.pairs, no_control)
