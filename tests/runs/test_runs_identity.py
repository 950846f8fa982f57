"""A saved result is taken for nothing but the same computation of the same model."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from arith_lens.components import Head
from arith_lens.hooks import ablate_heads, scale_heads
from arith_lens.knockout import knock_out
from arith_lens.model import (
    HookedModel,
    buffers_hash,
    configuration_hash,
    load_model,
    state_digest,
)
from arith_lens.pairs import PromptPairs, Role
from arith_lens.path_patching import path_patch
from arith_lens.runs import RunError, manifest, open_run
from arith_lens.runs.manifest import identity_of

Make = Callable[..., Any]


@pytest.fixture
def pairs(reference: torch.Tensor, counterfactual: torch.Tensor) -> PromptPairs:
    return PromptPairs.from_tokens(reference, counterfactual, torch.arange(6) + 5)


def identity(model: HookedModel, pairs: PromptPairs, **settings: Any) -> dict[str, Any]:
    return identity_of(model, pairs, **{"paths": "via_mlps", **settings})


@contextmanager
def changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """One attribute changed, as a user would; the models are shared by tests."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "epsilon": {"rms_norm_eps": 0.1},
    "window": {"sliding_window": 3},
    "rotary base": {"rope_parameters": {"rope_type": "default", "rope_theta": 37.0}},
    "cap": {"final_logit_softcapping": 2.0},
}


@pytest.mark.parametrize("change", CONFIGURATIONS)
def test_checkpoints_that_differ_in_configuration_alone_are_two(
    change: str, mistral: HookedModel, make_model: Make, pairs: PromptPairs, tmp_path: Path
) -> None:
    other = make_model("mistral", **CONFIGURATIONS[change])
    ours, theirs = identity(mistral, pairs)["model"], identity(other, pairs)["model"]
    assert ours["weights_sha256"] == theirs["weights_sha256"]
    assert ours["configuration_sha256"] != theirs["configuration_sha256"]
    paths = [open_run("which", {}, model=m, root=tmp_path).path for m in (mistral, other)]
    assert paths[0] != paths[1]


def test_the_same_model_loaded_from_elsewhere_has_the_same_identity(
    make_hf: Make, tokenizer: Any, make_model: Make, pairs: PromptPairs, tmp_path: Path
) -> None:
    make_hf("mistral").save_pretrained(tmp_path / "copy")
    tokenizer.save_pretrained(tmp_path / "copy")
    stored, in_memory = load_model(tmp_path / "copy", device="cpu"), make_model("mistral")
    assert identity(stored, pairs) == identity(in_memory, pairs)
    stored(pairs.reference)
    stored.run_with_cache(pairs.reference)
    assert identity(stored, pairs) == identity(in_memory, pairs), "a forward leaves no trace"


def test_what_is_changed_in_memory_changes_the_identity(
    mistral: HookedModel, pairs: PromptPairs
) -> None:
    whole = mistral.bridge.original_model
    norm, attention = mistral.blocks[1].ln1.original_component, mistral.blocks[0].attn
    places = [
        (norm, "variance_epsilon", 0.1),
        (whole.config, "sliding_window", 3),
        (whole.config, "rms_norm_eps", 0.1),
        (attention.original_component, "scaling", 0.3),
        (mistral.cfg, "eps", 0.1),
        (mistral.blocks[2].mlp.original_component, "training", True),
    ]
    before = identity(mistral, pairs)
    seen = [before]
    for owner, name, value in places:
        with changed(owner, name, value):
            now = identity(mistral, pairs)
        assert now not in seen, name
        seen.append(now)
    assert identity(mistral, pairs) == before


def test_a_buffer_is_part_of_the_identity(mistral: HookedModel, pairs: PromptPairs) -> None:
    before = identity(mistral, pairs)
    rotary = mistral.bridge.rotary_emb.original_component
    with changed(rotary, "inv_freq", 2 * rotary.inv_freq):
        now = identity(mistral, pairs)
    assert now["model"]["buffers_sha256"] != before["model"]["buffers_sha256"]
    assert now["model"]["weights_sha256"] == before["model"]["weights_sha256"]


def test_settings_tokens_and_labels_are_part_of_the_identity(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    answers = pairs.answer.clone()
    answers[3] += 1
    mask = pairs.attention_mask.clone()
    mask[2, 0] = False
    texts = tuple("abcdef")
    names = ("problem", "operation", "examples", "exemplar_set", "reference_text")
    names += ("counterfactual_text", "answer_text")
    different = [
        identity(llama, pairs),
        identity(llama, pairs, paths="direct"),
        identity(llama, replace(pairs, attention_mask=mask)),
        identity(llama, replace(pairs, reference=pairs.reference + 1)),
        identity(llama, replace(pairs, counterfactual=pairs.counterfactual + 1)),
        identity(llama, replace(pairs, operands=torch.ones(6, 2, dtype=torch.long))),
        identity(llama, replace(pairs, spans={Role.OPERATOR: torch.tensor([[1, 2]] * 6)})),
        *(identity(llama, replace(pairs, **{name: texts})) for name in names),
        identity(llama, replace(pairs, answer=answers)),
        identity(llama, replace(pairs, counterfactual_answer=answers)),
        identity(llama, replace(pairs, template=("a", "b") * 3)),
        identity(llama, replace(pairs, computed=torch.ones(6, dtype=torch.bool))),
    ]
    assert all(one != other for i, one in enumerate(different) for other in different[:i])
    assert identity(llama, copy.deepcopy(pairs)) == different[0]


def test_the_kernel_the_machine_and_the_software_are_part_of_the_identity(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    before = identity(llama, pairs)
    versions = {"versions": {"torch": "0"}}
    places: list[tuple[Any, str, Any]] = [
        (manifest, "_device", lambda device: "another"),
        (manifest, "software", lambda: versions),
        (llama.bridge.original_model.config, "_attn_implementation", "sdpa"),
    ]
    for owner, name, value in places:
        with changed(owner, name, value):
            assert identity(llama, pairs) != before, name
    torch.set_num_threads((n_threads := torch.get_num_threads()) + 1)
    more = identity(llama, pairs)
    torch.set_num_threads(n_threads)
    assert more != before == identity(llama, pairs)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_process_knows_a_model_whose_weights_have_changed_places(
    axis: int, make_model: Make
) -> None:
    """Two pairs of rows or of columns are exchanged, so that sums over the other axis stay."""
    model = make_model("llama")
    weight = next(v for k, v in model.bridge.named_parameters() if "down_proj" in k).data
    before = state_digest(model)
    order = torch.arange(weight.shape[axis])
    order[:4] = torch.tensor([2, 3, 0, 1])
    weight.copy_(weight.index_select(axis, order))
    assert state_digest(model) != before
    weight.copy_(weight.index_select(axis, order))
    assert state_digest(model) == before


def test_active_hooks_are_part_of_the_identity(llama: HookedModel, pairs: PromptPairs) -> None:
    def hooked(hooks: Any) -> dict[str, Any]:
        with llama.hooks(hooks):
            return identity(llama, pairs)

    zero = [ablate_heads([Head(1, index)], ablation="zero") for index in (0, 0, 1)]
    different = [
        identity(llama, pairs),
        hooked(zero[0]),
        hooked(zero[2]),
        hooked(scale_heads([Head(1, 0)], 0.5)),
        hooked(zero[0] + zero[2]),
    ]
    assert all(one != other for i, one in enumerate(different) for other in different[:i])
    assert hooked(zero[1]) == different[1]


def test_a_hook_of_unknown_effect_is_refused(llama: HookedModel, pairs: PromptPairs) -> None:
    match = r"expected a model without hooks.*found <function .* at blocks.1.attn.hook_z.*run="
    with (
        llama.hooks([("blocks.1.attn.hook_z", lambda value, hook: value)]),
        pytest.raises(RunError, match=match),
    ):
        identity(llama, pairs)
    handle = llama.bridge.original_model.model.norm.register_forward_hook(lambda *_: None)
    try:
        with pytest.raises(RunError, match="at ln_final"):
            identity(llama, pairs)
    finally:
        handle.remove()


def test_a_run_gives_no_numbers_of_another_computation(
    make_model: Make, pairs: PromptPairs, tmp_path: Path
) -> None:
    """Each is computed with the first one's numbers saved under the same name."""
    model, options = make_model("llama"), {"progress": False, "certify": False, "metric": "logit"}
    norm = model.blocks[1].ln1.original_component
    with open_run("hooked", {}, root=tmp_path) as run:
        first = path_patch(model, pairs, run=run, **options)
        for change in (
            model.hooks(ablate_heads([Head(0, 1)], ablation="zero")),
            changed(norm, "variance_epsilon", 0.3),
        ):
            with change:
                saved = path_patch(model, pairs, run=run, **options)
                fresh = path_patch(model, pairs, **options)
            torch.testing.assert_close(saved.heads.per_pair, fresh.heads.per_pair, rtol=0, atol=0,
                                       equal_nan=True)  # fmt: skip
            assert not torch.equal(saved.heads.mean(), first.heads.mean())


def test_a_run_refuses_a_model_that_was_changed_since_it_was_opened(
    llama: HookedModel, pairs: PromptPairs, tmp_path: Path
) -> None:
    run = open_run("changed", {}, model=llama, root=tmp_path)
    norm = llama.blocks[1].ln1.original_component
    with (
        changed(norm, "variance_epsilon", 0.3),
        pytest.raises(RunError, match=r"opened with .*configuration .*open a run with model="),
    ):
        run.identity(llama, pairs)


def test_the_precision_of_matrix_products_is_part_of_the_identity_however_it_is_set(
    llama: HookedModel, pairs: PromptPairs, tmp_path: Path
) -> None:
    """PyTorch's own getter raises an error after a backend's `fp32_precision` was set."""

    def precision() -> str:
        return identity(llama, pairs)["settings"]["matmul_precision"]

    backends: Any = torch.backends
    settings = [(backends.cuda.matmul, "tf32"), (backends.mkldnn.matmul, "bf16")]
    before = knock_out(llama, pairs, [Head(1, 0)]).probability
    seen = [precision()]
    for backend, value in settings:
        with changed(backend, "fp32_precision", value):
            seen.append(precision())
            if value == "tf32":  # on a CPU it changes no number
                assert torch.equal(knock_out(llama, pairs, [Head(1, 0)]).probability, before)
                with open_run("precise", {}, model=llama, root=tmp_path) as run:
                    path_patch(llama, pairs, run=run, metric="logit", progress=False)
    assert len({*seen}) == 3
    for value, place in (("highest", 0), ("medium", None), ("highest", 0)):
        torch.set_float32_matmul_precision(value)
        assert precision() == seen[place] if place == 0 else precision() not in seen
    with changed(backends.cuda.matmul, "fp32_precision", "ieee"):
        assert precision() == seen[0]


def test_fingerprints_are_hexadecimal_digests(llama: HookedModel) -> None:
    assert {len(configuration_hash(llama)), len(buffers_hash(llama))} == {64}
