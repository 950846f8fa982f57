"""Every metric under every meaning of paths, against raw Transformers and the metrics' formulas."""

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from oracles import Raw, effect, make_pairs
from support.families import SWEPT
from torch import Tensor
from torch.testing import assert_close

from arith_lens import metrics
from arith_lens.attribution import attribute
from arith_lens.components import Head, Mlp
from arith_lens.effects import ComponentEffects
from arith_lens.metrics import METRICS
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import path_patch
from arith_lens.path_patching.sweep import trunk_of
from arith_lens.runs import open_run

ROWS = torch.arange(5)


@pytest.fixture(params=["llama", "mistral", "deep"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def raw(request: pytest.FixtureRequest, model: Any, make_hf: Any) -> Any:
    """A Transformers model of the same weights that no bridge has touched."""
    cfg, family = model.cfg, request.node.callspec.params["model"]
    sizes = {"num_hidden_layers": cfg.n_layers, "num_attention_heads": cfg.n_heads}
    sizes |= {"hidden_size": cfg.d_model, "intermediate_size": cfg.d_mlp}
    hf = make_hf("mistral" if family == "mistral" else "llama", **sizes)
    for name, weight in model.bridge.original_model.named_parameters():
        hf.get_parameter(name.replace("._original_component", "")).data.copy_(weight.data)
    return hf


SMALL = 1e-3
CANDIDATES = [5, 17, 40, 71]


def contrast(logits: Tensor, answer: Tensor) -> Tensor:
    """The answer's logit less the mean of the other candidates', pair by pair."""
    others = [[token for token in CANDIDATES if token != one] for one in answer.tolist()]
    means = [row[tokens].mean() for row, tokens in zip(logits, others, strict=True)]
    return logits[ROWS, answer] - torch.stack(means)


def over_answer(logits: Tensor, answer: Tensor, other: Tensor) -> Tensor:
    """The logit of C' less that of C; NaN where there is no C'."""
    return (logits[ROWS, other] - logits[ROWS, answer]).masked_fill(other < 0, torch.nan)


def answers_other(logits: Tensor, answer: Tensor, other: Tensor) -> Tensor:
    return (logits.argmax(-1) == other).float().masked_fill(other < 0, torch.nan)


def expected(
    metric: str,
    patched: Tensor,
    runs: list[Tensor],
    answer: Tensor,
    foil: Tensor,
    other: Tensor,
) -> Tensor:
    origin, counterfactual = runs

    def read(logits: Tensor) -> Tensor:
        return {
            "relative_logit": lambda: logits[ROWS, answer],
            "logit": lambda: logits[ROWS, answer],
            "logprob": lambda: logits.log_softmax(-1)[ROWS, answer],
            "probability": lambda: logits.softmax(-1)[ROWS, answer],
            "logit_difference": lambda: logits[ROWS, answer] - logits[ROWS, foil],
            "digit_contrast": lambda: contrast(logits, answer),
            "interchange": lambda: over_answer(logits, answer, other),
            "answers_other": lambda: answers_other(logits, answer, other),
            "share_of_total": lambda: logits[ROWS, answer],
            "share_of_total_contrast": lambda: contrast(logits, answer),
            "share_of_total_probability": lambda: logits.softmax(-1)[ROWS, answer],
        }[metric]()

    change = read(patched) - read(origin)
    if metric.startswith("share_of_total") or metric == "interchange":
        total = read(counterfactual) - read(origin)
        return torch.where(total.abs() < SMALL, torch.nan, change / total)
    return change / read(origin) if metric == "relative_logit" else change


@pytest.mark.parametrize("paths", ["via_mlps", "direct", "total"])
def test_every_metric_is_its_formula_on_raw_logits(
    model: Any, raw: Any, paths: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padded prompts of unequal lengths; grouped queries; a head in a late layer."""
    monkeypatch.setattr(metrics, "SMALL_TOTAL", SMALL)  # no probability of these models is large
    pairs = make_pairs(model)
    oracle, last = Raw(raw, pairs), model.cfg.n_layers - 1
    senders: list[Head | Mlp] = [Head(0, 1), Head(last - 1, 0), Mlp(0), Mlp(last)]
    logits = {sender: oracle.patched(sender, paths) for sender in senders}
    foil = (pairs.answer + 1) % model.cfg.d_vocab
    other = logits[Mlp(last)].argmax(-1)  # so that some patched runs answer with it
    other = torch.where(other == pairs.answer, foil, other)
    other[1] = -1
    pairs = replace(pairs, counterfactual_answer=other)
    engine = "hooks" if paths == "total" else "sweep"
    for metric, description in METRICS.items():
        given = foil if description.reads == "foil" else None
        chosen = CANDIDATES if description.reads == "candidates" else None
        options: dict[str, Any] = {"paths": paths, "metric": metric, "engine": engine}
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = path_patch(
                model, pairs, senders=senders, foil=given, candidates=chosen, **options
            )
        left_out = any("found none in 1 of 5 pairs" in str(one.message) for one in warned)
        assert left_out == (metric in ("interchange", "answers_other"))
        sizes = []
        for sender in senders:
            right = expected(metric, logits[sender], oracle.logits, pairs.answer, foil, other)
            found = effect(result, sender)
            atol = oracle.tolerance * (10 if description.share_of == "total" else 1)
            assert_close(found, right, atol=atol, rtol=1e-4, equal_nan=True)
            sizes.append(float(right.nan_to_num().abs().max()))
        assert max(sizes) > 20 * oracle.tolerance, "the test must be able to fail"


def entropy_beside(logits: Tensor, pairs: PromptPairs) -> Tensor:
    """The entropy of each row, less the logit of the prompt's own last token."""
    logprob = logits.log_softmax(-1)
    own = logits.gather(-1, pairs.reference[:, -1:])[:, 0]
    return -(logprob.exp() * logprob).sum(-1) - own


def test_a_function_of_logits_is_a_metric_in_both_engines(llama: Any, make_hf: Any) -> None:
    pairs = make_pairs(llama)
    oracle = Raw(make_hf("llama"), pairs)
    senders: list[Head | Mlp] = [Head(0, 1), Head(1, 0), Mlp(0), Mlp(2)]
    before = entropy_beside(oracle.logits[0], pairs)
    for paths, engine in (("via_mlps", "sweep"), ("direct", "hooks"), ("total", "hooks")):
        options: dict[str, Any] = {"paths": paths, "engine": engine, "batch_size": 2}
        result = path_patch(llama, pairs, senders=senders, metric=entropy_beside, **options)
        assert result.heads.metric == "entropy_beside()"
        for sender in senders:
            right = entropy_beside(oracle.patched(sender, paths), pairs) - before
            assert_close(effect(result, sender), right, atol=5 * oracle.tolerance, rtol=1e-4)
            assert right.abs().max() > 20 * oracle.tolerance, "the test must be able to fail"


def test_a_function_with_a_gradient_is_attributed(llama: Any) -> None:
    """The function that reads C's logit has the scores of the metric `logit`."""
    pairs = make_pairs(llama)

    def answers_logit(logits: Tensor, of_pairs: PromptPairs) -> Tensor:
        return logits.gather(-1, of_pairs.answer[:, None])[:, 0]

    options: dict[str, Any] = {"method": "atp", "batch_size": 2}
    ours = attribute(llama, pairs, metric=answers_logit, **options)
    named = attribute(llama, pairs, metric="logit", **options)
    assert_close(ours.mlps.per_pair, named.mlps.per_pair, atol=1e-6, rtol=1e-5)


def test_a_metric_function_is_checked(llama: Any) -> None:
    pairs = make_pairs(llama)
    with pytest.raises(ValueError, match=r"one number per row of logits, \[5\], found \[\]"):
        path_patch(llama, pairs, metric=lambda logits, _: logits.mean())
    with pytest.raises(ValueError, match="expected no foil and no candidates"):
        path_patch(llama, pairs, metric=entropy_beside, candidates=[3, 4])


def test_a_run_knows_a_metric_function_by_its_code(llama: Any, tmp_path: Any) -> None:
    """Two functions of one name."""
    pairs = make_pairs(llama)

    def scaled(factor: float) -> Any:
        return lambda logits, of_pairs: factor * entropy_beside(logits, of_pairs)

    def stored(factor: float) -> Tensor:
        with open_run("own", {}, model=llama, root=tmp_path) as run:
            options: dict[str, Any] = {"senders": [Mlp(2)], "run": run}
            return path_patch(llama, pairs, metric=scaled(factor), **options).mlps.per_pair[2]

    first, second = stored(1.0), stored(2.0)
    assert_close(second, 2 * first, atol=1e-5, rtol=1e-5)
    assert torch.equal(stored(1.0), first) and first.abs().max() > 1e-3


@pytest.mark.parametrize("paths", ["via_mlps", "direct"])
def test_the_norms_scale_is_a_part_of_the_effect(model: Any, raw: Any, paths: str) -> None:
    """The oracle divides END's row by the scale of the unpatched run, in the model's own norm."""
    pairs = make_pairs(model)
    oracle, last = Raw(raw, pairs), model.cfg.n_layers - 1
    senders: list[Head | Mlp] = [Head(0, 1), Head(last - 1, 0), Mlp(0), Mlp(last)]
    norm, scales = raw.model.norm, []

    def hold(module: Any, given: Any, out: Tensor) -> Tensor:
        rows = given[0][:, -1].double()
        scale = (rows.square().mean(-1, keepdim=True) + module.variance_epsilon).sqrt()
        if not scales:
            scales.append(scale)
        held = out.clone()
        held[:, -1] = (rows / scales[0] * module.weight.double()).float()
        return held

    handle = norm.register_forward_hook(hold)
    reference = oracle.run(pairs.reference, [])
    assert_close(reference, oracle.logits[0], atol=oracle.tolerance, rtol=1e-4)
    held = {sender: oracle.patched(sender, paths) for sender in senders}
    handle.remove()
    result = path_patch(model, pairs, senders=senders, paths=paths, metric="logit")
    beside = ComponentEffects(
        result.heads.without_norm_scale(), result.mlps.without_norm_scale(), result.logit
    )
    by = ComponentEffects(result.heads.by_norm_scale(), result.mlps.by_norm_scale(), result.logit)
    sizes = []
    for sender in senders:
        right = (held[sender] - reference)[ROWS, pairs.answer]
        assert_close(effect(beside, sender), right, atol=oracle.tolerance, rtol=1e-4)
        parts = effect(beside, sender) + effect(by, sender)
        assert_close(parts, effect(result, sender), atol=1e-6, rtol=1e-6)
        sizes.append(float(effect(by, sender).abs().max()))
    assert max(sizes) > 20 * oracle.tolerance, "the test must be able to fail"


def test_layer_norms_are_split_too(tokenizer: Any) -> None:
    """GPT-2's norm centres and has a bias."""
    model = load_model((SWEPT["GPT-2"].make(len(tokenizer)), tokenizer))
    pairs = make_pairs(model)
    own = trunk_of(model)
    rows = torch.randn(3, 5, model.cfg.d_model)
    centred = rows - rows.mean(-1, keepdim=True)
    norm = own.final_scale.norm
    weight, bias = norm.weight, norm.bias
    scale = (centred[0].square().mean(-1, keepdim=True) + 1e-5).sqrt()
    by_hand = centred / scale * weight + bias
    exchanged = own.final_scale.exchanged(own.final_norm(rows), rows, rows[0])
    assert_close(exchanged, by_hand, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(exchanged[1:], own.final_norm(rows)[1:], atol=1e-2)
    result = path_patch(model, pairs, metric="logit")
    assert result.heads.by_norm_scale().per_pair.abs().max() > 1e-3


def test_effects_by_hooks_are_not_split_and_say_so(llama: Any) -> None:
    pairs = make_pairs(llama)
    result = path_patch(llama, pairs, senders=[Head(0, 0)], engine="hooks")
    with pytest.raises(ValueError, match=r"engine='sweep'"):
        result.heads.by_norm_scale()


def test_candidates_amiss_are_refused(llama: Any) -> None:
    pairs = make_pairs(llama)
    with pytest.raises(ValueError, match="leave candidates out"):
        path_patch(llama, pairs, candidates=[3, 4])
    with pytest.raises(ValueError, match="token ids of this model"):
        path_patch(llama, pairs, metric="digit_contrast", candidates=[3, 10**6])
    with pytest.raises(ValueError, match="two tokens or more"):
        path_patch(llama, pairs, metric="digit_contrast", candidates=[int(pairs.answer[0])])
    with pytest.raises(ValueError, match="expected answers of one digit"):
        path_patch(llama, pairs, metric="digit_contrast")


@pytest.mark.parametrize("paths", ["direct", "total"])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_bfloat16_agrees_with_float32_of_the_same_weights(
    make_model: Any, family: str, paths: str
) -> None:
    model = make_model(family)
    model.bridge.original_model.to(torch.bfloat16).to(torch.float32)  # weights that bf16 can hold
    pairs = make_pairs(model)
    options: dict[str, Any] = {"metric": "logit", "paths": paths}
    options["engine"] = "hooks" if paths == "total" else "sweep"
    wide = path_patch(model, pairs, **options).heads.per_pair
    model.bridge.original_model.to(torch.bfloat16)
    narrow = path_patch(model, pairs, **options).heads.per_pair
    assert 0 < (wide - narrow).abs().max() < 0.1 * wide.abs().max()


@pytest.mark.parametrize("engine", ["sweep", "hooks"])
def test_a_metric_of_logits_alone_is_one_of_logits_and_pairs(llama: Any, engine: str) -> None:
    """TransformerLens' form: one argument, others fixed by `partial` or by their defaults."""
    pairs = make_pairs(llama)

    def one(logits: Tensor) -> Tensor:
        return logits[:, 7] - logits[:, 9]

    def two(logits: Tensor, _: PromptPairs) -> Tensor:
        return one(logits)

    def fixed(logits: Tensor, answer_tokens: tuple[int, int]) -> Tensor:
        return logits[:, answer_tokens[0]] - logits[:, answer_tokens[1]]

    three: Any = lambda a, b, c: a  # noqa: E731
    shared: dict[str, Any] = {"senders": ["0.1", "MLP 1"], "engine": engine, "progress": False}
    expected = path_patch(llama, pairs, metric=two, **shared)
    for metric in (one, lambda logits: one(logits), partial(fixed, answer_tokens=(7, 9))):
        found = path_patch(llama, pairs, metric=metric, **shared)
        assert torch.equal(found["0.1"].per_pair, expected["0.1"].per_pair)
        assert torch.equal(found["MLP 1"].per_pair, expected["MLP 1"].per_pair)
    other = path_patch(llama, pairs, metric=lambda logits: logits[:, 8], **shared)
    assert not torch.allclose(other["0.1"].per_pair, expected["0.1"].per_pair, atol=1e-4)
    with pytest.raises(ValueError, match=r"found .* with the arguments \(a, b, c\)"):
        path_patch(llama, pairs, metric=three, **shared)


def test_a_metric_that_is_spelled_wrong_gets_the_nearest_name(llama: Any) -> None:
    pairs = make_pairs(llama)
    with pytest.raises(ValueError, match=r"found 'logits'; did you mean 'logit'\?"):
        path_patch(llama, pairs, metric="logits")
    with pytest.raises(ValueError, match=r"found 'via_mlp'; did you mean 'via_mlps'\?"):
        path_patch(llama, pairs, paths="via_mlp")
