"""What do single heads and MLPs do? Where key heads look, and all that the explorer shows."""

import random
from collections.abc import Iterator
from textwrap import indent
from typing import Any

from pandas import DataFrame

import arith_lens as al
from arith_lens.attention import kinds_of, most_looked_at, patterns_of
from arith_lens.effects import Effects
from arith_lens.exploration import MAP_SETTINGS, explored
from arith_lens.knockout import random_order
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments.command import continue_after_part
from experiments.configs.states import ExplorationConfig, LookConfig
from experiments.next_tokens import EXERCISES as FORMATS
from experiments.results import EXPLORATION, MAP, PATTERNS, RANDOM_ATTENTION, ROLE_ATTENTION
from experiments.selection import OWN_PAIRS
from experiments.settings import (
    Experiment,
    file_pairs,
    fitting_engine,
    operation_pairs,
    patch_and_store,
    plan_maps,
    strongest_heads,
)

PATTERN_OPERANDS = (8, 2)
"""One sentence for every operation's word: 8 plus 2, 8 minus 2, 8 times 2, 8 over 2."""


def _save_looks(run: Run, model: al.HookedModel, config: LookConfig) -> None:
    """Attention of the strongest heads and of as many random ones, then whole patterns."""
    order = random_order(model.n_layers, model.n_heads, config.seed)
    for name, pairs in operation_pairs(model, config):
        effects = patch_and_store(run, model, pairs, MAP, name)
        key = [str(head) for head in al.key_heads(effects)]
        heads = strongest_heads(effects, max(config.top, len(key)))
        others = [head for head in order if head not in heads][: len(heads)]

        def facts(looks: Effects, key: list[str] = key) -> dict[str, Any]:
            return {"key": key, "kinds": kinds_of(looks)}

        call, blank = (run, al.attention_by_role, model, pairs, name), config.blank
        ROLE_ATTENTION.compute(*call, heads=heads, blank=blank, facts=facts)
        RANDOM_ATTENTION.compute(*call, heads=others, blank=blank)
    _save_patterns(run, model, config)


def _plan_looks(model: al.HookedModel, config: LookConfig) -> str:
    sampled = operation_pairs(model, config, keep="all")
    return plan_maps(model, sampled, "; then two forwards of the references")


def _save_patterns(run: Run, model: al.HookedModel, config: LookConfig) -> None:
    """Patterns of operand heads on other formats, and of operator heads on operation words."""
    rng = random.Random(config.seed)
    formats = [draw(rng)[0] for draw in FORMATS.values()]
    operand_heads = heads_of_role(run, "operand", config)
    PATTERNS.save(run, patterns_of(model, formats, operand_heads), "formats")
    words = [TEMPLATES[name][1].render(*PATTERN_OPERANDS)[0] for name in config.operations]
    operator_heads = heads_of_role(run, "operator", config)
    PATTERNS.save(run, patterns_of(model, words, operator_heads), "words")


def heads_of_role(run: Run, kind: str, config: LookConfig) -> list[al.Head]:
    """Heads of one kind in some operation, by effect; the strongest of all if there are none."""
    of_kind: dict[al.Head, float] = {}
    of_all: dict[al.Head, float] = {}
    for name in config.operations:
        means = MAP.load(run, name).heads.mean()
        for text, own in ROLE_ATTENTION.facts(run, name)["kinds"].items():
            head = al.Head.parse(text)
            effect = float(means[head.layer, head.index])
            for some in (of_all, of_kind) if own == kind else (of_all,):
                some[head] = min(some.get(head, 0.0), effect)
    chosen = of_kind or of_all
    return sorted(chosen, key=chosen.__getitem__)[: config.shown]


def _report_looks(run: Run) -> None:
    """Print each head's mean weight on each role, its kind, and what it looks at most often."""
    print(run.config["model"])
    for name in run.config["operations"]:
        looks, control = ROLE_ATTENTION.load(run, name), RANDOM_ATTENTION.load(run, name)
        facts, effects = ROLE_ATTENTION.facts(run, name), MAP.load(run, name).heads.mean()
        assert looks.labels is not None
        roles, best, rows = looks.labels["role"], most_looked_at(looks).mean(), {}
        for i, text in enumerate(looks.labels["head"]):
            head = al.Head.parse(text)
            first = int(best[i].argmax())
            weights = dict(zip(roles, looks.mean()[i].tolist(), strict=True))
            often = f"{roles[first]} ({float(best[i, first]):.0%})"
            kind = {"kind": facts["kinds"][text], "most often": often}
            rows[text] = {"effect": float(effects[head.layer, head.index]), **weights, **kind}
        others = control.mean().mean(0).tolist()
        rows["others at random"] = dict(zip(roles, others, strict=True))
        key = ", ".join(facts["key"]) or "none"
        print(f"\n{name}: {facts['distinct']} distinct references; key heads: {key}")
        table = DataFrame.from_dict(rows, orient="index")
        print(indent(table.to_string(float_format="{:.1%}".format, na_rep=""), "  "))


where_do_they_look = Experiment(
    "where_do_they_look", LookConfig, _save_looks, _plan_looks, _report_looks, figure="fig5"
)


OPERANDS_RESULT = "{}-other_operands"
"""The name of the pairs whose counterfactual has other operands."""


def _explored_pairs(
    model: al.HookedModel, config: ExplorationConfig, *, keep: str
) -> Iterator[tuple[str, al.PromptPairs]]:
    """Each operation's name and pairs, from the templates or from a file."""
    if config.pairs is None:
        return operation_pairs(model, config, keep=keep)
    return file_pairs(model, config.pairs, keep=keep)


def _save_everything(run: Run, model: al.HookedModel, config: ExplorationConfig) -> None:
    """For each operation: everything with other operands, then the paper's map.

    Of prompts of one's own there is no other counterfactual.
    """
    for operation, pairs in _explored_pairs(model, config, keep=config.keep):
        with continue_after_part():
            name, few = EXPLORATION.name(operation), {}
            if config.pairs is None:
                options = {"n": config.n, "seed": config.seed, "counterfactual": "operands"}
                others = al.sample_pairs(model, operation, keep=config.keep, **options)
                setup = _setup(config, operation, counterfactual="operands")
                whole = EXPLORATION.name(OPERANDS_RESULT.format(operation))
                explored(model, others, setup=setup, run=run, name=whole)
                few = {"settings": MAP_SETTINGS[:1], "maps_only": True}
            explored(model, pairs, setup=_setup(config, operation), run=run, name=name, **few)


def _setup(config: ExplorationConfig, operation: str, **options: str) -> str:
    """The code that makes the model and the pairs, for the reader of the page."""
    load = f"import arith_lens as al\n\nmodel = al.load_model({config.model!r})\n"
    if config.pairs is not None:
        lines = [f"pairs = al.PromptPairs.from_file({str(config.pairs)!r}, model)"]
        if operation != OWN_PAIRS:
            lines += [f"pairs = pairs.filter([name == {operation!r} for name in pairs.operation])"]
        if config.keep == "correct":
            lines += ["from arith_lens.pairs import keep_correct"]
            lines += ["pairs = keep_correct(model, pairs)"]
        return load + "\n".join(lines)
    options |= {"keep": config.keep} if config.keep != "correct" else {}
    n = "" if config.n is None else f", n={config.n}, seed={config.seed}"
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"{load}pairs = al.sample_pairs(model, {operation!r}{n}{more})"


def _plan_everything(model: al.HookedModel, config: ExplorationConfig) -> str:
    engine = fitting_engine(model)
    return "\n".join(
        plan_maps(
            model,
            [(", ".join([operation, *setting.values()]), pairs)],
            engine=engine,
            paths=setting["paths"],  # the metric costs nothing, and some prompts have no digits
        )
        for operation, pairs in _explored_pairs(model, config, keep="all")
        for setting in MAP_SETTINGS
    )


what_does_each_part_do = Experiment(
    "what_does_each_part_do",
    ExplorationConfig,
    _save_everything,
    _plan_everything,
    figure="explorer",
    inputs=lambda config: () if config.pairs is None else (config.pairs,),
)
