"""Code, hooks and settings outside a model: another computation, or refused by name."""

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.families import EVERY
from torch import nn
from torch.nn.modules import module as nn_module
from transformers.models.llama import modeling_llama

import arith_lens as al
from arith_lens.model import HookedModel, code_hash, state_digest, tokenizer_hash
from arith_lens.pairs import PromptPairs
from arith_lens.runs import ResultSlot, RunError, open_run
from arith_lens.runs.manifest import identity_of

QUIET: dict[str, Any] = {"metric": "logit", "progress": False}


@pytest.fixture
def pairs(reference: torch.Tensor, counterfactual: torch.Tensor) -> PromptPairs:
    return PromptPairs.from_tokens(reference, counterfactual, torch.arange(6) + 5)


@contextmanager
def changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    is_own = name in vars(owner) or not isinstance(owner, type)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:  # it was inherited
            delattr(owner, name)


def halved(function: Callable[..., Any], share: float = 0.5) -> Callable[..., Any]:
    """A replacement as users write it: it takes the function's name, and holds a number."""

    @functools.wraps(function)
    def patched(*given: Any, **options: Any) -> Any:
        return function(*given, **options) * share

    return patched


class Halved:
    """A replacement that is an object."""

    def __init__(self, function: Callable[..., Any], share: float) -> None:
        functools.update_wrapper(self, function)
        self.function, self.share = function, share

    def __call__(self, *given: Any, **options: Any) -> Any:
        return self.function(*given, **options) * self.share


REPLACED = {
    "a class's forward": (modeling_llama.LlamaMLP, "forward"),
    "a function beside the classes": (modeling_llama, "repeat_kv"),
    "a function of torch.nn": (torch.nn.functional, "silu"),
    "a class of torch.nn": (nn.Linear, "forward"),
    "a function of torch": (torch, "softmax"),
    "a method of tensors": (torch.Tensor, "softmax"),
}


@pytest.mark.parametrize("place", REPLACED)
@pytest.mark.parametrize("replacement", [halved, Halved])
def test_replaced_code_of_a_package_is_another_computation(
    place: str, replacement: Callable[..., Any], llama: HookedModel, pairs: PromptPairs
) -> None:
    owner, name = REPLACED[place]
    before = identity_of(llama, pairs)
    original = getattr(owner, name)
    seen = []
    for share in (0.5, 0.25):
        with changed(owner, name, replacement(original, share)):
            seen.append(identity_of(llama, pairs))
            assert identity_of(llama, pairs) == seen[-1], "the same replacement is recognised"
    assert before not in seen and seen[0] != seen[1]
    assert identity_of(llama, pairs) == before


def test_replaced_code_is_refused_where_nobody_can_tell_what_it_depends_on(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    log = object()

    def patched(self: Any, states: Any) -> Any:
        assert log
        return states

    with (
        changed(modeling_llama.LlamaMLP, "forward", patched),
        pytest.raises(RunError, match=r"your own that cannot be described .*object object"),
    ):
        identity_of(llama, pairs)


@pytest.mark.parametrize("family", ["Qwen2", "Gemma 2", "Gemma 3", "Qwen3", "OLMo 2"])
def test_rotations_of_another_family_are_part_of_the_identity_where_they_are_used(
    family: str,
) -> None:
    """TransformerLens imports LLaMA's function while the attention of other families runs."""
    model = al.load_model((EVERY[family].make(60), None))
    tokens = torch.arange(8)[None] + 5
    before, logits = code_hash(model), model(tokens)
    right = modeling_llama.apply_rotary_pos_emb

    def smaller(*given: Any, **options: Any) -> Any:
        queries, keys = right(*given, **options)
        return 0.5 * queries, keys

    with changed(modeling_llama, "apply_rotary_pos_emb", smaller):
        assert not torch.equal(model(tokens), logits)
        assert code_hash(model) != before
    assert torch.equal(model(tokens), logits) and code_hash(model) == before


def test_a_run_gives_no_numbers_of_before_a_class_was_changed(
    make_model: Callable[..., Any], pairs: PromptPairs, tmp_path: Any
) -> None:
    model = make_model("llama")
    norm = modeling_llama.LlamaRMSNorm
    with open_run("patched", {}, root=tmp_path) as run:
        first = al.path_patch(model, pairs, run=run, engine="hooks", senders=["1.0"], **QUIET)
        with changed(norm, "forward", halved(norm.forward)):
            saved = al.path_patch(model, pairs, run=run, engine="hooks", senders=["1.0"], **QUIET)
            fresh = al.path_patch(model, pairs, engine="hooks", senders=["1.0"], **QUIET)
    assert torch.equal(saved.logit, fresh.logit)
    assert not torch.equal(saved.logit, first.logit)


def _global_forward() -> Any:
    return nn_module.register_module_forward_hook(lambda *_: None)


def _global_forward_pre() -> Any:
    return nn_module.register_module_forward_pre_hook(lambda *_: None)


def _global_backward() -> Any:
    return nn_module.register_module_full_backward_hook(lambda *_: None)


def _global_backward_pre() -> Any:
    return nn_module.register_module_full_backward_pre_hook(lambda *_: None)


@pytest.mark.parametrize(
    "register", [_global_forward, _global_forward_pre, _global_backward, _global_backward_pre]
)
def test_hooks_of_all_modules_are_refused(
    register: Callable[[], Any], llama: HookedModel, pairs: PromptPairs
) -> None:
    handle = register()
    try:
        with pytest.raises(RunError, match=r"at every module.*run="):
            identity_of(llama, pairs)
    finally:
        handle.remove()
    identity_of(llama, pairs)


@pytest.mark.parametrize("kind", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_are_refused(kind: str, llama: HookedModel, pairs: PromptPairs) -> None:
    handle = getattr(llama.bridge.original_model.model.norm, kind)(lambda *_: None)
    try:
        with pytest.raises(RunError, match=r"found <function .* at ln_final.*run="):
            identity_of(llama, pairs)
    finally:
        handle.remove()
    identity_of(llama, pairs)


def _silent(gradient: Any, hook: Any) -> Any:
    return gradient * 0


@pytest.mark.parametrize("function", [_silent, functools.partial(_silent), Halved(_silent, 0.5)])
def test_a_backward_hook_is_refused_in_transformerlens_wrapper(
    function: Callable[..., Any], llama: HookedModel, pairs: PromptPairs
) -> None:
    llama.bridge.add_hook("blocks.1.attn.hook_z", function, dir="bwd")
    try:
        with pytest.raises(RunError, match=r"at blocks\.1.*run="):
            identity_of(llama, pairs)
    finally:
        llama.bridge.reset_hooks()
    identity_of(llama, pairs)


def test_a_forward_that_took_a_frameworks_name_is_no_frameworks(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    norm = llama.bridge.original_model.model.norm.original_component
    norm.forward = halved(norm.forward)
    try:
        with pytest.raises(RunError, match=r"forward"):
            identity_of(llama, pairs)
    finally:
        del norm.forward


def test_a_mode_that_sees_every_operation_is_refused(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    from torch.overrides import TorchFunctionMode

    class Rounding(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            return func(*args, **(kwargs or {}))

    with Rounding(), pytest.raises(RunError, match=r"every operation of PyTorch"):
        identity_of(llama, pairs)


def test_pytorchs_settings_are_part_of_the_identity(llama: HookedModel, pairs: PromptPairs) -> None:
    seen = [identity_of(llama, pairs)]
    certified = [state_digest(llama)]  # by which a process knows the models that it has checked
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            seen.append(identity_of(llama, pairs))
            certified.append(state_digest(llama))
    assert len({*certified}) == 3
    with changed(torch.backends.mkldnn, "enabled", False):
        seen.append(identity_of(llama, pairs))
    torch.use_deterministic_algorithms(True)
    seen.append(identity_of(llama, pairs))
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.enable_math_sdp(False)
    seen.append(identity_of(llama, pairs))
    torch.backends.cuda.enable_math_sdp(True)
    torch.set_default_dtype(torch.float64)
    seen.append(identity_of(llama, pairs))
    torch.set_default_dtype(torch.float32)
    assert all(one != other for i, one in enumerate(seen) for other in seen[:i])
    assert identity_of(llama, pairs) == seen[0]


def test_a_run_gives_no_numbers_of_autocast(
    llama: HookedModel, pairs: PromptPairs, tmp_path: Any
) -> None:
    with open_run("autocast", {}, root=tmp_path) as run:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = al.knockout_curve(llama, pairs, [al.Head(1, 0)], ks=[1], run=run)
        exact = al.knockout_curve(llama, pairs, [al.Head(1, 0)], ks=[1], run=run)
    fresh = al.knockout_curve(llama, pairs, [al.Head(1, 0)], ks=[1])
    assert torch.equal(exact.probability, fresh.probability)
    assert not torch.equal(exact.probability, rounded.probability)


def test_the_tokenizer_is_part_of_the_identity(
    make_model: Callable[..., Any], pairs: PromptPairs, tmp_path: Any
) -> None:
    """A knockout leaves BOS out, so another BOS gives other numbers for the same tokens."""
    model = make_model("llama")
    assert bool((pairs.reference[:, 0] == model.tokenizer.bos_token_id).all())
    curves = []
    with open_run("bos", {}, root=tmp_path) as run:
        for token in (model.tokenizer.bos_token, model.tokenizer.convert_ids_to_tokens(7)):
            with changed(model.tokenizer, "bos_token", token):
                heads = [al.Head(0, 0), al.Head(1, 0)]
                found = al.knockout_curve(model, pairs, heads, ks=[2], run=run)
                fresh = al.knockout_curve(model, pairs, heads, ks=[2])
            assert torch.equal(found.probability, fresh.probability)
            curves.append(found.probability)
    assert not torch.equal(*curves)
    before = tokenizer_hash(model.tokenizer)
    model.tokenizer(["one two", "one"], padding=True)
    assert tokenizer_hash(model.tokenizer) == before, "the padding of a call leaves no trace"
    other = copy.deepcopy(model.tokenizer)
    other.add_tokens(["seventeen"])
    assert tokenizer_hash(other) != before == identity_of(model, pairs)["model"]["tokenizer_sha256"]


def test_texts_are_part_of_the_identity(llama: HookedModel, pairs: PromptPairs) -> None:
    texts = [replace(pairs, reference_text=(word,) * 6) for word in ("a", "b")]
    assert identity_of(llama, texts[0]) != identity_of(llama, texts[1])


class Asked(Exception):
    """Raised in place of a computation, with its identity."""


def identity_in_call(call: Callable[..., Any], *given: Any, **settings: Any) -> Any:
    with pytest.MonkeyPatch.context() as patched:

        def of(run: Any, name: Any, model: Any, pairs: Any, **question: Any) -> Any:
            raise Asked(identity_of(model, pairs, **question))

        patched.setattr(ResultSlot, "of", of)
        with pytest.raises(Asked) as asked:
            call(*given, **settings)
    return asked.value.args[0]


ATTRIBUTED: tuple[dict[str, Any], ...] = (
    {},
    {"method": "eap_ig"},
    {"method": "eap_ig", "steps": 3},
    {"method": "atp"},
    {"paths": "direct"},
    {"metric": "logit"},
    {"batch_size": 2},
    {"metric": "logit_difference", "foil": torch.arange(6) + 6},
    {"metric": "logit_difference", "foil": torch.arange(6) + 7},
    {"metric": "digit_contrast", "candidates": [3, 4]},
    {"metric": "digit_contrast", "candidates": [3, 5]},
)


def test_each_setting_of_attribution_is_part_of_the_identity(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    seen = [identity_in_call(al.attribute, llama, pairs, **one) for one in ATTRIBUTED]
    assert all(one != other for i, one in enumerate(seen) for other in seen[:i])


PATCHED: tuple[dict[str, Any], ...] = (
    *({}, {"senders": ["0.0", "1.0"]}, {"until": -0.1}, {"until": "top3"}, {"until": "top4"}),
    *({"paths": "direct"}, {"metric": "logit"}, {"engine": "hooks"}, {"certify": False}),
    *({"spot_checks": 2}, {"batch_size": 2}),
)


def test_each_setting_of_path_patching_is_part_of_the_identity(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    seen = [identity_in_call(al.path_patch, llama, pairs, **one) for one in PATCHED]
    assert all(one != other for i, one in enumerate(seen) for other in seen[:i])


READ: tuple[dict[str, Any], ...] = (
    *({}, {"senders": ["0.0", "1.0"]}, {"senders": "together"}, {"inputs": "v"}, {"via": "direct"}),
    *({"inputs": ["v", "q"]}, {"positions": -1}, {"positions": 0}, {"group": "head"}),
    *({"paths": "direct"}, {"metric": "logit"}, {"batch_size": 2}),
)


def test_each_setting_of_edges_is_part_of_the_identity(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    seen = [identity_in_call(al.edge_effects, llama, pairs, "2.1", **one) for one in READ]
    seen.append(identity_in_call(al.edge_effects, llama, pairs, "2.2"))
    assert all(one != other for i, one in enumerate(seen) for other in seen[:i])


OF_NEURONS: tuple[dict[str, Any], ...] = (
    *({}, {"paths": "via_mlps"}, {"metric": "logit"}, {"top": 2}, {"top": 3}),
    *({"metric": "digit_contrast", "candidates": [3, 4]},),
    *({"metric": "digit_contrast", "candidates": [3, 5]},),
    *({"metric": "logit_difference", "foil": torch.arange(6) + n} for n in (6, 7)),
)


def test_each_setting_of_effects_of_neurons_is_part_of_the_identity(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    seen = [identity_in_call(al.neuron_effects, llama, pairs, [1], **one) for one in OF_NEURONS]
    seen.append(identity_in_call(al.neuron_effects, llama, pairs, [2]))
    assert all(one != other for i, one in enumerate(seen) for other in seen[:i])


def test_a_screened_computation_is_neither_the_full_one_nor_that_of_another_screen(
    llama: HookedModel, pairs: PromptPairs, tmp_path: Any
) -> None:
    """All keep every component, so that the same effects are computed: the records differ."""
    screen = al.path_patch(llama, pairs, **QUIET)
    n = llama.n_layers * llama.n_heads + llama.n_layers
    order = torch.arange(screen.heads.per_pair.numel()).reshape(screen.heads.per_pair.shape)
    other = replace(screen, heads=replace(screen.heads, per_pair=order + 1.0))
    settings: list[dict[str, Any]] = [
        {"screen": screen, "keep": n},
        {},
        {"screen": other, "keep": n},
        {"screen": screen, "keep": n - 2},  # the two others are checked, so all are computed
        {"screen": screen, "keep": n},
    ]
    with open_run("screened", {}, root=tmp_path) as run:
        notes = [
            al.path_patch(llama, pairs, run=run, **one, **QUIET).computation.get("screen", {})
            for one in settings
        ]
    assert notes[1] == {} != notes[0] == notes[4]
    assert [len(note["kept"]) for note in (notes[0], notes[2], notes[3])] == [n, n, n - 2]
    assert notes[0]["kept"] != notes[2]["kept"]
