"""Claims about which heads and MLPs the answer depends on, and where they are (section 5.1)."""

from collections.abc import Callable

import numpy as np

from arith_lens.effects import KEY, ComponentEffects, Effects
from arith_lens.runs import Run
from experiments import results
from figures.claims import effect_maps
from figures.claims.claim import Claim, Measurement, Number, Unit, Within
from figures.claims.effect_maps import EXPERIMENT, NO_KEY, effects_of
from figures.claims.estimate import estimate, per_operation
from figures.claims.evidence import Evidence

PATHS = "which_paths"
Measure = Callable[[Evidence], Measurement]


def of_heads(statistic: Callable[[np.ndarray], float], rule: Within, unit: Unit = "%") -> Measure:
    """Measures a statistic of each operation's heads."""

    def measure(evidence: Evidence) -> Measurement:
        numbers = {
            name: estimate(name, statistic, effects.heads, rule=rule, unit=unit)
            for name, effects in effects_of(evidence).items()
        }
        return per_operation(numbers, missing=NO_KEY)

    return measure


def of_mlps(
    statistic: Callable[[np.ndarray, np.ndarray], float], rule: Within, missing: str
) -> Measure:
    """Measures a statistic of each operation's heads and MLPs, which are of the same pairs."""

    def measure(evidence: Evidence) -> Measurement:
        numbers = {
            name: estimate(name, statistic, both.heads, both.mlps, rule=rule, together=True)
            for name, both in effects_of(evidence).items()
        }
        return per_operation(numbers, missing=missing)

    return measure


def _strongest(evidence: Evidence) -> Measurement:
    rule = Within(below=KEY["relative_logit"])

    def strongest_number(name: str, effects: ComponentEffects) -> Number | None:
        (head,) = effects.heads.top(1)
        of = f"{name} (head {head})"
        return estimate(of, lambda heads: float(np.nanmin(heads)), effects.heads, rule=rule)

    numbers = {
        name: strongest_number(name, effects) for name, effects in effects_of(evidence).items()
    }
    return per_operation(numbers, missing="heads")


def _via_mlps(evidence: Evidence) -> Measurement:
    def operation_number(name: str, run: Run) -> Number | None:
        direct, via = (
            results.PATHS.load(run, name, paths).heads for paths in ("direct", "via_mlps")
        )
        measured = ~direct.per_pair.isnan().all(-1)
        chosen = (
            Effects(e.per_pair[measured], ("sender",), e.metric, **e.units) for e in (direct, via)
        )
        return estimate(
            f"{name} ({int(measured.sum())} heads)",
            lambda direct, via: 1 - direct.sum() / via.sum(),
            *chosen,
            rule=Within(above=0.5),
            together=True,
        )

    numbers = {name: operation_number(name, run) for name, run in evidence.runs(PATHS).items()}
    return per_operation(numbers, missing="heads")


CLAIMS = (
    Claim(
        key="strongest_head",
        group="heads",
        statement="Single heads matter: without what the strongest head reads from the "
        "calculation, the answer's logit falls by more than 5%.",
        section="5.1",
        paper="-14.0% for head 12.22 of LLaMA2-7B",
        rule="The strongest head's mean effect is below -5%, the paper's mark of a key head, in "
        "each of the four operations.",
        experiments=(EXPERIMENT,),
        measure=_strongest,
    ),
    Claim(
        key="few_key_heads",
        group="heads",
        statement="Key heads, those with an effect below -5%, are few.",
        section="abstract, 1, 5.1",
        paper="fewer than 5% of the heads",
        rule="In each operation that has key heads, they are fewer than 5% of all heads.",
        experiments=(EXPERIMENT,),
        measure=of_heads(effect_maps.share_of_key, Within(below=0.05)),
    ),
    Claim(
        key="sparse_effect",
        group="heads",
        statement="Only a small number of heads has a noteworthy influence on the answer.",
        section="5.1",
        paper="a small number; no value",
        rule="In each operation the strongest 5% of the heads have more than half of all that "
        "heads, each patched alone, take away from the answer's logit (the half is ours).",
        experiments=(EXPERIMENT,),
        measure=of_heads(effect_maps.share_of_few, Within(above=0.5)),
    ),
    Claim(
        key="middle_layers",
        group="heads",
        statement="Key heads are mainly in the middle layers.",
        section="5.1, C, D",
        paper="primarily in layers 12 to 17 of 32",
        rule="In each operation that has key heads, the middle half of the layers has more than "
        "half of their summed effect (which layers are the middle is ours).",
        experiments=(EXPERIMENT,),
        measure=of_heads(effect_maps.share_in_middle, Within(above=0.5)),
    ),
    Claim(
        key="no_early_key_heads",
        group="heads",
        statement="The first layers have no key heads.",
        section="5.1",
        paper="key heads emerge from layer 12 of 32 on, for all calculations (though 11.8 is named "
        "as one later)",
        rule="In each operation that has key heads, none is in the first 12/32 of the layers.",
        experiments=(EXPERIMENT,),
        measure=of_heads(effect_maps.n_early, Within(below=1), unit="count"),
    ),
    Claim(
        key="mlps_before",
        group="heads",
        statement="MLPs below the first key head have almost no effect on the answer.",
        section="5.1",
        paper="about ±0.0% (layers 0 to 16 of 32), where later ones have about ±10%",
        rule="In each operation, the largest effect of an MLP below the first key head, whatever "
        "its sign, is under 1%: a tenth of what the paper's later ones have (the tenth is ours).",
        experiments=(EXPERIMENT,),
        measure=of_mlps(
            effect_maps.largest_before, Within(below=0.01), "an MLP below its first key head"
        ),
    ),
    Claim(
        key="mlps_after",
        group="heads",
        statement="MLPs from the first key head's layer on have large effects.",
        section="5.1",
        paper="about ±10% after layer 17 of 32",
        rule="In each operation that has key heads, the mean effect of these MLPs, whatever its "
        "sign, is over 5%: the paper's mark of a key head, and half of its ±10% (ours).",
        experiments=(EXPERIMENT,),
        measure=of_mlps(effect_maps.mean_after, Within(above=0.05), NO_KEY),
    ),
    Claim(
        key="via_mlps",
        group="heads",
        statement="What key heads read reaches the answer through MLPs, which work it out.",
        section="5.1, 5.2",
        paper="no value",
        rule="In each operation more than half of the strongest heads' effect is gone where only "
        "the direct path to the logits is left to them (the half is ours).",
        experiments=(PATHS,),
        measure=_via_mlps,
    ),
)
