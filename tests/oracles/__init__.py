"""Oracles that share no code with the library: torch's own hooks on raw Transformers models."""

import inspect
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from arith_lens.components import Head, Mlp, every_head, every_mlp
from arith_lens.pairs import PromptPairs


def make_pairs(
    model: Any, lengths: tuple[int, ...] = (9, 7, 9, 6, 8), seed: int = 0
) -> PromptPairs:
    """Random prompts of unequal lengths, padded on the left; answers of a positive logit.

    `model` is a loaded model, or a Transformers model.
    """
    hf = model.bridge.original_model if hasattr(model, "bridge") else model
    generator = torch.Generator().manual_seed(seed)
    width, vocab = max(lengths), hf.config.vocab_size
    mask = torch.arange(width)[None] >= width - torch.tensor(lengths)[:, None]
    draws = torch.randint(3, vocab, (2, len(lengths), width), generator=generator)
    reference, counterfactual = draws[0], draws[0].clone()
    counterfactual[:, -5:-2] = draws[1][:, -5:-2]
    logits = logits_at_end(hf, reference, mask)
    return PromptPairs.from_tokens(reference, counterfactual, logits.topk(3).indices[:, 2], mask)


@torch.no_grad()
def logits_at_end(hf: Any, tokens: Tensor, mask: Tensor) -> Tensor:
    """Positions count from the first token that is no padding, as when generating."""
    options: dict[str, Any] = {"attention_mask": mask.long()}
    taken = inspect.signature(hf.forward).parameters
    if "position_ids" in taken:
        options["position_ids"] = (mask.long().cumsum(-1) - 1).clamp(min=0)
    if "use_cache" in taken:
        options["use_cache"] = False
    return hf(tokens, **options).logits[:, -1]


@dataclass(frozen=True)
class Places:
    """Where a family keeps its blocks, and in a block the module that reads z, and the MLP's."""

    blocks: str = "model.layers"
    reads_z: str = "self_attn.o_proj"
    mlp: str = "mlp"
    """The module whose output is added to the stream, before the addition."""


LLAMA = Places()


class Raw:
    """Torch's own hooks on the Hugging Face modules; o_proj's input is z.

    `z`, `mlp` and `logits` have the reference run first, then the counterfactual run. `z` and `mlp`
    have one tensor per layer.
    """

    def __init__(self, hf: Any, pairs: PromptPairs, places: Places = LLAMA) -> None:
        self.hf, self.pairs, self.places = hf, pairs, places
        self.mask = pairs.attention_mask.long()
        self.layers: Sequence[Any] = _inner(hf, places.blocks)
        self.z = [self._kept(*side, "z") for side in pairs.sides]
        self.mlp = [self._kept(*side, "mlp") for side in pairs.sides]
        self.logits = [self.run(tokens, [], mask) for tokens, mask in pairs.sides]
        self.d_head = self.z[0][0].shape[-1] // hf.config.num_attention_heads

    def run(self, tokens: Tensor, handles: list[Any], mask: Tensor | None = None) -> Tensor:
        """Logits at END, with the references' mask if there is no other; the hooks of `handles` are
        taken off afterwards."""
        with ExitStack() as stack:
            for handle in handles:
                stack.callback(handle.remove)
            return logits_at_end(self.hf, tokens, self.mask if mask is None else mask)

    def _reads_z(self, layer: int) -> Any:
        return _inner(self.layers[layer], self.places.reads_z)

    def _mlp(self, layer: int) -> Any:
        return _inner(self.layers[layer], self.places.mlp)

    def _kept(self, tokens: Tensor, mask: Tensor, what: str) -> list[Tensor]:
        tensors: list[Tensor] = []
        handles: list[Any] = []
        for layer in range(len(self.layers)):
            if what == "z":
                handle = self._reads_z(layer).register_forward_pre_hook(
                    lambda _, x: tensors.append(x[0].clone())
                )
            else:
                handle = self._mlp(layer).register_forward_hook(
                    lambda _, __, y: tensors.append(self._by_pair(y).clone())
                )
            handles.append(handle)
        self.run(tokens, handles, mask)
        return tensors

    def patched(self, sender: Head | Mlp, paths: str = "via_mlps") -> Tensor:
        """Logits at END [pair d_vocab] with the sender's counterfactual output at END."""
        handles = []
        for layer in range(len(self.layers)):
            heads = [sender.index] if isinstance(sender, Head) and sender.layer == layer else []
            if paths != "total" or heads:
                hook = partial(self._put_z, layer=layer, heads=heads, frozen=paths != "total")
                handles.append(self._reads_z(layer).register_forward_pre_hook(hook))
            if paths == "direct" or sender == Mlp(layer):
                hook = partial(self._put_mlp, layer=layer, run=int(sender == Mlp(layer)))
                handles.append(self._mlp(layer).register_forward_hook(hook))
        return self.run(self.pairs.reference, handles)

    def _put_z(self, _: Any, args: Any, *, layer: int, heads: list[int], frozen: bool) -> Any:
        z = (self.z[0][layer] if frozen else args[0]).clone()
        for head in heads:
            part = slice(head * self.d_head, (head + 1) * self.d_head)
            z[:, -1, part] = self.z[1][layer][:, -1, part]
        return (z, *args[1:])

    def _put_mlp(self, _: Any, __: Any, out: Any, *, layer: int, run: int) -> Any:
        changed = self._by_pair(out).clone()
        changed[:, -1] = self.mlp[run][layer][:, -1]
        if isinstance(out, tuple):
            return (changed, *out[1:])
        return changed.view(out.shape)

    def _by_pair(self, out: Any) -> Tensor:
        """[pair pos d_model]: some give routing beside it, some flatten pair and pos."""
        written = out[0] if isinstance(out, tuple) else out
        return written.reshape(len(self.pairs), -1, written.shape[-1])

    def change(self, sender: Head | Mlp, paths: str = "via_mlps") -> Tensor:
        """Change of the answer's logit, [pair]."""
        rows = torch.arange(len(self.pairs))
        answer = self.pairs.answer
        return (self.patched(sender, paths) - self.logits[0])[rows, answer]

    @property
    def tolerance(self) -> float:
        return 1e-5 * float(self.logits[0].abs().max())


def components(model: Any) -> list[Head | Mlp]:
    """Every head and MLP of a loaded model."""
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    return [*every_head(n_layers, n_heads), *every_mlp(n_layers)]


def effect(result: Any, sender: Head | Mlp) -> Tensor:
    """One component's effects in a result of `path_patch`, [pair]."""
    if isinstance(sender, Head):
        return result.heads.per_pair[sender.layer, sender.index]
    return result.mlps.per_pair[sender.layer]


def _inner(module: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), module)
