"""Attributions against autograd by hand, on plain Transformers models and on their weights."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from typing import Any

import pytest
import torch
from oracles import Places, make_pairs
from oracles.plain_llama import PlainLlama, Values
from support.families import ADDITIVE, OWN_LAYERS
from torch import Tensor
from torch.testing import assert_close

import arith_lens as al
from arith_lens.attribution import ATTRIBUTION_METHODS, UnsupportedRule
from arith_lens.attribution.graph import GradientBatch, weights_without_gradient
from arith_lens.attribution.rules import (
    act_over_input,
    halve_gated_products,
    hold_attention_weights,
    hold_norm_scales,
    soften_softmax,
    split_attention_products,
)
from arith_lens.model import HookedModel
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import patch_settings

QUIET: dict[str, Any] = {"progress": False, "metric": "logit"}
STEPS = 3
RELP = {"hold_norms": True, "act_over_input": True, "halve_products": True}
RULES: dict[str, dict[str, Any]] = {
    "atp": {},
    "relp": RELP,
    "attn_lrp": RELP | {"split_attention": True},
    "gim": {
        "hold_norms": True,
        "halve_products": True,
        "split_attention": True,
        "temperature": 2.0,
    },
}


class ByHand:
    """All methods, from one pass by hand after another."""

    def __init__(self, hf: Any, pairs: PromptPairs, paths: str) -> None:
        self.hf, self.pairs, self.paths = hf, pairs, paths
        self.reference, self.other = self.run(pairs.reference), self.run(pairs.counterfactual)

    def run(self, tokens: Tensor, embeddings: Tensor | None = None, **options: Any) -> PlainLlama:
        plain = PlainLlama(self.hf, self.pairs.attention_mask, self.paths, **options)
        logits = plain.logits(plain.embeddings(tokens) if embeddings is None else embeddings)
        total = logits[torch.arange(len(logits)), self.pairs.answer].sum()
        names = list(plain.leaves)
        leaves = [plain.leaves[name] for name in names]
        slopes = torch.autograd.grad(total, leaves, materialize_grads=True)
        plain.leaves = dict(zip(names, slopes, strict=True))
        return plain

    def scores(self, method: str) -> Values:
        """[pair head] and [pair]."""
        change = {key: self.other.outputs[key] - end for key, end in self.reference.outputs.items()}

        def times(slopes: Values) -> Values:
            return {key: (change[key] * slope).sum(-1) for key, slope in slopes.items()}

        start, end = self.pairs.reference, self.pairs.counterfactual
        if method in RULES:
            return times(self.run(start, **RULES[method]).leaves)
        if method == "clean_corrupted":
            return times(_mean([self.run(start).leaves, self.run(end).leaves]))
        if method == "atp_star":
            n_layers = len(self.hf.model.layers)
            parts = [times(self.run(start, dropped=layer).leaves) for layer in range(n_layers)]
            sums = {key: sum(part[key].abs() for part in parts) for key in change}
            return {key: total / (n_layers - 1) for key, total in sums.items()}  # type: ignore
        shares = [step / STEPS for step in range(1, STEPS + 1)]
        if method == "eap_ig":
            a, b = (self.reference.embeddings(tokens) for tokens in (end, start))
            return times(_mean([self.run(start, a + s * (b - a)).leaves for s in shares]))
        points: Values = {}
        for key, at in self.reference.outputs.items():
            moved = [{key: at + (1 - share) * change[key]} for share in shares]
            held = self.reference.outputs
            runs = [self.run(start, held=held, put=put).leaves for put in moved]
            points[key] = _mean([{key: run[key]} for run in runs])[key]
        return times(points)


def _mean(parts: list[Values]) -> Values:
    return {key: torch.stack([part[key] for part in parts]).mean(0) for key in parts[0]}


WITHOUT_ATTENTION = [method for method in ATTRIBUTION_METHODS if method not in ("gim", "attn_lrp")]
"""The rules of the others in attention do nothing where all heads are frozen."""
CASES = [*(("mistral", method, "total") for method in ATTRIBUTION_METHODS),
         *(("mistral", method, "via_mlps") for method in WITHOUT_ATTENTION),
         ("mistral", "atp", "direct"), ("mistral", "ig_activations", "direct"),
         ("llama", "gim", "total"), ("llama", "relp", "via_mlps")]  # fmt: skip


@pytest.mark.parametrize(("family", "method", "paths"), CASES)
def test_every_score_equals_autograd_by_hand(
    request: pytest.FixtureRequest, make_hf: Any, family: str, method: str, paths: str
) -> None:
    """Mistral's queries are grouped, and its window is shorter than the prompts."""
    hf, model = make_hf(family), request.getfixturevalue(family)
    pairs = make_pairs(hf, (8,) if method == "gim" else (9, 7, 6))  # or a batch of one
    by_hand = ByHand(hf, pairs, paths)
    expected, plain = by_hand.scores(method), by_hand.scores("atp")
    result = al.attribute(model, pairs, method=method, paths=paths, steps=STEPS, **QUIET)
    largest = max(float(part.abs().max()) for part in expected.values())
    for (part, layer), score in expected.items():
        ours = result.heads if part == "z" else result.mlps
        assert_close(ours.per_pair[layer].movedim(-1, 0), score, atol=2e-5 * largest, rtol=1e-4)
    others = [float((plain[key] - expected[key]).abs().max()) for key in expected]
    assert method == "atp" or max(others) > 1e-3 * largest, "the test must be able to fail"


def test_frozen_heads_and_the_whole_model_are_two_questions(llama: HookedModel) -> None:
    pairs = make_pairs(llama)
    frozen, total = (
        al.attribute(llama, pairs, method="atp", paths=paths, **QUIET).heads.per_pair
        for paths in ("via_mlps", "total")
    )
    assert_close(frozen[-1], total[-1], atol=1e-5, rtol=1e-4)  # no later head is there to react
    assert (frozen[0] - total[0]).abs().max() > 1e-3


@pytest.mark.filterwarnings("ignore:expected counterfactual prompts that change")
def test_sign_and_unit_are_those_of_the_exact_effects(llama: HookedModel) -> None:
    pairs = make_pairs(llama, (8, 6))
    quiet: dict[str, Any] = {"progress": False}
    metrics = {"relative_logit": {}, "logit_difference": {"foil": pairs.answer.roll(1)},
               "share_of_total": {}, "probability": {}}  # fmt: skip
    for metric, options in metrics.items():
        settings: dict[str, Any] = {"metric": metric, **quiet, **options}
        exact = al.path_patch(llama, pairs, **settings)
        fine = al.attribute(llama, pairs, method="ig_activations", steps=10, **settings)
        assert_close(fine.logit, exact.logit, atol=1e-4, rtol=1e-4)
        # an MLP is alone in its part of the layer: the integral along its output is its effect
        found, expected = (part.mlps.per_pair.nan_to_num() for part in (fine, exact))
        assert _explained(found, expected) > 0.97
        assert _explained(-found, expected) < 0, "the test must be able to fail"


def _explained(found: Tensor, expected: Tensor) -> float:
    """1 less the share of the squares that is left."""
    return float(1 - (found - expected).square().sum() / expected.square().sum())


def test_on_a_linear_model_the_gradient_is_the_exact_effect(tokenizer: Any) -> None:
    """No gate, no activation function, norms of a constant scale, and attention without queries."""
    hf = ADDITIVE["Arcee"].make(len(tokenizer), hidden_act="linear", rms_norm_eps=1e10)
    for name, weight in hf.named_parameters():
        if "norm" in name:
            weight.data *= 1e5
        if "q_proj" in name:
            weight.data.zero_()
    model = al.load_model((hf, tokenizer))
    pairs = make_pairs(model)
    for paths, engine in (("via_mlps", "sweep"), ("direct", "sweep"), ("total", "hooks")):
        settings: dict[str, Any] = {"paths": paths, **QUIET}
        exact = al.path_patch(model, pairs, engine=engine, **settings)
        for method in ("atp", "clean_corrupted", "eap_ig", "ig_activations"):
            ours = al.attribute(model, pairs, method=method, steps=2, **settings)
            for part in ("heads", "mlps"):
                expected = getattr(exact, part).per_pair
                found = getattr(ours, part).per_pair
                assert_close(found, expected, atol=1e-4 * float(expected.abs().max()), rtol=1e-3)


def test_without_the_final_norms_scale_the_direct_effect_is_linear(mistral: HookedModel) -> None:
    pairs = make_pairs(mistral)
    exact = al.path_patch(mistral, pairs, paths="direct", **QUIET).heads
    held = al.attribute(mistral, pairs, method="relp", paths="direct", **QUIET).heads
    assert_close(held.per_pair, exact.without_norm_scale().per_pair, atol=1e-5, rtol=1e-3)
    assert (held.per_pair - exact.per_pair).abs().max() > 1e-3


@pytest.mark.parametrize("paths", ["total", "via_mlps"])
def test_weights_of_attention_may_be_held_too(
    mistral: HookedModel, make_hf: Any, paths: str
) -> None:
    """RelP's optional rule, by hand; with other heads frozen it changes nothing."""
    hf = make_hf("mistral")
    pairs = make_pairs(hf, (9, 7, 6))
    by_hand = ByHand(hf, pairs, paths)
    rules: dict[str, Any] = RELP | {"hold_attention": True}
    slopes = by_hand.run(pairs.reference, **rules).leaves
    options: dict[str, Any] = QUIET | {"method": "relp", "paths": paths}
    plain = al.attribute(mistral, pairs, **options)
    with hold_attention_weights(mistral):
        result = al.attribute(mistral, pairs, **options)
    for layer in range(mistral.n_layers):
        change = by_hand.other.outputs["z", layer] - by_hand.reference.outputs["z", layer]
        expected = (change * slopes["z", layer]).sum(-1)
        assert_close(result.heads.per_pair[layer].movedim(-1, 0), expected, atol=1e-5, rtol=1e-4)
    moved = float((result.heads.per_pair - plain.heads.per_pair).abs().max())
    assert moved > 1e-3 if paths == "total" else moved == 0


RULES_OF: dict[str, Callable[[Any], AbstractContextManager[None]]] = {
    "norms": hold_norm_scales,
    "activations": act_over_input,
    "products": halve_gated_products,
    "attention": split_attention_products,
    "weights": hold_attention_weights,
    "softmax": partial(soften_softmax, temperature=2.0),
}


def test_rules_compose_and_leave_the_model_as_it_was(mistral: HookedModel) -> None:
    pairs = make_pairs(mistral)
    options: dict[str, Any] = {"attention_mask": pairs.attention_mask}
    before, weights = mistral(pairs.reference, **options), list(mistral.bridge.parameters())
    modules = [module for block in mistral.blocks for module in block.modules()]
    hooks = [[*module._forward_hooks] for module in modules]  # other tests share the model
    requires_grad = [weight.requires_grad for weight in weights]
    plain = al.attribute(mistral, pairs, method="atp", paths="total", **QUIET)
    with ExitStack() as stack:
        for rule in RULES_OF.values():
            stack.enter_context(rule(mistral))
        assert torch.equal(mistral(pairs.reference, **options), before), "values stay"
        inside = al.attribute(mistral, pairs, method="atp", paths="total", **QUIET)
    assert (inside.heads.per_pair - plain.heads.per_pair).abs().max() > 1e-3
    with pytest.raises(RuntimeError, match="an error inside"), hold_norm_scales(mistral):
        raise RuntimeError("an error inside")
    again = al.attribute(mistral, pairs, method="atp", paths="total", **QUIET)
    assert torch.equal(again.heads.per_pair, plain.heads.per_pair)
    assert [weight.requires_grad for weight in weights] == requires_grad
    assert all(weight.grad is None for weight in weights)
    assert [[*module._forward_hooks] for module in modules] == hooks


def atp_on_transformers(
    hf: Any, pairs: PromptPairs, places: Places, paths: str = "total"
) -> dict[str, list[Tensor]]:
    """AtP: leaves by torch's own hooks on the modules that read z, and on MLPs.

    What the paths freeze is a constant at END."""
    frozen = {"total": (), "via_mlps": ("z",), "direct": ("z", "mlp")}[paths]
    inner = partial(reduce, getattr)
    layers = inner(places.blocks.split("."), hf)
    ends: dict[str, list[Tensor]] = {"z": [], "mlp": []}
    leaves: dict[str, list[Tensor]] = {"z": [], "mlp": []}

    def leaf(part: str, values: Tensor) -> Tensor:
        flat = values.reshape(len(pairs), -1, values.shape[-1])
        ends[part].append(flat[:, -1].detach())
        leaves[part].append(torch.zeros_like(flat[:, -1], requires_grad=True))
        end = (flat[:, -1].detach() if part in frozen else flat[:, -1]) + leaves[part][-1]
        end = end[:, None]
        return torch.cat([flat[:, :-1], end], dim=1).view(values.shape)

    def run(tokens: Tensor) -> Tensor:
        mask = pairs.attention_mask.long()
        positions: Any = {}
        if "position_ids" in inspect.signature(hf.forward).parameters:
            positions = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
        logits = hf(tokens, attention_mask=mask, **positions).logits[:, -1]
        return logits[torch.arange(len(pairs)), pairs.answer].sum()

    with ExitStack() as stack:
        for layer in layers:
            z, mlp = (inner(path.split("."), layer) for path in (places.reads_z, places.mlp))
            hooks = (
                z.register_forward_pre_hook(lambda _, x: (leaf("z", x[0]), *x[1:])),
                mlp.register_forward_hook(
                    lambda _, __, y: (
                        (leaf("mlp", y[0]), *y[1:]) if isinstance(y, tuple) else leaf("mlp", y)
                    )
                ),
            )
            for hook in hooks:
                stack.callback(hook.remove)
        run(pairs.counterfactual)
        other = {part: list(values) for part, values in ends.items()}
        for values in (*ends.values(), *leaves.values()):
            values.clear()
        total = run(pairs.reference)
    scores = {}
    for part, values in leaves.items():
        slopes = torch.autograd.grad(total, values, retain_graph=True)
        scores[part] = [
            (a - b) * slope for a, b, slope in zip(other[part], ends[part], slopes, strict=True)
        ]
    return scores


FAMILIES = {name: (ADDITIVE | OWN_LAYERS)[name] for name in (
    "GPT-2", "Phi-3", "Mixtral", "Qwen3", "GPT-NeoX, sequential", "Gemma 2", "GPT-J", "Cohere"
)}  # fmt: skip
"""One for each kind of attention, MLP and norm that the bridge knows."""
REFUSED = {
    ("Mixtral", "attn_lrp"): r"found experts.* in layer 0 of Mixtral",
    ("Mixtral", "gim"): r"found experts.* in layer 0 of Mixtral",
    ("GPT-J", "gim"): r"found attention weights that are not a softmax .* in layer 0 of GPTJ",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_have_the_gradient_of_plain_transformers_or_are_refused(
    name: str, tokenizer: Any
) -> None:
    family = FAMILIES[name]
    hf = family.make(len(tokenizer))
    pairs = make_pairs(hf, (7, 5))
    places = replace(family.places, mlp=NORM_AFTER_MLP.get(name, family.places.mlp))
    expected = atp_on_transformers(hf, pairs, places)
    model = al.load_model((hf, tokenizer))
    result = al.attribute(model, pairs, method="atp", paths="total", **QUIET)
    for layer in range(model.n_layers):
        z, mlp = expected["z"][layer], expected["mlp"][layer]
        by_head = z.unflatten(-1, (model.n_heads, -1)).sum(-1).T
        assert_close(result.heads.per_pair[layer], by_head, atol=1e-5, rtol=1e-3)
        assert_close(result.mlps.per_pair[layer], mlp.sum(-1), atol=1e-5, rtol=1e-3)
    assert result.heads.per_pair.abs().max() > 1e-3
    for method in ("attn_lrp", "gim"):
        if (name, method) in REFUSED:
            with pytest.raises(UnsupportedRule, match=REFUSED[name, method]):
                al.attribute(model, pairs, method=method, paths="total", **QUIET)
            continue
        ruled = al.attribute(model, pairs, method=method, paths="total", **QUIET).heads.per_pair
        assert (ruled - result.heads.per_pair).abs().max() > 1e-3


@contextmanager
def relp_rules(hf: Any) -> Iterator[None]:
    """RelP's rules in plain Transformers: norms and activation functions are factors that no
    gradient passes through, and each factor of a gated product gets half of the gradient."""

    def as_factor(_: Any, inputs: Any, out: Tensor) -> Tensor:
        return inputs[0] * torch.where(inputs[0] == 0, 0, out / inputs[0]).detach()

    def halved(_: Any, inputs: Any) -> Any:
        return (inputs[0] / 2 + inputs[0].detach() / 2, *inputs[1:])

    with ExitStack() as stack:
        for name, module in hf.named_modules():
            is_norm = type(module).__name__.endswith("RMSNorm")
            if is_norm or name.endswith(("act_fn", "activation_fn")):
                stack.callback(module.register_forward_hook(as_factor).remove)
            elif name.endswith("mlp"):
                stack.callback(module.register_forward_pre_hook(halved).remove)
        yield


NORM_AFTER_MLP = {
    **dict.fromkeys(
        ["Gemma 2", "Gemma 3", "OLMo 2", "OLMo 3", "EXAONE 4"], "post_feedforward_layernorm"
    ),
    "GLM-4": "post_mlp_layernorm",
}
"""The sender of an MLP is then this norm's output, which is added to the stream."""


@pytest.mark.parametrize("name", [*NORM_AFTER_MLP, "Qwen3"])
def test_rules_hold_with_norms_after_the_parts_and_norms_of_queries(
    name: str, tokenizer: Any
) -> None:
    """On direct paths a head acts through the norm after its attention and the final norm."""
    family = (ADDITIVE | OWN_LAYERS)[name]
    hfs = [family.make(len(tokenizer)) for _ in range(2)]  # loading one puts the bridge into it
    pairs = make_pairs(hfs[0], (7, 5))
    places = replace(family.places, mlp=NORM_AFTER_MLP.get(name, family.places.mlp))
    model = al.load_model((hfs[1], tokenizer))
    for paths in ("total", "via_mlps", "direct"):
        plain = atp_on_transformers(hfs[0], pairs, places, paths)
        with relp_rules(hfs[0]):
            expected = atp_on_transformers(hfs[0], pairs, places, paths)
        results = [al.attribute(model, pairs, method="relp", paths=paths, **QUIET)]
        if paths == "direct":  # no gradient passes through attention or an MLP
            results += [
                al.attribute(model, pairs, method=method, paths=paths, **QUIET)
                for method in ("attn_lrp", "gim")
            ]
        for result, layer in product(results, range(model.n_layers)):
            by_head = expected["z"][layer].unflatten(-1, (model.n_heads, -1)).sum(-1).T
            assert_close(result.heads.per_pair[layer], by_head, atol=1e-5, rtol=1e-3)
            mlp = expected["mlp"][layer].sum(-1)
            assert_close(result.mlps.per_pair[layer], mlp, atol=1e-5, rtol=1e-3)
        others = zip(plain["z"], expected["z"], strict=True)
        assert max(float((one - other).abs().max()) for one, other in others) > 1e-3


def test_half_precision_gives_nearly_the_same(make_hf: Any, tokenizer: Any) -> None:
    hf = make_hf("mistral")
    full, half = (
        al.load_model((model, tokenizer)) for model in (hf, make_hf("mistral").bfloat16())
    )
    pairs = make_pairs(full)
    for method in ("relp", "gim"):
        a, b = (
            al.attribute(model, pairs, method=method, paths="total", **QUIET).heads.per_pair
            for model in (full, half)
        )
        assert _explained(b, a) > 0.98


def test_a_result_is_stored_and_read_again(llama: HookedModel, tmp_path: Any) -> None:
    pairs = make_pairs(llama)
    with al.open_run("attribution", {}, model=llama, root=tmp_path) as run:
        first = al.attribute(llama, pairs, method="relp", run=run, name="ours", **QUIET)
        other = al.attribute(llama, pairs, method="atp", run=run, name="other", **QUIET)
        again = al.attribute(llama, pairs, method="relp", run=run, name="again", **QUIET)
    assert torch.equal(first.heads.per_pair, again.heads.per_pair)
    assert not torch.equal(first.heads.per_pair, other.heads.per_pair)
    assert first.computation["forwards"], first.computation["backwards"] == (2, 1)


def test_settings_that_do_not_exist_are_refused(llama: HookedModel) -> None:
    pairs = make_pairs(llama)
    with pytest.raises(ValueError, match=r"expected a method among atp, .* found 'lrp'"):
        al.attribute(llama, pairs, method="lrp")
    with pytest.raises(ValueError, match="expected paths among"):
        al.attribute(llama, pairs, paths="all")
    with pytest.raises(ValueError, match="at least one step, found 0"):
        al.attribute(llama, pairs, method="eap_ig", steps=0)


def test_rules_are_those_of_the_package_of_gim(tokenizer: Any) -> None:
    """On GPT-2: the package changes LLaMA's norms and its softmax in Transformers not at all. It
    changes the softmax of eager attention, and queries, keys and values of the fused one."""
    gim = pytest.importorskip("gim", reason="pip install gim-explain")
    make = partial(ADDITIVE["GPT-2"].make, len(tokenizer))
    tokens = torch.randint(3, 60, (1, 7), generator=torch.Generator().manual_seed(0))
    model = al.load_model((make(), tokenizer))
    table = make().get_input_embeddings().weight.detach()
    embeddings = table[tokens].clone().requires_grad_(True)
    unscaled = {"q_scale": None, "k_scale": None, "v_scale": None}
    for kernel, options, rules in (
        ("eager", unscaled, ("norms", "softmax")),
        ("sdpa", {"softmax_temperature": None}, ("norms", "attention")),
    ):
        hf = make()
        hf.set_attn_implementation(kernel)
        settings: dict[str, Any] = {"target_token_id": 17, "baseline_token_id": 5, **options}
        theirs = gim.explain(hf, tokens, **settings)
        with ExitStack() as stack:
            for rule in rules:
                stack.enter_context(RULES_OF[rule](model))
            replaced = [("hook_embed", lambda values, hook: embeddings)]
            logit = model.run_with_hooks(tokens, fwd_hooks=replaced)[0, -1, 17]
            (slope,) = torch.autograd.grad(logit, [embeddings])
        ours = (slope * (embeddings.detach() - table[5])).sum(-1)[0]
        assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def operations_of(value: Tensor) -> set[str]:
    """The names of all operations in a tensor's graph."""
    pending, seen = [value.grad_fn], set[Any]()
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            pending += [before for before, _ in node.next_functions]
    return {type(node).__name__ for node in seen}


@pytest.mark.parametrize("paths", ["via_mlps", "direct", "total"])
def test_no_gradient_passes_attention_that_is_frozen(make_model: Any, paths: str) -> None:
    """A frozen head is constant at every token, so that nothing is computed of its weights."""
    model = make_model("mistral")
    pairs = make_pairs(model)
    settings: dict[str, Any] = {"paths": paths, "metric": "logit", "foil": None}
    batch = GradientBatch(model, pairs, patch_settings(model, None, pairs=pairs, **settings))
    with torch.enable_grad(), weights_without_gradient(model):
        operations = operations_of(batch.runs()[1].readout.answer)
    assert ("SoftmaxBackward0" in operations) == (paths == "total")
    assert ("SiluBackward0" in operations) == (paths != "direct"), "MLPs react"
