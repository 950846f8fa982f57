"""Pairs whose prompts have unequal numbers of tokens, against each prompt alone in Transformers."""
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false

import dataclasses
import doctest
import re
from typing import Any

import pytest
import torch
from oracles import Raw, effect
from support.families import ADDITIVE, OWN_LAYERS
from test_own_prompts import by_transformers, chatting
from test_pairs import same
from torch import Tensor
from torch.testing import assert_close

import arith_lens as al
from arith_lens.components import Head, Mlp
from arith_lens.pairs import PromptPairs, alignment

ROWS = [
    {
        "reference": "The sum of 3 and 12 is",
        "counterfactual": "What is the product of 45 and 7 is",
        "answer": " the",
        "counterfactual_answer": " of",
        "spans": {"first": "3", "second": "12", "verb": "is"},
        "counterfactual_spans": {"first": "45", "second": "7"},
    },
    {
        "reference": "What had a product of 3 is",
        "counterfactual": "John gained 5 is",
        "answer": " the",
        "counterfactual_answer": " and",
        "spans": {"first": "3"},
        "counterfactual_spans": '{"first": "5"}',
    },
    {
        "reference": "The sum of 3 is",
        "counterfactual": "The sum of 7 is",
        "answer": " of",
        "spans": {"first": "3"},
    },
]
FAMILIES = {"Llama-3": ADDITIVE["Llama-3"], "Gemma 2": OWN_LAYERS["Gemma 2"]}


def loaded(family: str, dtype: torch.dtype, tokenizer: Any) -> Any:
    hf = FAMILIES[family].make(len(tokenizer)).to(dtype)
    return hf, al.load_model((hf, tokenizer), dtype=dtype)


def alone(pairs: PromptPairs, pair: int) -> tuple[Tensor, Tensor]:
    """Both prompts of a pair, without padding."""
    first, second = (tokens[pair][mask[pair]][None] for tokens, mask in pairs.sides)
    return first, second


@torch.no_grad()
def run(hf: Any, ids: Tensor, layer: int, edit: Any) -> Tensor:
    """Logits at END of one prompt without padding; `edit` gets a layer's stream [1 pos d_model]."""

    def after(_: Any, __: Any, out: Any) -> Any:
        new = edit(out[0] if isinstance(out, tuple) else out)
        return (new, *out[1:]) if isinstance(out, tuple) else new

    handle = hf.model.layers[layer].register_forward_hook(after)
    try:
        return hf(ids).logits[0, -1].float()
    finally:
        handle.remove()


def exchanged(hf: Any, sides: tuple[Tensor, Tensor], layer: int, to: int, of: int) -> Tensor:
    """The first prompt's logits, with the stream of the second one's token `of` at `to`."""
    streams: list[Tensor] = []
    run(hf, sides[1], layer, lambda h: (streams.append(h.clone()), h)[1])

    def put(stream: Tensor) -> Tensor:
        stream = stream.clone()
        stream[:, to] = streams[0][:, of]
        return stream

    return run(hf, sides[0], layer, put)


PLACES = {"first": ((5, 7, 5), (8, 6, 5)), "END": ((-1, -1, -1), (-1, -1, -1))}
"""By place, the token of each reference and that of its counterfactual, counted by hand."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_stream_at_a_span_and_end_is_that_of_each_prompt_alone(
    family: str, dtype: torch.dtype, tokenizer: Any
) -> None:
    hf, model = loaded(family, dtype, tokenizer)
    pairs = PromptPairs.from_rows(ROWS, model)
    options: dict[str, Any] = {"paths": "total", "engine": "hooks", "metric": "logit"}
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    largest = 0.0
    for place, (to, of) in PLACES.items():
        found = al.path_patch(
            model, pairs, senders="resid_post", positions=place.replace("END", "end"), **options
        )
        for layer in range(2):
            changed = [exchanged(hf, alone(pairs, i), layer, to[i], of[i]) for i in range(3)]
            plain = [run(hf, alone(pairs, i)[0], layer, lambda h: h) for i in range(3)]
            right = (torch.stack(changed) - torch.stack(plain))[range(3), pairs.answer]
            own = found.stream.per_pair[layer]
            assert_close(own, right, atol=tolerance * float(plain[0].abs().max()), rtol=1e-3)
            largest = max(largest, float(right.abs().max() / plain[0].abs().max()))
        token = None if place == "END" else -1
        answers = [int(exchanged(hf, alone(pairs, i), 0, to[i], of[i]).argmax()) for i in range(3)]
        expected = torch.tensor([answers[0], answers[1], (answers[2] + 1) % len(tokenizer)])
        asked = dataclasses.replace(
            pairs, counterfactual_answer=expected, answer=(expected + 2) % len(tokenizer)
        )
        result = al.interchange(model, asked, al.Site(0, place, token))
        assert result.effects.per_pair.flatten().tolist() == [1, 1, 0]
    assert largest > 4 * tolerance, "something changes"


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_and_mlps_at_end_agree_with_raw_hooks_by_sweep_and_by_hooks(
    family: str, tokenizer: Any
) -> None:
    hf, model = loaded(family, torch.float32, tokenizer)
    pairs = PromptPairs.from_rows(ROWS, model)
    places = FAMILIES[family].places
    if family == "Gemma 2":  # what the MLP adds comes after the norm
        places = dataclasses.replace(places, mlp="post_feedforward_layernorm")
    raw = Raw(hf, pairs, places)
    for paths in ("via_mlps", "direct"):
        for engine in ("sweep", "hooks"):
            found = al.path_patch(model, pairs, paths=paths, metric="logit", engine=engine)
            for sender in (Head(0, 1), Head(1, 2), Mlp(0), Mlp(1)):
                right = raw.change(sender, paths)
                assert_close(effect(found, sender), right, atol=2 * raw.tolerance, rtol=1e-4)
                assert float(right.abs().max()) > 20 * raw.tolerance


@pytest.mark.parametrize("positions", ["end", "all"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_knockout_puts_means_of_the_counterfactuals_own_tokens(
    family: str, positions: str, tokenizer: Any
) -> None:
    """Head 0.1 gets means over END, over the span, and over all other tokens, counted by hand."""
    hf, model = loaded(family, torch.float32, tokenizer)
    rows = [{**row, "spans": {"first": row["spans"]["first"]}} for row in ROWS]
    rows[0]["counterfactual_spans"] = {"first": "45"}
    pairs = PromptPairs.from_rows(rows, model)
    outcomes = al.knock_out(model, pairs, ["0.1"], positions=positions, progress=False)
    part, size = hf.model.layers[0].self_attn.o_proj, int(model.cfg.d_head)

    def z(ids: Tensor, put: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        def before(_: Any, args: Any) -> Any:
            seen.append(args[0][0, :, size : 2 * size].clone())
            changed = args[0].clone()
            for token, vector in put.items():
                changed[0, token, size : 2 * size] = vector
            return (changed,)

        seen: list[Tensor] = []
        handle = part.register_forward_pre_hook(before)
        logits = run(hf, ids, 0, lambda h: h)
        handle.remove()
        return seen[0], logits

    def places(n: int, span: int) -> list[str]:
        return ["BOS", *("span" if token == span else "other" for token in range(1, n - 1)), "END"]

    to, of = PLACES["first"]
    sides = [alone(pairs, i) for i in range(3)]
    own = [z(side[1], {})[0] for side in sides]
    by_place: dict[str, list[Tensor]] = {}
    for vectors, span in zip(own, of, strict=True):
        for place, vector in zip(places(len(vectors), span), vectors, strict=True):
            by_place.setdefault(place, []).append(vector)
    means = {place: torch.stack(vectors).mean(0) for place, vectors in by_place.items()}
    for i, side in enumerate(sides):
        at = enumerate(places(side[0].shape[1], to[i]))
        put = {t: means[at] for t, at in at if at == "END" or (positions == "all" and at != "BOS")}
        right, plain = (z(side[0], some)[1].softmax(-1)[pairs.answer[i]] for some in (put, {}))
        assert_close(outcomes.probability[i], right, atol=1e-6, rtol=1e-4, check_dtype=False)
        assert float((right / plain - 1).abs()) > 3e-4, "the knockout changes something"


def test_the_interchange_at_the_last_layer_gives_the_counterfactuals_answer(
    tokenizer: Any,
) -> None:
    hf, model = loaded("Llama-3", torch.float32, tokenizer)
    pairs = PromptPairs.from_rows(ROWS, model)
    own = [int(run(hf, alone(pairs, i)[1], 0, lambda h: h).argmax()) for i in range(3)]
    pairs = dataclasses.replace(pairs, counterfactual_answer=torch.tensor(own))
    last, first = (al.interchange(model, pairs, al.Site(layer)) for layer in (1, 0))
    assert float(last.iia) == 1 > float(first.iia)


def test_unequal_pairs_come_back_from_files_join_and_fit_their_batch(
    tokenizer: Any, tmp_path: Any
) -> None:
    pairs = PromptPairs.from_rows(ROWS, tokenizer)
    for kind in ("jsonl", "csv"):
        getattr(pairs, f"to_{kind}")(tmp_path / f"own.{kind}")
        assert same(PromptPairs.from_file(tmp_path / f"own.{kind}", tokenizer), pairs)
    assert same(PromptPairs.from_dataset(pairs.to_dataset()), pairs)
    equal = PromptPairs.from_rows([{**ROWS[2]}], tokenizer)
    assert equal.counterparts is None
    parts = equal + PromptPairs.from_rows(ROWS[:1], tokenizer)
    assert torch.equal(parts.counterparts[1], pairs.counterparts[0])
    assert parts.counterparts[0, -6:].tolist() == [*range(7, 13)]
    text = pairs[1:2]._repr_html_()
    first, second = (re.findall(r"<td[^>]*>(?:<u>)?([^<]*)", row) for row in text.split("<tr>")[1:])
    assert first[:3] == ["&lt;s&gt;", "▁What", "▁had"]
    assert second[:3] == ["", "&lt;s&gt;", "▁John"] and first[-1] == "▁the"


def test_what_has_no_counterpart_and_other_methods_are_refused(tokenizer: Any) -> None:
    _, model = loaded("Llama-3", torch.float32, tokenizer)
    pairs = PromptPairs.from_rows(ROWS, model)
    options: dict[str, Any] = {"paths": "total", "engine": "hooks"}
    with pytest.raises(ValueError, match=r"pair 0: expected a token .* positions='second', "):
        al.path_patch(model, pairs, positions="second", **options)
    with pytest.raises(ValueError, match=r"positions='each'"):
        al.path_patch(model, pairs, positions="each", **options)
    only = pairs[:1]
    with pytest.raises(ValueError, match=r"pair 0: expected a token of .* token=-1"):
        al.interchange(model, only, al.Site(0, "second"))
    assert al.interchange(model, only, al.Site(0, "second", token=-1)).effects.n_pairs == 1
    for method in (al.attribute, al.attention_by_role, al.explore, al.audit):
        with pytest.raises(ValueError, match="which path_patch, interchange and the knockout read"):
            method(model, pairs, *[["0.1"]] * (method is al.attention_by_role))
    knockouts: dict[str, dict[str, Any]] = {
        "expected the span 'second' in some counterfactual": {},
        "expected means='role' or 'all_tokens' of prompts": {"means": "template"},
        "expected ablation='mean' or 'zero' of prompts": {"ablation": "resample"},
    }
    lone = PromptPairs.from_rows(
        [{**row, "counterfactual_spans": {}} for row in ROWS[:1]] + ROWS[1:2], model
    )
    for message, options in knockouts.items():
        with pytest.raises(ValueError, match=message):
            al.knock_out(model, lone, ["0.1"], **options)
    without = {k: v for k, v in ROWS[0].items() if k != "counterfactual_spans"}
    with pytest.raises(ValueError, match=r"prompts of one length under [^{]* counterfactual_spans"):
        PromptPairs.from_rows([without], tokenizer)
    strange = {**ROWS[0], "counterfactual_spans": {"third": "7"}}
    with pytest.raises(ValueError, match=r"names among spans, found 'third'; name it in both"):
        PromptPairs.from_rows([strange], tokenizer)


@pytest.mark.parametrize("family", FAMILIES)
def test_chats_and_later_tokens_of_answers_are_right_in_half_precision_and_with_norms_after_parts(
    family: str, tokenizer: Any
) -> None:
    """Tokens by Transformers' own template, and the answer's first two; each prompt alone."""
    chat = chatting(tokenizer, "with BOS")
    hf = FAMILIES[family].make(len(chat)).to(torch.bfloat16)
    model = al.load_model((hf, chat), dtype=torch.bfloat16)
    asked = [("The sum of 12 and 3 is", "The sum of 45 and 3 is"), ("3 plus 1 is", "4 plus 1 is")]
    keys = ("reference", "counterfactual", "answer")
    rows: Any = [dict(zip(keys, (*pair, "158"), strict=True)) for pair in asked]
    pairs = PromptPairs.from_rows(rows, model, chat=True, answer_token=2)
    forced = chat("158", add_special_tokens=False)["input_ids"][-3:]
    assert pairs.answer.tolist() == [forced[2]] * 2
    options: dict[str, Any] = {"paths": "total", "engine": "hooks", "metric": "logit"}
    found = al.path_patch(model, pairs, senders="resid_post", **options).stream.per_pair
    for i, pair in enumerate(asked):
        ids = [torch.tensor([by_transformers(chat, text) + forced[:2]]) for text in pair]
        for layer in range(2):
            change = exchanged(hf, (ids[0], ids[1]), layer, -1, -1) - run(
                hf, ids[0], layer, lambda h: h
            )
            largest = float(change.abs().max())
            assert_close(found[layer, i], change[forced[2]], atol=0.1 * largest, rtol=0)
            assert largest > 0.5


def test_examples_of_alignment() -> None:
    assert doctest.testmod(alignment).failed == 0 < doctest.testmod(alignment).attempted
