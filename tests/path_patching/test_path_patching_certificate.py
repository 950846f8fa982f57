"""The certificate: each check sees a model, or a sweep, that was broken on purpose."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
import torch
from oracles import make_pairs
from support.dropout import drop_always
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaForCausalLM

from arith_lens.components import Head, Mlp
from arith_lens.hooks import Edit, ablate_heads, ablate_mlps, scale_mlps
from arith_lens.metrics import Targets
from arith_lens.model import LogitScale, NormScale, checked_columns, load_model, unembedding
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    CertificateError,
    UnsupportedTrunk,
    certificate,
    engines,
    path_patch,
    recording,
    sweep,
)
from arith_lens.path_patching.recording import PromptBatch, record_pairs

CHECKS = {
    "heads": "sum of the heads' writes and the bias = attn_out",
    "mlps": "unpatched row = the model's residual stream",
    "logit": "unpatched row = the model's logit",
    "null heads": "z = z of another run of the prompt",
    "null mlps": "mlp_out = mlp_out of another run of the prompt",
    "norm": "final norm = a linear map, divided by its scale",
    "all": "patched with all of X_c = the model's logit of X_c",
}


@pytest.fixture
def pairs(model: Any) -> PromptPairs:
    return make_pairs(model)


def larger(value: Tensor, hook: Any) -> Tensor:
    return 1.01 * value


def shifted(value: Tensor, hook: Any) -> Tensor:
    return value + 0.1


def larger_in_row(value: Tensor, hook: Any, *, row: int) -> Tensor:
    """In one prompt of a batch alone, whichever prompt that is."""
    value = value.clone()
    value[row % len(value)] *= 1.5
    return value


def noisy(value: Tensor, hook: Any) -> Tensor:
    """As dropout in the attention: another z in each run, consistent within it."""
    return value + 0.05 * value.abs().max() * torch.randn_like(value)


def aware_of_the_batch(value: Tensor, hook: Any) -> Tensor:
    """As experts with a shared capacity: what a prompt gives depends on its neighbours."""
    return value * (1 + 0.02 * len(value))


Z, OUT = "blocks.1.attn.hook_z", "blocks.1.hook_attn_out"
everywhere = Edit(partial(torch.mul, other=1.01))
BREAKAGES: list[tuple[str, Callable[..., Tensor], set[str]]] = [
    (OUT, shifted, {"heads"}),
    (OUT, larger, {"heads", "all"}),
    ("blocks.1.hook_resid_post", everywhere, {"mlps", "logit", "all"}),
    ("unembed.hook_in", everywhere, {"logit", "all"}),
    (Z, noisy, {"null heads", "null mlps"}),
    (Z, aware_of_the_batch, {"null heads", "null mlps"}),
    *((Z, partial(larger_in_row, row=row), {"null heads", "null mlps"}) for row in (0, 3, -1)),
    ("blocks.2.attn.hook_z", noisy, {"null heads", "null mlps"}),
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


def test_one_prompt_that_a_hook_changes_is_found_out_in_every_row(llama: Any) -> None:
    pairs = make_pairs(llama)
    for row in range(2 * len(pairs)):
        hook = partial(larger_in_row, row=row)
        with llama.hooks([(Z, hook)]), pytest.raises(CertificateError, match="FAILED"):
            path_patch(llama, pairs)


@pytest.mark.parametrize("only", ["heads", "mlps"])
def test_each_half_of_the_null_check_fails_by_itself(
    model: Any, pairs: PromptPairs, monkeypatch: pytest.MonkeyPatch, only: str
) -> None:
    """Another run in which one kind of component puts out something else."""
    part, right = ("z" if only == "heads" else "mlp_out"), engines.record_pairs

    def otherwise(*args: Any, **options: Any) -> Any:
        once, repeated = right(*args, **options)
        assert repeated is not None
        return once, replace(repeated, **{part: 1.01 * getattr(repeated, part)})

    monkeypatch.setattr(engines, "record_pairs", otherwise)
    with pytest.raises(CertificateError) as caught:
        path_patch(model, pairs)
    failed = [line for line in str(caught.value).splitlines() if line.startswith("  FAILED")]
    assert [line.split("  ")[-1] for line in failed] == [CHECKS[f"null {only}"]]


def test_a_shortest_prompt_runs_again_in_a_row_of_its_own_padded_on_the_other_side(
    model: Any,
) -> None:
    pairs = make_pairs(model)
    shortest = int(pairs.lengths.argmin())
    batch = PromptBatch.of(pairs).with_repeated(shortest)
    assert len(batch) == 2 * len(pairs) + 1
    length = int(pairs.lengths[shortest])
    assert batch.mask[-1].tolist() == [True] * length + [False] * (batch.mask.shape[1] - length)
    assert torch.equal(batch.tokens[-1, :length], pairs.reference[shortest, -length:])
    once, repeated = record_pairs(model, pairs, logits=True, repeated=shortest)
    assert repeated is not None and repeated.logits is not None and once.logits is not None
    assert_close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-4)
    assert_close(repeated.z[0, :, 0], once.z[0, :, shortest])
    assert_close(repeated.mlp_out[0, :, 0], once.mlp_out[0, :, shortest])
    assert_close(repeated.logits[0, 0], once.logits[0, shortest])
    assert (once.z[0, :, shortest] - once.z[0, :, 0]).abs().max() > 1e-3


def test_padding_that_is_not_masked_is_found_out(
    model: Any, pairs: PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a model that ignores its mask."""
    right = recording._run

    def unmasked(model: Any, batch: PromptBatch, logits: Any) -> Any:
        return right(model, replace(batch, mask=torch.ones_like(batch.mask)), logits)

    monkeypatch.setattr(recording, "_run", unmasked)
    with pytest.raises(CertificateError, match=f"FAILED  .*{CHECKS['null heads']}"):
        path_patch(model, pairs)


def test_what_the_model_returns_counts_and_not_what_the_unembedding_gives(
    make_hf: Callable[..., Any], tokenizer: Any
) -> None:
    """A model of a supported family whose forward caps the logits afterwards."""

    class Capped(LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.logits = torch.tanh(cast(Tensor, output.logits))
            return output

    hf = make_hf("llama")
    pairs = make_pairs(hf)
    hf.__class__ = Capped
    with pytest.raises(CertificateError, match=f"FAILED  .*{CHECKS['logit']}"):
        path_patch(load_model((hf, tokenizer)), pairs)


UNEVEN = [
    ablate_mlps([0], ablation="zero", positions=-1),
    ablate_mlps([0], ablation="zero", positions=2),
    [("blocks.0.hook_mlp_out", larger)],
    [("blocks.0.mlp.hook_in", larger)],
    [("blocks.1.hook_resid_pre", larger)],
    [("ln_final.hook_in", larger)],
    [("unembed.hook_out", larger)],
]


@pytest.mark.parametrize("hooks", UNEVEN)
@pytest.mark.parametrize("certify", [True, False])
def test_hooks_that_may_act_on_some_rows_alone_are_refused_where_rows_are_computed(
    model: Any, pairs: PromptPairs, hooks: Any, certify: bool
) -> None:
    senders = [Head(1, 0), Mlp(1)]
    with model.hooks(hooks), pytest.raises(UnsupportedTrunk, match=r"act alike.*engine='hooks'"):
        path_patch(model, pairs, senders=senders, certify=certify)


@pytest.mark.parametrize(
    "hooks",
    [
        ablate_mlps([0], ablation="zero"),
        scale_mlps([1], 0.5),
        ablate_heads([Head(0, 1)], ablation="zero", positions=-1),
        ablate_heads([Head(1, 1)], ablation="zero"),
        ablate_heads([Head(0, 2)], ablation="zero", positions=2),
    ],
)
def test_with_hooks_that_it_can_reproduce_the_sweep_equals_the_hook_engine(
    model: Any, pairs: PromptPairs, hooks: Any
) -> None:
    senders = [Head(0, 0), Mlp(0), Head(1, 0), Mlp(1), Head(2, 3), Mlp(2)]
    settings: dict[str, Any] = {"senders": senders, "metric": "logit"}
    untouched = path_patch(model, pairs, **settings)
    with model.hooks(hooks):
        fast = path_patch(model, pairs, **settings)
        general = path_patch(model, pairs, engine="hooks", **settings)
    for part in ("heads", "mlps"):
        one, other, none = (
            getattr(result, part).per_pair.nan_to_num() for result in (fast, general, untouched)
        )
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
        assert (one - none).abs().max() > 1e-3, "the hooks matter"


def test_pairs_whose_prompts_are_equal_certify_nothing_and_that_is_said(llama: Any) -> None:
    pairs = make_pairs(llama)
    same = replace(pairs, counterfactual=pairs.reference)
    with pytest.warns(UserWarning, match="certificate shows nothing"):
        result = path_patch(llama, same, metric="logit")
    assert result.computation["certificate"]["vacuous"]
    assert not path_patch(llama, pairs).computation["certificate"]["vacuous"]


def test_senders_that_change_nothing_certify_nothing(llama: Any) -> None:
    """A head that puts out zero in both runs."""
    pairs = make_pairs(llama)
    silent = Head(0, 1)
    hooks = ablate_heads([silent], ablation="zero")
    with llama.hooks(hooks):
        with pytest.warns(UserWarning, match="certificate shows nothing"):
            path_patch(llama, pairs, senders=[silent], metric="logit")
        path_patch(llama, pairs, senders=[silent, Head(0, 0)], metric="logit")


def test_every_check_is_seen_to_fail_alone_or_where_another_cannot_pass() -> None:
    """What breaks the MLPs or the logit of X_r breaks the logit of X_c too; that of X_c alone, and
    the halves of the null check, are broken one by one in tests of their own."""
    assert set.union(*(seen for *_, seen in BREAKAGES)) == set(CHECKS) - {"norm"}
    assert {"heads"} in [seen for *_, seen in BREAKAGES]


def test_the_counterfactual_run_is_checked_by_itself(
    model: Any, pairs: PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = engines.record_pairs

    def wrong(*args: Any, **options: Any) -> Any:
        once, repeated = right(*args, **options)
        assert once.logits is not None
        logits = once.logits * torch.tensor([1, 1.1])[:, None, None]
        return replace(once, logits=logits), repeated

    monkeypatch.setattr(engines, "record_pairs", wrong)
    with pytest.raises(CertificateError) as caught:
        path_patch(model, pairs)
    failed = [line for line in str(caught.value).splitlines() if line.startswith("  FAILED")]
    assert [line.split("  ")[-1] for line in failed] == [CHECKS["all"]]


def test_a_norm_whose_scale_is_another_is_found_out(
    model: Any, pairs: PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that centres, taken for one that does not."""
    monkeypatch.setattr(NormScale, "centres", lambda *_: True)
    with pytest.raises(CertificateError) as caught:
        path_patch(model, pairs)
    failed = [line for line in str(caught.value).splitlines() if line.startswith("  FAILED")]
    assert [line.split("  ")[-1] for line in failed] == [CHECKS["norm"]]


def test_dropout_that_is_on_in_evaluation_mode_is_found_out(
    make_model: Callable[..., Any],
) -> None:
    model = make_model("llama")
    pairs = make_pairs(model)
    path_patch(model, pairs)
    drop_always(model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        with pytest.raises(CertificateError, match=f"FAILED  .*{CHECKS['null heads']}"):
            path_patch(model, pairs)


@torch.no_grad()
@pytest.mark.parametrize("mistake", ["layers", "norm", "writes", "column"])
def test_a_wrong_sweep_is_found_out(model: Any, pairs: PromptPairs, mistake: str) -> None:
    right = sweep.trunk_of(model)
    recorded, repeated = record_pairs(model, pairs, logits=True, repeated=0)
    assert repeated is not None
    senders = sweep.Senders.of([Head(0, 0), Head(1, 1), Mlp(0)], model.cfg.n_layers)

    def certified(computed: sweep.Trunk) -> certificate.Certificate:
        rows = sweep.sweep_rows(computed, recorded, senders)
        values = computed.read(rows, Targets(pairs.answer)).answer
        return certificate.certificate_of(
            computed, recorded, {0: repeated}, rows[0], values, pairs, senders
        )

    good = certified(right)
    assert not good.failed and max(good.found.values()) < 1e-5
    wrong = {
        "layers": replace(right, layers=[right.layers[1], right.layers[0], *right.layers[2:]]),
        "norm": replace(right, final_norm=lambda rows: rows),
        "writes": replace(right, attentions=list(reversed(right.attentions))),
        "column": replace(right, unembed=SimpleNamespace(W_U=right.unembed.W_U.flip(1))),
    }[mistake]
    assert certified(wrong).failed


def test_a_number_that_is_none_has_failed() -> None:
    broken = certificate.Certificate({"a check": float("nan")}, allowed=1.0, n_pairs=1)
    with pytest.raises(CertificateError, match="FAILED  nan  a check"):
        broken.require("the sweep to be right", "Correct it.")


def test_the_numbers_are_kept_with_the_result(model: Any, pairs: PromptPairs) -> None:
    numbers = path_patch(model, pairs).computation["certificate"]
    lengths = pairs.lengths.tolist()
    assert numbers["n_pairs"] == sum(min(2, lengths.count(length)) for length in {*lengths})
    assert set(numbers["found"]) == set(CHECKS.values())
    assert max(numbers["found"].values()) < 1e-5 < numbers["allowed"]
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
    numbers = path_patch(model, pairs).computation["certificate"]
    assert numbers["allowed"] == allowed
    assert max(numbers["found"].values()) < allowed / 2
    hook = Edit(partial(torch.mul, other=1.3))
    broken = model.hooks([("blocks.0.hook_resid_post", hook)])
    with broken, pytest.raises(CertificateError):
        path_patch(model, pairs)


@torch.no_grad()
def test_the_logits_of_chosen_pairs_are_the_rows_that_the_model_returns(model: Any) -> None:
    """The oracle is a forward of the whole batch, with logits at every position."""
    pairs = make_pairs(model)
    chosen = [1, len(pairs) - 1]
    some, _ = record_pairs(model, pairs, logits=chosen, repeated=0)
    expected = [
        model(tokens, attention_mask=pairs.attention_mask)[chosen, -1]
        for tokens in (pairs.reference, pairs.counterfactual)
    ]
    assert some.logits is not None and some.logits.shape == (2, 2, model.cfg.d_vocab)
    torch.testing.assert_close(some.logits, torch.stack(expected), atol=1e-4, rtol=1e-4)
    assert (some.logits[0, 0] - some.logits[0, 1]).abs().max() > 1e-2, "rows differ"
    columns = torch.tensor([3, 7, 50])
    few, _ = record_pairs(model, pairs, logits=chosen, columns=columns, repeated=0)
    assert few.logits is not None and few.columns is columns
    torch.testing.assert_close(few.logits, some.logits[..., columns], atol=1e-5, rtol=1e-5)
    again, _ = record_pairs(model, pairs, logits=chosen, repeated=0)
    assert again.logits is not None and again.logits.shape == some.logits.shape, "restored"


@torch.no_grad()
def test_the_unembedding_computes_the_chosen_rows_alone(llama: Any) -> None:
    """Of two pairs in both runs, at END, whatever else is in the batch: torch counts the rest."""
    pairs = make_pairs(llama)
    counts = []
    for logits, columns in ((False, None), ([0, 2], None), (True, None), ([0, 2], torch.arange(9))):
        with FlopCounterMode(display=False) as counter:
            record_pairs(llama, pairs, logits=logits, columns=columns, repeated=0)
        counts.append(counter.get_total_flops())
    element = 2 * llama.cfg.d_model
    row = element * llama.cfg.d_vocab
    n_prompts = 2 * len(pairs) + 1
    assert [count - counts[0] for count in counts] == [0, 4 * row, n_prompts * row, 4 * 9 * element]


@torch.no_grad()
def test_a_certificate_reads_few_columns_of_a_large_vocabulary(
    make_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the answers' logits, and of the others enough for the scale; the unembedding is
    still compared with the model's own."""
    columns: Any = checked_columns(torch.tensor([5, 77_777, 5]), 256_000)
    assert len(columns) < 1100 and {5, 77_777} < {*columns.tolist()} and columns[-1] > 255_000
    assert torch.equal(columns, columns.unique()), "in order, each once"
    model = make_model("llama")
    pairs = make_pairs(model)
    with patch.object(unembedding, "N_COLUMNS", 7):
        found = path_patch(model, pairs).computation["certificate"]["found"]
        assert max(found.values()) < 1e-4
        monkeypatch.setattr(LogitScale, "of", lambda cfg: LogitScale(factor=1.01))
        with pytest.raises(CertificateError, match=r"FAILED .* the model's logit"):
            path_patch(model, pairs)


def test_the_certificate_sweeps_nothing_again(
    model: Any, pairs: PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps = []

    def counted(*args: Any) -> Tensor:
        sweeps.append(args)
        return sweep.sweep_rows(*args)

    monkeypatch.setattr(engines, "sweep_rows", counted)
    path_patch(model, pairs, certify=False, progress=False)
    without = len(sweeps)
    path_patch(model, pairs, progress=False)
    assert without > 0
    assert len(sweeps) == 2 * without
