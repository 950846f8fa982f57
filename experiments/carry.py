"""Where does a model keep the carry of a sum, and is it one direction?"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

import arith_lens as al
from arith_lens.components import Component, every_head, every_mlp
from arith_lens.effects import Effects
from arith_lens.interchanges import (
    InterchangePairs,
    TooFewPairs,
    projections,
    readers,
    without_writers,
    writers,
)
from arith_lens.path_patching import matrix_rate, time_text
from arith_lens.runs import Run
from experiments.configs.states import CarryConfig
from experiments.results import CARRY, CARRY_PARTS, CARRY_STEP, WRONG_SUMS
from experiments.settings import Experiment

SUBJECTS: Mapping[str, tuple[str, str, str]] = {
    "ones_carry": ("addition", "carry", "ones_carry"),
    "tens_carry": ("addition", "carry", "tens_carry"),
    "borrow": ("subtraction", "borrow", "ones_borrow"),
}
"""By name: operation, causal model and variable."""
UNDER_100, OVER_110 = range(100), range(110, 200)
"""Sums whose first digit the ones carry can change, and sums whose second digit it can change."""
LAYERS, CHOICE, WORDINGS, DIGITS, TENS, LARGE, THREE, SEARCH, SEARCH_DIGITS = (
    "layers",
    "choice",
    "wordings",
    "digits",
    "tens",
    "large_sums",
    "three_digits",
    "search",
    "search_digits",
)
MAGNITUDE, UNTRAINED = "magnitude_digits", "untrained"
"""What is tested."""
CONTEXTS = {total: f"tens_sum_{total}" for total in range(2, 9)}
"""The tests of each sum of the tens digits, which the carry of a sum below 100 can have."""
WRITERS, READERS, HELD = "writers", "readers", "held"
NOTHING, STRONGEST, OTHERS = "nothing", "two strongest heads", "two other heads of these layers"
"""Which components are held in the source run. The others are drawn several times."""
N_FREE = 8
"""The directions of the search in the untrained model."""
N_SUMS = 19
"""The sums of two digits: 0 to 18."""


def compute(run: Run, model: al.HookedModel, config: CarryConfig) -> None:
    """Which sums are right, the layers of each variable, then the tests of the ones carry."""
    if "ones_carry" in config.subjects and not WRONG_SUMS.is_in(run):
        WRONG_SUMS.save(run, _wrong_sums(model, config))
    sites = [al.Site(layer) for layer in range(model.n_layers)]
    for subject in config.subjects:
        with _unless_too_few(f"{subject} is"):
            pairs = _sampled(model, config, subject)
            _save(run, model, pairs, sites, (subject, LAYERS), seed=config.seed)
    if CARRY.is_in(run, "ones_carry", LAYERS) and not config.layers_alone:
        with _unless_too_few("tests of the carry of the ones are"):
            _save_tests(run, model, config, sites)


@contextmanager
def _unless_too_few(what: str) -> Iterator[None]:
    """Leave out what has too few pairs that the model answers right, and say so."""
    try:
        yield
    except TooFewPairs as error:
        print(f"{what} left out: {error}", flush=True)


def _save_tests(run: Run, model: al.HookedModel, config: CarryConfig, sites: list[al.Site]) -> None:
    """The tests of the ones carry, at the layer where the direction has most on other problems."""
    choice = _sampled(model, config, "ones_carry", seed=config.seed + 1)
    chosen = _save(run, model, choice, sites, ("ones_carry", CHOICE), controls=False)
    site = al.Site(int(chosen.iia[:, 1].argmax()))
    _save_generalisation(run, model, config, site)
    _save_contexts(run, model, config, site)
    _save_searches(run, model, config, site)
    _save_step(run, model, config, sites)
    _save_components(run, model, config, site)


def _sampled(
    model: Any, config: CarryConfig, subject: str, *, seed: int | None = None, **options: Any
) -> InterchangePairs:
    """Matched pairs of a variable, unless `options` say otherwise."""
    operation, name, variable = SUBJECTS[subject]
    causal = options.pop("causal", al.causal_model(operation, name))
    settings: dict[str, Any] = {"sources": "matched", "n": config.n, "shots": config.shots}
    settings["templates"] = [f"{operation}/{config.template}"]
    if variable != "tens_carry":
        settings["answers"] = UNDER_100
    settings |= options
    chosen = options.get("variable", variable)
    settings.pop("variable", None)
    seed = config.seed if seed is None else seed
    return al.interchange_pairs(model, causal, chosen, seed=seed, **settings)


def _save(
    run: Run,
    model: al.HookedModel,
    pairs: InterchangePairs,
    sites: Any,
    parts: tuple[str, str],
    **options: Any,
) -> al.Interchange:
    """The interchange, unless it is stored."""
    if not CARRY.is_in(run, *parts):
        result = al.interchange(model, pairs, sites, **options)
        CARRY.save(run, result, *parts, pairs=pairs.pairs[pairs.test])
    return CARRY.load(run, *parts)


def _save_generalisation(
    run: Run, model: al.HookedModel, config: CarryConfig, site: al.Site
) -> None:
    """The direction in other wordings, for other digits, other tens, and larger sums."""
    fitted = _sampled(model, config, "ones_carry")
    tests: dict[str, dict[str, Any]] = {
        WORDINGS: {"hold_out": "templates", "templates": "operation"},
        DIGITS: {"hold_out": "digits"},
        TENS: {"sources": "other"},
        LARGE: {"answers": OVER_110, "operands": range(30, 100)},
        THREE: {"answers": range(1000), "operands": range(100, 400)},
    }
    for test, options in tests.items():
        if CARRY.is_in(run, "ones_carry", test):
            continue
        with _unless_too_few(f"the test {test} is"):
            pairs = _sampled(model, config, "ones_carry", **options)
            if test in (TENS, LARGE, THREE):
                pairs = pairs.fitted_on(fitted)
            _save(run, model, pairs, site, ("ones_carry", test), seed=config.seed)


def _save_contexts(run: Run, model: al.HookedModel, config: CarryConfig, site: al.Site) -> None:
    """The direction at each sum of the tens digits, fitted on the pairs of all other sums."""
    pairs = _sampled(model, config, "ones_carry", n=config.context_pairs)
    assert pairs.pairs.operands is not None
    totals = (pairs.pairs.operands // 10).sum(1)
    for total, test in CONTEXTS.items():
        with _unless_too_few(f"the test {test} is"):
            own = replace(pairs, fit=totals != total, hold_out="tens")
            _save(run, model, own, site, ("ones_carry", test), seed=config.seed)


def _save_searches(run: Run, model: al.HookedModel, config: CarryConfig, site: al.Site) -> None:
    """The best directions of a gradient search, and that of another hypothesis."""
    search: dict[str, Any] = {"space": "das", "controls": False, "seed": config.seed}
    pairs = _sampled(model, config, "ones_carry")
    _save(run, model, pairs, site, ("ones_carry", SEARCH), **search)
    digits = _sampled(model, config, "ones_carry", hold_out="digits")
    _save(run, model, digits, site, ("ones_carry", SEARCH_DIGITS), **search)
    magnitude = al.causal_model("addition", "magnitude")
    sums = _sampled(
        model, config, "ones_carry", causal=magnitude, variable="sum", hold_out="digits"
    )
    _save(run, model, sums, site, ("ones_carry", MAGNITUDE), **search)
    parts = ("ones_carry", UNTRAINED)
    if not CARRY.is_in(run, *parts):
        _save(run, untrained(model, config.seed), pairs, site, parts, **search, k=N_FREE)


def untrained(model: al.HookedModel, seed: int) -> al.HookedModel:
    """A model of the same shape with random weights."""
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        hf: Any = AutoModelForCausalLM.from_config(model.bridge.original_model.config)
    return al.load_model((hf.eval(), model.tokenizer))


def _save_step(run: Run, model: al.HookedModel, config: CarryConfig, sites: list[al.Site]) -> None:
    """The projection on the direction by the sum of the ones digits, [layer sum pair]."""
    if CARRY_STEP.is_in(run):
        return
    pairs = _sampled(model, config, "ones_carry")
    tested = pairs[pairs.test]
    operands = tested.pairs.operands
    assert operands is not None
    sums = (operands % 10).sum(1)
    bases = CARRY.load(run, "ones_carry", LAYERS).bases
    rows = []
    for site in sites:
        direction = bases[str(site)]
        fitted = pairs[pairs.fit]
        known = projections(model, fitted, site, direction).flatten()
        high = fitted.values.T.flatten() == 1
        low_mean, high_mean = known[~high].mean(), known[high].mean()
        own = projections(model, tested, site, direction)[0]
        scaled = (own - low_mean) / (high_mean - low_mean)
        nan = torch.full_like(scaled, float("nan"))
        rows.append(torch.stack([torch.where(sums == s, scaled, nan) for s in range(N_SUMS)]))
    labels = {
        "layer": tuple(str(site.layer) for site in sites),
        "ones_sum": tuple(map(str, range(N_SUMS))),
    }
    step = Effects(
        torch.stack(rows),
        ("layer", "ones_sum"),
        metric="projection",
        labels=labels,
        **tested.pairs.units,
    )
    CARRY_STEP.save(run, step, pairs=tested.pairs)


def _save_components(run: Run, model: al.HookedModel, config: CarryConfig, site: al.Site) -> None:
    """Who writes the direction (the two strongest heads are held together), and who reads it."""
    if CARRY_PARTS.is_in(run, READERS):
        return
    pairs = _sampled(model, config, "ones_carry")
    direction = CARRY.load(run, "ones_carry", LAYERS).bases[str(site)]
    heads, mlps = every_head(model.n_layers, model.n_heads), every_mlp(model.n_layers)
    earlier: list[Component] = [one for one in [*heads, *mlps] if one.layer <= site.layer]
    fitted, tested = pairs[pairs.fit], pairs[pairs.test]
    chosen = writers(model, fitted, site, direction, earlier).mean()
    ranked = [earlier[i] for i in chosen.argsort(descending=True).tolist()]
    strongest = [
        one for one in ranked if isinstance(one, al.Head) and one.layer in config.head_layers
    ][:2]
    others = [
        one
        for head in strongest
        for one in ranked
        if isinstance(one, al.Head) and one.layer == head.layer and one not in strongest
    ]
    generator = torch.Generator().manual_seed(config.seed)
    sets = {NOTHING: [], STRONGEST: strongest}
    for draw in range(config.random_pairs):
        order = torch.randperm(len(others), generator=generator).tolist()
        sets[f"{OTHERS}-{draw}"] = [others[i] for i in order[:2]]
    written = writers(model, tested, site, direction, earlier)
    CARRY_PARTS.save(run, written, WRITERS, pairs=tested.pairs)
    held = without_writers(model, tested, site, sets)
    names = {name: [str(one) for one in components] for name, components in sets.items()}
    CARRY_PARTS.save(run, held, HELD, pairs=tested.pairs, sets=names)
    later = [one for one in [*heads, *mlps] if one.layer > site.layer]
    read = readers(model, tested, site, direction, later)
    CARRY_PARTS.save(run, read, READERS, pairs=tested.pairs)


def _wrong_sums(model: al.HookedModel, config: CarryConfig) -> Effects:
    """Whether the first digit of each sum below 100 is wrong, [ones_sum pair]."""
    options: dict[str, Any] = {"operands": range(10, 90), "answer_token": "first", "keep": "all"}
    options |= {"templates": [f"addition/{config.template}"], "shots": config.shots}
    sampled = al.sample_pairs(model, "addition", seed=config.seed, **options)
    assert sampled.operands is not None
    sampled = sampled[sampled.operands.sum(1) < 100]
    order = torch.randperm(len(sampled), generator=torch.Generator().manual_seed(config.seed))
    sampled = sampled[order[: config.problems]]
    right = torch.cat(
        [
            model(b.reference, attention_mask=b.attention_mask, logits_to_keep=1)[:, -1]
            .argmax(-1)
            .cpu()
            == b.answer
            for b in sampled.batches(256)
        ]
    )
    operands = sampled.operands
    assert operands is not None
    sums = (operands % 10).sum(1)
    wrong = (~right).float()
    nan = torch.full_like(wrong, float("nan"))
    rows = torch.stack([torch.where(sums == s, wrong, nan) for s in range(N_SUMS)])
    labels = {"ones_sum": tuple(map(str, range(N_SUMS)))}
    return Effects(rows, ("ones_sum",), metric="wrong", labels=labels, **sampled.units)


def _plan(model: al.HookedModel, config: CarryConfig) -> str:
    """The cost of the layers, of which each has about 130 runs of END for each tested pair."""
    rate = matrix_rate(model)
    per_token = 2 * sum(weight.numel() for weight in model.bridge.parameters())
    runs = len(config.subjects) * config.n // 2 * model.n_layers * 130 / 2
    return f"runs of END alone: {runs:.0f}, at most {time_text(runs * per_token, rate)}"


main = Experiment("carry", CarryConfig, compute, _plan, figure="carry")
