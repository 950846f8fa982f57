"""What a layer's MLP reads and writes at END, for every pair; and the numbers' tokens there."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import mlp_out_name, resid_mid_name, resid_post_name, resid_pre_name
from arith_lens.model import HookedLike, record
from arith_lens.pairs import PromptPairs, Role, check_pairs
from arith_lens.pairs.tokens import continued, encode, tokenizer_of, tokens_after

HOOKS = {"mlp_in": resid_mid_name, "write": mlp_out_name, "mlp_out": resid_post_name}
"""The residual stream before a layer's MLP; what the MLP adds; the stream after it. In a block
whose attention and MLP run in parallel, the MLP reads the block's input (`resid_pre`)."""

DIGITS = tuple(range(10))
BATCH = 64


def end_states(
    model: HookedLike, pairs: PromptPairs, read: str
) -> Float[Tensor, "layer pair d_model"]:
    """The stream, or the write, of every layer at END of the references, float32, on the CPU.

    Raises ValueError for another `read`, and FloatingPointError as `record`.
    """
    if read not in HOOKS:
        raise ValueError(f"expected read to be one of {', '.join(HOOKS)}, found {read!r}")
    check_pairs(model, pairs)
    parallel = getattr(model.cfg, "parallel_attn_mlp", False)
    name_of = resid_pre_name if parallel and read == "mlp_in" else HOOKS[read]
    names = [name_of(layer) for layer in range(int(model.cfg.n_layers))]
    parts = []
    for batch in pairs.batches(BATCH):
        used = int(batch.attention_mask.any(0).float().argmax())
        kept = record(
            model,
            batch.reference[:, used:],
            names,
            attention_mask=batch.attention_mask[:, used:],
            positions=-1,
        )
        parts.append(torch.stack([kept[name][:, -1].float().cpu() for name in names]))
    return torch.cat(parts, dim=1)


def require_final_norm(model: HookedLike) -> None:
    """Raise ValueError for a model whose logits are not W_U after a final norm."""
    if getattr(model, "ln_final", None) is None:
        architecture = getattr(model.cfg, "architecture", "this model")
        raise ValueError(
            f"expected a final norm before W_U, found none in {architecture}; its stream cannot be "
            "set beside columns of W_U"
        )


def refuse_not_finite(values: Tensor, what: str) -> None:
    """Raise FloatingPointError, blaming `what` finite activations were sent through."""
    if not bool(values.isfinite().all()):
        raise FloatingPointError(
            f"expected finite numbers, found NaN or infinity from {what} on; check its weights"
        )


def operand_tokens(pairs: PromptPairs) -> Int[Tensor, "pair a_b=2"]:
    """The tokens of A and B as they stand in the references.

    Raises ValueError for pairs without roles, and for operands of several tokens.
    """
    if pairs.spans is None:
        raise ValueError(
            "expected pairs that know where A and B are, found pairs from bare tokens; sample them "
            "from the templates, or give spans"
        )
    spans = torch.stack([pairs.spans[Role.OPERAND_A], pairs.spans[Role.OPERAND_B]], dim=1)
    lengths = spans[..., 1] - spans[..., 0]
    if bool((lengths != 1).any()):
        row = int((lengths != 1).any(1).nonzero()[0])
        raise ValueError(
            f"expected operands of one token, found {lengths[row].tolist()} tokens for A and B of "
            f"pair {row}; a column of W_U belongs to one token: sample operands from 1 to 9"
        )
    return pairs.reference.gather(1, spans[..., 0])


def digit_tokens(model: HookedLike, pairs: PromptPairs) -> Int[Tensor, "pair digit=10"]:
    """The token of each digit where it would follow END.

    Raises ValueError for pairs without text, and where a digit is no single token there.
    """
    if pairs.reference_text is None:
        raise ValueError(
            "expected pairs with text, found bare tokens: which tokens are digits after END is "
            "read from the text; make pairs with sample_pairs or from_jsonl"
        )
    tokenizer = tokenizer_of(model)
    prompts = list(dict.fromkeys(pairs.reference_text))
    short = {
        prompt.ids: text for text, prompt in zip(prompts, encode(tokenizer, prompts), strict=True)
    }
    found = {}
    for ids, text in short.items():
        wholes = encode(tokenizer, [continued(text, str(digit)) for digit in DIGITS])
        after = [tokens_after(ids, whole.ids) for whole in wholes]
        if any(len(tokens) != 1 for tokens in after):
            raise ValueError(
                f"expected each digit to be one token after {text!r}, found "
                f"{[len(tokens) for tokens in after]} tokens for 0 to 9 under this tokenizer"
            )
        found[text] = [tokens[0] for tokens in after]
    return torch.tensor([found[text] for text in pairs.reference_text])
