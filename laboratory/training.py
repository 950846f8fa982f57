"""Train a reference model from scratch, and measure what it can do.

    python -m laboratory train_reference --steps 6000
    python -m laboratory measure_reference --folder arith_lens/reference/reference

Only the seed and the step's number decide the batch of a step, and checkpoints hold the optimizer's
state. So a killed training can be continued.
"""

import json
import math
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch.nn import functional
from tqdm.auto import tqdm

from experiments.command import exit_on_user_error
from laboratory.model_cards import (
    FIGURES,
    card_rows,
    figures,
    load_plain,
    pack,
    question_outcomes,
)
from laboratory.sets import write_sets
from laboratory.tokenizer import VOCABULARY, train_tokenizer
from laboratory.world import document, documents

TOKENIZER_DOCUMENTS = 20_000
CARD_TABLE = ("<!-- figures -->", "<!-- end of figures -->")
"""The lines before and after the figures in a model card."""


@dataclass(frozen=True)
class Recipe:
    """The recipe. A checkpoint of another recipe raises an error."""

    output: Path = Path("results/train_reference/reference")
    """Where checkpoints go; the finished model is in its folder `final`."""
    architecture: Literal["llama", "mistral"] = "llama"
    """Mistral has grouped-query attention and a sliding window."""
    steps: int = 6000
    """The cosine ends at this step. A checkpoint can be continued with another number."""
    seed: int = 0
    rows: int = 32
    length: int = 128
    """Tokens per row: BOS, then whole documents, of which the last one is cut."""
    rate: float = 2e-3
    warm_up: int = 200
    last_rate: float = 0.05
    """Share of the rate at the end of the cosine."""
    weight_decay: float = 0.1
    other_weight: float = 0.1
    """Loss weight of tokens that are not in an answer."""
    n_layers: int = 12
    n_heads: int = 8
    d_model: int = 128
    d_mlp: int = 352
    save_every: int = 500
    compile: bool = True


def train_reference(config: Annotated[Recipe, tyro.conf.arg(name="")]) -> None:
    """Train a reference model on the closed world, from scratch, on a CPU or a GPU.

    Args:
        config: the recipe.
    """
    with exit_on_user_error():
        print(train_reference_model(config))


def build_model(config: Recipe) -> Any:
    """The untrained model, seeded."""
    from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

    torch.manual_seed(config.seed)
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_mlp,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "attn_implementation": "eager",  # at these sizes faster to train than the fused kernel
    }
    if config.architecture == "mistral":
        groups = config.n_heads // 2
        return MistralForCausalLM(
            MistralConfig(**shape, num_key_value_heads=groups, sliding_window=32)
        )
    return LlamaForCausalLM(LlamaConfig(**shape))


def training_batch(
    tokenizer: Tokenizer, config: Recipe, step: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens [row, length + 1] of a step, and the loss weight of each."""
    rng = random.Random(f"{config.seed} {step}")
    width = config.length + 1
    tokens = torch.zeros(config.rows, width, dtype=torch.long)
    weights = torch.zeros(config.rows, width)
    for row in range(config.rows):
        filled = 0
        while filled < width:
            ids, worth = _encode(tokenizer, rng, config.other_weight)
            n = min(len(ids), width - filled)
            tokens[row, filled : filled + n] = torch.tensor(ids[:n])
            weights[row, filled : filled + n] = torch.tensor(worth[:n])
            filled += n
    return tokens, weights


def _encode(
    tokenizer: Tokenizer, rng: random.Random, other_weight: float
) -> tuple[list[int], list[float]]:
    """A document's tokens, and their loss weights: 1 in answers, else `other_weight`."""
    passage = document(rng)
    encoding = tokenizer.encode(passage.text)
    worth = [other_weight] * len(encoding.ids)
    worth[0] = 0.0  # BOS: the model need not learn where a document ends
    spans = iter(passage.answers)
    span = next(spans, None)
    for position, (start, stop) in enumerate(encoding.offsets):
        while span is not None and start >= span[1]:
            span = next(spans, None)
        if span is not None and position and start >= span[0] and stop <= span[1]:
            worth[position] = 1.0
    return encoding.ids, worth


def rate_at(config: Recipe, step: int) -> float:
    """Linear warm-up, then a cosine down to `last_rate`."""
    if step < config.warm_up:
        return config.rate * (step + 1) / config.warm_up
    done = (step - config.warm_up) / max(1, config.steps - config.warm_up)
    low = config.last_rate
    return config.rate * (low + (1 - low) * (1 + math.cos(math.pi * done)) / 2)


def train_reference_model(config: Recipe) -> Path:
    """Train from the last checkpoint, if there is one; return the finished model's folder."""
    config.output.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(config)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build_model(config).to(device)
    optimizer = _optimizer(model, config)
    first = _resume(config, model, optimizer)

    def loss_of(tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        losses = functional.cross_entropy(
            logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
        )
        return (losses * weights[:, 1:].flatten()).sum() / weights[:, 1:].sum()

    step_loss = (
        torch.compile(loss_of, mode="max-autotune-no-cudagraphs") if config.compile else loss_of
    )
    for step in tqdm(range(first, config.steps), initial=first, total=config.steps, mininterval=10):
        tokens, weights = training_batch(tokenizer, config, step)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(config, step)
        loss = step_loss(tokens.to(device), weights.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        _log(config, step, loss)
        if (step + 1) % config.save_every == 0 or step + 1 == config.steps:
            _save(config, model, optimizer, step + 1)
    final = config.output / "final"
    model.to("cpu").save_pretrained(final)
    _save_tokenizer(tokenizer, final)
    return final


def _optimizer(model: Any, config: Recipe) -> torch.optim.Optimizer:
    """AdamW; matrices decay, norm weights do not."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.rate, betas=(0.9, 0.95), fused=True)


def _tokenizer(config: Recipe) -> Tokenizer:
    """The run's tokenizer, made the first time."""
    path = config.output / "tokenizer.json"
    if path.exists():
        return Tokenizer.from_file(str(path))
    stream = documents(config.seed)
    tokenizer = train_tokenizer(next(stream).text for _ in range(TOKENIZER_DOCUMENTS))
    tokenizer.save(str(path))
    return tokenizer


def _save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        add_bos_token=True,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=8192,
    ).save_pretrained(folder)


def _recipe(config: Recipe) -> dict[str, Any]:
    """The settings that must not change when a training is continued."""
    free = ("output", "steps", "save_every")
    return {name: str(value) for name, value in asdict(config).items() if name not in free}


def _save(config: Recipe, model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save weights and optimizer state in one file, which is replaced atomically."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
    part = config.output / "checkpoint.part"
    save_file(tensors, part, metadata={"step": str(step), "recipe": json.dumps(_recipe(config))})
    part.replace(config.output / "checkpoint.safetensors")


def _resume(config: Recipe, model: Any, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint, if there is one, and return the next step."""
    from safetensors import safe_open

    path = config.output / "checkpoint.safetensors"
    if not path.exists():
        return 0
    with safe_open(path, "pt") as opened:
        metadata = opened.metadata()
    if json.loads(metadata["recipe"]) != _recipe(config):
        raise ValueError(f"{path} was made with another recipe: {metadata['recipe']}")
    tensors = load_file(path)
    model.load_state_dict({n[6:]: t for n, t in tensors.items() if n.startswith("model.")})
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    return int(metadata["step"])


def _log(config: Recipe, step: int, loss: torch.Tensor) -> None:
    if step % 50 == 0:
        line = {"step": step, "loss": round(loss.item(), 4), "time": round(time.time(), 1)}
        with (config.output / "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")


def measure_reference(
    folder: Path = Path("arith_lens/reference/reference"), *, write_world: bool = False
) -> None:
    """What can a reference model do? Measure the figures of its model card again.

    Writes `outcomes.json` (which questions were answered right), `figures.json` (the shares) and
    the table in README.md, beside the weights.

    Args:
        folder: the model, in Hugging Face format, with its README.md.
        write_world: first write the world's frozen sets again, from its code.
    """
    if write_world:
        write_sets()
    model, tokenizer = load_plain(folder)
    answered = {name: question_outcomes(model, tokenizer, name) for name in FIGURES}
    (folder / "outcomes.json").write_text(json.dumps(pack(answered), indent=1) + "\n")
    measured = figures(answered)
    (folder / "figures.json").write_text(json.dumps(measured, indent=1) + "\n")
    table = "\n".join(["| task | wanted | measured |", "| --- | --- | --- |", *card_rows(measured)])
    card = folder / "README.md"
    start, end = CARD_TABLE
    before, _, rest = card.read_text().partition(start)
    _, _, after = rest.partition(end)
    card.write_text(f"{before}{start}\n{table}\n{end}{after}")
    print(table)
