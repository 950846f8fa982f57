"""Oracle: LLaMA and Mistral by hand, from the weights of a Transformers model, with backward rules.

No module of Transformers runs. Each rule is written where it acts, as the papers say it.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Values = dict[tuple[str, int], Tensor]
"""By ("z" | "mlp", layer); at END: [pair head d_head] and [pair d_model]."""


@dataclass
class PlainLlama:
    """One pass: `logits` runs it, and notes outputs and leaves at END."""

    hf: Any
    mask: Tensor
    paths: str = "via_mlps"
    hold_norms: bool = False
    act_over_input: bool = False
    halve_products: bool = False
    split_attention: bool = False
    hold_attention: bool = False
    temperature: float = 1.0
    dropped: int | None = None
    """The layer through which no gradient passes."""
    held: Values = field(default_factory=dict)
    """At what frozen heads and MLPs are held; else at their own values."""
    put: Values = field(default_factory=dict)
    outputs: Values = field(default_factory=dict)
    leaves: Values = field(default_factory=dict)

    def logits(self, embeddings: Tensor) -> Tensor:
        """At END [pair d_vocab]."""
        x = embeddings
        for layer, block in enumerate(self.hf.model.layers):
            x = x + self._attention(layer, block, self._norm(x, block.input_layernorm))
            x = x + self._mlp(layer, block.mlp, self._norm(x, block.post_attention_layernorm))
        return self._norm(x[:, -1], self.hf.model.norm) @ self.hf.lm_head.weight.T

    def embeddings(self, tokens: Tensor) -> Tensor:
        return self.hf.model.embed_tokens.weight[tokens].detach()

    def _norm(self, x: Tensor, norm: Any) -> Tensor:
        scale = (x.square().mean(-1, keepdim=True) + self.hf.config.rms_norm_eps).sqrt()
        return norm.weight * x / (scale.detach() if self.hold_norms else scale)

    def _attention(self, layer: int, block: Any, x: Tensor) -> Tensor:
        config, attention = self.hf.config, block.self_attn
        n_heads, n_kv = config.num_attention_heads, config.num_key_value_heads
        q, k, v = (
            (x @ getattr(attention, f"{name}_proj").weight.T).unflatten(-1, (n, -1)).transpose(1, 2)
            for name, n in (("q", n_heads), ("k", n_kv), ("v", n_kv))
        )
        if self.split_attention:
            q, k, v = _share(q, 0.25), _share(k, 0.25), _share(v, 0.5)
        q, k = self._rotated(q), self._rotated(k)
        k, v = (part.repeat_interleave(n_heads // n_kv, dim=1) for part in (k, v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~self._visible(), torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if self.temperature != 1:
            weights = _Softened.apply(scores, self.temperature)
        z = ((weights.detach() if self.hold_attention else weights) @ v).transpose(1, 2)
        end = self._end("z", layer, z[:, -1], frozen=self.paths != "total")
        z = torch.cat([z[:, :-1], end[:, None]], dim=1)
        return z.flatten(2) @ attention.o_proj.weight.T

    def _rotated(self, x: Tensor) -> Tensor:
        half, base = x.shape[-1] // 2, self.hf.config.rope_parameters["rope_theta"]
        positions = (self.mask.long().cumsum(-1) - 1).clamp(min=0)
        angles = positions[:, None, :, None] * base ** -(torch.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1
        )

    def _visible(self) -> Tensor:
        n = self.mask.shape[1]
        apart = torch.arange(n)[:, None] - torch.arange(n)[None]
        window = getattr(self.hf.config, "sliding_window", None) or n
        return ((apart >= 0) & (apart < window))[None, None] & self.mask[:, None, None].bool()

    def _mlp(self, layer: int, mlp: Any, x: Tensor) -> Tensor:
        gate, up = x @ mlp.gate_proj.weight.T, x @ mlp.up_proj.weight.T
        act = gate * gate.sigmoid()
        if self.act_over_input:
            act = gate * gate.sigmoid().detach()  # silu(x) / x is the sigmoid
        if self.halve_products:
            act, up = _share(act, 0.5), _share(up, 0.5)
        out = (act * up) @ mlp.down_proj.weight.T
        end = self._end("mlp", layer, out[:, -1], frozen=self.paths == "direct")
        return torch.cat([out[:, :-1], end[:, None]], dim=1)

    def _end(self, part: str, layer: int, end: Tensor, *, frozen: bool) -> Tensor:
        key = (part, layer)
        if frozen:
            end = self.held.get(key, end).detach()
        end = self.put.get(key, end).clone()
        if part == "z":
            end = end.reshape(len(end), self.hf.config.num_attention_heads, -1)
        self.outputs[key] = end.detach()
        self.leaves[key] = torch.zeros_like(end, requires_grad=True)
        end = end + self.leaves[key]
        return end.detach() if self.dropped == layer else end


def _share(x: Tensor, share: float) -> Tensor:
    return x * share + (x * (1 - share)).detach()


class _Softened(torch.autograd.Function):
    """softmax(x), with p (g - <g, p>) of p = softmax(x / T) as its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, temperature: float) -> Tensor:
        ctx.p = (x / temperature).softmax(-1)
        return x.softmax(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (g,) = grads
        return ctx.p * (g - (g * ctx.p).sum(-1, keepdim=True)), None
