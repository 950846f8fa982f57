"""Interventions against raw Transformers: the oracles touch `o_proj` and `mlp`, not our hooks."""

from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
import torch
from support.fixtures import random_tokens

from arith_lens.components import Head, Mlp, every_head, every_mlp, mlp_out_name, z_name
from arith_lens.hooks import (
    ablate_heads,
    ablate_mlps,
    capture,
    freeze,
    patch_heads,
    patch_mlps,
    scale_heads,
    scale_mlps,
)
from arith_lens.model import load_model, record

HEADS = [Head(0, 0), Head(1, 2), Head(2, 3)]
FAMILIES = ["llama", "mistral"]


def names(model) -> list[str]:
    layers = range(model.cfg.n_layers)
    return [z_name(layer) for layer in layers] + [mlp_out_name(layer) for layer in layers]


@contextmanager
def edited(hf_model, *, z=None, mlp=None):
    """The oracle: a raw model whose `o_proj` inputs and `mlp` outputs go through functions.

    z: {layer: function of [batch pos n_heads * d_head]}, mlp: {layer: function of mlp's output}
    """
    with ExitStack() as stack:
        for layer, change in (z or {}).items():
            handle = hf_model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(
                lambda module, inputs, change=change: (change(inputs[0].clone()),)
            )
            stack.callback(handle.remove)
        for layer, change in (mlp or {}).items():
            handle = hf_model.model.layers[layer].mlp.register_forward_hook(
                lambda module, inputs, output, change=change: change(output.clone())
            )
            stack.callback(handle.remove)
        yield


def head_slice(head, d_head=8):
    return slice(head.index * d_head, (head.index + 1) * d_head)


def put(activation, value, columns):
    activation[..., columns] = value[..., columns]
    return activation


@pytest.fixture(params=FAMILIES)
def both(request, make_hf, make_model):
    """(raw Hugging Face model, the same loaded), of equal weights."""
    return make_hf(request.param), make_model(request.param)


@pytest.fixture
def recorded(model, counterfactual):
    return record(model, counterfactual, names(model))


@pytest.mark.parametrize("head", HEADS, ids=str)
@torch.no_grad()
def test_patching_a_head_is_replacing_its_columns_of_o_projs_input(
    head, both, reference, counterfactual
):
    hf_model, model = both
    raw = {}
    with edited(hf_model, z={head.layer: lambda z: raw.setdefault("z", z)}):
        hf_model(counterfactual, use_cache=False)
    with edited(hf_model, z={head.layer: partial(put, value=raw["z"], columns=head_slice(head))}):
        expected = hf_model(reference, use_cache=False).logits
    source = record(model, counterfactual, [z_name(head.layer)])
    actual = model.run_with_hooks(reference, fwd_hooks=patch_heads([head], source))
    assert torch.equal(actual, expected)
    assert not torch.allclose(actual, model(reference)), "the test must be able to fail"


@pytest.mark.parametrize("layer", [0, 2])
@torch.no_grad()
def test_patching_an_mlp_is_replacing_its_output(layer, both, reference, counterfactual):
    hf_model, model = both
    source = record(model, counterfactual, [mlp_out_name(layer)])
    with edited(hf_model, mlp={layer: lambda _: source[mlp_out_name(layer)]}):
        expected = hf_model(reference, use_cache=False).logits
    actual = model.run_with_hooks(reference, fwd_hooks=patch_mlps([Mlp(layer)], source))
    assert torch.equal(actual, expected)
    assert not torch.allclose(actual, model(reference)), "the test must be able to fail"


@torch.no_grad()
def test_a_layer_of_two_digits_is_patched_too(deep, make_hf):
    hf_model = make_hf(
        "llama", num_hidden_layers=13, num_attention_heads=2, hidden_size=16,
        intermediate_size=24, initializer_range=0.2,
    )  # fmt: skip
    tokens = random_tokens(deep, 2, 8, seed=5)
    other = random_tokens(deep, 2, 8, seed=6)
    head = Head(11, 1)
    source = record(deep, other, [z_name(11)])
    value = source[z_name(11)].flatten(2)
    with edited(hf_model, z={11: partial(put, value=value, columns=slice(8, 16))}):
        expected = hf_model(tokens, use_cache=False).logits
    actual = deep.run_with_hooks(tokens, fwd_hooks=patch_heads([head], source))
    assert torch.equal(actual, expected)
    wrong = deep.run_with_hooks(
        tokens, fwd_hooks=patch_heads([Head(1, 1)], record(deep, other, [z_name(1)]))
    )
    assert not torch.allclose(actual, wrong), "layer 11 is not layer 1"


@torch.no_grad()
def test_identity_a_run_patched_with_itself_is_unchanged(model, reference):
    source = record(model, reference, names(model))
    hooks = freeze(model, source)
    assert len(hooks) == 2 * model.n_layers
    assert torch.equal(model.run_with_hooks(reference, fwd_hooks=hooks), model(reference))


@torch.no_grad()
def test_totality_everything_patched_is_the_other_run(model, reference, counterfactual, recorded):
    """Heads, MLPs and the embedding make up the stream, so with all three nothing is left."""
    source = recorded | record(model, counterfactual, ["hook_embed"])
    hooks = [("hook_embed", lambda value, hook: source["hook_embed"])]
    hooks += patch_heads(every_head(model.n_layers, model.n_heads), source)
    hooks += patch_mlps(every_mlp(model.n_layers), source)
    actual = model.run_with_hooks(reference, fwd_hooks=hooks)
    assert torch.allclose(actual, model(counterfactual), atol=1e-5)
    without_embedding = model.run_with_hooks(reference, fwd_hooks=hooks[1:])
    assert not torch.allclose(without_embedding, model(counterfactual), atol=1e-3), "able to fail"


@pytest.mark.parametrize(
    "positions, touched",
    [(-1, [9]), (slice(4, 6), [4, 5]), (torch.tensor([2, 3, 4, 5, 6, 7]), None)],
    ids=["END", "slice", "one a row"],
)
@torch.no_grad()
def test_locality_what_is_not_chosen_stays_bit_identical(
    model, reference, recorded, positions, touched
):
    plain = record(model, reference, [z_name(1)])[z_name(1)]
    seen = {}
    hooks = patch_heads([Head(1, 2)], recorded, positions=positions) + capture([z_name(1)], seen)
    model.run_with_hooks(reference, fwd_hooks=hooks)
    expected = plain.clone()
    for row in range(len(reference)):
        for column in touched or [int(positions[row])]:
            expected[row, column, 2] = recorded[z_name(1)][row, column, 2]
    assert torch.equal(seen[z_name(1)], expected)
    assert not torch.equal(expected, plain), "the test must be able to fail"


@torch.no_grad()
def test_before_the_patched_position_nothing_changes(model, reference, recorded):
    patched = model.run_with_hooks(
        reference, fwd_hooks=patch_heads([Head(0, 1)], recorded, positions=5)
    )
    assert torch.equal(patched[:, :5], model(reference)[:, :5])
    assert not torch.allclose(patched[:, 5:], model(reference)[:, 5:])


def all_hooks(source):
    means = {name: value.mean((0, 1)) for name, value in source.items()}
    return {
        "patch_heads": patch_heads([Head(1, 1)], source),
        "patch_mlps": patch_mlps([1], source),
        "mean": ablate_heads([Head(1, 1)], means) + ablate_mlps([1], means),
        "zero": ablate_heads([Head(1, 1)], ablation="zero") + ablate_mlps([1], ablation="zero"),
        "resample": ablate_heads([Head(1, 1)], source, ablation="resample"),
        "scale": scale_heads([Head(1, 1)], 2.0) + scale_mlps([1], 2.0),
        "freeze": freeze([1], source),
        "capture": capture([z_name(1)], {}),
    }


@torch.no_grad()
def test_purity_no_hook_writes_into_what_it_is_given(recorded):
    before = {name: value.clone() for name, value in recorded.items()}
    for kind, hooks in all_hooks(recorded).items():
        for name, function in hooks:
            given = torch.randn_like(recorded[name])
            copy = given.clone()
            result = function(given, hook=None)
            assert torch.equal(given, copy), kind
            assert result is None or result.data_ptr() != given.data_ptr(), kind
    assert all(torch.equal(recorded[name], before[name]) for name in before)


@torch.no_grad()
def test_no_hook_is_left_behind_even_after_an_error(model, reference, recorded):
    plain = model(reference)
    for hooks in all_hooks(recorded).values():
        model.run_with_hooks(reference, fwd_hooks=hooks)
    short = {name: value[:, :4] for name, value in recorded.items()}
    with pytest.raises(ValueError, match="10 positions"):
        model.run_with_hooks(reference, fwd_hooks=patch_heads([Head(0, 0)], short))
    assert torch.equal(model(reference), plain)


def test_no_hook_writes_its_tensors_down(recorded):
    """TransformerLens takes the repr of each hook but partials, once a run; tensors' are slow."""
    written = [
        repr(function)
        for hooks in all_hooks(recorded).values()
        for _, function in hooks
        if not isinstance(function, partial)
    ]
    assert written
    assert not [text for text in written if "tensor" in text]


def test_no_hook_of_ours_patches_resid_mid(recorded):
    """There a returned tensor would reach the norm alone, and not the trunk."""
    for hooks in all_hooks(recorded).values():
        assert all(name.endswith(("hook_z", "hook_mlp_out")) for name, _ in hooks)


@torch.no_grad()
def test_the_later_of_two_hooks_wins(model, reference, recorded):
    own = record(model, reference, names(model))
    head = [Head(1, 0)]
    patched = model.run_with_hooks(reference, fwd_hooks=patch_heads(head, recorded))
    lifted = model.run_with_hooks(
        reference, fwd_hooks=patch_heads(head, own) + patch_heads(head, recorded)
    )
    undone = model.run_with_hooks(
        reference, fwd_hooks=patch_heads(head, recorded) + patch_heads(head, own)
    )
    assert torch.equal(lifted, patched)
    assert torch.equal(undone, model(reference))
    assert not torch.allclose(patched, model(reference)), "the test must be able to fail"


@torch.no_grad()
def test_composed_hooks_act_on_what_the_first_left(model, reference):
    twice = scale_heads([Head(1, 0)], 2.0) + scale_heads([Head(1, 0)], 3.0)
    once = scale_heads([Head(1, 0)], 6.0)
    assert torch.allclose(
        model.run_with_hooks(reference, fwd_hooks=twice),
        model.run_with_hooks(reference, fwd_hooks=once),
        atol=1e-5,
    )


@torch.no_grad()
def test_hooks_in_a_context_are_hooks_of_each_run(model, reference, recorded):
    hooks = patch_heads(HEADS, recorded) + patch_mlps([1], recorded)
    expected = model.run_with_hooks(reference, fwd_hooks=hooks)
    with model.hooks(hooks):
        assert torch.equal(model(reference), expected)
    assert not torch.allclose(model(reference), expected), "the test must be able to fail"


@torch.no_grad()
def test_a_bare_bridge_takes_the_same_hooks(model, reference, recorded):
    bridge = model.bridge
    hooks = freeze(bridge, record(bridge, reference, names(bridge)), mlps=False)
    hooks += patch_heads([Head(1, 2)], recorded, positions=-1)
    assert torch.equal(
        bridge.run_with_hooks(reference, fwd_hooks=hooks),
        model.run_with_hooks(reference, fwd_hooks=hooks),
    )
    with bridge.hooks(fwd_hooks=hooks):
        assert torch.equal(bridge(reference), model.run_with_hooks(reference, fwd_hooks=hooks))


@torch.no_grad()
def test_zero_ablation_zeroes_o_projs_input(both, reference):
    hf_model, model = both
    zeros = torch.zeros(1, 1, 32)
    with edited(
        hf_model,
        z={1: partial(put, value=zeros, columns=slice(8, 16))},
        mlp={2: lambda output: output * 0},
    ):
        expected = hf_model(reference, use_cache=False).logits
    hooks = ablate_heads([Head(1, 1)], ablation="zero") + ablate_mlps([2], ablation="zero")
    assert torch.equal(model.run_with_hooks(reference, fwd_hooks=hooks), expected)
    assert not torch.allclose(expected, model(reference)), "the test must be able to fail"


def test_zero_ablation_silences_even_infinity():
    ((_, function),) = ablate_heads([Head(0, 1)], ablation="zero")
    z = torch.full((1, 2, 4, 8), float("inf"))
    assert (function(z)[:, :, 1] == 0).all()
    assert function(z)[:, :, 0].isinf().all()


@torch.no_grad()
def test_mean_ablation_puts_the_mean_at_chosen_positions(both, reference, recorded_of):
    hf_model, model = both
    source = recorded_of(model)
    mean = source[z_name(1)].mean((0, 1))
    mask = torch.ones_like(reference, dtype=torch.bool)
    mask[:, 0] = False  # BOS is spared

    def change(z):
        z[:, 1:, 8:16] = mean[1]
        return z

    with edited(hf_model, z={1: change}):
        expected = hf_model(reference, use_cache=False).logits
    hooks = ablate_heads([Head(1, 1)], {z_name(1): mean}, positions=mask)
    actual = model.run_with_hooks(reference, fwd_hooks=hooks)
    assert torch.equal(actual, expected)
    everywhere = ablate_heads([Head(1, 1)], {z_name(1): mean})
    assert not torch.allclose(
        actual, model.run_with_hooks(reference, fwd_hooks=everywhere), atol=1e-6
    ), "sparing BOS must matter"


@pytest.fixture
def recorded_of(counterfactual):
    return lambda model: record(model, counterfactual, names(model))


@torch.no_grad()
def test_resampling_takes_whole_rows_of_the_other_run(model, reference, recorded):
    seen = {}
    hooks = ablate_heads([Head(1, 1)], recorded, ablation="resample", seed=3)
    model.run_with_hooks(reference, fwd_hooks=hooks + capture([z_name(1)], seen))
    drawn = seen[z_name(1)][:, :, 1]
    source = recorded[z_name(1)][:, :, 1]
    rows = [next(i for i in range(6) if torch.equal(row, source[i])) for row in drawn]
    assert rows != list(range(6)), "the draw must not be the identity"
    again = ablate_heads([Head(1, 1)], recorded, ablation="resample", seed=3)
    with_seed = model.run_with_hooks(reference, fwd_hooks=again)
    assert torch.equal(with_seed, model.run_with_hooks(reference, fwd_hooks=hooks))


@torch.no_grad()
def test_capture_keeps_the_axis_and_sees_earlier_hooks(model, reference):
    seen = {}
    hooks = scale_heads([Head(0, 1)], 0.0) + capture([z_name(0)], seen, positions=-1)
    model.run_with_hooks(reference, fwd_hooks=hooks)
    assert seen[z_name(0)].shape == (6, 1, 4, 8)
    assert (seen[z_name(0)][:, :, 1] == 0).all()
    assert (seen[z_name(0)][:, :, 0] != 0).any()


def greedy(hf_model, tokens, n_new, **edits):
    """The oracle: the whole sequence again for each new token, without a cache."""
    for _ in range(n_new):
        with edited(hf_model, **edits):
            logits = hf_model(tokens, use_cache=False).logits
        tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], dim=1)
    return tokens


@torch.no_grad()
def test_generating_with_hooks_is_a_greedy_loop_with_hooks(both, reference):
    """Through the KV cache, beyond the sliding window, on prompt and new tokens alike."""
    hf_model, model = both
    mean = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))

    def change(z):
        z[..., 8:16] = mean[1]
        return z

    expected = greedy(hf_model, reference, 8, z={1: change}, mlp={0: lambda out: out * 0.5})
    hooks = ablate_heads([Head(1, 1)], {z_name(1): mean}) + scale_mlps([0], 0.5)
    options = {"max_new_tokens": 8, "stop_at_eos": False}
    actual = model.generate(reference, fwd_hooks=hooks, **options)
    assert torch.equal(actual, expected)
    with model.hooks(hooks):
        assert torch.equal(model.generate(reference, **options), expected)
    assert not torch.equal(model.generate(reference, **options), expected), "able to fail"


@torch.no_grad()
def test_hooks_on_the_prompt_alone_leave_later_steps(both, reference, recorded_of):
    hf_model, model = both
    source = recorded_of(model)[z_name(1)]

    def at_prompts_end(z):
        z[:, 9, 8:16] = source[:, 9, 1]
        return z

    expected = greedy(hf_model, reference, 6, z={1: at_prompts_end})
    hooks = patch_heads([Head(1, 1)], {z_name(1): source}, positions=-1)
    options = {"max_new_tokens": 6, "stop_at_eos": False}
    actual = model.generate(reference, fwd_hooks=hooks, hook_steps="prompt", **options)
    assert torch.equal(actual, expected)
    assert not torch.equal(actual, model.generate(reference, **options)), "able to fail"


def test_positions_on_every_step_are_refused(model, reference, recorded):
    end = patch_heads([Head(1, 1)], recorded, positions=-1)
    with pytest.raises(ValueError, match="hook_steps='prompt'"):
        model.generate(reference, fwd_hooks=end)
    with pytest.raises(ValueError, match="use_past_kv_cache"):
        model.generate(reference, fwd_hooks=end, hook_steps="prompt", use_past_kv_cache=False)
    with pytest.raises(Exception, match="hook_steps"):  # the type check comes first in tests
        model.generate(reference, fwd_hooks=end, hook_steps="some")


def test_a_source_of_many_positions_is_refused_in_a_later_step(model, reference, recorded):
    with pytest.raises(ValueError, match=r"1 positions .* found 10"):
        model.generate(reference, fwd_hooks=patch_heads([Head(1, 1)], recorded))


def test_a_head_out_of_range_is_an_error_that_says_so(model, reference, recorded):
    with pytest.raises(IndexError, match="heads from 0 to 3, found 4"):
        patch_heads([Head(1, 4)], recorded)
    with pytest.raises(IndexError, match=r"heads from 0 to 3 .* found 4"):
        model.run_with_hooks(reference, fwd_hooks=scale_heads([Head(1, 4)], 0.0))
    with pytest.raises(IndexError, match=r"layers 0 to 2, found blocks.3"):
        model.run_with_hooks(reference, fwd_hooks=scale_heads([Head(3, 0)], 0.0))
    with pytest.raises(IndexError, match=r"layers 0 to 2, found blocks.7"):
        model.hooks(scale_mlps([7], 0.0))


def test_a_source_without_the_layer_is_an_error_that_says_what_to_record(recorded):
    with pytest.raises(KeyError, match=r"record\(model, tokens, \['blocks.1.attn.hook_z'\]\)"):
        patch_heads([Head(1, 0)], {z_name(0): recorded[z_name(0)]})
    with pytest.raises(KeyError, match=r"blocks.2.hook_mlp_out"):
        ablate_mlps([2], {}, ablation="mean")


def test_a_source_of_other_shape_or_batch_is_refused(model, reference, recorded):
    with pytest.raises(ValueError, match="batch pos n_heads d_head"):
        patch_heads([Head(1, 0)], {z_name(1): torch.zeros(2, 4, 8)})
    with pytest.raises(ValueError, match=r"6 prompts .* found 5"):
        fewer = {name: value[:5] for name, value in recorded.items()}
        model.run_with_hooks(reference, fwd_hooks=patch_heads([Head(1, 0)], fewer))


@pytest.mark.parametrize("ablate", [ablate_heads, ablate_mlps])
def test_an_ablation_without_its_source_or_unknown_is_refused(ablate):
    components = [Head(0, 0)] if ablate is ablate_heads else [0]
    for ablation in ("mean", "resample"):
        with pytest.raises(ValueError, match=r"al\.counterfactual_means"):
            ablate(components, ablation=ablation)
    with pytest.raises(Exception, match="median"):
        ablate(components, {}, ablation="median")


@torch.no_grad()
def test_a_batch_of_one_is_a_row_of_a_batch(model, reference, recorded):
    hooks = patch_heads(HEADS, {name: value[:1] for name, value in recorded.items()})
    alone = model.run_with_hooks(reference[:1], fwd_hooks=hooks)
    together = model.run_with_hooks(reference, fwd_hooks=patch_heads(HEADS, recorded))
    assert torch.allclose(alone, together[:1], atol=1e-5)


@torch.no_grad()
def test_hooks_in_bfloat16_equal_raw_transformers(make_hf, make_model, reference, counterfactual):
    hf_model = make_hf("mistral").to(torch.bfloat16)
    model = make_model("mistral")
    source = record(model, counterfactual, [z_name(1)])  # float32, cast to the run's dtype
    half = load_model((make_hf("mistral"), model.tokenizer), dtype=torch.bfloat16)
    value = source[z_name(1)].flatten(2).bfloat16()
    with edited(hf_model, z={1: partial(put, value=value, columns=slice(0, 8))}):
        expected = hf_model(reference, use_cache=False).logits
    actual = half.run_with_hooks(reference, fwd_hooks=patch_heads([Head(1, 0)], source))
    assert actual.dtype == torch.bfloat16
    assert torch.equal(actual, expected)


def test_gradients_flow_through_a_patch(model, reference, recorded):
    value = recorded[z_name(1)].clone().requires_grad_()
    hooks = patch_heads([Head(1, 2)], {z_name(1): value}, positions=-1)
    model.run_with_hooks(reference, fwd_hooks=hooks)[:, -1].sum().backward()
    assert value.grad is not None
    touched = value.grad.abs().sum(-1).nonzero()
    assert set(map(tuple, touched[:, 1:].tolist())) == {(9, 2)}, "END, head 2, and nothing else"
    for parameter in model.bridge.parameters():
        parameter.grad = None


def test_a_run_of_several_prompts_is_no_mean(model, reference, recorded):
    """Patched unaveraged it would give an answer, and a wrong one."""
    with pytest.raises(ValueError, match=r"one mean for all prompts, found .*hook_z of 6 prompts"):
        ablate_heads([Head(1, 0)], recorded)
    with pytest.raises(ValueError, match=r"hook_mlp_out of 6 prompts .*counterfactual_means"):
        ablate_mlps([1], recorded)
    means = {name: value.mean(0, keepdim=True) for name, value in recorded.items()}
    assert means[z_name(1)].shape == (1, 10, 4, 8)
    seen = {}
    hooks = ablate_heads([Head(1, 0)], means) + capture([z_name(1)], seen)
    model.run_with_hooks(reference, fwd_hooks=hooks)
    mean = recorded[z_name(1)][:, :, 0].mean(0)
    assert torch.allclose(seen[z_name(1)][:, :, 0], mean.expand(6, 10, 8), atol=1e-6)


def test_a_mean_without_the_head_axis_is_refused():
    with pytest.raises(ValueError, match="n_heads d_head"):
        ablate_heads([Head(0, 0)], {z_name(0): torch.zeros(8)})


@pytest.mark.parametrize(
    "given", ["1.2.3", "MLP 1", (1, 2, 3), (1, True), 3, Mlp(1), None], ids=repr
)
def test_what_is_no_head_is_refused_by_name(given, recorded):
    """Generators hide their items from the type check that the tests add."""
    for hooks in (
        lambda heads: patch_heads(heads, recorded),
        lambda heads: scale_heads(heads, 2.0),
    ):
        with pytest.raises(TypeError, match=r"expected heads such as Head\(12, 22\), found "):
            hooks(head for head in [given])


@pytest.mark.parametrize("given", ["MLP", "1.2", (1, 2), Head(1, 2), 1.0, True], ids=repr)
def test_what_is_no_mlp_is_refused_by_name(given, recorded):
    for hooks in (
        lambda mlps: patch_mlps(mlps, recorded),
        lambda mlps: ablate_mlps(mlps, ablation="zero"),
        lambda mlps: scale_mlps(mlps, 2.0),
    ):
        with pytest.raises(TypeError, match=r"expected MLPs such as Mlp\(12\), or layers"):
            hooks(mlp for mlp in [given])
    with pytest.raises(ValueError, match=r"from 0, found Mlp\(-1\)"):
        scale_mlps([-1], 0.0)
