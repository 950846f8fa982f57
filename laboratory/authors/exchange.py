"""What the two sides exchange as files: a LLaMA, prompts, scores. It imports nothing of arith_lens.

All scores are of heads and MLPs at the last token, for the sum of the answers' logits.
"""

import importlib
import json
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

Scores = Mapping[str, Tensor]
"""`heads` [layer head pair] and `mlps` [layer pair]."""
PROMPTS, LIMIT = "prompts.safetensors", 1e-3
"""The file of prompts, and by how much the logits of two copies of the model may differ."""


@dataclass(frozen=True)
class Task:
    """A LLaMA in a folder, and prompt pairs without padding."""

    folder: Path
    reference: Int[Tensor, "pair pos"]
    counterfactual: Int[Tensor, "pair pos"]
    answer: Int[Tensor, " pair"]
    rounds: int = 3
    """How often each method is timed."""

    @classmethod
    def read(cls, folder: Path, rounds: int) -> "Task":
        return cls(folder, **load_file(folder / PROMPTS), rounds=rounds)

    def write(self, hf: Any) -> None:
        """Save the model and the prompts."""
        hf.save_pretrained(self.folder)
        prompts = {"reference": self.reference, "counterfactual": self.counterfactual}
        save_file(prompts | {"answer": self.answer}, self.folder / PROMPTS)

    def llama(self, attention: str = "eager") -> Any:
        """The model of Transformers, with one of its kernels of attention."""
        from transformers import LlamaForCausalLM

        options: dict[str, Any] = {"attn_implementation": attention}
        return LlamaForCausalLM.from_pretrained(self.folder, **options).eval()

    def hooked(self, options: Mapping[str, Any] | None = None) -> Any:
        """The same model in a TransformerLens before 3.

        Args:
            options: attributes of the configuration at construction.
        """
        lens: Any = importlib.import_module("transformer_lens")
        convert = importlib.import_module(
            "transformer_lens.pretrained.weight_conversions"
        ).convert_llama_weights
        hf = self.llama()
        own, d_head = hf.config, hf.config.hidden_size // hf.config.num_attention_heads
        config = lens.HookedTransformerConfig(
            n_layers=own.num_hidden_layers,
            n_heads=own.num_attention_heads,
            d_model=own.hidden_size,
            d_head=d_head,
            d_mlp=own.intermediate_size,
            d_vocab=own.vocab_size,
            n_ctx=self.reference.shape[1],
            eps=own.rms_norm_eps,
            act_fn="silu",
            gated_mlp=True,
            normalization_type="RMS",
            final_rms=True,
            positional_embedding_type="rotary",
            rotary_dim=d_head,
            device="cpu",
        )
        for name, value in (options or {}).items():
            setattr(config, name, value)
        model = lens.HookedTransformer(config).eval()
        model.load_state_dict(convert(hf, config), strict=False)
        with torch.no_grad():
            difference = (model(self.reference) - hf(self.reference).logits).abs().max()
        if difference > LIMIT:
            raise ValueError(
                f"expected the logits of Transformers, found a difference of {difference:.1g}; "
                "install a TransformerLens before 3, which knows this LLaMA"
            )
        return model

    def answers(self, logits: Float[Tensor, "pair pos d_vocab"]) -> Float[Tensor, ""]:
        """The metric: the sum over pairs of the answer's logit at the last token."""
        return logits[torch.arange(len(logits)), -1, self.answer].sum()


@dataclass(frozen=True)
class Result:
    """Scores of somebody else's code, or why there are none."""

    method: str
    """The method here that they are compared with."""
    code: str
    """Whose code, and how it was run."""
    version: str = ""
    change: str = ""
    """What was changed in the code, "" for nothing."""
    missing: str = ""
    """Why it was not run."""
    seconds: float = float("nan")
    """Processor time for all pairs."""
    scores: Scores | None = None


def save_results(file: Path, results: list[Result]) -> None:
    """Facts as JSON, scores as tensors."""
    tensors = {
        f"{i}/{part}": values.clone().contiguous()  # results may share scores
        for i, one in enumerate(results)
        for part, values in (one.scores or {}).items()
    }
    facts = json.dumps([asdict(replace(one, scores=None)) for one in results])
    save_file(tensors, file, metadata={"results": facts})


def load_results(file: Path) -> list[Result]:
    """What `save_results` saved."""
    with safe_open(file, framework="pt") as stored:
        facts = json.loads(stored.metadata()["results"])
        results = []
        for i, one in enumerate(facts):
            names = [name for name in stored.keys() if name.startswith(f"{i}/")]  # noqa: SIM118
            scores = {name.partition("/")[2]: stored.get_tensor(name) for name in names}
            results.append(Result(**one | {"scores": scores or None}))
    return results


def timed(compute: Callable[[], Scores], rounds: int) -> tuple[Scores, float]:
    """The scores, and the median processor time after one call that is not timed."""
    scores, seconds = compute(), []
    for _ in range(rounds):
        start = time.process_time()
        compute()
        seconds.append(time.process_time() - start)
    return scores, median(seconds)


def version_of(package: str, distribution: str) -> str:
    """The commit of a checkout, or the version that is installed.

    Raises:
        ModuleNotFoundError: there is no such package.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"expected the package {package}, found none; install it")
    file = Path(spec.origin)

    def git(*words: str) -> str:
        command = ["git", "-C", str(file.parent), *words]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    if git("ls-files", file.name):
        return f"commit {git('rev-parse', '--short', 'HEAD')}"
    return metadata.version(distribution)


def llama_scores(
    hf: Any, task: Task, rules: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Scores:
    """Change of each output times its gradient at the reference run, by torch's own hooks.

    Args:
        hf: a LLaMA of Transformers.
        task: the prompts.
        rules: makes the context of the run with gradients.
    """
    outputs: dict[str, list[Tensor]] = {"heads": [], "mlps": []}

    def keep_z(_: Any, args: Any) -> None:
        outputs["heads"].append(args[0])

    def keep_mlp(_: Any, args: Any, out: Tensor) -> None:
        outputs["mlps"].append(out)

    def forward(tokens: Tensor) -> Tensor:
        return hf(tokens, use_cache=False).logits

    with ExitStack() as stack:
        for block in hf.model.layers:
            stack.callback(block.self_attn.o_proj.register_forward_pre_hook(keep_z).remove)
            stack.callback(block.mlp.register_forward_hook(keep_mlp).remove)
        return _scores(forward, outputs, task, rules, hf.config.num_attention_heads)


def hooked_scores(
    model: Any, task: Task, rules: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Scores:
    """The same for a HookedTransformer, by its hook points."""
    outputs: dict[str, list[Tensor]] = {}

    def keep(values: Tensor, hook: Any, *, part: str) -> None:
        outputs[part].append(values)

    names = {"heads": "attn.hook_z", "mlps": "hook_mlp_out"}
    hooks = [
        (f"blocks.{layer}.{name}", partial(keep, part=part))
        for layer in range(model.cfg.n_layers)
        for part, name in names.items()
    ]
    with model.hooks(fwd_hooks=hooks, reset_hooks_end=False):
        return _scores(model, outputs, task, rules, model.cfg.n_heads)


def _scores(
    forward: Callable[[Tensor], Tensor],
    outputs: dict[str, list[Tensor]],
    task: Task,
    rules: Callable[[], AbstractContextManager[Any]],
    n_heads: int,
) -> Scores:
    """The scores from runs of both prompts, whose hooks append to `outputs`."""

    def run(tokens: Tensor) -> tuple[Tensor, dict[str, list[Tensor]]]:
        outputs.update(heads=[], mlps=[])
        logits = forward(tokens)
        return logits, dict(outputs)

    with torch.no_grad():
        _, other = run(task.counterfactual)
    with rules():
        logits, own = run(task.reference)
        return _times_gradient(task.answers(logits), own, other, n_heads)


def _times_gradient(
    metric: Tensor, own: dict[str, list[Tensor]], other: dict[str, list[Tensor]], n_heads: int
) -> Scores:
    n_layers = len(own["mlps"])
    slopes = torch.autograd.grad(metric, [*own["heads"], *own["mlps"]])
    parts = {"heads": slopes[:n_layers], "mlps": slopes[n_layers:]}

    def score(part: str, layer: int) -> Tensor:
        change = other[part][layer].detach() - own[part][layer].detach()
        product = (change * parts[part][layer])[:, -1]
        if part == "heads":
            return product.reshape(len(product), n_heads, -1).sum(-1).T
        return product.sum(-1)

    return {part: torch.stack([score(part, i) for i in range(n_layers)]) for part in parts}


def result_of(
    method: str, code: str, compute: Callable[[], Scores], task: Task, **facts: Any
) -> Result:
    """The timed scores of a code, or the error that it ends with."""
    try:
        scores, seconds = timed(compute, task.rounds)
    except Exception as error:  # whatever other people's code raises is what the row says
        return Result(method, code, missing=f"{type(error).__name__}: {error}", **facts)
    return Result(method, code, seconds=seconds, scores=scores, **facts)
