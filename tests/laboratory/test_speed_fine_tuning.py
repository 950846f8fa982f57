"""The bounds are what plain torch counts, the library computes no more, and nothing is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from arith_lens import Head, Mlp
from arith_lens.fine_tuning.pieces import pieces_of, slice_model
from laboratory.speed import fine_tuning
from laboratory.speed import fine_tuning_plan as plan
from laboratory.speed.fine_tuning import tuner_of
from laboratory.speed.fine_tuning_plan import METHODS, STEP_SHAPES, upper_heads
from laboratory.speed.measure import GIB
from laboratory.speed.shapes import Shape, random_llama

SMALL = Shape(5, 32, 4, 48, 100, n_pairs=3, n_tokens=6)
CHOICES = {
    "heads": ([Head(2, 1), Head(2, 3), Head(4, 0)], []),
    "an MLP below": ([Head(3, 1)], [Mlp(1)]),
    "both in the lowest layer": ([Head(1, 1)], [Mlp(1), Mlp(4)]),
    "MLPs alone": ([], [Mlp(2), Mlp(3)]),
    "the first layer": ([Head(0, 2)], []),
}


def eager(shape: Shape = SMALL) -> Any:
    model = random_llama(shape, "cpu", torch.float32)
    model.set_attn_implementation("eager")  # its products are counted one by one
    return model.train()


def tokens() -> Tensor:
    return torch.arange(SMALL.n_pairs * SMALL.n_tokens).reshape(SMALL.n_pairs, -1)


def counted(model: nn.Module) -> int:
    """FLOPs of forward and backward."""
    ids = tokens()
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return counter.get_total_flops()


class Parts(nn.Module):
    """A matrix cut into parts of plain torch, of which some are trained: no code of the library."""

    def __init__(self, linear: nn.Linear, dim: int, tuned: list[int], n_heads: int) -> None:
        super().__init__()
        self.dim, self.n = dim, n_heads
        cut = linear.weight.detach().chunk(n_heads, dim)
        self.parts = nn.ParameterList(
            nn.Parameter(part.clone(), requires_grad=index in tuned)
            for index, part in enumerate(cut)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.dim == 0:
            return torch.cat([functional.linear(x, part) for part in self.parts], -1)
        pieces = zip(x.chunk(self.n, -1), self.parts, strict=True)
        return torch.stack([functional.linear(*piece) for piece in pieces]).sum(0)


def in_plain_torch(heads: list[Head], mlps: list[Mlp]) -> Any:
    model = eager().requires_grad_(False)
    for layer in {head.layer for head in heads}:
        tuned = [head.index for head in heads if head.layer == layer]
        attention = model.model.layers[layer].self_attn
        for part, dim in (("q", 0), ("k", 0), ("v", 0), ("o", 1)):
            linear = getattr(attention, f"{part}_proj")
            setattr(attention, f"{part}_proj", Parts(linear, dim, tuned, SMALL.n_heads))
    for mlp in mlps:
        model.model.layers[mlp.layer].mlp.requires_grad_(True)
    return model


def test_full_fine_tuning_needs_what_torch_counts() -> None:
    assert plan.full_work(SMALL).total == counted(eager())


@pytest.mark.parametrize("choice", CHOICES)
def test_precise_needs_what_torch_counts_and_the_library_computes_no_more(choice: str) -> None:
    heads, mlps = CHOICES[choice]
    bound = plan.precise_work(SMALL, heads, mlps).total
    assert bound < plan.full_work(SMALL).total
    assert counted(in_plain_torch(heads, mlps)) == bound
    model = eager()
    slice_model(model, pieces_of(model, heads, mlps), dtype=torch.float32)
    assert counted(model) == bound


def test_lora_needs_what_torch_counts() -> None:
    from peft import LoraConfig, get_peft_model

    targets = [f"{part}_proj" for part in "qkvo"]
    adapted = get_peft_model(eager(), LoraConfig(r=3, target_modules=targets))
    assert plan.lora_work(SMALL, 3).total == counted(adapted)


def kept_bytes(model: nn.Module) -> int:
    """What autograd keeps for the backward, weights and repeats left out."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    sizes: dict[int, int] = {}

    def save_tensor(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = tokens()
    with torch.autograd.graph.saved_tensors_hooks(save_tensor, lambda tensor: tensor):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    assert loss.requires_grad  # and the graph lives until here, so that no address came twice
    return sum(sizes.values())


def sliced(n_layers: int, layer: int) -> Any:
    shape = Shape(n_layers, 32, 4, 48, 100, n_pairs=3, n_tokens=6)
    model = eager(shape)
    slice_model(model, pieces_of(model, [Head(layer, 1)]), dtype=torch.float32)
    return model


def test_nothing_is_kept_below_the_lowest_tuned_layer() -> None:
    """As many layers above the tuned one keep as much, however many are below."""
    shallow, deep = kept_bytes(sliced(2, 0)), kept_bytes(sliced(8, 6))
    assert shallow == deep
    assert kept_bytes(sliced(8, 5)) > 1.3 * deep, "the test must be able to fail"
    assert kept_bytes(eager()) > kept_bytes(sliced(5, 4))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", METHODS)
def test_a_measured_step_trains(method: str, dtype: str) -> None:
    tuner = tuner_of(method, SMALL, dtype=dtype, recompute=dtype == "bfloat16")
    losses = []
    for _ in range(3):
        losses.append(float(tuner.gradients()))
        assert tuner.update() > 0
    assert losses[0] > 0 and tuner.state_bytes > 2 * 4 * tuner.n_tuned
    assert tuner.flops > 0


def test_lora_has_as_many_parameters_as_precise() -> None:
    shape = STEP_SHAPES["tiny"]
    sizes = {method: tuner_of(method, shape).n_tuned for method in METHODS}
    assert sizes["lora"] == sizes["precise"] < sizes["full"] / 10


def test_tuned_heads_are_in_the_upper_half_and_as_many_as_the_papers() -> None:
    heads = upper_heads(STEP_SHAPES["llama-7b"])
    assert len(set(heads)) == 32 and {head.layer for head in heads} == set(range(16, 32))
    assert len(set(upper_heads(STEP_SHAPES["bench"]))) == 4


def kept_by(tuner: fine_tuning.Tuner) -> int:
    """What autograd keeps of a real forward, weights and repeats left out."""
    weights = {weight.untyped_storage().data_ptr() for weight in tuner.trainer.model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def save_tensor(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(save_tensor, lambda tensor: tensor)
    with hooks, tuner.trainer.accelerator.autocast():
        loss = tuner.trainer.model(**tuner.batch).loss
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", METHODS)
def test_memory_is_planned_as_a_real_step_takes_it(
    method: str, dtype: str, recompute: bool
) -> None:
    need = plan.needed(method, SMALL, dtype, recompute=recompute)
    tuner = tuner_of(method, SMALL, dtype=dtype, recompute=recompute)
    assert need.weights == sum(weight.nbytes for weight in tuner.trainer.model.parameters())
    most = 1.2 if method == "lora" and not recompute else 1.0  # its attention keeps its weights
    assert kept_by(tuner) <= need.saved <= most * kept_by(tuner)
    tuner.gradients()
    gradients = [weight.grad for weight in tuner.trained]
    assert need.trained == sum(grad.nbytes for grad in gradients if grad is not None)
    tuner.update()
    counters = 4 * len(tuner.trained)
    assert 2 * need.trained + counters == tuner.state_bytes


def test_the_plan_says_which_of_a_7b_fits_in_how_much() -> None:
    need = plan.needed("precise", STEP_SHAPES["llama-7b"], "bfloat16")
    slices = 32 * 4 * 128 * 4096
    assert need.trained == 4 * slices and need.weights == 2 * 6_738_415_616 + 4 * slices
    assert 0.5e9 < need.saved < 3e9
    full = plan.Need(4 * 6_738_415_616, 4 * 6_738_415_616, 17 * 10**9, 0)
    assert full.peak == 5 * 4 * 6_738_415_616, "AdamW takes more than what is kept"
    assert plan.fitting_card(full.peak) == 141 and plan.fitting_card(2 * full.peak) is None
    assert plan.fitting_card(need.peak) == 16 and plan.fitting_card(int(15.3 * GIB)) == 24


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., str]:
    def run(**options: Any) -> str:
        config = fine_tuning.StepConfig(size="tiny", rows=2, repeats=2, **options)
        fine_tuning.speed_fine_tuning(config, root=tmp_path)
        (report,) = (tmp_path / "speed_fine_tuning").glob("*/report.md")
        return report.read_text()

    return run


def test_the_command_measures_speed(tiny: Callable[..., str]) -> None:
    report = tiny(parts=("speed",))
    for method in METHODS:
        assert f"| {method} " in report


def test_a_dry_run_plans_the_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine_tuning.speed_fine_tuning(fine_tuning.StepConfig(size="tiny"), root=tmp_path, dry_run=True)
    printed = capsys.readouterr().out
    assert printed.count("| precise ") == 2 and printed.count("16 |\n") >= 2
    assert not [*tmp_path.iterdir()]


def test_the_command_says_where_there_is_no_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(SystemExit, match="expected a GPU for --device cuda"):
        fine_tuning.speed_fine_tuning(fine_tuning.StepConfig(device="cuda"))
