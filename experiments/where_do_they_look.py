"""Where do the key heads look? Attention from END to operands, operator and everything else.

For each operation, the attention of the heads with the strongest effects and of random other heads,
on all pairs; then whole patterns on prompts of other formats, and on one sentence with each
operation's word. Saves a run under results/where_do_they_look/, which `figures/attention.py`
draws.
"""

import random
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from pandas import DataFrame

import arith_lens as al
from arith_lens.attention import kinds_of, most_looked_at, patterns_of
from arith_lens.components import every_head
from arith_lens.effects import Effects
from arith_lens.knockout import random_order
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments.results import MAP, PATTERNS, RANDOM_ATTENTION, ROLE_ATTENTION
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    SampleSettings,
    fitting_engine,
    operation_maps,
    operation_pairs,
    strongest_heads,
)
from experiments.what_comes_instead import EXERCISES as FORMATS

PATTERN_OPERANDS = (8, 2)
"""One sentence for every operation's word: 8 plus 2, 8 minus 2, 8 times 2, 8 over 2."""


@dataclass(frozen=True)
class Config(SampleSettings):
    """Where do the key heads look?"""

    top: int = 10
    """Heads per operation, the strongest by effect; more if there are more key heads."""
    shown: int = 4
    """Heads of each kind whose patterns are shown."""
    blank: bool = True
    """Whether the blank token before B is a role of its own."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """Attention of the strongest heads and of random ones, then whole patterns."""
    for name, pairs in operation_pairs(model, config):
        _look(run, name, model, pairs, config)
    _show(run, model, config)


def _plan(model: al.HookedModel, config: Config) -> str:
    engine = fitting_engine(model)
    return "\n".join(
        f"{name}: {al.plan(model, pairs, engine=engine)}; then two forwards of the references"
        f"{BEFORE_FILTER}"
        for name, pairs in operation_pairs(model, config, keep="all")
    )


def _look(
    run: Run, name: str, model: al.HookedModel, pairs: al.PromptPairs, config: Config
) -> None:
    """The strongest heads of an operation, and as many others at random."""
    (effects,) = operation_maps(run, model, {name: pairs}).values()
    key = al.key_heads(effects)
    heads = strongest_heads(effects, max(config.top, len(key)))

    def facts(looks: Effects) -> dict[str, Any]:
        return {"key": [str(head) for head in key], "kinds": kinds_of(looks)}

    ROLE_ATTENTION.compute(
        run,
        al.attention_by_role,
        model,
        pairs,
        name,
        heads=heads,
        blank=config.blank,
        facts=facts,
    )
    order = random_order(model.n_layers, model.n_heads, config.seed)
    others = [head for head in order if head not in heads][: len(heads)]
    RANDOM_ATTENTION.compute(
        run, al.attention_by_role, model, pairs, name, heads=others, blank=config.blank
    )


def _show(run: Run, model: al.HookedModel, config: Config) -> None:
    """Patterns of operand heads on other formats, and of operator heads on operation words."""
    rng = random.Random(config.seed)
    formats = [draw(rng)[0] for draw in FORMATS.values()]
    operand_heads = _of_kind(run, "operand", config)
    PATTERNS.save(run, patterns_of(model, formats, operand_heads), "formats")
    words = [TEMPLATES[name][1].render(*PATTERN_OPERANDS)[0] for name in config.operations]
    operator_heads = _of_kind(run, "operator", config)
    PATTERNS.save(run, patterns_of(model, words, operator_heads), "words")
    every = every_head(model.n_layers, model.n_heads)
    PATTERNS.save(run, patterns_of(model, words[0], every), "all")


def _of_kind(run: Run, kind: str, config: Config) -> list[al.Head]:
    """Heads of one kind in some operation, by effect; the strongest of all if there are none."""
    of_kind: dict[str, float] = {}
    of_all: dict[str, float] = {}
    for name in config.operations:
        means = MAP.load(run, name).heads.mean()
        for text, own in ROLE_ATTENTION.facts(run, name)["kinds"].items():
            head = al.Head(*map(int, text.split(".")))
            effect = float(means[head.layer, head.index])
            of_all[text] = min(of_all.get(text, 0.0), effect)
            if own == kind:
                of_kind[text] = min(of_kind.get(text, 0.0), effect)
    ranked = sorted(of_kind or of_all, key=(of_kind or of_all).__getitem__)[: config.shown]
    return [al.Head(*map(int, text.split("."))) for text in ranked]


def report(run: Run) -> None:
    """Print each head's mean weight on each role, its kind, and what it looks at most often."""
    print(run.config["model"])
    for name in run.config["operations"]:
        looks, control = ROLE_ATTENTION.load(run, name), RANDOM_ATTENTION.load(run, name)
        facts, effects = ROLE_ATTENTION.facts(run, name), MAP.load(run, name).heads.mean()
        assert looks.labels is not None
        roles, best, rows = looks.labels["role"], most_looked_at(looks).mean(), {}
        for i, text in enumerate(looks.labels["head"]):
            layer, index = map(int, text.split("."))
            first = int(best[i].argmax())
            weights = dict(zip(roles, looks.mean()[i].tolist(), strict=True))
            often = f"{roles[first]} ({float(best[i, first]):.0%})"
            kind = {"kind": facts["kinds"][text], "most often": often}
            rows[text] = {"effect": float(effects[layer, index]), **weights, **kind}
        others = control.mean().mean(0).tolist()
        rows["others at random"] = dict(zip(roles, others, strict=True))
        key = ", ".join(facts["key"]) or "none"
        print(f"\n{name}: {facts['distinct']} distinct references; key heads: {key}")
        table = DataFrame.from_dict(rows, orient="index")
        print(indent(table.to_string(float_format="{:.1%}".format, na_rep=""), "  "))


main = Experiment("where_do_they_look", Config, compute, _plan, report, figure="fig5")
