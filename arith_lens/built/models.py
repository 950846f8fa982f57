"""`built_model`: a model whose circuit is known, with pairs and the closed-form effects."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import gelu

from arith_lens.built.circuit import Circuit
from arith_lens.built.circuits import (
    BOS,
    CIRCUITS,
    EQUALS,
    FILLER,
    PLUS,
    VOID,
    Dial,
    doubles,
    sums,
)
from arith_lens.built.truth import Truth
from arith_lens.built.weights import FAMILIES, QUERY_KEY_NORM, SANDWICH, hf_model
from arith_lens.model import HookedModel, load_model
from arith_lens.pairs import PromptPairs, Role

N_HEADS = 8
CHANGED_PARTS = {"operator": {"operator"}, "a": {"a"}, "operands": {"a", "b"}}
"""By counterfactual, the parts of the prompt that it changes."""

BUILT_NAMES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{name: (name, {}) for name in CIRCUITS},
    "redundant": ("redundant", {"counterfactual": "a"}),
    "value_composition": ("value_composition", {"counterfactual": "operands"}),
    "soft": ("table", {"beta": 8.0, "sharpness": 8.0}),
    "rotated": ("table", {"rotation": 0}),
    "norm_weights": ("table", {"norm_weights": 0}),
    "grouped": ("table", {"n_kv_heads": 2}),
    "query_key_norms": ("table", {"family": "qwen3"}),
    "sandwich": ("table", {"family": "gemma2"}),
    "all_norms": ("table", {"family": "gemma3"}),
    "padded": ("table", {"fillers": (0, 1, 2)}),
}
"""The circuit of each model, and the options in which it differs from the defaults."""


@dataclass(frozen=True)
class BuiltModel:
    """A built model. It unpacks: `model, pairs, truth = built_model("table")`."""

    model: HookedModel
    """The wrapped model, as `load_model` returns it."""
    pairs: PromptPairs
    truth: Truth
    options: Mapping[str, Any]
    """Everything that `weights.hf_model` needs beside the circuit."""

    def __iter__(self) -> Any:
        return iter((self.model, self.pairs, self.truth))

    def save(self, folder: str | Path) -> Path:
        """Write a Hugging Face folder with weights, configuration and tokenizer.

        `load_model` and every tool that knows the family reads it.
        """
        folder = Path(folder)
        hf_model(self.truth.circuit, **self.options).save_pretrained(folder)
        _tokenizer(self.truth.circuit.tokens).save_pretrained(folder)
        return folder


def built_model(
    name: str = "table",
    *,
    family: str | None = None,
    n_kv_heads: int | None = None,
    beta: float | None = None,
    sharpness: float | None = None,
    rotation: int | None = None,
    norm_weights: int | None = None,
    fillers: Sequence[int] | None = None,
    counterfactual: str | None = None,
    n: int = 81,
    seed: int = 0,
    **circuit: Any,
) -> BuiltModel:
    """A model of 8 heads per layer whose weights are set by hand, so that its circuit is known.

    Args:
        name: one of `built.BUILT_NAMES`; see docs/known_circuits.md. A name fixes some of the
            options below, and each can be combined with every circuit.
        family: the model type: `llama`, `qwen3` (norms of queries and keys), `gemma2` (norms after
            attention and MLP) or `gemma3` (both).
        n_kv_heads: the number of heads with keys and values of their own: 1, 2, 4 or 8.
        beta: the attention score of the position that a head looks for. From about 230 on,
            attention in float32 is exactly 0 or 1.
        sharpness: the gain G of the neurons. From about 200 on, a neuron is exactly on or off.
        rotation: the seed of a random rotation of the residual stream.
        norm_weights: the seed of random weights of the norms, between 0.5 and 1.5.
        fillers: numbers of filler tokens between BOS and A, used in turn, so that prompts have
            unequal lengths.
        counterfactual: what X_c changes: `operator` (a null word), `a` (a null word) or `operands`
            (those of another problem).
        n: the number of pairs, at most.
        seed: of the choice of pairs.
        circuit: options of the circuit, such as `n_layers` of `deep`.

    Raises:
        ValueError: an unknown name, family or counterfactual; heads that share keys and values but
            need different ones; more than two filler tokens.
        TypeError: an option that the circuit does not have.
    """
    if name not in BUILT_NAMES:
        raise ValueError(f"expected a built model among {', '.join(BUILT_NAMES)}, found {name!r}")
    kind, fixed = BUILT_NAMES[name]
    own = {
        "family": family,
        "n_kv_heads": n_kv_heads,
        "beta": beta,
        "sharpness": sharpness,
        "rotation": rotation,
        "norm_weights": norm_weights,
        "fillers": fillers,
        "counterfactual": counterfactual,
    }
    chosen = {**_DEFAULTS, **fixed, **{key: v for key, v in own.items() if v is not None}}
    if chosen["family"] not in FAMILIES:
        raise ValueError(f"expected a family among {', '.join(FAMILIES)}, found {family!r}")
    made = CIRCUITS[kind](Dial(chosen["beta"], chosen["sharpness"]), **circuit)
    made = _in_family(made, chosen["family"])
    pairs = _pairs(made, kind, chosen["counterfactual"], chosen["fillers"], n, seed)
    options = {key: chosen[key] for key in ("family", "n_kv_heads", "rotation", "norm_weights")}
    options["n_heads"] = N_HEADS
    hf = hf_model(made, **options)
    hf.config._name_or_path = f"built-{name}"
    model = load_model((hf, _tokenizer(made.tokens)))
    truth = Truth(made, pairs, N_HEADS, frozenset(CHANGED_PARTS[chosen["counterfactual"]]))
    return BuiltModel(model, pairs, truth, options)


_DEFAULTS: Mapping[str, Any] = {
    "family": "llama",
    "n_kv_heads": N_HEADS,
    "beta": Dial.beta,
    "sharpness": Dial.sharpness,
    "rotation": None,
    "norm_weights": None,
    "fillers": (0,),
    "counterfactual": "operator",
}


def _in_family(circuit: Circuit, family: str) -> Circuit:
    """The circuit with the norms and the activation of a family."""
    if family not in SANDWICH:
        return replace(circuit, query_key_norm=family in QUERY_KEY_NORM)
    return replace(
        circuit,
        act=lambda x: gelu(x, approximate="tanh"),
        sandwich=True,
        query_key_norm=family in QUERY_KEY_NORM,
    )


def _pairs(
    circuit: Circuit, kind: str, changes: str, fillers: Sequence[int], n: int, seed: int
) -> PromptPairs:
    """Prompts `BOS fill* A op B =` with their counterfactuals."""
    if changes not in CHANGED_PARTS:
        raise ValueError(
            f"expected a counterfactual among {', '.join(CHANGED_PARTS)}, found {changes!r}"
        )
    if not all(0 <= count <= 2 for count in fillers):
        raise ValueError(f"expected 0 to 2 fillers, found {fillers}; END sees no farther")
    problems = doubles() if kind == "query_composition" else sums()
    problems = [row for row in problems if min(row[0], row[2]) > 0]
    rng = random.Random(seed)
    rng.shuffle(problems)
    problems = problems[:n]
    rows, others = [], []
    width = 5 + max(fillers)
    for number, (a, op, b, c) in enumerate(problems):
        count = fillers[number % len(fillers)]
        start = [FILLER] * (width - 5 - count) + [BOS] + [FILLER] * count
        other = {"operator": (a, VOID, b), "a": (VOID, op, b)}.get(changes)
        if other is None:
            fits = [x for x in problems if x[1] == op and x[0] != a and x[2] != b and x[3] != c]
            other = rng.choice(fits)[:3]
        rows.append([*start, a, op, b, EQUALS])
        others.append([*start, *other, EQUALS])
    lengths = torch.tensor([5 + fillers[i % len(fillers)] for i in range(len(problems))])
    columns = {Role.OPERAND_A: -4, Role.OPERATOR: -3, Role.OPERAND_B: -2, Role.END: -1}
    starts = {role: torch.full((len(rows),), width + at) for role, at in columns.items()}
    starts[Role.BOS] = width - lengths
    words = circuit.tokens
    return PromptPairs(
        reference=torch.tensor(rows),
        counterfactual=torch.tensor(others),
        answer=torch.tensor([c for *_, c in problems]),
        attention_mask=torch.arange(width) >= width - lengths[:, None],
        spans={role: torch.stack([start, start + 1], 1) for role, start in starts.items()},
        template=tuple(f"built/{length}" for length in lengths.tolist()),
        problem=tuple(f"{a} {words[op]} {b}" for a, op, b, _ in problems),
        operation=tuple("addition" if op == PLUS else "subtraction" for _, op, *_ in problems),
        operands=torch.tensor([(a, b) for a, _, b, _ in problems]),
    )


def _tokenizer(words: Sequence[str]) -> Any:
    """A tokenizer with one token per word, which puts BOS first."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(words)}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token=words[FILLER]))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain.post_processor = processors.TemplateProcessing(
        single=f"{words[BOS]} $A", special_tokens=[(words[BOS], BOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token=words[BOS], unk_token=words[FILLER]
    )
