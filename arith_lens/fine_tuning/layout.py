"""Where a model's layers keep their heads and MLPs: names, sizes, and rows of matrices."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from torch import nn

ATTENTIONS = ("self_attn", "attn.attention", "attn", "attention", "self_attention")
SEPARATE = ("q_proj", "k_proj", "v_proj")
OUTPUTS = ("o_proj", "out_proj", "dense")
MLP_ATTRIBUTES = ("mlp", "ffn", "block_sparse_moe")
FUSED = {
    "phi3": ("qkv_proj", "by kind"),
    "mpt": ("Wqkv", "by kind"),
    "bloom": ("query_key_value", "by group"),
    "falcon": ("query_key_value", "by group"),
    "gpt_neox": ("query_key_value", "by group"),
}
"""Families with W_Q, W_K and W_V in one matrix: by `model_type` its name and its rows' order.

"by kind": the queries of all heads, then all keys, then all values. "by group": for each key-value
head the queries that share it, its key, its value.
"""


@dataclass(frozen=True, eq=False)
class Layout:
    """A model's layers, and where their heads and MLPs are."""

    model: str
    """The name of the model's class."""
    layers: nn.ModuleList
    prefix: str
    """The path of the layers, with which their parameters' names begin."""
    attention: str
    """The path of the attention in a layer."""
    projections: tuple[str, ...]
    """The names of W_Q, W_K and W_V, or of the one matrix that has all of them."""
    output: str
    """The name of W_O."""
    order: str | None
    """The order of the rows of a fused matrix, as in `FUSED`; None for three matrices."""
    n_heads: int
    n_kv_heads: int
    d_head: int

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    def rows(self, head: int) -> dict[str, tuple[str, int]]:
        """By "q", "k" and "v": the matrix and the first of the `d_head` rows of this head."""
        size = self.n_heads // self.n_kv_heads
        group = head // size
        rows = {"q": head, "k": group, "v": group}
        if self.order is None:
            names = dict(zip("qkv", self.projections, strict=True))
            return {kind: (names[kind], row * self.d_head) for kind, row in rows.items()}
        if self.order == "by kind":
            rows |= {"k": self.n_heads + group, "v": self.n_heads + self.n_kv_heads + group}
        else:
            after = (group + 1) * (size + 2)
            rows = {"q": head + 2 * group, "k": after - 2, "v": after - 1}
        return {kind: (self.projections[0], row * self.d_head) for kind, row in rows.items()}

    def mlp(self, layer: int) -> tuple[str, Any]:
        """The path of a layer's MLP in the layer, and the MLP.

        Raises:
            ValueError: the MLP is not one module.
        """
        for name in MLP_ATTRIBUTES:
            if (module := getattr(self.layers[layer], name, None)) is not None:
                return name, module
        raise ValueError(
            f"expected an MLP that is a module of its own, found none in {self.model}; tune its "
            "heads alone, or take method='full'"
        )


def layout_of(hf_model: Any) -> Layout:
    """The model's layout.

    Raises:
        ValueError: the heads are not rows of Linear matrices in an order that is known here, or
            differ in size.
    """
    config = hf_model.config.get_text_config()
    fused, order = FUSED.get(config.model_type, (None, None))
    projections = SEPARATE if fused is None else (fused,)
    candidates = [
        (prefix, module)
        for prefix, module in hf_model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers
    ]
    for (prefix, layers), path, output in product(candidates, ATTENTIONS, OUTPUTS):
        names = (*projections, output)
        parts = [[_part(layer, f"{path}.{name}") for name in names] for layer in layers]
        if all(isinstance(part, nn.Linear) for of_layer in parts for part in of_layer):
            sizes = _sizes(hf_model, config.num_attention_heads, parts)
            return Layout(
                type(hf_model).__name__, layers, prefix, path, projections, output, order, *sizes
            )
    raise ValueError(
        "expected layers whose attention has q_proj, k_proj, v_proj and an output, each a Linear, "
        f"or one matrix of a known order ({', '.join(FUSED)}), found {type(hf_model).__name__} "
        f"with {_linear_parts(candidates)}; take method='full', or another family"
    )


def _part(module: Any, path: str) -> Any:
    """The part at a path; None if there is none."""
    return reduce(lambda part, name: getattr(part, name, None), path.split("."), module)


def _sizes(hf_model: Any, n_heads: int, parts: Sequence[Sequence[Any]]) -> tuple[int, int, int]:
    """The numbers of heads and of key-value heads, and the size of a head.

    Raises:
        ValueError: they are not those of every layer, or W_Q has rows that belong to no head.
    """
    sizes = {
        (of_layer[-1].in_features, *(part.out_features for part in of_layer[:-1]))
        for of_layer in parts
    }
    width, *n_rows = sizes.pop()
    d_head = width // n_heads
    if len(n_rows) == 1:
        n_kv_heads = (n_rows[0] // d_head - n_heads) // 2
        sizes_match = n_rows[0] == (n_heads + 2 * n_kv_heads) * d_head
    else:
        n_kv_heads = n_rows[1] // d_head
        sizes_match = n_rows == [n_heads * d_head, n_kv_heads * d_head, n_kv_heads * d_head]
    if sizes or not sizes_match or n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(
            f"expected {n_heads} heads of one size in each layer of {type(hf_model).__name__}, "
            f"found projections of {', '.join(map(str, n_rows))} rows and an output of {width} "
            f"columns{' in one layer, and others in another' if sizes else ''} (a gated "
            "attention?); its heads cannot be cut"
        )
    return n_heads, n_kv_heads, d_head


def _linear_parts(candidates: Sequence[tuple[str, nn.ModuleList]]) -> str:
    """The matrices of the first layer's attention, in words."""
    for _, layers in candidates:
        for path in ATTENTIONS:
            attention = _part(layers[0], path)
            names = [
                name
                for name, part in getattr(attention, "named_modules", list)()
                if getattr(getattr(part, "weight", None), "ndim", 0) == 2
            ]
            if names:
                return f"{path} of {', '.join(names)}"
    return "layers without such an attention"
