"""Orders to set beside the effect order: any heads, or others of the same layers."""

import random
from collections.abc import Iterable

from arith_lens.components import Head, check_components, every_head


def random_order(n_layers: int, n_heads: int, seed: int) -> list[Head]:
    """All heads of a model in an order drawn with `seed`, the same on every machine."""
    heads = every_head(n_layers, n_heads)
    random.Random(seed).shuffle(heads)
    return heads


def matched_order(key_heads: Iterable[Head], n_layers: int, n_heads: int, seed: int) -> list[Head]:
    """For each key head, in order, another head of its layer that is no key head, and not yet used.

    Where a layer has no more, the nearest layer that has one gives it (the lower of two equally
    near), so that the control stays as long as the key heads, and as near in depth as can be.

    Raises:
        ValueError: more key heads than other heads, or a head twice
        IndexError: a head that the model does not have
    """
    keys = list(key_heads)
    check_components(keys, n_layers, n_heads)
    others = sorted({*every_head(n_layers, n_heads)} - {*keys})
    if len({*keys}) != len(keys) or len(others) < len(keys):
        raise ValueError(
            f"expected distinct key heads, and at least as many others, found {len(keys)} key "
            f"heads ({len({*keys})} distinct) and {len(others)} others; match fewer of them"
        )
    rng = random.Random(seed)
    rng.shuffle(others)
    order = []
    for key in keys:
        layer = min((abs(head.layer - key.layer), head.layer) for head in others)[1]
        taken = next(head for head in others if head.layer == layer)
        others.remove(taken)
        order.append(taken)
    return order
