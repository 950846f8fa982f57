"""Claims about which heads and MLPs write the answer, and where they are (sections 5.1, D)."""

from collections.abc import Callable

import numpy as np

from arith_lens.claims.claim import Claim, Found, Number, Within
from arith_lens.claims.estimate import estimate, numbers
from arith_lens.claims.evidence import Evidence, NotMeasured
from arith_lens.effects import KEY, ComponentEffects
from arith_lens.problems import FOUR

THRESHOLD = KEY["relative_logit"]
EXPERIMENT = "which_heads"


def effects_of(evidence: Evidence) -> dict[str, ComponentEffects]:
    """The effects of every component, by operation."""
    run = evidence.run(EXPERIMENT)
    return {name: run.load(name) for name in FOUR}


def strongest(heads: np.ndarray) -> float:
    """The most negative mean effect."""
    return float(np.nanmin(heads))


def share_of_key(heads: np.ndarray) -> float:
    """Key heads as a share of all; NaN where there is none."""
    n_key = int((heads < THRESHOLD).sum())
    return n_key / heads.size if n_key else float("nan")


def share_in_middle(heads: np.ndarray) -> float:
    """Of the key heads' summed effect, what is in the middle half of the layers."""
    key = np.where(heads < THRESHOLD, heads, 0.0)
    layers = np.arange(len(heads))
    middle = (layers >= len(heads) / 4) & (layers < 3 * len(heads) / 4)
    return float(key[middle].sum() / key.sum()) if key.any() else float("nan")


def of_each(evidence: Evidence, statistic: Callable[[np.ndarray], float], rule: Within) -> Found:
    """A statistic of each operation's heads, where it has key heads."""
    effects = effects_of(evidence)
    found = [estimate(name, statistic, one.heads, rule=rule) for name, one in effects.items()]
    without = [name for name, number in zip(effects, found, strict=True) if number is None]
    if len(without) == len(effects):
        raise NotMeasured("no operation has a key head: no head's effect is below -5%")
    return Found(numbers(found), f"No key heads: {', '.join(without)}." if without else "")


def _strongest(evidence: Evidence) -> Found:
    def one(name: str, effects: ComponentEffects) -> Number | None:
        place = np.unravel_index(
            int(np.nanargmin(effects.heads.mean().numpy())), effects.heads.per_pair.shape[:2]
        )
        of = f"{name} (head {place[0]}.{place[1]})"
        return estimate(of, lambda heads: float(heads[place]), effects.heads, rule=rule)

    rule = Within(below=THRESHOLD)
    return Found(numbers([one(*item) for item in effects_of(evidence).items()]))


CLAIMS = (
    Claim(
        key="strongest_head",
        group="heads",
        statement="Single heads matter: the answer's logit falls by more than 5% without what the "
        "strongest head reads from the calculation.",
        section="5.1",
        paper="-14.0% for head 12.22 of LLaMA2-7B; a key head is beyond -5%",
        rule="The strongest head's mean effect is below -5% in each of the four operations.",
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
        measure=lambda evidence: of_each(evidence, share_of_key, Within(below=0.05)),
    ),
    Claim(
        key="middle_layers",
        group="heads",
        statement="Key heads are mainly in the middle layers.",
        section="5.1, C, D",
        paper="primarily in layers 12 to 17 of 32",
        rule="In each operation that has key heads, the middle half of the layers has more than "
        "half of their summed effect.",
        experiments=(EXPERIMENT,),
        measure=lambda evidence: of_each(evidence, share_in_middle, Within(above=0.5)),
    ),
)
