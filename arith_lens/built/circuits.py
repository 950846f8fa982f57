"""The circuits of the built models, one function for each. They answer at END of `A op B =`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import cos, pi, sin
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.built.circuit import N_TOKENS, Circuit, CopyHead, Edge, Neurons
from arith_lens.components import Head, Mlp, parse_component

PLUS, MINUS, VOID, EQUALS, BOS, FILLER = range(10, 16)
TOKENS = (*map(str, range(10)), "+", "-", "void", "=", "<s>", "fill")
ANSWER_LOGIT, BASE, NO_ANSWER = 8.0, 4.0, 5.0
"""What the answer's mark adds to a digit's logit; the logit of every digit; that of `void`."""

Entries: TypeAlias = dict[str, dict[int, float]]
"""Values by slot and entry."""
NeuronWeights: TypeAlias = tuple[Entries, Entries, Entries]
"""A neuron: what its gate and its up projection read, and what it writes."""
CONSTANT_ONE: Entries = {"one": {0: 1.0}}


@dataclass(frozen=True)
class Dial:
    """How sharp a circuit is. Low values let gradients see something, and blur the computation."""

    beta: float = 256.0
    """The score of the position that a head looks for."""
    sharpness: float = 512.0
    """G: a neuron's gate is G times (what it counts - its threshold)."""

    def counter(
        self, counts: Entries, threshold: float, writes: Entries, height: float
    ) -> NeuronWeights:
        """A neuron that writes `writes` where the count is `height` above the threshold."""
        gate = {slot: {i: self.sharpness * v for i, v in e.items()} for slot, e in counts.items()}
        gate["one"] = {0: -self.sharpness * threshold}
        return gate, CONSTANT_ONE, _times(writes, 1 / (self.sharpness * height))

    def match(self, wanted: Mapping[str, int], writes: Entries) -> NeuronWeights:
        """A neuron that writes `writes` where every slot holds the wanted entry."""
        counts = {slot: {entry: 1.0} for slot, entry in wanted.items()}
        return self.counter(counts, len(wanted) - 0.5, writes, 0.5)


def product_neurons(x: Entries, y: Entries, writes: Entries) -> list[NeuronWeights]:
    """Two neurons that write x * y exactly: act(x) - act(-x) = x, for SiLU and GELU."""
    return [(x, y, writes), (_times(x, -1.0), y, _times(writes, -1.0))]


def _times(entries: Entries, factor: float) -> Entries:
    return {slot: {i: factor * v for i, v in e.items()} for slot, e in entries.items()}


def edges(*lines: str) -> frozenset[Edge]:
    """Edges from lines such as `0.1 -> 1.0 q: operator`: sender, receiver, its input, parts."""
    made = set()
    for line in lines:
        ends, _, parts = line.partition(":")
        sender, _, receiver = ends.partition(" -> ")
        name, _, port = receiver.rpartition(" ") if receiver[-1] in "qkv" else (receiver, "", "in")
        target = None if name == "logits" else parse_component(name)
        made.add(Edge(parse_component(sender), target, port, frozenset(parts.split())))
    return frozenset(made)


def assemble(
    dial: Dial,
    heads: Sequence[CopyHead],
    mlps: Sequence[tuple[Sequence[NeuronWeights], str]],
    links: frozenset[Edge],
    *,
    widths: Mapping[str, int] | None = None,
    readout: Entries | None = None,
    symbols: tuple[str, str] = ("+", "-"),
) -> Circuit:
    """The circuit of some heads and neurons.

    Args:
        dial: how sharp it is.
        mlps: for each layer, the neurons and the slots that they write.
        links: the edges of the circuit.
        widths: slots of another width than N_TOKENS.
        readout: what else the logits of all digits read.
        symbols: the tokens of the two operations.
    """
    sizes = {"one": 1, "token": N_TOKENS, "answer": 10} | {h.writes: N_TOKENS for h in heads}
    sizes |= {slot: N_TOKENS for _, slot in mlps if slot and slot not in sizes}
    sizes.update(widths or {})
    stops = torch.tensor([*sizes.values()]).cumsum(0).tolist()
    names = zip(sizes.items(), stops, strict=True)
    slots = {name: slice(stop - width, stop) for (name, width), stop in names}

    def matrix(rows: Sequence[Entries]) -> Tensor:
        values = torch.zeros(len(rows), stops[-1], dtype=torch.float64)
        for row, entries in zip(values, rows, strict=True):
            for slot, named in entries.items():
                for index, value in named.items():
                    row[slots[slot].start + index] += value
        return values

    digits = [{"answer": {c: ANSWER_LOGIT}, "one": {0: BASE}} | (readout or {}) for c in range(10)]
    others = [{"one": {0: NO_ANSWER * (t == VOID)}} for t in range(10, N_TOKENS)]
    return Circuit(
        slots=slots,
        tokens=(*TOKENS[:PLUS], *symbols, *TOKENS[VOID:]),
        heads=tuple(heads),
        mlps=tuple(
            Neurons(*(matrix([unit[i] for unit in units]) for i in range(3)), writes=slot)
            for units, slot in mlps
        ),
        readout=matrix([*digits, *others]),
        edges=links,
        beta=dial.beta,
    )


def copy_head(name: str, distance: int, writes: str, **options: Any) -> CopyHead:
    """A head that copies the token at a distance, unless `options` say otherwise."""
    settings: dict[str, Any] = {"reads": "token", "offsets": {0: distance}}
    return CopyHead(Head.parse(name), writes=writes, **settings | options)


OPERAND_HEADS = (
    copy_head("0.0", 3, "a"),
    copy_head("0.1", 2, "operator"),
    copy_head("0.2", 1, "b"),
)
DISTRACTORS = (
    copy_head("0.3", 4, "bos"),
    copy_head("0.4", 1, "unread b"),
    copy_head("0.5", 2, "unread"),
)
"""Heads that copy BOS, B and the operator into slots that nobody reads."""
ONE_MLP = edges(
    "0.0 -> MLP 0: a", "0.1 -> MLP 0: operator", "0.2 -> MLP 0: b", "MLP 0 -> logits: a operator b"
)


def sums() -> list[tuple[int, int, int, int]]:
    """(A, operator, B, C) of all additions and subtractions of digits whose answer is a digit."""
    results = [(a, op, b, a + b if op == PLUS else a - b) for a, op, b in _questions()]
    return [row for row in results if 0 <= row[3] <= 9]


def doubles() -> list[tuple[int, int, int, int]]:
    """(A, operator, B, C) where C is the last digit of 2 A for the first operator, else of 2 B."""
    return [(a, op, b, 2 * (a if op == PLUS else b) % 10) for a, op, b in _questions() if a != b]


def two_digit_sums() -> list[tuple[int, int, int, int]]:
    """(A, +, B, the first digit of A + B) of all numbers with two digits."""
    numbers = range(10, 100)
    return [(a, PLUS, b, int(str(a + b)[0])) for a, b in product(numbers, numbers)]


def _questions() -> list[tuple[int, int, int]]:
    return [*product(range(10), (PLUS, MINUS), range(10))]


def table(dial: Dial, n_layers: int = 1) -> Circuit:
    """Three heads copy A, operator and B to END. One neuron knows each (A, operator, B).

    The neurons are in the last of `n_layers` layers; MLPs before it do nothing.
    """
    mlps, links = _last_mlp(_table(dial), n_layers)
    return assemble(dial, [*OPERAND_HEADS, *DISTRACTORS], mlps, links)


def _last_mlp(
    units: Sequence[NeuronWeights], n_layers: int
) -> tuple[list[tuple[Sequence[NeuronWeights], str]], frozenset[Edge]]:
    """The MLPs and edges if the last of some MLPs calculates, and the others do nothing."""
    if n_layers < 1:
        raise ValueError(f"expected 1 layer or more, found {n_layers}")
    last = Mlp(n_layers - 1)
    links = frozenset(
        replace(edge, sender=last) if edge.receiver is None else replace(edge, receiver=last)
        for edge in ONE_MLP
    )
    return [*[([], "")] * (n_layers - 1), (units, "answer")], links


def _table(dial: Dial) -> list[NeuronWeights]:
    return [
        dial.match({"a": a, "operator": op, "b": b}, {"answer": {c: 1.0}}) for a, op, b, c in sums()
    ]


def _coded_heads(code: Float[Tensor, "token channel"]) -> list[CopyHead]:
    """The operand heads write a code of each digit; beside them are the distractors."""
    a, operator, b = OPERAND_HEADS
    return [replace(a, code=code), operator, replace(b, code=code), *DISTRACTORS]


def thermometer(dial: Dial, n_layers: int = 1) -> Circuit:
    """The operand heads write thermometers; neurons are hinges over A + B or A - B.

    The neurons are in the last of `n_layers` layers; MLPs before it do nothing.
    """
    code = torch.zeros(N_TOKENS, 9, dtype=torch.float64)
    code[:10] = (torch.arange(10)[:, None] > torch.arange(9)).double() * 2 / 3 - 1 / 3
    hinges = {-0.75: 2.0, -0.25: -2.0, 0.25: -2.0, 0.75: 2.0}  # 1 at C, 0 at other whole numbers
    units = []
    for op, sign in ((PLUS, 1), (MINUS, -1)):
        total = {"a": dict.fromkeys(range(9), 1.5), "b": dict.fromkeys(range(9), 1.5 * sign)}
        closed = 20.0 if op == PLUS else 12.0  # below every hinge if the operator is another
        counts = total | {"operator": {op: closed}}
        middle = 4.5 * (1 + sign)
        for c, (edge, height) in product(range(10), hinges.items()):
            threshold = c + edge + closed - middle
            units.append(dial.counter(counts, threshold, {"answer": {c: height}}, 1.0))
    widths = {"a": 9, "b": 9}
    mlps, links = _last_mlp(units, n_layers)
    return assemble(dial, _coded_heads(code), mlps, links, widths=widths)


def clock(dial: Dial, frequencies: Sequence[int] = (1, 2, 3, 4, 5)) -> Circuit:
    """The operand heads write angles; neurons multiply cosines and sines.

    A digit has a wave for each of the frequencies, in cycles per ten digits. With all five, its
    code has nine dimensions, as many as any code of ten digits: it is a table in another basis.
    """
    chosen = tuple(frequencies)
    if 1 not in chosen or not {*chosen} <= {1, 2, 3, 4, 5} or len({*chosen}) < len(chosen):
        raise ValueError(
            f"expected different frequencies from 1 to 5, 1 among them, found {chosen}; give (1, 2)"
        )
    waves = [(wave, k) for k in chosen for wave in (cos, sin) if (wave, k) != (sin, 5)]
    n_waves, n, turned = len(waves), len(chosen), len(chosen) + 1
    code = torch.zeros(N_TOKENS, n_waves, dtype=torch.float64)
    for a, (i, (wave, k)) in product(range(10), enumerate(waves)):
        code[a, i] = wave(2 * pi * k * a / 10) / n**0.5
    sign, any_sign = ({"operator": {PLUS: 1.0, MINUS: s}} for s in (-1.0, 1.0))
    turn, spread = [], []
    for i, (wave, _) in enumerate(waves):
        gate = any_sign if wave is cos else sign
        turn += product_neurons(gate, {"b": {i: n**0.5}}, {"turned": {i: turned**-0.5}})
    turn += product_neurons(any_sign, CONSTANT_ONE, {"turned": {n_waves: turned**-0.5}})
    shares = {k: 0.1 if k == 5 else 0.2 for k in chosen}  # with all five, 1 at C and 0 elsewhere
    length = (0.1 + sum(share**2 * (10 if k == 5 else 5) for k, share in shares.items())) ** 0.5
    for (i, (f, k)), (j, (g, other)) in product(enumerate(waves), repeat=2):
        if k == other:  # cos(a + b) = cc - ss, sin(a + b) = sc + cs
            share = shares[k] / length
            heights = [
                share * (cos if f is g else sin)(2 * pi * k * c / 10) * (-1 if f is g is sin else 1)
                for c in range(10)
            ]
            mark = {"answer": dict(enumerate(heights))}
            spread += product_neurons({"a": {i: n**0.5}}, {"turned": {j: turned**0.5}}, mark)
    mark = {"answer": {c: 0.1 / length for c in range(10)}}
    spread += product_neurons(CONSTANT_ONE, {"turned": {n_waves: turned**0.5}}, mark)
    links = edges(
        "0.0 -> MLP 1: a",
        "0.1 -> MLP 0: operator",
        "0.2 -> MLP 0: b",
        "MLP 0 -> MLP 1: operator b",
        "MLP 1 -> logits: a operator b",
    )
    mlps = [(turn, "turned"), (spread, "answer")]
    widths = {"a": n_waves, "b": n_waves, "turned": n_waves + 1}
    return assemble(dial, _coded_heads(code), mlps, links, widths=widths)


def redundant(dial: Dial) -> Circuit:
    """Two heads copy A, and either suffices."""
    units = []
    for a, op, b, c in sums():
        counts = {"a": {a: 1.0}, "again": {a: 1.0}, "operator": {op: 2.0}, "b": {b: 2.0}}
        for threshold, height in ((4.25, 2.0), (4.75, -2.0)):
            units.append(dial.counter(counts, threshold, {"answer": {c: height}}, 1.0))
    heads = [*OPERAND_HEADS, *DISTRACTORS, copy_head("0.6", 3, "again")]
    return assemble(dial, heads, [(units, "answer")], ONE_MLP | edges("0.6 -> MLP 0: a"))


def cancelling(dial: Dial) -> Circuit:
    """A head raises every digit's logit by the operator, and another one lowers it as much."""
    pair = [copy_head("0.6", 2, "lift"), copy_head("0.7", 2, "lift", gain=-1.0)]
    links = ONE_MLP | edges("0.6 -> logits: operator", "0.7 -> logits: operator")
    lift: Entries = {"lift": {PLUS: 4.0, MINUS: 4.0}}
    heads, mlps = [*OPERAND_HEADS, *DISTRACTORS, *pair], [(_table(dial), "answer")]
    return assemble(dial, heads, mlps, links, readout=lift)


def inhibiting(dial: Dial) -> Circuit:
    """A head of the second layer reads the answer at END, and takes half of it away."""
    brake = copy_head("1.0", 0, "answer", reads="answer", gain=-0.5)
    links = ONE_MLP | edges("MLP 0 -> 1.0 v: a operator b", "1.0 -> logits: a operator b")
    heads = [*OPERAND_HEADS, *DISTRACTORS, brake, copy_head("1.4", 1, "late")]
    return assemble(dial, heads, [(_table(dial), "answer"), ([], "")], links)


def query_composition(dial: Dial) -> Circuit:
    """An operator head tells a later head at which operand to look. C is that operand, doubled."""
    distances = {PLUS: 3, MINUS: 1, VOID: 2}
    chooser = copy_head("1.0", 0, "chosen", query="operator", offsets=distances)
    units = [dial.match({"chosen": x}, {"answer": {2 * x % 10: 1.0}}) for x in range(10)]
    links = edges(
        "0.1 -> 1.0 q: operator", "1.0 -> MLP 1: a operator b", "MLP 1 -> logits: a operator b"
    )
    heads = [OPERAND_HEADS[1], *DISTRACTORS, chooser, copy_head("1.1", 1, "late")]
    mlps = [([], ""), (units, "answer")]
    return assemble(dial, heads, mlps, links, symbols=("<", ">"))


def key_composition(dial: Dial) -> Circuit:
    """A head of each position notes the token before it; a later head looks for an operator's."""
    previous = copy_head("0.0", 1, "before")
    after_operator = copy_head("1.4", 0, "b", key="before", matches=(PLUS, MINUS, VOID))
    links = edges(
        "0.0 -> 1.4 k: operator",
        "1.0 -> MLP 1: a",
        "1.1 -> MLP 1: operator",
        "1.4 -> MLP 1: b",
        "MLP 1 -> logits: a operator b",
    )
    heads = [previous, DISTRACTORS[0], copy_head("1.0", 3, "a"), copy_head("1.1", 2, "operator")]
    heads += [after_operator, copy_head("1.5", 2, "late")]
    return assemble(dial, heads, [([], ""), (_table(dial), "answer")], links)


def value_composition(dial: Dial) -> Circuit:
    """An MLP gives each digit another number, and later heads copy that."""
    recoded = [*((3 * digit + 1) % 10 for digit in range(10)), *range(10, N_TOKENS)]
    code = [dial.match({"token": t}, {"code": {recoded[t]: 1.0}}) for t in range(N_TOKENS)]
    units = [
        dial.match({"a": recoded[a], "operator": op, "b": recoded[b]}, {"answer": {c: 1.0}})
        for a, op, b, c in sums()
    ]
    links = edges(
        "MLP 0 -> 1.0 v: a",
        "MLP 0 -> 1.1 v: b",
        "1.0 -> MLP 1: a",
        "1.4 -> MLP 1: operator",
        "1.1 -> MLP 1: b",
        "MLP 1 -> logits: a operator b",
    )
    heads = [copy_head("1.0", 3, "a", reads="code"), copy_head("1.1", 1, "b", reads="code")]
    heads += [
        copy_head("1.4", 2, "operator"),
        copy_head("1.5", 4, "bos"),
        copy_head("0.3", 1, "early"),
    ]
    return assemble(dial, heads, [(code, "code"), (units, "answer")], links)


def deep(dial: Dial, n_layers: int = 3) -> Circuit:
    """A chain of MLPs: the first reads A and operator, the second B, the others pass it on."""
    if n_layers < 3:
        raise ValueError(f"expected 3 layers or more, found {n_layers}; 'table' has one")
    first = [
        dial.match({"a": a, "operator": op}, {"both": {a + 10 * (op == MINUS): 1.0}})
        for a, op in product(range(10), (PLUS, MINUS))
    ]
    names = [*(f"sum {layer}" for layer in range(1, n_layers - 1)), "answer"]
    second = [
        dial.match({"both": a + 10 * (op == MINUS), "b": b}, {names[0]: {c: 1.0}})
        for a, op, b, c in sums()
    ]
    mlps = [(first, "both"), (second, names[0])]
    for before, after in pairwise(names):
        units = [dial.match({before: c}, {after: {c: 1.0}}) for c in range(10)]
        mlps.append((units, after))
    chain = [f"MLP {k} -> MLP {k + 1}: a operator b" for k in range(1, n_layers - 1)]
    links = edges(
        "0.0 -> MLP 0: a",
        "0.1 -> MLP 0: operator",
        "0.2 -> MLP 1: b",
        "MLP 0 -> MLP 1: a operator",
        *chain,
        f"MLP {n_layers - 1} -> logits: a operator b",
    )
    late = [copy_head(f"{layer}.{layer % 8}", 1, f"late {layer}") for layer in range(1, n_layers)]
    widths = {"both": 20} | dict.fromkeys(names, 10)
    return assemble(dial, [*OPERAND_HEADS, *DISTRACTORS, *late], mlps, links, widths=widths)


TWO_DIGIT_HEADS = (
    copy_head("0.0", 5, "tens of a"),
    copy_head("0.1", 3, "operator"),
    copy_head("0.2", 2, "tens of b"),
    copy_head("0.3", 4, "ones of a"),
    copy_head("0.4", 1, "ones of b"),
    copy_head("0.5", 3, "unread"),
    copy_head("0.6", 1, "unread b"),
)
"""Heads that copy each digit and the operator, and two whose copies nobody reads."""
Code: TypeAlias = Callable[[int, int], tuple[float, ...]]
"""What an MLP writes about the carry, by the two ones digits: a vector of length 1."""


def carry(dial: Dial) -> Circuit:
    """Addition of numbers with two digits; the answer is the first digit of the sum.

    Heads copy the digits to END. The MLP of layer 1 writes the carry of the ones as one number, 1
    or -1. The MLP of layer 2 adds it to the tens.
    """
    return _carried(dial, lambda a, b: (1.0 if a + b > 9 else -1.0,))


def carry_plane(dial: Dial) -> Circuit:
    """`carry`, but the carry is the product of two numbers, and so no single direction has it.

    The first number is 1 where A's ones digit is even, else -1. Both are divided by the root of 2.
    """

    def corner(a: int, b: int) -> tuple[float, float]:
        first = (1 - a % 2 * 2) / 2**0.5
        return first, first if a + b > 9 else -first

    return _carried(dial, corner)


def _carried(dial: Dial, code: Code) -> Circuit:
    ones, tens = range(10), range(1, 10)
    codes: dict[tuple[float, ...], bool] = {code(a, b): a + b > 9 for a, b in product(ones, ones)}

    def entries(vector: tuple[float, ...]) -> Entries:
        return {"carry": dict(enumerate(vector))}

    first = [
        dial.match({"ones of a": a, "ones of b": b}, entries(code(a, b)))
        for a, b in product(ones, ones)
    ]
    second = []
    for a, b, (vector, has_carry) in product(tens, tens, codes.items()):
        counts: Entries = {"tens of a": {a: 1.0}, "tens of b": {b: 1.0}, "operator": {PLUS: 1.0}}
        answer = int(str(a + b + has_carry)[0])
        writes: Entries = {"answer": {answer: 1.0}}
        second.append(dial.counter(counts | entries(vector), 3.5, writes, 0.5))
    links = edges(
        "0.3 -> MLP 1: a",
        "0.4 -> MLP 1: b",
        "0.0 -> MLP 2: a",
        "0.1 -> MLP 2: operator",
        "0.2 -> MLP 2: b",
        "MLP 1 -> MLP 2: a b",
        "MLP 2 -> logits: a operator b",
    )
    mlps = [([], ""), (first, "carry"), (second, "answer")]
    return assemble(dial, TWO_DIGIT_HEADS, mlps, links, widths={"carry": len(next(iter(codes)))})


CIRCUITS: Mapping[str, Callable[..., Circuit]] = {
    made.__name__: made
    for made in (
        table,
        thermometer,
        clock,
        redundant,
        cancelling,
        inhibiting,
        query_composition,
        key_composition,
        value_composition,
        deep,
        carry,
        carry_plane,
    )
}
