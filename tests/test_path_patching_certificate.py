"""The certificate: each check sees a model, or a sweep, that was broken on purpose."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracles import make_pairs
from torch import Tensor

from arith_lens.components import Head, Mlp
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import CertificateError, engines, path_patch, sweep, trunk
from arith_lens.path_patching.recording import record_end

CHECKS = {
    "heads": "sum of the heads' writes and the bias = attn_out",
    "mlps": "recomputed MLP = recorded mlp_out",
    "logit": "unpatched row = the model's logit",
    "null": "patched with its own z of another run, each sender moves nothing",
    "all": "patched with all of X_c = the model's logit of X_c",
}


@pytest.fixture
def pairs(model: Any) -> PromptPairs:
    return make_pairs(model)


def larger(value: Tensor, hook: Any) -> Tensor:
    return 1.01 * value


def shifted(value: Tensor, hook: Any) -> Tensor:
    return value + 0.1


def larger_in_the_second_half(value: Tensor, hook: Any) -> Tensor:
    """Of a batch of references, then counterfactuals: in the counterfactual run alone."""
    value = value.clone()
    value[len(value) // 2 :] *= 1.1
    return value


def noisy(value: Tensor, hook: Any) -> Tensor:
    """As dropout in the attention: another z in each run, consistent within it."""
    return value + 0.05 * value.abs().max() * torch.randn_like(value)


def aware_of_the_batch(value: Tensor, hook: Any) -> Tensor:
    """As experts with a shared capacity: what a prompt gives depends on its neighbours."""
    return value * (1 + 0.02 * len(value))


BREAKAGES: list[tuple[str, Callable[..., Tensor], set[str]]] = [
    ("blocks.1.hook_attn_out", shifted, {"heads"}),
    ("blocks.1.hook_attn_out", larger, {"heads", "all"}),
    ("blocks.1.hook_resid_post", larger, {"mlps", "logit", "null", "all"}),
    ("unembed.hook_in", larger, {"logit", "all"}),
    ("blocks.1.hook_resid_post", larger_in_the_second_half, {"all"}),
    ("blocks.1.attn.hook_z", noisy, {"null"}),
    ("blocks.1.attn.hook_z", aware_of_the_batch, {"null"}),
]


@pytest.mark.parametrize(("name", "breakage", "seen"), BREAKAGES)
def test_a_model_that_does_something_else_is_refused_with_the_number(
    model: Any, pairs: PromptPairs, name: str, breakage: Callable[..., Tensor], seen: set[str]
) -> None:
    with torch.random.fork_rng(), model.hooks([(name, breakage)]):
        torch.manual_seed(0)
        with pytest.raises(CertificateError) as caught:
            path_patch(model, pairs)
    lines = {line.split("  ")[-1]: line for line in str(caught.value).splitlines()}
    for check, text in CHECKS.items():
        state, number = lines[text].split()[:2]
        assert state == ("FAILED" if check in seen else "passed"), (check, number)
        assert (float(number) > 1e-4) == (check in seen)


def test_every_check_is_seen_to_fail_alone_or_where_another_cannot_pass() -> None:
    """What breaks the MLPs or the logit of X_r breaks the logit of X_c too."""
    assert set.union(*(seen for *_, seen in BREAKAGES)) == set(CHECKS)
    for check in ("heads", "null", "all"):
        assert {check} in [seen for *_, seen in BREAKAGES]


def test_dropout_that_was_left_on_is_found_out(make_model: Callable[..., Any]) -> None:
    model = make_model("llama", attention_dropout=0.2)
    pairs = make_pairs(model)
    path_patch(model, pairs)
    model.bridge.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        with pytest.raises(CertificateError, match=f"FAILED  .*{CHECKS['null']}"):
            path_patch(model, pairs)


@torch.no_grad()
@pytest.mark.parametrize("mistake", ["layers", "norm", "writes", "column"])
def test_a_wrong_sweep_is_found_out(model: Any, pairs: PromptPairs, mistake: str) -> None:
    right = trunk.trunk_of(model)
    recording, answer = record_end(model, pairs, logits=True), pairs.answer
    alone = [record_end(model, pair) for pair in pairs]
    senders = sweep.Senders.of([Head(0, 0), Head(1, 1), Mlp(0)], model.cfg.n_layers)
    good = engines.certificate_of(right, recording, alone, answer, senders)
    assert not good.failed and max(good.found.values()) < 1e-5
    wrong = {
        "layers": replace(right, mlps=[right.mlps[1], right.mlps[0], *right.mlps[2:]]),
        "norm": replace(right, final_norm=lambda rows: rows),
        "writes": replace(right, attentions=list(reversed(right.attentions))),
        "column": replace(right, unembed=SimpleNamespace(W_U=right.unembed.W_U.flip(1))),
    }[mistake]
    assert engines.certificate_of(wrong, recording, alone, answer, senders).failed


def test_a_number_that_is_none_has_failed() -> None:
    certificate = engines.Certificate({"a check": float("nan")}, allowed=1.0, n_pairs=1)
    with pytest.raises(CertificateError, match="FAILED  nan  a check"):
        certificate.require()


def test_the_numbers_are_kept_with_the_result(model: Any, pairs: PromptPairs) -> None:
    certificate = path_patch(model, pairs).computation["certificate"]
    assert certificate["n_pairs"] == 2, "a longest and a shortest prompt"
    assert set(certificate["found"]) == set(CHECKS.values())
    assert max(certificate["found"].values()) < 1e-5 < certificate["allowed"]
    assert certificate["found"][CHECKS["null"]] > 0, "the check must be able to fail"
    assert "certificate" not in path_patch(model, pairs, certify=False).computation


@pytest.mark.parametrize(
    ("dtype", "allowed"),
    [(torch.float32, 1e-4), (torch.bfloat16, 5e-2), (torch.float16, 1e-2)],
)
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_tolerances_follow_the_dtype_and_leave_room(
    make_model: Callable[..., Any], family: str, dtype: torch.dtype, allowed: float
) -> None:
    model = make_model(family)
    pairs = make_pairs(model)
    model.bridge.original_model.to(dtype)
    certificate = path_patch(model, pairs).computation["certificate"]
    assert certificate["allowed"] == allowed
    assert max(certificate["found"].values()) < allowed / 2
    broken = model.hooks([("blocks.0.hook_resid_post", lambda value, hook: 1.3 * value)])
    with broken, pytest.raises(CertificateError):
        path_patch(model, pairs)
