"""Edges: against torch's own hooks on plain Transformers, identities, known circuits."""

from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import make_pairs
from support.families import SWEPT
from torch import Tensor
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import arith_lens as al
from arith_lens.components import Component, Head, Mlp
from arith_lens.edges import EMBEDDINGS, SUBSETS, UnsupportedReceiver, edge_effects, shapley_shares
from arith_lens.edges.engine import EdgeEngine
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs, Role
from arith_lens.path_patching import CertificateError
from arith_lens.runs import open_run

FAMILIES = (
    *("Qwen3", "Gemma 2", "Gemma 3", "OLMo 2", "Cohere"),
    *("Mixtral", "Qwen2-MoE", "Qwen3-MoE", "Phi-3"),
)
"""Norms on queries and keys, norms after attention, parallel blocks; experts; one projection for
queries, keys and values."""


@dataclass
class Plain:
    """A Transformers model of LLaMA's kind, with hooks of torch alone.

    A run is given what replaces the outputs of embeddings, of heads (the input of o_proj), of MLPs,
    of projections, at every position or at END.
    """

    hf: Any
    pairs: PromptPairs

    def __post_init__(self) -> None:
        self.layers = self.hf.model.layers
        self.d_head = self.layers[0].self_attn.o_proj.weight.shape[1] // self.n_heads
        self.reference = self.run(self.pairs.reference)
        self.counterfactual = self.run(self.pairs.counterfactual)
        self.runs: dict[Any, dict[Any, Tensor]] = {}

    @property
    def n_heads(self) -> int:
        return self.hf.config.num_attention_heads

    @property
    def n_kv_heads(self) -> int:
        return self.hf.config.num_key_value_heads

    def exit(self, layer: int) -> Any:
        """The module whose output the MLP adds to the stream."""
        return getattr(self.layers[layer], "post_feedforward_layernorm", self.layers[layer].mlp)

    def projection(self, layer: int, name: str) -> Any:
        """The module with what heads read, side by side; a norm over all heads mixes them."""
        attention = self.layers[layer].self_attn
        projection = getattr(attention, f"{name}_proj")
        norm = getattr(attention, f"{name}_norm", None)
        over_all = norm is not None and len(norm.weight) == len(projection.weight)
        return norm if over_all else projection

    @torch.no_grad()
    def run(self, tokens: Tensor, put: dict[Any, Tensor] | None = None) -> dict[Any, Tensor]:
        """What each part puts out; `put` replaces it, by the same keys."""
        put, seen = put or {}, {}

        def keep(key: Any, value: Tensor) -> Tensor:
            seen[key] = put.get(key, value).clone()
            return seen[key]

        def after(module: Any, key: Any) -> Any:
            return module.register_forward_hook(lambda _, __, out: keep(key, out))

        def fused(layer: int) -> Any:
            sizes = [self.d_head * n for n in (self.n_heads, *2 * [self.n_kv_heads])]

            def hook(_: Any, __: Any, out: Tensor) -> Tensor:
                parts = zip("qkv", out.split(sizes, -1), strict=True)
                return torch.cat([keep((name, layer), part) for name, part in parts], -1)

            return hook

        def before(module: Any, key: Any) -> Any:
            def hook(_: Any, args: Any, kwargs: Any) -> Any:
                if args:
                    return (keep(key, args[0]), *args[1:]), kwargs
                return args, kwargs | {"hidden_states": keep(key, kwargs["hidden_states"])}

            return module.register_forward_pre_hook(hook, with_kwargs=True)

        with ExitStack() as stack:
            handles = [after(self.hf.model.embed_tokens, "embeddings")]
            for k, block in enumerate(self.layers):
                handles += [before(block, ("entry", k)), before(block.self_attn.o_proj, ("z", k))]
                handles += [after(self.exit(k), ("mlp", k))]
                if hasattr(block.self_attn, "qkv_proj"):
                    handles.append(block.self_attn.qkv_proj.register_forward_hook(fused(k)))
                    continue
                for name in "qkv":
                    handles.append(after(self.projection(k, name), (name, k)))
            for handle in handles:
                stack.callback(handle.remove)
            mask = self.pairs.attention_mask.long()
            position_ids = (mask.cumsum(-1) - 1).clamp(min=0)
            seen["logits"] = self.hf(
                tokens, attention_mask=mask, position_ids=position_ids, use_cache=False
            ).logits[:, -1]
        return seen

    def once(self, key: Any, run: Callable[[], dict[Any, Tensor]]) -> dict[Any, Tensor]:
        """A run that several edges have in common."""
        if key not in self.runs:
            self.runs[key] = run()
        return self.runs[key]

    def held(self, *, mlps: bool) -> dict[Any, Tensor]:
        """All heads at every position as in the reference run, and all MLPs if asked for."""
        parts = ("z", "mlp") if mlps else ("z",)
        return {key: value for key, value in self.reference.items() if key[0] in parts}

    def columns(self, heads: Any) -> list[int]:
        return [h * self.d_head + i for h in heads for i in range(self.d_head)]

    def sent(self, sender: Component | None, receiver: Component, via: str, mask: Tensor) -> Any:
        """A run in which one sender has its counterfactual output, and all heads are held."""
        put = self.held(mlps=via == "direct")
        if isinstance(receiver, Mlp):
            put.pop(("mlp", receiver.layer), None)

        def chosen(key: Any, columns: Any = slice(None)) -> Tensor:
            value, other = self.reference[key].clone(), self.counterfactual[key]
            mixed = torch.where(mask[..., None], other, value)
            value[..., columns] = mixed[..., columns]
            return value

        if sender is None:
            put["embeddings"] = chosen("embeddings")
        elif isinstance(sender, Mlp):
            put["mlp", sender.layer] = chosen(("mlp", sender.layer))
        else:
            key = ("z", sender.layer)
            put[key] = chosen(key, self.columns([sender.index]))
        return self.run(self.pairs.reference, put)

    def edge(
        self,
        sender: Component | None,
        receiver: Component,
        name: str = "qkv",
        *,
        via: str = "via_mlps",
        paths: str = "via_mlps",
        group: str = "shared",
        mask: Tensor | None = None,
    ) -> Tensor:
        """The change of the answer's logit, [pair]."""
        mask = self.pairs.attention_mask if mask is None else mask
        free = receiver if isinstance(receiver, Mlp) else None
        key = (sender, free, via, tuple(mask.flatten().tolist()))
        sent = self.once(key, lambda: self.sent(sender, receiver, via, mask))
        put = self.held(mlps=paths == "direct")
        if isinstance(receiver, Mlp):
            put["mlp", receiver.layer] = self.at_end("mlp", receiver.layer, sent)
        else:
            assert isinstance(receiver, Head)
            at = ("entry", receiver.layer)
            entry = self.once((at, key), lambda: self.run(self.pairs.reference, {at: sent[at]}))
            put["z", receiver.layer] = self.read(entry, receiver, name, group)
        logits = self.run(self.pairs.reference, put)["logits"]
        rows = torch.arange(len(logits))
        return (logits - self.reference["logits"])[rows, self.pairs.answer]

    def at_end(self, part: str, layer: int, run: Any, columns: Any = slice(None)) -> Tensor:
        value = self.reference[part, layer].clone()
        value[:, -1, columns] = run[part, layer][:, -1, columns]
        return value

    def read(self, entry: Any, receiver: Head, name: str, group: str) -> Tensor:
        """z with the outputs of the receiver's projections spliced from a run whose input of the
        layer is that of the sender's run."""
        layer = receiver.layer
        size = self.n_heads // self.n_kv_heads
        kv = receiver.index // size
        put: dict[Any, Tensor] = {}
        for letter in name:
            value = self.reference[letter, layer].clone()
            columns = self.columns([receiver.index if letter == "q" else kv])
            value[..., columns] = entry[letter, layer][..., columns]
            put[letter, layer] = value
        z = self.run(self.pairs.reference, put)
        shared = group == "shared" and name != "q"
        heads = range(kv * size, (kv + 1) * size) if shared else [receiver.index]
        return self.at_end("z", layer, z, self.columns(heads))


def compare(
    model: Any,
    receivers: list[Any],
    senders: list[Any],
    *,
    tolerance: float = 1e-5,
    raw: Any = None,
    **options: Any,
) -> None:
    """All edges between these, in the library and by torch's hooks; relative to the largest."""
    pairs = make_pairs(model)
    plain = Plain(model.bridge.original_model if raw is None else raw, pairs)
    inputs = options.pop("inputs", SUBSETS)
    edges = edge_effects(
        model, pairs, receivers, inputs=inputs, metric="logit", progress=False, **options
    )
    labels, scale = edges.labels or {}, float(plain.reference["logits"].abs().max())
    both: list[tuple[Any, Tensor, Tensor]] = []
    for r, receiver in enumerate(receivers):
        names = inputs if isinstance(receiver, Head) else ("mlp",)
        for name in names:
            of_input = edges.per_pair[r, labels["input"].index(name)]
            for sender in senders:
                row = labels["sender"].index(EMBEDDINGS if sender is None else str(sender))
                expected = plain.edge(sender, receiver, name, **options)
                both.append(((sender, name, receiver), of_input[row], expected))
    largest = max(float(expected.abs().max()) for _, _, expected in both)
    assert largest > 1e-2 * scale, "effects that rounding could make"
    for at, own, expected in both:
        error = float((own - expected).abs().max())
        assert error <= tolerance * largest, f"{at}: {error:.1e} of {largest:.1e}"
    _, *others = both
    swapped = max(float((a[1] - b[2]).abs().max()) for a, b in zip(both, others, strict=False))
    assert swapped > 1e3 * tolerance * largest, "a wrong edge could not be seen"


SENDERS = [None, Head(0, 1), Head(0, 2), Mlp(0), Head(1, 3), Mlp(1)]


@pytest.mark.parametrize("via", ["direct", "via_mlps"])
@pytest.mark.parametrize("paths", ["direct", "via_mlps"])
def test_each_edge_is_that_of_torchs_own_hooks(model: Any, via: str, paths: str) -> None:
    """Grouped queries, unequal lengths, a sliding window."""
    compare(model, [Head(2, 3), Head(2, 0), Mlp(2)], SENDERS, via=via, paths=paths)


@pytest.mark.parametrize("group", ["shared", "head"])
def test_heads_that_share_keys_and_values_read_together_or_alone(llama: Any, group: str) -> None:
    compare(llama, [Head(2, 1), Head(1, 2)], [None, Head(0, 0), Mlp(0)], group=group)


def test_layers_of_two_digits_are_right(deep: Any) -> None:
    """Effects are 2% of the logits here, and a rounding error of a logit is 7e-6 of an effect: the
    bound is that of four such errors."""
    compare(deep, [Head(11, 1), Mlp(11)], [Head(10, 0), Mlp(10), Mlp(9)], tolerance=3e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_families_with_other_norms_blocks_and_projections_are_right(
    name: str, tokenizer: Any
) -> None:
    raw = SWEPT[name].make(len(tokenizer)).eval()
    model = load_model((deepcopy(raw), tokenizer))  # bridging takes fused projections apart
    senders = [None, Head(0, 1), Mlp(0)]
    compare(model, [Head(1, 2), Mlp(1)], senders, raw=raw)


def test_senders_at_one_token_are_right(llama: Any) -> None:
    pairs = make_pairs(llama)
    plain = Plain(llama.bridge.original_model, pairs)
    edges = edge_effects(llama, pairs, "2.1", positions=-3, metric="logit", progress=False)
    mask = torch.zeros_like(pairs.attention_mask)
    mask[:, -3] = True
    for row, sender in enumerate([None, Head(0, 0)]):
        for i, name in enumerate("qkv"):
            expected = plain.edge(sender, Head(2, 1), name, mask=mask)
            assert_close(edges.per_pair[0, i, row], expected, atol=2e-5, rtol=1e-3)
    shortest = int(pairs.lengths.min())
    for beyond in (shortest, -shortest - 1):
        with pytest.raises(ValueError, match=f"position from {-shortest} to {shortest - 1}"):
            edge_effects(llama, pairs, "2.1", positions=beyond, progress=False)
    assert float(edges.per_pair[0, 0].nan_to_num().abs().max()) == 0, "END alone asks"
    assert float(edges.per_pair[0, 1].nan_to_num().abs().max()) > 1e-3


def test_no_sender_changes_nothing_and_a_wrong_head_would_be_seen(llama: Any) -> None:
    pairs = make_pairs(llama)
    same = PromptPairs.from_tokens(
        pairs.reference, pairs.reference, pairs.answer, pairs.attention_mask
    )
    with pytest.warns(UserWarning, match="shows nothing"):
        edges = edge_effects(llama, same, ["2.1", "MLP 2"], metric="logit", progress=False)
    assert float(edges.per_pair.nan_to_num().abs().max()) < 1e-6, "rounding: rows of other batches"
    plain = Plain(llama.bridge.original_model, pairs)
    edges = edge_effects(llama, pairs, "2.1", metric="logit", progress=False)
    row = (edges.labels or {})["sender"].index("0.2")
    with pytest.raises(AssertionError, match="not close"):
        expected = plain.edge(Head(0, 1), Head(2, 1), "v")
        assert_close(edges.per_pair[0, 2, row], expected, atol=2e-5, rtol=1e-3)


def test_what_comes_after_the_receiver_is_left_out(llama: Any) -> None:
    edges = edge_effects(llama, make_pairs(llama), ["1.1", "MLP 1"], progress=False)
    mean = edges.mean()
    senders, inputs = (edges.labels or {})["sender"], (edges.labels or {})["input"]
    known = [name for i, name in enumerate(senders) if not bool(mean[0, 0, i].isnan())]
    assert set(known) == {EMBEDDINGS, "MLP 0", *(f"0.{i}" for i in range(4))}
    mlp = mean[1, inputs.index("mlp")]
    known = [name for i, name in enumerate(senders) if not bool(mlp[i].isnan())]
    assert set(known) == {EMBEDDINGS, "MLP 0", *(f"{k}.{i}" for k in (0, 1) for i in range(4))}
    assert bool(mean[0, inputs.index("mlp")].isnan().all()) and bool(mean[1, 0].isnan().all())


@pytest.mark.parametrize("paths", ["direct", "via_mlps"])
def test_everything_together_is_path_patching_of_the_receiver(mistral: Any, paths: str) -> None:
    pairs, receivers = make_pairs(mistral), ["2.1", "1.0", "MLP 2", "MLP 0"]
    options: dict[str, Any] = {"metric": "logit", "paths": paths, "progress": False}
    edges = edge_effects(
        mistral, pairs, receivers, senders="together", inputs=SUBSETS, group="head", **options
    )
    patched = al.path_patch(mistral, pairs, senders=receivers, **options)
    for row, receiver in enumerate(receivers):
        name = "mlp" if "MLP" in receiver else "qkv"
        column = (edges.labels or {})["input"].index(name)
        assert_close(edges.per_pair[row, column, 0], patched[receiver].per_pair, atol=2e-5, rtol=0)
    raw = Plain(mistral.bridge.original_model, pairs)
    assert float(patched["2.1"].per_pair.abs().max()) > 1e-3 * float(raw.reference["logits"].max())


def test_one_query_head_per_group_shares_with_nobody(llama: Any) -> None:
    pairs = make_pairs(llama)
    edges = [edge_effects(llama, pairs, "2.1", group=g, progress=False) for g in ("shared", "head")]
    assert torch.equal(*(one.per_pair.nan_to_num() for one in edges))


def test_shapley_shares_add_up_to_the_whole(mistral: Any) -> None:
    pairs = make_pairs(mistral)
    edges = edge_effects(mistral, pairs, ["2.1", "1.0"], inputs=SUBSETS, progress=False)
    shares = shapley_shares(edges)
    assert (shares.labels or {})["input"] == ("q", "k", "v")
    whole = edges.per_pair[:, SUBSETS.index("qkv")]
    assert_close(shares.per_pair.sum(1), whole, equal_nan=True)
    q, k, v, qk, qv, kv, qkv = edges.per_pair[0, :, 0]
    by_hand = q / 3 + (qk - k) / 6 + (qv - v) / 6 + (qkv - kv) / 3
    assert_close(shares.per_pair[0, 0, 0], by_hand)
    with pytest.raises(ValueError, match="found none of qk, qv, kv, qkv"):
        shapley_shares(edge_effects(mistral, pairs, "2.1", progress=False))


def test_roles_are_an_axis_and_add_up_through_the_values() -> None:
    """With one sender and the pattern held, what values carry adds up over tokens."""
    model = al.load_model("reference")
    pairs = al.sample_pairs(model, "addition", n=8, seed=1)
    options: dict[str, Any] = {"via": "direct", "inputs": "v", "paths": "direct", "progress": False}
    each = edge_effects(model, pairs, "3.4", positions="each", metric="logit", **options)
    roles = (each.labels or {})["role"]
    assert each.axes == ("receiver", "input", "sender", "role")
    assert str(Role.OPERATOR) in roles
    operator = edge_effects(
        model, pairs, "3.4", positions=Role.OPERATOR, metric="logit", **options
    ).per_pair[0, 0]
    row = roles.index(str(Role.OPERATOR))
    assert_close(each.per_pair[0, 0, :, row], operator, equal_nan=True)
    assert float(operator[0].abs().mean()) > 1e-4


def test_edges_that_read_no_changed_token_are_0_and_are_not_computed(llama: Any) -> None:
    """Each place of `each` is that of the place alone; queries and MLPs read END."""
    pairs = PromptPairs.from_tokens(
        torch.tensor([[1, 5, 6, 7, 9]] * 2),
        torch.tensor([[1, 5, 8, 7, 9]] * 2),
        torch.tensor([3, 4]),
        torch.ones(2, 5, dtype=torch.bool),
    )
    receivers, options = ["2.1", "MLP 2"], {"metric": "logit", "progress": False}
    each = edge_effects(llama, pairs, receivers, positions="each", **options)
    inputs, known = (each.labels or {})["input"], each.per_pair
    for place in range(5):
        alone = edge_effects(llama, pairs, receivers, positions=place, **options)
        assert_close(known[:, :, :, place], alone.per_pair, equal_nan=True, atol=1e-6, rtol=1e-4)
    assert not bool(known[..., :2, :].nan_to_num().any()), "before the first changed token"
    for name in ("q", "mlp"):
        assert not bool(known[:, inputs.index(name), :, :-1].nan_to_num().any()), "END alone"
        assert bool(known[:, inputs.index(name), :, -1].nan_to_num().any())
    assert bool(known[:, inputs.index("v"), :, 2:].nan_to_num().any(0).any(0).any(-1).all())
    cost = [al.plan_edges(llama, pairs, receivers, positions=name) for name in ("all", "each")]
    assert cost[1].n_edges == 5 * cost[0].n_edges and cost[1].flops < 3 * cost[0].flops


@cache
def built(name: str) -> Any:
    return al.built_model(name, n=8)


WITHOUT_EFFECT = {"key_composition": {("0.0", "1.4", "k")}}
"""The operator that 0.0 notes is another one in X_c, but 1.4 looks for any operator."""
BY_THE_NORM = {"deep": {("MLP 0", "MLP 2", "mlp")}}
"""MLP 2 does not read what MLP 0 writes, but it divides by the length of the stream."""


@pytest.mark.parametrize(
    "name",
    ["query_composition", "key_composition", "value_composition", "deep", "grouped", "table"],
)
def test_edges_of_known_circuits_are_those_that_were_built(name: str) -> None:
    """An edge that was built acts, and no other does."""
    made = built(name)
    links = {
        (str(edge.sender), str(edge.receiver), edge.input.replace("in", "mlp"))
        for edge in made.truth.edges
        if edge.receiver is not None
    }
    receivers = {receiver for _, receiver, _ in links}
    edges = edge_effects(
        made.model, made.pairs, receivers, via="direct", metric="logit", progress=False
    )
    size = edges.per_pair.nan_to_num().abs().amax(-1)
    labels = edges.labels or {}
    acting = {
        (labels["sender"][s], labels["receiver"][r], labels["input"][i])
        for r, i, s in (size > 1e-6 * size.max()).nonzero().tolist()
    }
    acting = {edge for edge in acting if edge[0] != EMBEDDINGS}
    assert links - acting == WITHOUT_EFFECT.get(name, set())
    assert acting - links == BY_THE_NORM.get(name, set())
    sizes = {True: list[float](), False: list[float]()}
    for r, i, s in (~edges.mean().isnan()).nonzero().tolist():
        edge = (labels["sender"][s], labels["receiver"][r], labels["input"][i])
        if edge[0] != EMBEDDINGS:
            sizes[edge in links].append(float(size[r, i, s]))
    real, others = (torch.tensor(sizes[is_link])[:, None] for is_link in (True, False))
    auroc = ((real > others.T) + 0.5 * (real == others.T)).mean()
    assert float(auroc) == (0.75 if name in WITHOUT_EFFECT else 1.0), "real edges are largest"


@pytest.mark.parametrize("name", sorted(SWEPT))
def test_every_family_is_certified_or_refused_by_name(name: str, tokenizer: Any) -> None:
    """One pair alone, whose prompts are padded, has the numbers that it has among others."""
    family = SWEPT[name]
    model = load_model((family.make(len(tokenizer)), tokenizer))
    pairs, last = make_pairs(model), int(model.cfg.n_layers) - 1
    receivers = [Mlp(last), Head(last, 2)]
    if reason := family.row.refusals.get("edges"):
        found = rf"found {type(model.bridge.original_model).__name__} \({reason}\); give MLPs alone"
        with pytest.raises(UnsupportedReceiver, match=found):
            edge_effects(model, pairs, Head(1, 2), progress=False)
        receivers = receivers[:1]
    edges, alone = (
        edge_effects(model, some, receivers, metric="logit", progress=False).per_pair
        for some in (pairs, pairs[1:2])
    )
    largest = float(edges.nan_to_num().abs().max())
    assert largest > 1e-4
    assert_close(edges[..., 1:2], alone, equal_nan=True, atol=1e-4 * largest, rtol=0)
    for receiver, options, kind, message in BAD_INPUT:
        with pytest.raises(kind, match=message):
            edge_effects(model, pairs, receiver, progress=False, **options)


BAD_INPUT: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("0.1", {"senders": ["1.0"]}, ValueError, "found none before 0.1; .* leave senders out"),
    ("15.1", {}, IndexError, "found 15.1 in layer 15; choose among the model's"),
    ("1.99", {}, IndexError, "expected a head from 0 to 3 in each layer, found 1.99"),
    ("1.1", {"senders": ["0.99"]}, IndexError, "expected a head from 0 to 3 .* found 0.99"),
    ("1.1", {"inputs": "z"}, ValueError, "found z; write letters in the order q, k, v"),
    ("1.1", {"positions": 99}, ValueError, "expected a position from -6 .* -1 is END"),
    ("1.1", {"positions": Role.OPERATOR}, ValueError, "found none, since they are of bare tokens"),
    ("1.1", {"positions": "each"}, ValueError, "found lengths from 6 to 9; give one position"),
    (
        "1.1",
        {"metric": "logit_difference"},
        ValueError,
        "needs no foil, found .* choose digit_c",
    ),
    ("1.1", {"position": "all"}, TypeError, "Did you mean 'positions'"),
]
"""Receiver and options that no family takes, and what the error says."""


def test_a_role_that_the_prompts_lack_is_refused_with_those_that_they_have() -> None:
    model = al.load_model("reference")
    pairs = al.sample_pairs(model, "addition", n=4)
    with pytest.raises(ValueError, match=r"found operand a, operator, .*; choose one of these"):
        edge_effects(model, pairs, "5.5", positions=Role("example tokens"), progress=False)


@pytest.mark.parametrize("module", ["edges.engine", "path_patching.certificate"])
def test_a_certificate_that_rounding_breaks_says_to_load_float32(
    llama: Any, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both certificates, of edges and of the sweep, name what edges have: no other engine."""
    monkeypatch.setattr(f"arith_lens.{module}.logit_tolerance", lambda _: 1e-12)
    with pytest.raises(CertificateError, match=r"load it with dtype=torch\.float32") as caught:
        edge_effects(llama, make_pairs(llama), "2.1", progress=False)
    assert "engine=" not in str(caught.value)


def test_a_function_may_be_the_metric_and_its_code_names_the_result(
    llama: Any, tmp_path: Path
) -> None:
    pairs = make_pairs(llama)

    def logit_of_c(logits: Tensor, pairs: PromptPairs) -> Tensor:
        return logits.gather(1, pairs.answer[:, None])[:, 0]

    with open_run("edges", {}, root=tmp_path) as run:
        own = edge_effects(llama, pairs, "2.1", metric=logit_of_c, run=run, progress=False)
    named = edge_effects(llama, pairs, "2.1", metric="logit", progress=False)
    assert_close(own.per_pair, named.per_pair, equal_nan=True, atol=1e-5, rtol=1e-4)


def test_a_stored_result_is_not_computed_again(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = make_pairs(llama)
    with open_run("edges", {}, root=tmp_path) as run:
        first = edge_effects(llama, pairs, "2.1", run=run, progress=False)
    monkeypatch.setattr(EdgeEngine, "__call__", None)
    with open_run("edges", {}, root=tmp_path) as run:
        again = edge_effects(llama, pairs, "2.1", run=run, progress=False)
    assert torch.equal(first.per_pair.nan_to_num(), again.per_pair.nan_to_num())


def test_a_stopped_run_goes_on_with_the_shards_that_are_left(
    mistral: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pair at a time gives the numbers of all at once."""
    pairs, compute, shards = make_pairs(mistral), EdgeEngine.__call__, list[int]()
    whole = edge_effects(mistral, pairs, ["2.1", "MLP 2"], progress=False)

    def stopped(engine: Any, some: PromptPairs, foil: Any) -> Tensor:
        if len(shards) == 2:
            raise KeyboardInterrupt
        shards.append(len(some))
        return compute(engine, some, foil)

    def resumed(run: Any) -> Any:
        options: dict[str, Any] = {"batch_size": 1, "run": run, "progress": False}
        return edge_effects(mistral, pairs, ["2.1", "MLP 2"], **options)

    monkeypatch.setattr(EdgeEngine, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt), open_run("edges", {}, root=tmp_path) as run:
        resumed(run)
    monkeypatch.setattr(EdgeEngine, "__call__", lambda *a: shards.append(1) or compute(*a))
    with open_run("edges", {}, root=tmp_path) as run:
        edges = resumed(run)
    assert len(shards) == len(pairs) > 2
    assert_close(edges.per_pair, whole.per_pair, equal_nan=True, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"via": "direct"},
        {"paths": "direct"},
        {"inputs": "v"},
        {"inputs": "q"},
        {"senders": ["0.1", "MLP 0"]},
        {"positions": "each"},
        {"positions": -1},
    ],
)
def test_a_plan_has_the_operations_that_torch_counts(
    mistral: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, receivers = make_pairs(mistral), ["2.1", "1.0", "MLP 2"]
    if options.get("positions") == "each":
        pairs = pairs.filter(pairs.lengths == pairs.lengths.max())
    plan = al.plan_edges(mistral, pairs, receivers, **options)
    monkeypatch.setattr(EdgeEngine, "_certify", lambda *_: None)
    with FlopCounterMode(display=False) as counter:
        edges = edge_effects(mistral, pairs, receivers, progress=False, **options)
    assert plan.flops == pytest.approx(counter.get_total_flops(), rel=0.03)
    assert plan.n_edges == int((~edges.mean().isnan()).sum())
    assert f"{plan.n_edges} edges" in str(plan)


def test_pairs_without_another_answer_are_counted(llama: Any) -> None:
    with pytest.warns(UserWarning, match="expected counterfactuals with another answer"):
        edge_effects(llama, make_pairs(llama), "2.1", metric="interchange", progress=False)


@pytest.mark.parametrize(
    ("receivers", "options", "message"),
    [
        ("0.1", {"senders": ["1.0"]}, "expected senders before every receiver"),
        ([], {}, "heads or MLPs that receive"),
        ("2.1", {"inputs": ["z"]}, "expected inputs among"),
        ("2.1", {"inputs": "vq"}, "found vq; write letters in the order q, k, v"),
        ("2.1", {"senders": ["embeddings", "0.1"]}, "found 'embeddings'; leave senders out"),
        ("2.1", {"positions": 99}, "expected a position from"),
        ("2.1", {"positions": "verb"}, "expected positions of"),
        ("2.1", {"positions": Role.OPERATOR}, "expected pairs with the roles"),
        ("2.1", {"group": "all"}, "expected group among"),
        ("2.1", {"via": "total"}, "expected via among"),
        ("2.1", {"paths": "total"}, "expected paths among"),
    ],
)
def test_what_makes_no_edge_is_refused(
    llama: Any, receivers: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        edge_effects(llama, make_pairs(llama), receivers, progress=False, **options)


@pytest.mark.parametrize("name", ["7.0", "2.9", "MLP 7"])
@pytest.mark.parametrize("side", ["receivers", "senders"])
def test_components_that_do_not_exist_are_named(llama: Any, name: str, side: str) -> None:
    receivers, senders = (name, None) if side == "receivers" else ("2.1", [name])
    with pytest.raises(IndexError, match=rf"expected .*, found .*{name}"):
        edge_effects(llama, make_pairs(llama), receivers, senders=senders, progress=False)


def test_a_receiver_that_stands_below_one_of_its_senders_has_no_number_for_it(llama: Any) -> None:
    """One sender comes before it: the other one is NaN, not 0."""
    edges = edge_effects(
        llama, make_pairs(llama), "1.1", senders=["0.1", "2.0"], metric="logit", progress=False
    )
    assert bool(edges.per_pair[0, :, 1].isnan().all())
    assert not bool(edges.per_pair[0, :, 0].isnan().any())


def test_what_reads_end_alone_is_the_same_without_other_tokens(mistral: Any) -> None:
    """`inputs="q"` computes END alone; beside k and v, every token is computed."""
    pairs, receivers = make_pairs(mistral), ["1.1", "2.1", "MLP 2"]
    options: dict[str, Any] = {"metric": "logit", "progress": False}
    alone = edge_effects(mistral, pairs, receivers, inputs="q", **options)
    whole = edge_effects(mistral, pairs, receivers, **options)
    for name in ("q", "mlp"):
        at = [(one.labels or {})["input"].index(name) for one in (alone, whole)]
        own, expected = (one.per_pair[:, i] for one, i in zip((alone, whole), at, strict=True))
        assert_close(own, expected, equal_nan=True, atol=1e-6, rtol=1e-4)
    assert al.plan_edges(mistral, pairs, receivers, inputs="q").sender_flops < (
        0.7 * al.plan_edges(mistral, pairs, receivers).sender_flops
    )


def test_tiny_effects_beside_large_logits_are_certified_to_rounding(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Effects of 1e-3 where logits are about 30: float32 rounds these by 1e-6 and more."""
    hf = SWEPT["Llama-3"].make(len(tokenizer))
    hf.lm_head.weight.data *= 16
    for block in hf.model.layers:
        block.self_attn.o_proj.weight.data *= 1e-4
    pairs = make_pairs(hf)
    model = al.load_model((hf, tokenizer))
    for metric in ("logprob", "logit", "relative_logit"):
        edges = edge_effects(model, pairs, ["1.1", "MLP 1"], metric=metric, progress=False)
        assert 0 < edges.per_pair[0].nan_to_num().abs().max() < 1e-2
    right = EdgeEngine._values
    monkeypatch.setattr(EdgeEngine, "_values", lambda *args: _doubled(right(*args)))
    with pytest.raises(CertificateError, match="all senders together"):
        edge_effects(model, pairs, ["1.1", "MLP 1"], metric="logit", progress=False)


def _doubled(values: Tensor) -> Tensor:
    return torch.cat([values[:1], 2 * values[1:]])
