"""The table `exam`: do the methods find circuits that are known?

The models are built ones, of which the true effects are known; "all" is all of them together. Keys:
paths; method; dial, for a model whose attention and neurons are that sharp; component, in rows that
compare its effect with the exact one; shape and space, in rows of swaps of a number; fit, space and
layer, in rows of interchanges of a carry.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens.effects import ComponentEffects
from arith_lens.mediation import Mediation
from arith_lens.numbers import Swaps
from arith_lens.runs import Run
from experiments import results
from experiments.built_carries import SPACES
from experiments.exam import DIAL, KNOCKOUTS, PATHS_VALUES
from experiments.results import EXACT
from figures.tables.carry import FOLLOWS as FOLLOWS_CARRY
from figures.tables.carry import interchange_numbers
from figures.tables.number import PROBLEMS, Number, Unit, over_draws
from figures.tables.table import Key, QuestionTable, Row, n_problems, row

ALL_MODELS = "all"
PAIRS, ERROR = "pairs", "largest error"
FOLLOWS, P_LABELS = "answers that follow the value", "p of permuted labels"
AUROC_HEADS, AUROC_MLPS, AUROC_EDGES = "AUROC of heads", "AUROC of MLPs", "AUROC of edges"
LARGEST, MEDIAN, MEAN = "largest of the models", "median of the models", "mean of the models"
FITS = tuple(SPACES)
"""How the directions of a carry are fitted."""
ROUNDING = 1e-5
"""A score below this share of the model's largest true effect counts as 0: it is rounding."""


@dataclass(frozen=True)
class ExamRun:
    """One model of the exam: the closed forms and what the methods say."""

    built: str
    dial: float | None
    run: Run = field(repr=False)

    def methods(self, paths: str) -> list[str]:
        """The methods that ran, the exact one first."""
        return sorted(
            results.BUILT_EFFECTS.labels(self.run, paths, None), key=lambda name: name != EXACT
        )

    def truth(self, paths: str) -> ComponentEffects:
        return results.BUILT_TRUTH.load(self.run, paths)

    def effects(self, paths: str, method: str) -> ComponentEffects:
        return results.BUILT_EFFECTS.load(self.run, paths, method)

    @property
    def circuit(self) -> Mapping[str, Any]:
        """The heads, MLPs and edges of the circuit, as text."""
        return results.BUILT_TRUTH.facts(self.run, PATHS_VALUES[0])


def grades(exam_models: Sequence[ExamRun]) -> list[QuestionTable]:
    """The error of each method and AUROC of heads, MLPs and edges: of each model, and of all."""
    tables = [
        QuestionTable.of(
            "exam", exam_model.built, [_pairs_row(exam_model), *_grade_rows(exam_model)]
        )
        for exam_model in exam_models
    ]
    values: dict[tuple[str, str, str], list[float]] = {}
    for one in [one for table in tables for one in table.rows if one.measure != PAIRS]:
        place = (one.measure, one.keys["paths"], one.keys["method"])
        values.setdefault(place, []).append(one.number.value)
    rows: list[Row] = []
    for (measure, paths, method), of_models in values.items():
        keys, n = {"paths": paths, "method": method}, len(of_models)
        if measure == ERROR:
            largest, median = float(max(of_models)), float(np.median(of_models))
            rows.append(row(f"{ERROR}, {LARGEST}", Number(largest, n=n, unit="relative"), **keys))
            rows.append(row(f"{ERROR}, {MEDIAN}", Number(median, n=n, unit="relative"), **keys))
        else:
            mean = Number(float(np.mean(of_models)), n=n)
            rows.append(row(f"{measure}, {MEAN}", mean, **keys))
    return [*tables, QuestionTable.of("exam", ALL_MODELS, rows)]


def _pairs_row(exam_model: ExamRun, paths: str = PATHS_VALUES[0], **keys: Key) -> Row:
    facts = results.BUILT_TRUTH.facts(exam_model.run, paths)
    return row(PAIRS, Number(facts["pairs"], unit="count"), **keys)


def _grade_rows(exam_model: ExamRun) -> Iterator[Row]:
    """The grades of one model. An AUROC without members or without others has no row."""
    for paths in (*PATHS_VALUES, *KNOCKOUTS):
        truth = exam_model.truth(paths)
        scale = float(np.nanmax(np.abs(_flat(truth))))
        for method in exam_model.methods(paths):
            effects = exam_model.effects(paths, method)
            scores = _scores(effects, scale)
            heads = {name: score for name, score in scores.items() if "MLP" not in name}
            mlps = {name: score for name, score in scores.items() if "MLP" in name}
            edges = float("nan")
            if paths == "direct":
                edges = edge_auroc(exam_model, scores, method, scale)
            numbers: dict[str, tuple[float, Unit]] = {
                ERROR: (error(effects, truth), "relative"),
                AUROC_HEADS: (auroc(heads, exam_model.circuit["heads"]), "share"),
                AUROC_MLPS: (auroc(mlps, exam_model.circuit["mlps"]), "share"),
                AUROC_EDGES: (edges, "share"),
            }
            for measure, (value, unit) in numbers.items():
                if not np.isnan(value):
                    yield row(measure, Number(value, unit=unit), paths=paths, method=method)


def dial_errors(exam_models: Sequence[ExamRun]) -> list[QuestionTable]:
    """The error of each method by the value of the dial; of the papers that have one."""
    tables = []
    for exam_model in exam_models:
        if exam_model.dial is None:
            continue
        paths = DIAL[exam_model.built]
        rows = [_pairs_row(exam_model, paths, dial=exam_model.dial)]
        for method in exam_model.methods(paths):
            wrong = error(exam_model.effects(paths, method), exam_model.truth(paths))
            keys = {"paths": paths, "method": method, "dial": exam_model.dial}
            rows.append(row(ERROR, Number(wrong, unit="relative"), **keys))
        tables.append(QuestionTable.of("exam", exam_model.built, rows))
    return tables


def shapes(exam_runs: Sequence[ExamRun]) -> list[QuestionTable]:
    """Swaps of A by each shape, of the models that have a shape by construction."""
    tables = []
    for one in exam_runs:
        rows: list[Row] = []
        for shape in results.BUILT_SWAPS.labels(one.run):
            swaps = results.BUILT_SWAPS.load(one.run, shape)
            for space in swaps.spaces:
                number = _swap_number(swaps, space)
                rows.append(row(FOLLOWS, number, shape=shape, space=space))
            for space in swaps.null:
                number = Number(swaps.p_value(space), unit="p")
                rows.append(row(P_LABELS, number, shape=shape, space=space))
        if rows:
            tables.append(QuestionTable.of("exam", one.built, rows))
    return tables


def _swap_number(swaps: Swaps, space: str) -> Number:
    """The share of swaps that follow; of random controls, the median and the range of the draws."""
    if space in swaps.draws:
        return over_draws(swaps.of_draws(space).numpy(), unit="share", middle="median")
    own = swaps.of(space)
    return Number(swaps.iia(space), *swaps.ci(space), PROBLEMS, n_problems(own))


def carries(exam_runs: Sequence[ExamRun]) -> list[QuestionTable]:
    """Interchanges of the carry, of the models that have one by construction."""
    tables = []
    for one in exam_runs:
        for variant in results.BUILT_CARRY.labels(one.run, None, FITS[0]):
            rows = [
                row(FOLLOWS_CARRY, number, fit=fit, layer=layer, space=space)
                for fit in FITS
                for layer, space, number in interchange_numbers(
                    results.BUILT_CARRY.load(one.run, variant, fit)
                )
            ]
            tables.append(QuestionTable.of("exam", variant, rows))
    return tables


def _means(effects: ComponentEffects) -> dict[str, float]:
    """The mean effect of each component, by name."""
    heads, mlps = effects.heads.mean().tolist(), effects.mlps.mean().tolist()
    named = {
        f"{layer}.{i}": value for layer, row in enumerate(heads) for i, value in enumerate(row)
    }
    return named | {f"MLP {layer}": value for layer, value in enumerate(mlps)}


def _flat(effects: ComponentEffects) -> Float[np.ndarray, " effect"]:
    parts = (effects.heads.per_pair, effects.mlps.per_pair)
    return np.concatenate([part.double().numpy().ravel() for part in parts])


def error(approximate: ComponentEffects, truth: ComponentEffects) -> float:
    """The largest error of an effect per pair, as a share of the largest true effect."""
    values, expected = _flat(approximate), _flat(truth)
    if not approximate.computation.get("signed", True):
        expected = np.abs(expected)
    return float(np.nanmax(np.abs(values - expected)) / np.nanmax(np.abs(expected)))


def auroc(scores: Mapping[str, float], members: Iterable[str]) -> float:
    """The probability that a member has a larger score than another, ties counting half.

    NaN if there are no members or no others.
    """
    inside = {*members}
    own = np.array([score for name, score in scores.items() if name in inside])
    others = np.array([score for name, score in scores.items() if name not in inside])
    if not len(own) or not len(others):
        return float("nan")
    difference = own[:, None] - others
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def _scores(effects: ComponentEffects, scale: float) -> dict[str, float]:
    """The size of each component's effect; rounding is 0."""
    return {
        name: size if size > ROUNDING else 0.0
        for name, value in _means(effects).items()
        for size in [abs(value) / scale]
    }


def edge_auroc(
    exam_model: ExamRun, direct: Mapping[str, float], method: str, scale: float
) -> float:
    """AUROC of edges from components to the logits, and, for the exact method, from heads to MLPs.

    The score of a head and an MLP is what the MLP carries of the head's effect.
    """
    scores = {f"{name} -> logits": score for name, score in direct.items()}
    if method == EXACT:
        mediation: Mediation = results.BUILT_EDGES.load(exam_model.run)
        mediated = mediation.mediated.mean().abs().double().numpy() / scale
        scores |= {
            f"{head} -> MLP {layer}": value if value > ROUNDING else 0.0
            for head, row in zip(mediation.heads, mediated.tolist(), strict=True)
            for layer, value in enumerate(row)
            if layer >= head.layer
        }
    return auroc(scores, [edge for edge in exam_model.circuit["edges"] if edge in scores])
