"""`built_model`: a Hugging Face model whose circuit is known, with pairs and closed-form effects.

The weights compute what the circuit's equations say. A norm divides the stream by its length, and
every matrix that reads a norm's output multiplies by the length that the stream has in the circuit.
Rotary pair 0 turns by one radian per token, so that a query turned by -d finds distance d. The
other pairs do not turn, and compare contents.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import gelu, silu

from arith_lens.built.circuit import EPS, N_TOKENS, Activation, Circuit, Truth, circuit_embedding
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
    two_digit_sums,
)
from arith_lens.model import FAMILIES, HookedModel, load_model
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import NO_ANSWER, PromptPairs, Role

N_HEADS = 8
"""The number of heads in each layer."""
BUILT_FAMILIES = {row.built.name: (row, row.built) for row in FAMILIES.values() if row.built}
"""The families of which a model can be built, and their forms, by the name here."""
ACTIVATIONS: Mapping[str, Activation] = {
    "silu": silu,
    "gelu_pytorch_tanh": partial(gelu, approximate="tanh"),
}
"""By Transformers' name."""
CHANGED_PARTS = {"operator": {"operator"}, "a": {"a"}, "operands": {"a", "b"}}
"""By counterfactual, the parts of the prompt that it changes."""

_EXAMPLES = [item for item in BUILT_FAMILIES.items() if item[1][1].example]
BUILT_NAMES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{name: (name, {}) for name in CIRCUITS},
    "redundant": ("redundant", {"counterfactual": "a"}),
    "value_composition": ("value_composition", {"counterfactual": "operands"}),
    "soft": ("table", {"beta": 8.0, "sharpness": 8.0}),
    "rotated": ("table", {"rotation": 0}),
    "norm_weights": ("table", {"norm_weights": 0}),
    "grouped": ("table", {"n_kv_heads": 2}),
    **{form.example: ("table", {"family": name}) for name, (_, form) in _EXAMPLES},
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
    """Everything that `hf_model` needs beside the circuit."""

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


@dataclass(frozen=True)
class Variant:
    """How a built model differs from the others of its name; `built_model` explains each option."""

    n_kv_heads: int | None = None
    beta: float | None = None
    sharpness: float | None = None
    rotation: int | None = None
    norm_weights: int | None = None
    fillers: Sequence[int] | None = None
    n_layers: int | None = None
    frequencies: Sequence[int] | None = None


class VariantOptions(TypedDict, total=False):
    """The fields of `Variant`, as keyword arguments."""

    n_kv_heads: int | None
    beta: float | None
    sharpness: float | None
    rotation: int | None
    norm_weights: int | None
    fillers: Sequence[int] | None
    n_layers: int | None
    frequencies: Sequence[int] | None


def built_model(
    name: str = "table",
    *,
    family: str | None = None,
    counterfactual: str | None = None,
    n: int = 81,
    seed: int = 0,
    **variant: Unpack[VariantOptions],
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
        n_layers: the number of layers, of `deep`, `table` and `thermometer` alone. The last two
            calculate in the last layer, after the heads of the first have brought the digits.
        frequencies: the waves of `clock`, in cycles per ten digits, 1 among them.

    Raises:
        ValueError: an unknown name, family or counterfactual; heads that share keys and values but
            need different ones; more than two filler tokens, or any before numbers of two digits.
        TypeError: an option that does not exist, or that the circuit does not have.
    """
    refuse_unknown_options(built_model, variant, Variant)
    check_choice("a built model", name, BUILT_NAMES)
    kind, fixed = BUILT_NAMES[name]
    own = asdict(value_object(Variant, variant)) | {"family": family}
    own["counterfactual"] = counterfactual
    shape = {key: own.pop(key) for key in ("n_layers", "frequencies")}
    circuit = {key: value for key, value in shape.items() if value is not None}
    chosen = {**_DEFAULTS, **fixed, **{key: v for key, v in own.items() if v is not None}}
    check_choice("a family", chosen["family"], BUILT_FAMILIES)
    made = CIRCUITS[kind](Dial(chosen["beta"], chosen["sharpness"]), **circuit)
    made = _in_family(made, chosen["family"])
    pairs = _pairs(made, kind, chosen["counterfactual"], chosen["fillers"], n, seed)
    options = {key: chosen[key] for key in ("family", "n_kv_heads", "rotation", "norm_weights")}
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
    _, form = BUILT_FAMILIES[family]
    return replace(
        circuit,
        act=ACTIVATIONS[form.activation],
        query_key_norm=form.query_key_norm,
        sandwich=form.norm_after,
    )


PROBLEMS: Mapping[str, Callable[[], list[tuple[int, int, int, int]]]] = {
    "query_composition": doubles,
    "carry": two_digit_sums,
    "carry_plane": two_digit_sums,
}
"""(A, operator, B, answer) of the circuits that do not answer all sums of one digit."""


def _pairs(
    circuit: Circuit, kind: str, changes: str, fillers: Sequence[int], n: int, seed: int
) -> PromptPairs:
    """Prompts `BOS fill* A op B =` with their counterfactuals."""
    check_choice("a counterfactual", changes, CHANGED_PARTS)
    problems = [row for row in PROBLEMS.get(kind, sums)() if min(row[0], row[2]) > 0]
    n_digits = len(str(problems[0][0]))
    most = 2 if n_digits == 1 else 0
    if not all(0 <= count <= most for count in fillers):
        raise ValueError(f"expected 0 to {most} fillers, found {fillers}; END sees no farther")
    rng = random.Random(seed)
    rng.shuffle(problems)
    problems = problems[:n]
    rows, others, other_answers = [], [], []
    shortest = 3 + 2 * n_digits
    width = shortest + max(fillers)
    for number, (a, op, b, c) in enumerate(problems):
        count = fillers[number % len(fillers)]
        start = [FILLER] * (width - shortest - count) + [BOS] + [FILLER] * count
        own = [*_digits(a), op, *_digits(b)]
        void = {
            "operator": [*_digits(a), VOID, *_digits(b)],
            "a": [*[VOID] * n_digits, op, *_digits(b)],
        }
        other, other_answer = void.get(changes), NO_ANSWER
        if other is None:
            fits = [x for x in problems if x[1] == op and x[0] != a and x[2] != b and x[3] != c]
            x, _, y, other_answer = rng.choice(fits)
            other = [*_digits(x), op, *_digits(y)]
        rows.append([*start, *own, EQUALS])
        others.append([*start, *other, EQUALS])
        other_answers.append(other_answer)
    lengths = torch.tensor([shortest + fillers[i % len(fillers)] for i in range(len(problems))])
    columns = {
        Role.OPERAND_A: (-2 - 2 * n_digits, n_digits),
        Role.OPERATOR: (-2 - n_digits, 1),
        Role.OPERAND_B: (-1 - n_digits, n_digits),
        Role.END: (-1, 1),
    }
    spans: dict[str, torch.Tensor] = {
        role: torch.tensor([[width + at, width + at + size]]).repeat(len(rows), 1)
        for role, (at, size) in columns.items()
    }
    spans[Role.BOS] = torch.stack([width - lengths, width - lengths + 1], 1)
    words = circuit.tokens
    return PromptPairs(
        reference=torch.tensor(rows),
        counterfactual=torch.tensor(others),
        answer=torch.tensor([c for *_, c in problems]),
        counterfactual_answer=torch.tensor(other_answers),
        attention_mask=torch.arange(width) >= width - lengths[:, None],
        spans=spans,
        template=tuple(f"built/{length}" for length in lengths.tolist()),
        problem=tuple(f"{a} {words[op]} {b}" for a, op, b, _ in problems),
        operation=tuple("addition" if op == PLUS else "subtraction" for _, op, *_ in problems),
        operands=torch.tensor([(a, b) for a, _, b, _ in problems]),
    )


def _digits(number: int) -> list[int]:
    return [int(digit) for digit in str(number)]


def _tokenizer(words: Sequence[str]) -> Any:
    """A tokenizer with one token per word and per digit, which puts BOS first."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(words)}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token=words[FILLER]))
    plain.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True)]
    )
    plain.post_processor = processors.TemplateProcessing(
        single=f"{words[BOS]} $A", special_tokens=[(words[BOS], BOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token=words[BOS], unk_token=words[FILLER]
    )


D_HEAD = N_TOKENS
HALF_HEAD = D_HEAD // 2
"""Entry 0 and entry HALF_HEAD of a query are rotary pair 0."""
CONTENT = HALF_HEAD - 1
"""An entry of a query that does not turn."""
ROPE_THETA = 1e30
"""With this base, pair 0 turns by one radian per token, and no other pair by 0.001."""


def hf_model(
    circuit: Circuit,
    *,
    family: str,
    n_kv_heads: int,
    rotation: int | None,
    norm_weights: int | None,
) -> Any:
    """The Transformers model of a circuit, in float32.

    Args:
        family: a key of BUILT_FAMILIES.
        n_kv_heads: the number of heads with keys and values of their own.
        rotation: the seed of a random rotation of the residual stream; None: no rotation.
        norm_weights: the seed of random weights of the norms that read the stream; None: all 1.

    Raises:
        ValueError: heads of one group would need different keys or values.
    """
    model = _empty(circuit, family, n_kv_heads)
    d_model = model.config.hidden_size
    generator = torch.Generator().manual_seed(norm_weights or 0)
    basis = _basis(circuit.n_channels, d_model, rotation)
    _, form = BUILT_FAMILIES[family]
    to_weight = -1.0 if form.scaled else 0.0
    lengths = iter(circuit.lengths())
    branches = iter(circuit.branch_lengths())

    def reader(norm: Any) -> Float[Tensor, "channel d_model"]:
        """The matrix that reads channels from the output of a norm, whose weights it sets."""
        weight = torch.ones(d_model, dtype=torch.float64)
        if norm_weights is not None:
            weight = 0.5 + torch.rand(d_model, dtype=torch.float64, generator=generator)
        norm.weight.copy_(weight + to_weight)
        return (next(lengths) / d_model) ** 0.5 * basis / weight

    def after(norm: Any) -> None:
        """The weights of a norm after attention or MLP: it keeps the length of the circuit."""
        norm.weight.fill_((next(branches) / d_model) ** 0.5 + to_weight)

    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        scale = d_model**0.5 if form.scaled else 1.0
        model.model.embed_tokens.weight.copy_(circuit_embedding(circuit) @ basis / scale)
        for number, layer in enumerate(model.model.layers):
            read = reader(layer.input_layernorm)
            _set_attention(layer.self_attn, circuit, number, read, basis, to_weight)
            if circuit.sandwich:
                after(layer.post_attention_layernorm)
            before = "pre_feedforward_layernorm" if circuit.sandwich else "post_attention_layernorm"
            read, mlp = reader(getattr(layer, before)), circuit.mlps[number]
            n = len(mlp.gate)
            layer.mlp.gate_proj.weight[:n] = (mlp.gate @ read).float()
            layer.mlp.up_proj.weight[:n] = (mlp.up @ read).float()
            layer.mlp.down_proj.weight[:, :n] = (mlp.down @ basis).T.float()
            if circuit.sandwich:
                after(layer.post_feedforward_layernorm)
        model.lm_head.weight.copy_(circuit.readout @ reader(model.model.norm))
    return model


def _set_attention(
    attention: Any,
    circuit: Circuit,
    layer: int,
    read: Float[Tensor, "channel d_model"],
    basis: Float[Tensor, "channel d_model"],
    to_weight: float,
) -> None:
    """Set the matrices of one layer's attention. `to_weight` makes a factor a norm's weight."""
    shared = N_HEADS * D_HEAD // attention.k_proj.out_features
    factor = circuit.beta * D_HEAD**0.5  # attention divides scores by the root of D_HEAD
    if circuit.query_key_norm:  # queries and keys come with length 4, whatever they were
        attention.q_norm.weight.fill_(factor / D_HEAD + to_weight)
        attention.k_norm.weight.fill_(1.0 + to_weight)
        factor = 1.0
    used: dict[int, Any] = {}
    for head in circuit.heads_of(layer):
        group, slot = head.head.index // shared, circuit.slots
        needs = (head.reads, head.key, head.matches)
        if used.setdefault(group, needs) != needs:
            raise ValueError(
                "expected the heads that share a key and a value to read the same, found that "
                f"{head.head} reads something else than others of its group; choose more n_kv_heads"
            )
        rows = slice(head.head.index * D_HEAD, (head.head.index + 1) * D_HEAD)
        query = torch.zeros(D_HEAD, circuit.n_channels, dtype=torch.float64)
        key, value = torch.zeros_like(query), torch.zeros_like(query)
        if head.matches:
            query[CONTENT, slot[head.query].start] = 1.0
            key[CONTENT, [slot[head.key].start + v for v in head.matches]] = 1.0
        else:
            for v, distance in head.offsets.items():
                turn = torch.tensor([distance], dtype=torch.float64)
                query[0, slot[head.query].start + v] = turn.cos()[0]
                query[HALF_HEAD, slot[head.query].start + v] = -turn.sin()[0]
            key[0, slot[head.key].start] = 1.0
        value[:, slot[head.reads]] = torch.eye(N_TOKENS, dtype=torch.float64)
        groups = slice(group * D_HEAD, (group + 1) * D_HEAD)
        attention.q_proj.weight[rows] = (factor * query @ read).float()
        attention.k_proj.weight[groups] = (key @ read).float()
        attention.v_proj.weight[groups] = (value @ read).float()
        written = head.table @ basis[slot[head.writes]]
        attention.o_proj.weight[:, rows] = written.T.float()


def _basis(n_channels: int, d_model: int, rotation: int | None) -> Float[Tensor, "channel d_model"]:
    """The direction of each channel in the residual stream: orthonormal rows."""
    if rotation is None:
        return torch.eye(n_channels, d_model, dtype=torch.float64)
    generator = torch.Generator().manual_seed(rotation)
    square = torch.randn(d_model, d_model, dtype=torch.float64, generator=generator)
    return torch.linalg.qr(square)[0][:n_channels]


def _empty(circuit: Circuit, family: str, n_kv_heads: int) -> Any:
    """A model of the right shape, in evaluation mode."""
    from transformers import AutoConfig, AutoModelForCausalLM

    row, form = BUILT_FAMILIES[family]
    size = max(128, -(-circuit.n_channels // 64) * 64)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": ROPE_THETA}
    settings: dict[str, Any] = {
        "vocab_size": N_TOKENS,
        "hidden_size": size,
        "intermediate_size": max(1, *(len(mlp.gate) for mlp in circuit.mlps)),
        "num_hidden_layers": len(circuit.mlps),
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": n_kv_heads,
        "head_dim": D_HEAD,
        "max_position_embeddings": 64,
        "rms_norm_eps": EPS,
        "rope_parameters": rope,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": None,
        "pad_token_id": None,
        "attn_implementation": "eager",
    }
    if form.scaled:  # a Gemma, which also has a scale and caps of its own
        settings |= {
            "query_pre_attn_scalar": D_HEAD,
            "hidden_activation": form.activation,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
        }
    if row.angles_by_kind:
        kinds = ("sliding_attention", "full_attention")
        settings["rope_parameters"] = {kind: dict(rope) for kind in kinds}
    config = AutoConfig.for_model(row.model_type, **settings)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
