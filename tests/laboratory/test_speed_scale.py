"""The benchmark at scale, tried on a shape of its own that is small."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pandas
import pytest
import torch
from transformers import AutoModelForCausalLM

from arith_lens import load_model
from arith_lens.path_patching import plan
from laboratory.speed import path_patching, scale
from laboratory.speed.shapes import SHAPES, Shape, random_llama, random_token_pairs

SMALL = Shape(3, 32, 4, 48, 64, n_pairs=4, n_tokens=8, n_kv_heads=2)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", SMALL)
    monkeypatch.setattr("laboratory.speed.measure.SIDE", {"cpu": 64})


def config_of(**options: Any) -> scale.ScaleConfig:
    settings: dict[str, Any] = {"dtype": "float32"} | options
    return scale.ScaleConfig("tiny", n=1, tokens=8, **settings)


@pytest.mark.parametrize("place", ["made", "offload"])
def test_it_measures_and_keeps_what_it_prints(
    place: Literal["made", "offload"], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scale.speed_scale(config_of(place=place), root=tmp_path)
    printed = capsys.readouterr().out
    (report,) = tmp_path.glob("speed_scale/*/report.md")
    assert report.read_text("utf-8").strip() in printed
    parts, work = (pandas.read_csv(report.with_name(f"{name}.csv")) for name in ("parts", "work"))
    expected = [path_patching.RECORD, path_patching.PROPAGATE, path_patching.READOUT]
    assert [*parts.part] == expected
    weights = random_llama(SMALL, "meta", torch.float32).parameters()
    assert [*work.weights_bytes] == [4 * sum(weight.numel() for weight in weights)]
    assert [*work.n_pairs] == [4] and (work.seconds > 0).all() and (work.rate > 0).all()


def test_what_is_stored_is_a_checkpoint_of_the_shape(tmp_path: Path) -> None:
    """Its weights are drawn as Transformers draws them, and are the same wherever they are put."""
    folder = tmp_path / "weights"
    (tmp_path / "weights.partial").mkdir()  # of one that was killed
    tokens = random_token_pairs(SMALL).reference
    model = scale.load(config_of(place="offload", dtype="bfloat16"), folder)
    again = load_model(folder, dtype=torch.bfloat16, device="cpu")
    with torch.no_grad():
        assert torch.equal(model(tokens)[:, -1], again(tokens)[:, -1])
    assert not (tmp_path / "weights.partial").exists()
    files = {file.name for file in folder.glob("*.safetensors")}
    assert {f"part-{layer}.safetensors" for layer in range(SMALL.n_layers)} < files
    made = random_llama(SMALL, "cpu", torch.bfloat16)
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    stored, drawn_weights = loaded
    assert not drawn_weights["missing_keys"] and not drawn_weights["unexpected_keys"]
    for (name, a), (_, b) in zip(made.named_parameters(), stored.named_parameters(), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, name
        assert a.float().std().item() == pytest.approx(b.float().std().item(), rel=0.1), name


def test_the_work_is_what_the_plan_says() -> None:
    model = scale.load(config_of(), Path())
    pairs = random_token_pairs(SMALL)
    done = scale.patch_all(model, pairs, progress=False)
    assert done["flops"] == plan(model, pairs).flops and done["chunk_sizes"] == "[4]"
    assert done["share"] == pytest.approx(done["flops"] / done["seconds"] / done["rate"])


@pytest.mark.parametrize(
    ("size", "gib", "tflop_a_pair"),
    # Nearly all of it: MLPs of one token, n_heads (l + 1) + l + 1 of them in layer l.
    [("llama-7b", 12.55, 5.0), ("llama-13b", 24.24, 14.7), ("mistral-7b", 13.49, 6.5)],
)
def test_a_dry_run_makes_no_weights(
    size: scale.Size,
    gib: float,
    tflop_a_pair: float,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scale.speed_scale(
        scale.ScaleConfig(size, device="cuda", tokens=12), root=tmp_path / "none", dry_run=True
    )
    printed = capsys.readouterr().out
    assert f"{gib:.2f} GiB in bfloat16" in printed and "4000 times 12 tokens" in printed
    shape = SHAPES[size]
    rows = sum(shape.n_heads * (layer + 1) + layer + 1 for layer in range(shape.n_layers))
    mlps = 3 * 2 * shape.d_model * shape.d_mlp * rows / 1e12
    said = float(printed.rpartition("TFLOP, ")[2].split()[0])
    assert mlps < said < 1.15 * mlps
    assert said == pytest.approx(tflop_a_pair, rel=0.05)
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit, match="expected a GPU"):
            scale.speed_scale(scale.ScaleConfig("tiny", device="cuda"), root=tmp_path)
    monkeypatch.setattr(scale, "_free", lambda device: 2**30)
    with pytest.raises(SystemExit, match=r"13 GiB\), found 1 GiB free; take --place offload"):
        scale.speed_scale(scale.ScaleConfig("llama-7b"), root=tmp_path)


def test_grouped_shapes_are_mistrals() -> None:
    assert type(random_llama(SMALL, "meta", torch.float32)).__name__ == "MistralForCausalLM"
    plain = replace(SMALL, n_kv_heads=None)
    assert type(random_llama(plain, "meta", torch.float32)).__name__ == "LlamaForCausalLM"
    assert "2 of keys and values" in str(SHAPES["tiny"])
