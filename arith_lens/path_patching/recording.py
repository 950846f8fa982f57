"""What both runs of some pairs put out at END: all that the sweep and its certificate read."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.activations import keep_activation
from arith_lens.components import attn_out_name, mlp_out_name, resid_pre_name, z_name
from arith_lens.model import HookedLike, accepted_options, home_of, require_finite, without_bridge
from arith_lens.pairs import PromptPairs


@dataclass(frozen=True)
class Recording:
    """END's activations in the model's dtype; run 0 is the reference, run 1 the counterfactual."""

    stream: Float[Tensor, "run pair d_model"]
    """The residual stream at the first block's entry."""
    z: Float[Tensor, "run layer pair n_heads d_head"]
    attn_out: Float[Tensor, "run layer pair d_model"]
    mlp_out: Float[Tensor, "run layer pair d_model"]
    logits: Float[Tensor, "run pair d_vocab"] | None
    """What the model returned; None where it was not computed."""

    def pairs(self, chosen: slice | list[int]) -> "Recording":
        """The recording of some of the pairs."""
        return Recording(
            stream=self.stream[:, chosen],
            z=self.z[:, :, chosen],
            attn_out=self.attn_out[:, :, chosen],
            mlp_out=self.mlp_out[:, :, chosen],
            logits=None if self.logits is None else self.logits[:, chosen],
        )


def record_end(
    model: HookedLike, pairs: PromptPairs, *, logits: bool = False, hooked: bool = False
) -> Recording:
    """Run references and counterfactuals as one batch and keep what they put out at END.

    Args:
        model: HookedModel or TransformerBridge
        pairs: padded on the left
        logits: keep what the model returns at END too
        hooked: hooks are in place and must act. Else the model's own modules run, which is faster.

    Raises:
        FloatingPointError: an activation is not finite; its layer is named
    """
    tokens, mask = both_runs(pairs)
    return record_batch(model, tokens, mask, n_runs=2, logits=logits, hooked=hooked)


def record_batch(
    model: HookedLike,
    tokens: Int[Tensor, "run_pair pos"],
    mask: Bool[Tensor, "run_pair pos"],
    *,
    n_runs: int,
    logits: bool = False,
    hooked: bool = False,
) -> Recording:
    """The same of any prompts: `n_runs` equal parts of one batch. Errors as `record_end`."""
    record = _record_by_hook_points if hooked else _record_by_own_modules
    seen, returned = record(model, tokens, mask, logits)
    home, layers = home_of(model.unembed), range(len(model.blocks))

    def by_run(value: Tensor) -> Tensor:
        value = value.to(home)
        return value.reshape(n_runs, len(tokens) // n_runs, *value.shape[1:])

    def by_layer(name: Callable[[int], str]) -> Tensor:
        return torch.stack([by_run(seen[name(layer)]) for layer in layers], dim=1)

    recording = Recording(
        stream=by_run(seen[resid_pre_name(0)]),
        z=by_layer(z_name).unflatten(-1, (int(model.cfg.n_heads), -1)),
        attn_out=by_layer(attn_out_name),
        mlp_out=by_layer(mlp_out_name),
        logits=None if returned is None else by_run(returned),
    )
    _require_finite(model, tokens, mask, recording)
    return recording


Seen = dict[str, Tensor]
"""END's activations by hook name [run_pair ...], heads of z side by side."""


def _record_by_own_modules(
    model: HookedLike, tokens: Tensor, mask: Tensor, logits: bool
) -> tuple[Seen, Tensor | None]:
    """With PyTorch's own hooks on the model's own modules.

    The last layer's output projection and MLP compute END alone: nothing reads their other
    positions.
    """
    seen: Seen = {}
    blocks = list(model.blocks)  # the bridge's, which are not in place inside
    with ExitStack() as stack:
        stack.enter_context(without_bridge(model))

        def watch(register: Callable[..., Any], function: Callable[..., Any]) -> None:
            stack.callback(register(function, with_kwargs=True).remove)

        first = blocks[0].original_component
        watch(first.register_forward_pre_hook, partial(_keep_input, seen, resid_pre_name(0)))
        for layer, block in enumerate(blocks):
            attention, mlp = (part.original_component for part in (block.attn, block.mlp))
            reads_z = block.attn.o.original_component
            if block is blocks[-1]:
                for module in (reads_z, mlp):
                    watch(module.register_forward_pre_hook, _end_alone)
                    watch(module.register_forward_hook, partial(_as_wide, tokens.shape[1]))
            watch(reads_z.register_forward_pre_hook, partial(_keep_input, seen, z_name(layer)))
            for module, name in ((attention, attn_out_name), (mlp, mlp_out_name)):
                watch(module.register_forward_hook, partial(_keep_output, seen, name(layer)))
        returned = _run(model, tokens, mask, logits)
    return seen, returned


def _record_by_hook_points(
    model: HookedLike, tokens: Tensor, mask: Tensor, logits: bool
) -> tuple[Seen, Tensor | None]:
    """With the bridge's hook points, behind the hooks that are in place."""
    seen: Seen = {}
    names = [resid_pre_name(0)]
    for layer in range(len(model.blocks)):
        names += [z_name(layer), attn_out_name(layer), mlp_out_name(layer)]
    keep = partial(keep_activation, into=seen, positions=-1)
    with model.hooks(fwd_hooks=[(name, partial(keep, name=name)) for name in names]):
        returned = _run(model, tokens, mask, logits)
    return {name: value[:, -1].flatten(1) for name, value in seen.items()}, returned


def _run(model: HookedLike, tokens: Tensor, mask: Tensor, logits: bool) -> Tensor | None:
    """What the model returns at END [run_pair d_vocab]; None where it is not wanted, and then no
    logits are computed where the model can leave them out."""
    device = torch.device(model.cfg.device)
    kept = 1 if logits else torch.empty(0, dtype=torch.long, device=device)
    options = accepted_options(model, logits_to_keep=kept, use_cache=False)
    returned = model(tokens.to(device), attention_mask=mask.to(device), **options)
    return returned[:, -1] if logits else None


def _keep_input(seen: Seen, name: str, module: Any, args: Any, kwargs: Any) -> None:
    value = args[0] if args else kwargs["hidden_states"]
    seen[name] = value[:, -1].clone()


def _keep_output(seen: Seen, name: str, module: Any, args: Any, kwargs: Any, output: Any) -> None:
    value = output[0] if isinstance(output, tuple) else output
    seen[name] = value[:, -1].clone()


def _end_alone(module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    if args:
        return (args[0][:, -1:], *args[1:]), kwargs
    return args, kwargs | {"hidden_states": kwargs["hidden_states"][:, -1:]}


def _as_wide(width: int, module: Any, args: Any, kwargs: Any, output: Any) -> Any:
    """END's output at every position, without a copy, so that it adds to the stream."""
    if isinstance(output, tuple):
        return (_as_wide(width, module, args, kwargs, output[0]), *output[1:])
    return output.expand(-1, width, -1)


def _require_finite(model: HookedLike, tokens: Tensor, mask: Tensor, recording: Recording) -> None:
    parts = (recording.stream, recording.z, recording.attn_out, recording.mlp_out)
    if all(bool(part.isfinite().all()) for part in parts):
        return
    require_finite(model, tokens, attention_mask=mask)
    raise FloatingPointError(
        "expected finite activations, found NaN or infinity in one run of some prompts and not in "
        "another; switch off dropout (model.bridge.eval()), and check the hooks in place"
    )


def both_runs(
    pairs: PromptPairs,
) -> tuple[Int[Tensor, "run_pair used_pos"], Bool[Tensor, "run_pair used_pos"]]:
    """References, then counterfactuals, as one batch with its mask.

    Columns that are padding in every prompt are dropped.
    """
    used = int(pairs.attention_mask.any(0).float().argmax())
    tokens = torch.cat([pairs.reference, pairs.counterfactual])[:, used:]
    return tokens, torch.cat([pairs.attention_mask, pairs.attention_mask])[:, used:]
