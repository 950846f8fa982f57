"""The carry of two-digit sums in a pretrained model, for the predictions of docs/pretrained.md.

The difference of means is exchanged at every layer without controls. The layer is the one where it
has most on problems of its own. All controls are computed there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arith_lens as al
from arith_lens.components import every_head, every_mlp
from arith_lens.interchanges import readers, without_writers, writers
from experiments.carry import UNDER_100
from laboratory.rows import write_rows

LEADING = 5
"""How many principal components of the states are exchanged together."""
NAMED = 6
"""How many of the components that write the direction have a row."""


def carries(
    model: str = "smollm2-135m",
    shots: int = 1,
    n: int = 240,
    draws: int = 30,
    head_layers: tuple[int, ...] = (),
    csv: Path | None = None,
) -> None:
    """Exchange the carry of the ones in two-digit sums below 100, and print what follows it.

    Args:
        model: a name, a folder or a GGUF file.
        shots: the number of solved examples before each sum.
        n: the number of pairs; half of them are tested.
        draws: the number of shuffles at the chosen layer.
        head_layers: the layers whose two strongest heads are held; none: every layer, no controls.
        csv: the file to write.
    """
    loaded = al.load_model(model)
    tables = _tables(loaded, {"shots": shots, "n": n, "templates": "symbols"}, draws, head_layers)
    rows: Iterator[Any] = (row for table in tables for row in table.to_dict("records"))
    write_rows(({"model": loaded.name, **row} for row in rows), csv)


def carry_pairs(model: al.HookedModel, **options: Any) -> al.InterchangePairs:
    """Sources differ in the ones digits alone, and the digit of their tens is the expected one."""
    causal = al.causal_model("addition", "carry")
    chosen = {"sources": "matched", "answers": UNDER_100}
    return al.interchange_pairs(model, causal, "ones_carry", **chosen | options)  # pyright: ignore


def _tables(
    model: al.HookedModel, settings: dict[str, Any], draws: int, head_layers: tuple[int, ...]
) -> Iterator[Any]:
    pairs = carry_pairs(model, **settings)
    sites = [al.Site(layer) for layer in range(model.n_layers)]
    yield _rows("layers", al.interchange(model, pairs, sites, controls=False))
    if not head_layers:
        return
    others = carry_pairs(model, **settings, seed=1)
    choice = al.interchange(model, others, sites, controls=False)
    site = sites[int(choice.iia[:, 1].argmax())]
    one = al.interchange(model, pairs, site, draws=draws)
    yield _rows("chosen layer", one)
    yield _rows(f"{LEADING} directions", al.interchange(model, pairs, site, space="pca", k=LEADING))
    worded = carry_pairs(model, **settings | {"templates": "operation"}, hold_out="templates")
    yield _rows("other wordings", al.interchange(model, worded, site, controls=False))
    direction = one.bases[str(site)]
    heads = every_head(model.n_layers, model.n_heads)
    mlps = every_mlp(model.n_layers)
    tested, fitted = pairs[pairs.test], pairs[pairs.fit]
    near = [head for head in heads if head.layer in head_layers and head.layer <= site.layer]
    order = writers(model, fitted, site, direction, near).mean().argsort(descending=True)
    two = [near[i] for i in order[:2].tolist()]
    sets = {"nothing": [], " ".join(map(str, two)): two}
    yield _rows("held", without_writers(model, tested, site, sets), site)
    before = [part for part in [*heads, *mlps] if part.layer <= site.layer]
    written = _rows("writers", writers(model, tested, site, direction, before), site)
    yield written.sort_values("value", ascending=False).head(NAMED)
    after = [mlp for mlp in mlps if mlp.layer > site.layer]
    yield _rows("readers", readers(model, tested, site, direction, after), site)


def _rows(test: str, result: Any, site: Any = None) -> Any:
    """One row per site and space, or per component."""
    table = result.to_dataframe().rename(
        columns={"mean": "value", "ci_low": "low", "ci_high": "high", "component": "space"}
    )
    table = table.rename(columns={"set": "space"})
    if site is not None:
        table["site"] = str(site)
    table.insert(0, "test", test)
    table["n"] = len({*(getattr(result, "effects", result).problem or ())})
    columns = ["test", "site", "space", "value", "low", "high", "n", "lowest", "median", "highest"]
    return table.reindex(columns=columns)
