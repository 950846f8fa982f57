"""The residual stream and attention's outputs as senders, against hooks on Transformers' layers."""

from typing import Any

import pytest
import torch
from oracles import Raw, make_pairs
from support.families import ADDITIVE, OWN_LAYERS, Family
from torch import Tensor
from torch.testing import assert_close

import arith_lens as al
from arith_lens.path_patching import path_patch

OPTIONS: dict[str, Any] = {"paths": "total", "engine": "hooks", "metric": "logit"}
KINDS = ("resid_pre", "resid_mid", "resid_post", "attn_out")


FAMILIES: dict[str, Family] = {
    name: (ADDITIVE | OWN_LAYERS)[name] for name in ("Llama-3", "Gemma 2")
}


def first(value: Any) -> Tensor:
    return value[0] if isinstance(value, tuple) else value


class Layers:
    """What goes into a layer, into and out of its attention (with the norm after it), and out."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.runs = [self._recorded(t) for t in (raw.pairs.reference, raw.pairs.counterfactual)]

    def adds(self, layer: Any) -> Any:
        """The module whose output attention adds to the stream."""
        gemma = hasattr(layer, "pre_feedforward_layernorm")
        return layer.post_attention_layernorm if gemma else layer.self_attn

    def _recorded(self, tokens: Tensor) -> dict[tuple[str, int], Tensor]:
        kept: dict[tuple[str, int], Tensor] = {}
        handles: list[Any] = []
        for number, layer in enumerate(self.raw.layers):

            def enter(_: Any, x: Any, number: int = number) -> None:
                kept["resid_pre", number] = x[0].clone()

            def leave(_: Any, __: Any, y: Any, number: int = number) -> None:
                kept["resid_post", number] = first(y).clone()

            def attend(_: Any, __: Any, y: Any, number: int = number) -> None:
                kept["attn_out", number] = first(y).clone()
                kept["resid_mid", number] = kept["resid_pre", number] + kept["attn_out", number]

            handles.append(layer.register_forward_pre_hook(enter))
            handles.append(layer.register_forward_hook(leave))
            handles.append(self.adds(layer).register_forward_hook(attend))
        self.raw.run(tokens, handles)
        return kept

    def change(self, kind: str, number: int, where: Tensor) -> Tensor:
        """The change of C's logit if the stream has its counterfactual values at some tokens."""
        layer, other = self.raw.layers[number], self.runs[1][kind, number]

        def put(out: Tensor, new: Tensor) -> Tensor:
            return torch.where(where[..., None], new, out)

        if kind == "resid_pre":
            handle = layer.register_forward_pre_hook(lambda _, x: (put(x[0], other), *x[1:]))
        else:
            new = other - self.runs[0]["resid_pre", number] if kind == "resid_mid" else other
            module = layer if kind == "resid_post" else self.adds(layer)
            handle = module.register_forward_hook(
                lambda _, __, y: (put(y[0], new), *y[1:]) if isinstance(y, tuple) else put(y, new)
            )
        logits = self.raw.run(self.raw.pairs.reference, [handle]) - self.raw.logits[0]
        return logits[torch.arange(len(self.raw.pairs)), self.raw.pairs.answer]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_layer_and_position_agrees_with_raw_hooks(
    kind: str, family: str, tokenizer: Any
) -> None:
    """Left-padded prompts of unequal lengths; a prompt without the position has no effect."""
    hf = FAMILIES[family].make(len(tokenizer))
    raw = Raw(hf, make_pairs(hf))
    model, layers, pairs = al.load_model((hf, tokenizer)), Layers(raw), raw.pairs
    found = path_patch(model, pairs, senders=kind, positions="each", **OPTIONS)
    assert found.stream is not None and found.stream.axes == ("layer", "position")
    assert found.heads.per_pair.isnan().all() and found.mlps.per_pair.isnan().all()
    largest = 0.0
    for number in range(len(raw.layers)):
        for column in (0, 4, 6, 8):
            where = torch.zeros_like(pairs.attention_mask)
            where[:, column] = True
            right = layers.change(kind, number, where)
            right[~pairs.attention_mask[:, column]] = torch.nan
            own = found.stream.per_pair[number, column]
            assert_close(own, right, atol=raw.tolerance, rtol=1e-4, equal_nan=True)
            largest = max(largest, float(right.nan_to_num().abs().max()))
    assert largest > 20 * raw.tolerance, "something changes"
    end = path_patch(model, pairs, senders=kind, **OPTIONS)
    assert end.stream is not None and end.stream.axes == ("layer",)
    assert_close(end.stream.per_pair, found.stream.per_pair[:, -1], atol=1e-6, rtol=1e-5)


def test_one_position_of_a_late_layer_agrees_with_raw_hooks(tokenizer: Any) -> None:
    hf = ADDITIVE["Qwen3, 12 layers"].make(len(tokenizer))
    raw = Raw(hf, make_pairs(hf))
    model, layers = al.load_model((hf, tokenizer)), Layers(raw)
    found = path_patch(model, raw.pairs, senders="resid_mid", positions=-4, **OPTIONS).stream
    assert found is not None and found.axes == ("layer",)
    where = torch.zeros_like(raw.pairs.attention_mask)
    where[:, -4] = True
    for number in (0, 10, 11):
        right = layers.change("resid_mid", number, where)
        assert_close(found.per_pair[number], right, atol=raw.tolerance, rtol=1e-4)
    assert found.per_pair[10].abs().max() > 20 * raw.tolerance > found.per_pair[11].abs().max()


def test_the_last_exit_gives_the_whole_counterfactual(llama: Any) -> None:
    pairs = make_pairs(llama)
    share = path_patch(
        llama, pairs, senders="resid_post", paths="total", engine="hooks", metric="share_of_total"
    )
    assert share.stream is not None
    assert_close(share.stream.per_pair[-1].nanmean(), torch.tensor(1.0), atol=1e-4, rtol=0)
    table = share.to_dataframe()
    assert [*table["layer"]] == [*range(len(table))]
    again = al.effects.ComponentEffects.from_arrays(share.to_arrays())
    assert again.stream is not None and torch.equal(
        again.stream.per_pair.nan_to_num(), share.stream.per_pair.nan_to_num()
    )
    assert "stream" in repr(share) and "<img" in share._repr_html_()


def test_a_stream_needs_all_paths_and_hooks(llama: Any) -> None:
    pairs = make_pairs(llama)
    with pytest.raises(ValueError, match="paths='total' and engine='hooks' with senders"):
        path_patch(llama, pairs, senders="resid_post")
    with pytest.raises(TypeError, match="resid_psot"):
        path_patch(llama, pairs, senders="resid_psot", **OPTIONS)
