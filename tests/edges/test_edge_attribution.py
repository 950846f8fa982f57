"""Edge scores of EAP and EAP-IG: against autograd on plain Transformers, and known circuits."""

from typing import Any

import pytest
import torch
from oracles import make_pairs
from test_edges import Plain
from torch import Tensor
from torch.testing import assert_close

import arith_lens as al
from arith_lens.components import Component, Head, Mlp
from arith_lens.edges import EMBEDDINGS, UnsupportedReceiver

RUN: Any = Plain.run.__wrapped__  # pyright: ignore[reportFunctionMemberAccess] # with gradients
N_STEPS = 3


def slope(
    plain: Plain,
    sender: Component | None,
    receiver: Component,
    name: str,
    at: dict[Any, Tensor],
    group: str,
) -> Tensor:
    """How fast the answer's logit changes if an input reads more and more of a sender's change.

    Torch's hooks and autograd alone. `at` replaces outputs of the run at whose values it is taken.
    """
    pairs, layer = plain.pairs, receiver.layer
    everyone = pairs.attention_mask
    change = plain.sent(sender, receiver, "direct", everyone)["entry", layer]
    change = change - plain.reference["entry", layer]
    base = plain.run(pairs.reference, at)
    share = torch.zeros(len(pairs), requires_grad=True)
    entry = base["entry", layer] + share[:, None, None] * change
    held = {key: value for key, value in base.items() if key[0] == "z"}
    put = held | at
    with torch.enable_grad():
        read = RUN(plain, pairs.reference, put | {("entry", layer): entry})
        if isinstance(receiver, Mlp):
            if isinstance(sender, Head) and sender.layer == layer:
                z = base["z", layer].clone()
                columns, key = plain.columns([sender.index]), ("z", layer)
                both = plain.counterfactual[key] - plain.reference[key]
                z[..., columns] = z[..., columns] + share[:, None, None] * both[..., columns]
                read = RUN(plain, pairs.reference, put | {key: z})
            out = base["mlp", layer].clone()
            out[:, -1] = read["mlp", layer][:, -1]
            end = put | {("mlp", layer): out}
        else:
            size = plain.n_heads // plain.hf.config.num_key_value_heads
            kv = receiver.index // size
            columns = plain.columns([receiver.index if name == "q" else kv])
            projected = base[name, layer].clone()
            projected[..., columns] = read[name, layer][..., columns]
            free = {key: value for key, value in at.items()}
            spliced = RUN(plain, pairs.reference, free | {(name, layer): projected})
            alone = name == "q" or group == "head"
            heads = [receiver.index] if alone else range(kv * size, (kv + 1) * size)
            z, columns = base["z", layer].clone(), plain.columns(heads)
            z[:, -1, columns] = spliced["z", layer][:, -1, columns]
            end = put | {("z", layer): z}
        logits = RUN(plain, pairs.reference, end)["logits"]
        answers = logits[torch.arange(len(pairs)), pairs.answer]
        return torch.autograd.grad(answers.sum(), share)[0]


@pytest.mark.parametrize(("method", "group"), [("eap", "head"), ("eap_ig", "shared")])
def test_scores_are_the_slopes_that_autograd_gives(model: Any, method: str, group: str) -> None:
    """Both families: grouped queries, unequal lengths, a sliding window."""
    pairs = make_pairs(model)
    plain = Plain(model.bridge.original_model, pairs)
    receivers, senders = [Head(2, 3), Mlp(2)], [None, Head(0, 1), Mlp(1), Head(2, 0)]
    options: dict[str, Any] = {"metric": "logit", "steps": N_STEPS, "progress": False}
    scores = al.attribute_edges(model, pairs, receivers, method=method, group=group, **options)
    labels, largest = scores.labels or {}, 0.0
    points: list[dict[Any, Tensor]] = [{}]
    if method == "eap_ig":
        start, end = (run["embeddings"] for run in (plain.counterfactual, plain.reference))
        shares = [step / N_STEPS for step in range(1, N_STEPS)]
        points += [{"embeddings": start + share * (end - start)} for share in shares]
    scale = float(plain.reference["logits"].abs().max())
    for r, receiver in enumerate(receivers):
        for name in "qkv" if isinstance(receiver, Head) else ["mlp"]:
            for sender in senders:
                if isinstance(receiver, Head) and sender == Head(2, 0):
                    continue
                column = labels["sender"].index(EMBEDDINGS if sender is None else str(sender))
                found = scores.per_pair[r, labels["input"].index(name), column]
                slopes = [slope(plain, sender, receiver, name, at, group) for at in points]
                expected = torch.stack(slopes).mean(0)
                assert_close(
                    found, expected, atol=1e-5 * scale, rtol=1e-4,
                    msg=lambda text, at=(sender, name, receiver): f"{at}: {text}",
                )  # fmt: skip
                largest = max(largest, float(expected.abs().max()))
    assert largest > 1e-3 * scale, "a wrong score could not be seen"


def test_scores_stand_where_edges_stand(llama: Any) -> None:
    pairs, receivers = make_pairs(llama), ["1.1", "MLP 1"]
    options: dict[str, Any] = {"metric": "logit", "progress": False}
    exact = al.edge_effects(llama, pairs, receivers, via="direct", **options)
    scores = al.attribute_edges(llama, pairs, receivers, **options)
    assert (scores.axes, scores.labels) == (exact.axes, exact.labels)
    assert torch.equal(scores.per_pair.isnan(), exact.per_pair.isnan())


def test_what_cannot_be_scored_is_refused(llama: Any, tokenizer: Any) -> None:
    from support.families import SWEPT

    pairs = make_pairs(llama)
    with pytest.raises(ValueError, match="expected a method among eap, eap_ig"):
        al.attribute_edges(llama, pairs, "2.1", method="atp")
    with pytest.raises(ValueError, match="at least one step"):
        al.attribute_edges(llama, pairs, "2.1", steps=0)
    with pytest.raises(ValueError, match="expected group among shared, head"):
        al.attribute_edges(llama, pairs, "2.1", group="all")
    gemma = al.load_model((SWEPT["Gemma 2"].make(len(tokenizer)), tokenizer))
    with pytest.raises(UnsupportedReceiver, match="take heads as receivers"):
        al.attribute_edges(gemma, make_pairs(gemma), "MLP 1", progress=False)
