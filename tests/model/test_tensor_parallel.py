"""Two processes that hold one model together compute what one process computes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.children import Script
from support.families import GROUPED, Family

from arith_lens import load_model
from arith_lens.tensor_parallel import VARIABLE

FAMILIES = {
    # three key heads for two processes: the third one is split
    "llama": Family("Llama", GROUPED | {"num_attention_heads": 6, "hidden_size": 48}),
    # biases, and a number of neurons and of tokens that is odd
    "starcoder": Family("Starcoder2", GROUPED | {"intermediate_size": 47}),
}
KEY_HEADS = {"llama": 3, "starcoder": 2}
SCRIPT = """
import os
import sys
from pathlib import Path
import torch
from safetensors.torch import save_file
import arith_lens as al
from arith_lens.__main__ import main
from arith_lens.model import weights_hash

folder, rank = Path(sys.argv[1]), os.environ.get("RANK", "0")
heads = ["0.1", "1.2"]

def local(weight):
    return weight.to_local() if hasattr(weight, "to_local") else weight

def read(outcome):
    return torch.cat([outcome.probability, outcome.correct, outcome.top.flatten()])

def computed(model, pairs, run):
    effects = al.path_patch(model, pairs, metric="logit", batch_size=4, run=run, name="effects")
    options = {"ablation": "counterfactual", "positions": "end"}
    return {
        "logits": model(pairs.reference),
        "heads": effects.heads.per_pair,
        "mlps": effects.mlps.per_pair,
        "edges": al.edge_effects(model, pairs, ["1.2"], metric="logit").per_pair.nan_to_num(),
        "neurons": al.neuron_effects(model, pairs, ["MLP 1"], metric="logit").per_pair,
        "without": read(al.knock_out(model, pairs, heads, **options)),
        "alone": read(al.keep_only(model, pairs, heads, **options)),
        **al.record(model, pairs.reference, ["blocks.1.attn.hook_z", "blocks.1.mlp.hook_out"]),
    }

for source in ("llama", "starcoder"):
    model = al.load_model(folder / source)
    own = model.bridge.original_model
    generator = torch.Generator().manual_seed(0)
    tokens, other = torch.randint(3, model.d_vocab, (2, 9, 7), generator=generator)
    pairs = al.PromptPairs.from_tokens(tokens, other, tokens[:, 2])
    with al.open_run(source, {}, model=model, root=folder / "results") as run:
        values = computed(model, pairs, run)
    layers = [*own.model.layers.parameters()]
    sizes = [(local(weight).numel(), weight.numel()) for weight in layers]
    values["held"] = torch.tensor(sizes).sum(0)
    values["hash"] = torch.tensor(list(bytes.fromhex(weights_hash(model))))
    if rank == "1":
        local(model.blocks[0].mlp.out.original_component.weight.data).add_(0.5)
    values["changed"] = model(pairs.reference)
    values = {name: value.contiguous() for name, value in values.items()}
    save_file(values, folder / f"{source}{rank}.safetensors")
if "RANK" in os.environ:
    main(["map", "reference", "--n", "3", "--out", str(folder / "pages")])
"""


@pytest.fixture(scope="module")
def folders(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """What the script writes, by the number of processes."""
    folders = {n: tmp_path_factory.mktemp(f"of-{n}") for n in (1, 2)}
    for n, folder in folders.items():
        for name, family in FAMILIES.items():
            odd = len(tokenizer) + 1 - len(tokenizer) % 2
            model = family.make(odd, num_key_value_heads=KEY_HEADS[name])
            model.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
        variables: dict[str, Any] = {VARIABLE: "1"} if n == 2 else {}
        script = Script(SCRIPT, str(folder), output=folder / "printed", n=n - n % 2, **variables)
        assert script.wait() == 0, script.printed[-6000:]
    return folders


@pytest.mark.parametrize("source", FAMILIES)
def test_two_processes_hold_half_of_the_layers_each_and_compute_the_same(
    folders: dict[int, Path], source: str
) -> None:
    alone = load_file(folders[1] / f"{source}0.safetensors")
    for rank in (0, 1):
        together = load_file(folders[2] / f"{source}{rank}.safetensors")
        held, of = together.pop("held").tolist()
        assert 0.49 < held / of < 0.55, "norms and biases after a sum are in both"
        for name, value in together.items():
            if name in ("hash", "changed"):
                continue
            assert (value - alone[name]).abs().max() < 1e-4, name
            assert value.abs().max() > 1e-2, f"{name} could not differ"
        assert torch.equal(together["hash"], alone["hash"]), "of the whole weights"
        difference = (together["changed"] - alone["logits"]).abs().max()
        assert difference > 0.1, "a weight that the second process holds counts in both"


def test_the_first_process_alone_writes_and_prints(folders: dict[int, Path]) -> None:
    printed = (folders[2] / "printed").read_text("utf-8")
    assert printed.count("open ") == 1
    assert (folders[2] / "pages" / "reference-addition" / "map.html").is_file()
    for source in FAMILIES:
        (run,) = (folders[2] / "results" / source).glob("*/run.json")
        assert '"finished"' in run.read_text("utf-8")


def test_what_cannot_be_held_together_is_refused(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Family("StableLm", GROUPED).make(len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(ValueError, match="found 1 processes and 0 GPUs; start them with torchrun"):
        load_model(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="StableLmForCausalLM without; load it with device_map="):
        load_model(tmp_path)
    with pytest.raises(ValueError, match=r"neither device= nor device_map= with .*=1, found one"):
        load_model(tmp_path, device_map="auto")
    with monkeypatch.context() as older:
        older.setattr("arith_lens.tensor_parallel.find_spec", lambda name: None)
        with pytest.raises(ImportError, match=r"as version 5.23 does, found an older"):
            load_model(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ValueError, match="found 2 processes and 1 GPUs"):
        load_model(tmp_path)
