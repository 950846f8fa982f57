"""Runs with planted truths, for claims to be measured on."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from support.made_runs import MadePairs, made_run

from arith_lens.answers import Answers
from arith_lens.attention import ATTENTION_ROLES, Patterns, kinds_of
from arith_lens.components import Head
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.knockout import KnockoutCurve, KnockoutCurves, Outcomes
from arith_lens.next_tokens import NextTokens
from arith_lens.operations import FOUR
from arith_lens.probes import DIGIT_CLASSES
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import SelectedRates, TuningRow
from experiments.selection import LARGEST_OPERAND
from figures.claims import CLAIMS, Verdict
from figures.claims.checking import verdict_on
from figures.claims.evidence import Evidence

N_LAYERS, N_HEADS, N_PAIRS = 12, 8, 18
SHARED: dict[str, Any] = {
    "template": tuple(f"t/{i % 3}" for i in range(N_PAIRS)),
    "cluster": torch.arange(N_PAIRS),
}
Places = Mapping[tuple[int, int], float]


class Verdicts:
    """The verdicts on a model's runs by the claims' keys, each measured when it is asked for."""

    def __init__(self, root: Path, model: str = "made") -> None:
        self.evidence = Evidence(model, [root])

    def __getitem__(self, key: str) -> Verdict:
        (claim,) = (claim for claim in CLAIMS if claim.key == key)
        return verdict_on(claim, self.evidence)

    def of_group(self, group: str) -> dict[str, Verdict]:
        return {claim.key: self[claim.key] for claim in CLAIMS if claim.group == group}


def effects(
    heads: Places, mlps: Mapping[int, float] | None = None, noise: float = 1e-3, seed: int = 0
) -> ComponentEffects:
    """Small noise everywhere, and the given means of some heads and MLPs."""
    generator = torch.Generator().manual_seed(seed)
    per_head = noise * torch.randn(N_LAYERS, N_HEADS, N_PAIRS, generator=generator)
    per_mlp = noise * torch.randn(N_LAYERS, N_PAIRS, generator=generator)
    for (layer, head), mean in heads.items():
        per_head[layer, head] += mean
    for layer, mean in (mlps or {}).items():
        per_mlp[layer] += mean
    settings = {"metric": "relative_logit", "paths": "via_mlps", **SHARED}
    return ComponentEffects(
        Effects(per_head, ("layer", "head"), **settings),
        Effects(per_mlp, ("layer",), **settings),
        torch.full((N_PAIRS,), 9.0),
    )


def which_heads(
    root: Path,
    heads: Mapping[str, Places] | Places,
    mlps: Mapping[int, float] | None = None,
    *,
    model: str = "made",
    noise: float = 1e-3,
    **config: object,
) -> Run:
    """A run of path patching; `heads` of all operations alike, or by operation."""
    defaults = {"paths": "via_mlps", "metric": "relative_logit", "keep": "correct", "seed": 0}

    def fill(run: Run, name: str) -> None:
        own = heads.get(name, heads)  # pyright: ignore
        made = effects(own, mlps, noise, FOUR.index(name))  # pyright: ignore
        results.MAP.save(run, made, name, pairs=MadePairs())
        write_pairs(run.folder(results.MAP.name(name)) / "result.pairs.jsonl")

    return both_runs(root, "which_heads", {**defaults, "model": model, **config}, fill)


def write_pairs(file: Path) -> None:
    """Prompts of pairs with six words without meaning in turn."""
    lines = [
        {"reference": "3 plus 5", "counterfactual": f"3 word{i % 6} 5", "answer": "8"}
        for i in range(N_PAIRS)
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


def both_runs(
    root: Path, experiment: str, config: Mapping[str, object], fill: Callable[[Run, str], None]
) -> Run:
    """A run of all operations, and one of the computed problems of some; returns the first."""
    computed = {"problems": "computed", "operations": [*LARGEST_OPERAND]}
    for changes, names in ((computed, LARGEST_OPERAND), ({}, FOUR)):
        with made_run(experiment, {"model": "made", **config, **changes}, root) as run:
            for name in names:
                fill(run, name)
    return run


def which_paths(root: Path, direct: float, via_mlps: float) -> Run:
    """The five strongest heads act so much directly, and via MLPs."""

    def fill(run: Run, name: str) -> None:
        for paths, mean in (("via_mlps", via_mlps), ("direct", direct)):
            made = effects({(4, head): mean for head in range(5)}, seed=FOUR.index(name))
            if paths == "direct":
                measured = torch.zeros(N_LAYERS, N_HEADS, dtype=torch.bool)
                measured[4, :5] = True
                made.heads.per_pair[~measured] = float("nan")
            results.PATH_EFFECTS.save(run, made, name, paths, pairs=MadePairs())

    return both_runs(root, "which_paths", {}, fill)


def curve(order: list[Head], right: Mapping[int, float]) -> KnockoutCurve:
    """The share answered right without the first k heads; the first pairs are lost first."""
    ks = tuple(right)
    correct = torch.stack([torch.arange(N_PAIRS) >= (1 - right[k]) * N_PAIRS for k in ks])
    top = torch.zeros(len(ks), N_PAIRS, 5, dtype=torch.long)
    settings = {"ablation": "mean", "positions": "all", "means": "template", **SHARED}
    return KnockoutCurve(correct, correct.float(), top, ks, tuple(order), **settings)


def outcomes(right: float, heads: list[Head]) -> Outcomes:
    """The outcomes of one knockout."""
    return curve([*heads, Head(11, 7)], {0: 1.0, len(heads): right}).at(len(heads))


def are_they_needed(
    root: Path, heads: Places, without: float, without_random: float, without_matched: float = 1.0
) -> Run:
    """So many are right without the key heads, and without as many control heads."""
    order = [Head(*place) for place in sorted(heads, key=heads.__getitem__)]
    order += [Head(11, index) for index in range(4)]
    curves = {"effect": curve(order, {0: 1.0, 1: 1.0, 2: without, 4: 0.0})}
    for seed in range(4):
        curves[f"random {seed}"] = curve(order, {0: 1.0, 1: 1.0, 2: without_random, 4: 0.5})
        curves[f"matched 2 {seed}"] = curve(order, {0: 1.0, 2: without_matched})

    def fill(run: Run, name: str) -> None:
        results.MAP.save(run, effects(heads), name, pairs=MadePairs())
        results.KNOCKOUT_CURVES.save(run, KnockoutCurves(curves), name, pairs=MadePairs())

    return both_runs(root, "are_they_needed", {"ablation": "mean"}, fill)


def powers(root: Path, own: Places, without: float) -> Run:
    """Key heads of powers, and what is right without them."""
    order = [Head(*place) for place in own]
    config = {"model": "made", "controls": 0}
    with made_run("do_powers_use_them", config, root) as run:
        for operation in FOUR:
            results.MAP.save(run, effects({}, seed=2), operation, pairs=MadePairs())
        for name in ("exponentiation-0", "exponentiation-1"):
            results.MAP.save(run, effects(own, seed=1), name, pairs=MadePairs())
            right = {0: 1.0, len(order): without} if order else {0: 1.0}
            curves = KnockoutCurves({"effect": curve(order, right)})
            results.KNOCKOUT_CURVES.save(run, curves, name, pairs=MadePairs())
    return run


def word_problem_heads(root: Path, theirs: Places, right: Mapping[str, float]) -> Run:
    """Ten heads of generated prompts, those of word problems, and what is right without them."""
    ours = {(4 + i // 8, i % 8): -0.1 for i in range(10)}
    both = [Head(*place) for place in ours if place in theirs]
    own = [Head(*place) for place in theirs if place not in ours]
    sets = {"none": [], "word_problems": [Head(*place) for place in theirs], "overlap": both}
    sets["word_problems_only"] = own
    config = {"model": "made", "heads": 10}
    with made_run("do_word_problems_use_them", config, root) as run:
        results.POOLED_MAP.save(run, effects(ours), pairs=MadePairs())
        results.MAP.save(run, effects(theirs, seed=1), "word_problems", pairs=MadePairs())
        for on in ("generated", "word_problems"):
            for name, heads in sets.items():
                out = outcomes(right.get(f"{name}-on-{on}", 1.0), heads)
                results.OUTCOMES.save(run, out, name, on, heads=[str(head) for head in heads])
    return run


def what_comes_instead(root: Path, numbers: float, n: int = 50) -> Run:
    """All prompts right before the knockout; after it, a share of numbers, which are wrong."""

    def tokens(pieces: list[str]) -> NextTokens:
        ids = torch.tensor([[ord(piece[0])] for piece in pieces])
        texts = tuple((piece,) for piece in pieces)
        return NextTokens(tuple(map(str, range(n))), ids, texts, torch.ones(n, 1))

    with made_run("what_comes_instead", {"model": "made"}, root) as run:
        results.POOLED_MAP.save(run, effects({(4, 6): -0.1}), pairs=MadePairs())
        after = ["7" if i < numbers * n else "a" for i in range(n)]
        for when, pieces in (("before", ["8"] * n), ("after", after)):
            facts: Any = {"heads": ["4.6"], "answers": [ord("8")] * n}
            results.NEXT_TOKENS.save(run, tokens(pieces), "integers", when, **facts)
    return run


def answers(words: float, generic: float, n: int = 4000) -> Answers:
    """So many word problems and generic questions right, half of the questions each."""
    half = torch.arange(n // 2) / (n // 2)
    correct = torch.cat([half < words, half < generic])
    tasks = (
        ["validation/gain_lose", "validation/facts"]
        + ["two_step"] * (n // 2)
        + ["facts"] * (n // 2)
    )
    correct = torch.cat([torch.tensor([True, True]), correct])
    texts = ("",) * (n + 2)
    return Answers(correct, texts, texts, tuple(tasks))


def what_else_breaks(root: Path, without: Answers, heads: tuple[str, ...] = ("4.6", "5.1")) -> Run:
    """60% of word problems and 95% of generic questions right before."""
    settings = {"model": "made", "seed": 0, "control_limit": 1000}
    with made_run("what_else_breaks", settings, root) as run:
        results.POOLED_MAP.save(run, effects({}), pairs=MadePairs())
        results.ANSWERS.save(run, answers(0.6, 0.95), "none", heads=[])
        results.ANSWERS.save(run, without, "key-in-some", heads=list(heads))
        results.ANSWERS.save(run, without, "strongest", heads=list(heads))
        for seed, words in enumerate((0.6, 0.5)):
            control = results.control_questions(run, answers(words, 0.95))
            for kind in ("random", "matched"):
                results.ANSWERS.save(run, control, f"{kind}-{seed}", heads=["0.0"])
    return run


def where_do_they_look(root: Path, weights: Mapping[str, Mapping[str, float]]) -> Run:
    """Of each key head the weight on each role; the same in all operations."""
    heads = tuple(weights)
    mean = torch.tensor([[weights[h].get(role, 0.0) for role in ATTENTION_ROLES] for h in heads])
    noise = 1e-3 * torch.randn(
        len(heads), len(ATTENTION_ROLES), N_PAIRS, generator=torch.manual_seed(0)
    )
    labels = {"head": heads, "role": tuple(map(str, ATTENTION_ROLES))}
    looks = Effects(mean[..., None] + noise, ("head", "role"), "weight", labels=labels, **SHARED)
    tokens = [("<s>", "8", word, "2", "=") for word in ("plus", "minus", "times", "over")]
    pattern = torch.zeros(len(heads), 5, 5)
    for place, role in enumerate(("BOS", "operand a", "operator", "operand b", "END")):
        pattern[:, -1, place] = mean[:, list(map(str, ATTENTION_ROLES)).index(role)]

    def fill(run: Run, name: str) -> None:
        facts = {"key": list(heads), "kinds": kinds_of(looks)}
        results.ROLE_ATTENTION.save(run, looks, name, pairs=MadePairs(), **facts)
        for result, kind in (("formats", "operand"), ("words", "operator")):
            rows = [i for i, head in enumerate(heads) if kinds_of(looks)[head] == kind] or [0]
            prompts = tuple(" ".join(row) for row in tokens)
            shown = Patterns(
                prompts, tuple(heads[i] for i in rows), tuple(tokens), (pattern[rows],) * 4
            )
            results.PATTERNS.save(run, shown, result)

    return both_runs(root, "where_do_they_look", {}, fill)


def what_do_mlps_add(
    root: Path, curves: Mapping[str, list[float]], won: list[str], model: str = "made"
) -> Run:
    """Mean cosines of `operands` in MLP_in, of `C` and `others` in the write; who wins by layer."""

    def probe(values: list[list[float]], tokens: tuple[str, ...]) -> Effects:
        mean = torch.tensor(values).T[..., None]
        noise = 1e-4 * torch.randn(*mean.shape[:2], N_PAIRS, generator=torch.manual_seed(0))
        options = {"labels": {"token": tokens}, **SHARED}
        return Effects(mean + noise, ("layer", "token"), "cosine", **options)

    operands, nothing = curves["operands"], [0.0] * len(curves["operands"])
    reads = probe([operands, operands, nothing], ("A", "B", "others without A, B, C"))
    writes = probe([curves["C"], curves["others"]], ("C", "others without C"))
    shares = torch.zeros(len(won), len(DIGIT_CLASSES), N_PAIRS)
    for layer, name in enumerate(won):
        shares[layer, DIGIT_CLASSES.index(name)] = 1.0
    options = {"labels": {"class": DIGIT_CLASSES}, **SHARED}
    by_chance = torch.tensor([0.1, 0.1, 0.1, 0.2, 0.5])[:, None].expand(-1, N_PAIRS)
    with made_run("what_do_mlps_add", {"model": model, "final_norm": False}, root) as run:
        for name in FOUR:
            results.PROBE.save(run, reads, name, "mlp_in", pairs=MadePairs())
            results.PROBE.save(run, writes, name, "write", pairs=MadePairs())
            chance = Effects(by_chance.contiguous(), ("class",), "share", **options)
            results.CHANCE.save(run, chance, name, pairs=MadePairs())
            winners = Effects(shares, ("layer", "class"), "winner", **options)
            apart = [i % 2 == 0 for i in range(N_PAIRS)]
            results.WINNERS.save(run, winners, name, pairs=MadePairs(), distinct_classes=apart)
    return run


def does_tuning_help(
    root: Path,
    after: Mapping[str, tuple[float, float]],
    speeds: Mapping[str, float],
    seeds: int = 3,
) -> Run:
    """Word problems and generic questions right after each tuning; 40% and 95% before."""
    rows = {
        "full": TuningRow("full"),
        "precise": TuningRow("precise", 3),
        "mlps": TuningRow("precise", 3, 12),
    }
    rates = {"full": 1e-3, "precise": 1e-2, "mlps": 1e-3}
    if "more" in after:
        rows["more"], rates["more"] = TuningRow("precise", 6), 1e-2
    if "random" in after:
        rows["random"], rates["random"] = TuningRow("random", 3), 1e-2
    with made_run("does_tuning_help", {"model": "made"}, root) as run:
        results.UNTUNED_ANSWERS.save(run, answers(0.4, 0.95))
        for name, row in rows.items():
            for seed in range(seeds):
                words, generic = after[name]
                made = answers(words + seed / 200, generic)
                facts = {**asdict(row), "rate": rates[name], "seed": seed}
                facts |= {"samples_per_second": speeds[name] * (1 + seed / 100), "seconds": 1.0}
                facts |= {"parameters": 10, "of": 100, "which_heads": [], "which_mlps": []}
                results.TUNED_ANSWERS.save(run, made, f"{name}-{seed}", **facts)
            other = {**facts, "rate": 0.5}
            results.TUNED_ANSWERS.save(run, answers(1.0, 1.0), f"{name}-other-rate", **other)
        compared = [name for name in rows if name not in ("mlps", "more")]
        few = ("precise", "mlps", "more") if "more" in rows else ("precise", "mlps")
        for table, names in (("1", compared), ("5", ("precise", "mlps")), ("2", few)):
            chosen = SelectedRates({rows[name]: {rates[name]: 0.6, 0.5: 0.4} for name in names})
            results.CHOSEN_RATES.save(run, chosen, table)
    return run
