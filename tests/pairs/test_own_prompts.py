"""Prompts in chat templates, answers of several tokens, named spans, files of other projects."""
# Fields that bare tokens lack are None; here they are known.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportArgumentType=false

import copy
import dataclasses
import doctest
import functools
import json
from typing import Any

import pytest
import torch
from oracles import Raw, effect
from test_pairs import same
from test_pairs_tokenizers import LLAMA_3_SPLIT, byte_level

import arith_lens as al
from arith_lens.components import Head, Mlp
from arith_lens.model.texts import set_bos
from arith_lens.pairs import PromptPairs, Role

MESSAGES = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim }}"
CHATML = (
    MESSAGES + "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = {
    "with BOS": "{{ bos_token }}" + CHATML,
    "without BOS": CHATML,
    "without line ends": "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]"
    "{% endfor %}",
}
SUM = {"reference": "3 plus 4 is ", "counterfactual": "3 null 4 is ", "answer": "7"}
FACTS = [
    {
        "reference": "The sum of 3 and 12 is",
        "counterfactual": "The sum of 3 and 45 is",
        "answer": " the total",
        "counterfactual_answer": " the answer",
        "spans": {"subject": " sum of ", "last": [17, 19]},
    },
    {
        "reference": "The product of 3 is",
        "counterfactual": "The product of 5 is",
        "answer": " the number",
        "spans": {"subject": "product"},
    },
]


def chatting(tokenizer: Any, template: str) -> Any:
    one = copy.deepcopy(tokenizer)
    one.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    one.chat_template = TEMPLATES[template]
    return one


def by_transformers(tokenizer: Any, content: str) -> list[int]:
    message = [{"role": "user", "content": content}]
    ids = tokenizer.apply_chat_template(message, add_generation_prompt=True)
    return ids["input_ids"] if not isinstance(ids, list) else ids


@pytest.mark.parametrize("template", TEMPLATES)
def test_own_prompts_in_a_chat_have_transformers_tokens(template: str, tokenizer: Any) -> None:
    chat = chatting(tokenizer, template)
    rows = [
        SUM,
        {**SUM, "reference": "The sum of 3 and 4 is", "counterfactual": "The sum of 3 and 5 is"},
    ]
    blank = "" if template != "without line ends" else " "
    rows = [{**row, "answer": blank + "7"} for row in rows] if not blank else rows[:0]
    for row in rows:
        pairs = PromptPairs.from_rows([row], chat, chat=True)
        for side in ("reference", "counterfactual"):
            ids = by_transformers(chat, row[side])
            assert getattr(pairs, side)[0].tolist() == ids
            assert ids.count(chat.bos_token_id) == ("with BOS" in template)
        plain = PromptPairs.from_rows([SUM], chat)
        assert plain.reference[0].tolist() == chat(SUM["reference"])["input_ids"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_sampled_prompts_in_a_chat_have_transformers_tokens_and_roles(
    template: str, tokenizer: Any
) -> None:
    chat = chatting(tokenizer, template)
    head, tail = al.model.chat_frame(chat)
    options: dict[str, Any] = {
        "keep": "all",
        "chat": True,
        "shots": 2,
        "counterfactual": "operands",
    }
    pairs = al.sample_pairs(chat, "addition", n=18, **options)
    for i, pair in enumerate(pairs):
        ids = pair.reference[0][pair.attention_mask[0]].tolist()
        content = pair.reference_text[0].removeprefix(head).rpartition(tail)[0]
        wanted = by_transformers(chat, content)
        assert ids[: len(wanted)] == wanted and len(ids) - len(wanted) <= (not tail[-1].isspace())
        a, b = pairs.operands[i].tolist()
        for role, number in ((Role.OPERAND_A, a), (Role.OPERAND_B, b)):
            at = pair.reference[pair.role_mask(role)].tolist()
            assert chat.convert_ids_to_tokens(at) == [str(number)]
        shown = chat.decode(pair.reference[pair.role_mask(Role.EXAMPLES)])
        assert shown.strip() == pairs.examples[i].strip()
    assert len({*pairs.lengths.tolist()}) > 1


@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("template", TEMPLATES)
def test_chat_pairs_come_back_from_files_with_their_roles(
    template: str, adds_bos: bool, tokenizer: Any, tmp_path: Any
) -> None:
    """Also where the tokenizer adds BOS and the template has none: its text has none either way."""
    chat = chatting(tokenizer, template)
    set_bos(chat, adds_bos)
    framed = chat.apply_chat_template(
        [{"role": "user", "content": "3"}], tokenize=False, add_generation_prompt=True
    )
    (row,), (plain,) = (al.model.token_rows(chat, [text]) for text in (framed, "user 3"))
    assert row == by_transformers(chat, "3")
    assert (plain[0] == chat.bos_token_id) is adds_bos
    pairs = al.sample_pairs(chat, "subtraction", n=9, keep="all", chat=True, shots=1)
    pairs.to_jsonl(tmp_path / "chat.jsonl")
    assert same(PromptPairs.from_jsonl(tmp_path / "chat.jsonl", chat), pairs)
    with pytest.raises(
        ValueError, match=r"without the chat template for chat=True, found its '.*twice"
    ):
        PromptPairs.from_jsonl(tmp_path / "chat.jsonl", chat, chat=True)
    plain = al.sample_pairs(chat, "subtraction", n=9, keep="all")
    plain.to_jsonl(tmp_path / "plain.jsonl")
    wrapped = PromptPairs.from_jsonl(tmp_path / "plain.jsonl", chat, chat=True)
    assert wrapped.operands.tolist() == plain.operands.tolist()
    at = wrapped.reference[wrapped.role_mask(Role.OPERAND_A)].tolist()
    assert chat.convert_ids_to_tokens(at) == [str(a) for a, _ in plain.operands.tolist()]


def test_a_tokenizer_without_a_usable_template_is_refused(tokenizer: Any) -> None:
    for call in (
        lambda one: al.sample_pairs(one, keep="all", chat=True),
        lambda one: PromptPairs.from_rows([SUM], one, chat=True),
    ):
        with pytest.raises(
            ValueError, match="expected a tokenizer with a chat template for chat=T"
        ):
            call(tokenizer)
        twice = chatting(tokenizer, "with BOS")
        twice.chat_template = "{{ messages[0]['content'] + messages[0]['content'] }}"
        with pytest.raises(ValueError, match="holds a user's message once, found it 2 times"):
            call(twice)
    loud = chatting(tokenizer, "with BOS")
    loud.chat_template = "{{ messages[0]['content'] | replace('sum', 'SUM') }}\n"
    with pytest.raises(ValueError, match="expected a chat template that keeps a user's message"):
        PromptPairs.from_rows([dict(SUM, reference="The sum of 3 is ")], loud, chat=True)


@functools.cache
def three_digits() -> Any:
    """Numbers are split into groups of three digits; a space is a token of its own before them."""
    texts = [str(n) for n in range(1000)] + ["The", " sum", " of", " and", " is", " total"]
    prefixes = {text[:i].encode() for text in texts for i in range(1, len(text) + 1)}
    ordered = sorted({bytes([i]) for i in range(256)} | prefixes, key=lambda t: (len(t), t))
    return byte_level({t: i for i, t in enumerate(ordered)}, LLAMA_3_SPLIT, "<|begin|>")


LONG = [
    {"reference": "The sum of 3127 and 4 is ", "counterfactual": "The sum of 5127 and 4 is ",
     "answer": "31317", "counterfactual_answer": "31392"},
    {"reference": "The sum of 8 is ", "counterfactual": "The total of 8 is ", "answer": "70214"},
]  # fmt: skip


@pytest.mark.parametrize("digits", [1, 3])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_each_token_of_an_answer_is_read_as_in_a_teacher_forced_run(
    family: str, digits: int, make_hf: Any, tokenizer: Any
) -> None:
    """Plain tokens and torch's hooks: END is the token before the k-th one, in both prompts."""
    tok = tokenizer if digits == 1 else three_digits()
    hf = make_hf(family, vocab_size=len(tok))
    model = al.load_model((hf, tok))
    seen = []
    for k in range(5 if digits == 1 else 2):
        rows: list[list[list[int]]] = [[], []]
        answers = []
        for row in LONG:
            full = tok(row["reference"] + row["answer"])["input_ids"]
            n = len(tok(row["reference"])["input_ids"])
            assert len(full) - n == (5 if digits == 1 else 2)
            rows[0].append(full[: n + k])
            rows[1].append(tok(row["counterfactual"])["input_ids"] + full[n : n + k])
            answers.append(full[n + k])
        width = max(map(len, rows[0]))
        tokens = [torch.tensor([[0] * (width - len(r)) + r for r in side]) for side in rows]
        mask = torch.tensor([[i >= width - len(r) for i in range(width)] for r in rows[0]])
        bare = PromptPairs.from_tokens(tokens[0], tokens[1], torch.tensor(answers), mask)
        pairs = PromptPairs.from_rows(LONG, model, answer_token=k)
        assert torch.equal(pairs.reference, bare.reference)
        assert torch.equal(pairs.counterfactual, bare.counterfactual)
        assert pairs.answer.tolist() == answers
        raw = Raw(hf, bare)
        result = al.path_patch(model, pairs, metric="logit", progress=False)
        for sender in (Head(0, 1), Head(1, 3), Mlp(1)):
            torch.testing.assert_close(
                effect(result, sender), raw.change(sender), atol=raw.tolerance, rtol=1e-4
            )
        seen.append(effect(result, Head(0, 1)))
    assert not torch.allclose(seen[0], seen[1], atol=1e-3)


def test_the_answer_s_tokens_before_end_are_roles_and_c_prime_follows_equal_digits(
    tokenizer: Any,
) -> None:
    pairs = PromptPairs.from_rows(LONG, tokenizer, answer_token=3)
    assert pairs.reference_text[0].endswith("is 313") and pairs.answer_text == ("1", "1")
    for number, digit in ((0, "3"), (1, "1")):
        at = pairs.reference[pairs.role_mask(f"answer {number}")].tolist()
        assert tokenizer.convert_ids_to_tokens(at)[0] == digit
    assert "answer 2" not in pairs.roles, "END holds it"
    nine, none = tokenizer.convert_tokens_to_ids("9"), -1
    assert pairs.counterfactual_answer.tolist() == [nine, none]
    last = PromptPairs.from_rows(LONG, tokenizer, answer_token="last")
    assert last.reference_text[0].endswith("3131") and last.counterfactual_answer.tolist() == [
        -1,
        -1,
    ]
    first = PromptPairs.from_rows(LONG, tokenizer, answer_token="first")
    assert same(first, PromptPairs.from_rows(LONG, tokenizer, answer_token=-5))


def test_an_answer_without_the_token_or_beyond_the_context_is_refused(
    tokenizer: Any, make_model: Any
) -> None:
    with pytest.raises(ValueError, match=r"rows\[0\]: expected an answer with the token 5 "):
        PromptPairs.from_rows(LONG, tokenizer, answer_token=5)
    with pytest.raises(ValueError, match="expected answer_token among 'whole', 'first', 'last'"):
        PromptPairs.from_rows(LONG, tokenizer, answer_token="second")
    with pytest.raises(ValueError, match=r"rows\[0\]: expected an answer of the one token after"):
        PromptPairs.from_rows(LONG, tokenizer)
    n = len(tokenizer(LONG[0]["reference"])["input_ids"])
    short = make_model("llama", max_position_embeddings=n + 2)
    assert len(PromptPairs.from_rows(LONG, short, answer_token=2)) == 2
    with pytest.raises(
        ValueError, match=rf"rows\[0\]: .* context of {n + 2} tokens, found {n + 3}"
    ):
        PromptPairs.from_rows(LONG, short, answer_token=3)


@pytest.mark.parametrize("chat", [False, True])
def test_sums_are_sampled_at_each_digit_of_their_answer(chat: bool, tokenizer: Any) -> None:
    one = chatting(tokenizer, "with BOS")
    options: dict[str, Any] = {
        "operands": [121, 122, 123, 124, 246, 247, 248],
        "n": 4,
        "keep": "all",
        "chat": chat,
    }
    for k in range(3):
        pairs = al.sample_pairs(one, answer_token=k, counterfactual="operands", **options)
        for i, pair in enumerate(pairs):
            total = str(int(pairs.operands[i].sum()))
            assert one.decode(pair.answer).strip() == total[k]
            assert pair.reference_text[0].endswith(total[:k])
            digits = [
                one.decode(pair.reference[pair.role_mask(f"answer {j}")]) for j in range(k - 1)
            ]
            assert digits == list(total[: max(0, k - 1)])
            assert int(pair.counterfactual_answer) not in (-1, int(pair.answer))
    last = al.sample_pairs(one, answer_token="last", **options)
    assert torch.equal(last.reference, al.sample_pairs(one, answer_token=2, **options).reference)


def test_named_spans_are_roles_of_unequal_prompts(tokenizer: Any, tmp_path: Any) -> None:
    pairs = PromptPairs.from_rows(FACTS, tokenizer, answer_token="first")
    pieces = [
        [tokenizer.convert_ids_to_tokens(p.reference[p.role_mask(name)].tolist()) for p in pairs]
        for name in ("subject", "last")
    ]
    assert pieces == [[["▁sum", "▁of"], ["▁product"]], [["1", "2"], []]]
    n_named = sum(int(pairs.role_mask(role).sum()) for role in pairs.roles)
    assert n_named == int(pairs.attention_mask.sum()), "each token has one role"
    for kind in ("jsonl", "csv"):
        getattr(pairs, f"to_{kind}")(tmp_path / f"own.{kind}")
        assert same(PromptPairs.from_file(tmp_path / f"own.{kind}", tokenizer), pairs)
    assert same(PromptPairs.from_dataset(pairs.to_dataset()), pairs)
    both = pairs[1:] + PromptPairs.from_rows([SUM], tokenizer) + pairs[:1]
    assert both.spans is None, "prompts without roles"
    named = PromptPairs.from_rows([{**SUM, "spans": {"total": "3"}}], tokenizer) + pairs
    assert named.role_mask("total").sum(1).tolist() == [1, 0, 0]
    assert named.role_mask("subject").sum(1).tolist() == [0, 2, 1]
    chat = chatting(tokenizer, "with BOS")
    framed = PromptPairs.from_rows(FACTS, chat, chat=True, answer_token="first")
    for name, before in zip(("subject", "last"), pieces, strict=True):
        at = [chat.convert_ids_to_tokens(p.reference[p.role_mask(name)].tolist()) for p in framed]
        assert [[piece.strip("▁") for piece in one] for one in at] == [
            [piece.strip("▁") for piece in one] for one in before
        ]


def test_a_span_at_the_end_takes_end_s_token(tokenizer: Any) -> None:
    row = {"reference": "The sum of 3 and 4", "counterfactual": "The sum of 3 and 5"}
    row |= {"answer": "7", "spans": {"subject": "3 and 4", "operand a": "sum"}}
    (pair,) = PromptPairs.from_rows([row], tokenizer)
    assert pair.role_mask("subject")[0, -1] and not pair.role_mask(Role.END).any()
    assert pair.role_mask(Role.OPERAND_A).sum() == 1


def test_effects_edges_attention_means_and_sites_take_named_spans(
    make_hf: Any, tokenizer: Any
) -> None:
    """A span's effect is that of plain hooks on its tokens, in prompts of unequal lengths."""
    hf = make_hf("mistral")
    model = al.load_model((hf, tokenizer))
    pairs = PromptPairs.from_rows(FACTS, model, answer_token="first")
    where = pairs.role_mask("subject")
    changed = pairs.counterfactual.clone()
    changed[where] = changed[where].flip(0)  # so that the subjects differ, too
    pairs = dataclasses.replace(pairs, counterfactual=changed)
    options: dict[str, Any] = {"paths": "total", "engine": "hooks", "metric": "logit"}
    found = al.path_patch(model, pairs, senders="resid_post", positions="subject", **options)
    raw = Raw(hf, pairs)
    for layer in range(2):
        streams: list[torch.Tensor] = []
        handle = raw.layers[layer].register_forward_hook(
            lambda _, __, y, streams=streams: streams.append(y[0] if isinstance(y, tuple) else y)
        )
        raw.run(pairs.counterfactual, [handle])
        handle = raw.layers[layer].register_forward_hook(
            lambda _, __, y, streams=streams: torch.where(where[..., None], streams[0], y)
        )
        logits = raw.run(pairs.reference, [handle]) - raw.logits[0]
        right = logits[torch.arange(2), pairs.answer]
        torch.testing.assert_close(
            found.stream.per_pair[layer], right, atol=raw.tolerance, rtol=1e-4
        )
        assert float(right.abs().max()) > 20 * raw.tolerance
    roles = {
        Role.OPERAND_A: pairs.spans["subject"],
        **{r: pairs.spans[r] for r in (Role.BOS, Role.END)},
    }
    renamed = dataclasses.replace(pairs, spans=roles)
    edges = [
        al.edge_effects(model, one, ["2.0"], positions=name, metric="logit", progress=False)
        for one, name in ((pairs, "subject"), (renamed, Role.OPERAND_A))
    ]
    torch.testing.assert_close(edges[0].per_pair, edges[1].per_pair, equal_nan=True)
    assert edges[0].per_pair.nan_to_num().abs().max() > 0
    each = al.edge_effects(model, pairs, ["2.0"], positions="each", metric="logit", progress=False)
    assert {"subject", "last", "END"} <= {*each.labels["role"]}
    looks = al.attention_by_role(model, pairs, ["1.1"])
    assert {*looks.labels["role"]} == {"BOS", "subject", "last", "other", "END"}
    torch.testing.assert_close(looks.per_pair.sum(1), torch.ones(1, 2))
    without_last = al.pairs.PromptPairs(
        **{**vars(pairs), "spans": {n: s for n, s in pairs.spans.items() if n != "last"}}
    )
    outcomes = [al.knock_out(model, one, ["0.1"], means="role") for one in (pairs, without_last)]
    assert not torch.equal(outcomes[0].probability, outcomes[1].probability), "a mean of its own"
    with pytest.raises(ValueError, match=r"expected .* a role .*subject.* found 'sbject'"):
        al.path_patch(model, pairs, senders="resid_post", positions="sbject", **options)


@pytest.mark.parametrize(
    "spans, message",
    [
        ({"subject": "product"}, "span 'subject' once in .* found 'product' 0 times"),
        ({"subject": "3"}, "span 'subject' once in .* found '3' 2 times; give its characters"),
        ({"subject": [0, 99]}, r"as a text or as characters from 0 to 12 of .* found \[0, 99\]"),
        ({"subject": [4, 4]}, r"found \[4, 4\]"),
        (
            {"subject": [11, 12]},
            "expected tokens in the span 'subject', found only blanks in '3 plus 3 is '",
        ),
        ({"a": [0, 3], "b": [2, 6]}, "spans without common tokens, found"),
        ({"END": [0, 3]}, "name of its own for a span, found 'END'"),
        (["plus"], "expected spans as names with texts or characters, found"),
    ],
)
def test_spans_outside_the_prompt_are_refused(spans: Any, message: str, tokenizer: Any) -> None:
    row = {**SUM, "reference": "3 plus 3 is ", "counterfactual": "3 null 3 is ", "spans": spans}
    with pytest.raises(ValueError, match=rf"rows\[0\]: .*{message}"):
        PromptPairs.from_rows([row], tokenizer)


def test_files_of_other_projects_are_read_or_refused_with_the_mapping(
    tokenizer: Any, tmp_path: Any
) -> None:
    clean = {"clean": SUM["reference"], "corrupted": SUM["counterfactual"], "answer": 7}
    own = PromptPairs.from_rows([SUM], tokenizer)
    (tmp_path / "eap.jsonl").write_text(json.dumps(clean), encoding="utf-8")
    text = "clean,corrupted,answer\n3 plus 4 is ,3 null 4 is ,7\n"
    (tmp_path / "eap.csv").write_text(text, encoding="utf-8")
    for name in ("eap.jsonl", "eap.csv"):
        assert same(PromptPairs.from_file(tmp_path / name, tokenizer), own)
    other = {"prompt": SUM["reference"], "cf": SUM["counterfactual"], "label": "7"}
    mapping = {"reference": "prompt", "counterfactual": "cf", "answer": "label"}
    assert same(PromptPairs.from_rows([other], tokenizer, columns=mapping), own)
    with pytest.raises(ValueError) as error:
        PromptPairs.from_rows([other], tokenizer)
    assert f"columns={mapping}" in str(error.value), "the error gives the mapping"
    with pytest.raises(ValueError, match=r"columns=\{'reference': 'prompt', 'counterfactual': '…'"):
        PromptPairs.from_rows([{"prompt": "3 plus 4 is ", "answer": "7"}], tokenizer)
    with pytest.raises(
        ValueError, match=r"rows\[0\]: expected a column in columns= among .* 'base'; choose"
    ):
        PromptPairs.from_rows([other], tokenizer, columns={"reference": "base"})
    with pytest.raises(ValueError, match=r"expected a key in columns= among .* 'referense'; did"):
        PromptPairs.from_rows([other], tokenizer, columns={"referense": "prompt"})
    misspelt: Any = {"colums": mapping}
    with pytest.raises(TypeError, match="Did you mean 'columns'"):
        PromptPairs.from_rows([other], tokenizer, **misspelt)


def test_an_answer_that_joins_its_prompts_last_word_is_warned_of_once(tokenizer: Any) -> None:
    keys = ("reference", "counterfactual", "answer")
    sides = ("The sum is", "The story is")
    right = [(*sides, " The"), ("3 plus 5 is ", "3 void 5 is ", "8"), ("3+5=", "3-5=", "8")]
    joined = [(*sides, "x"), (*sides, "y"), ("The sum is:", "The story is:", "x")]
    rows = [dict(zip(keys, row, strict=True)) for row in (*right, *joined)]
    with pytest.warns(UserWarning, match=r"^rows\[3\]: .*found 'The sum isx'; begin") as caught:
        assert len(PromptPairs.from_rows(rows, tokenizer)) == 6
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="'The sum is:x'"):
        PromptPairs.from_rows(rows[5:], tokenizer)
    PromptPairs.from_rows(rows[:3], tokenizer)  # a warning would be an error


def test_sites_at_named_spans_are_exchanged_as_with_torchs_hooks(
    make_hf: Any, tokenizer: Any
) -> None:
    """Prompts without arithmetic and of unequal lengths, grouped queries; also one pair alone."""
    hf = make_hf("mistral")
    model = al.load_model((hf, tokenizer))
    row = {"answer": " and", "counterfactual_answer": " are", "spans": {"subject": "sum"}}
    rows = [
        {"reference": "The total sum of", "counterfactual": "The total ratio of", **row},
        {"reference": "much of the sum is", "counterfactual": "much of the end is", **row},
    ]
    pairs = PromptPairs.from_rows(rows, model)
    raw = Raw(hf, pairs)
    others = raw.logits[1].argmax(-1)
    pairs = dataclasses.replace(pairs, counterfactual_answer=others)
    end = torch.zeros_like(pairs.attention_mask)
    end[:, -1] = True
    shares = []
    sites = ((al.Site(1, "subject"), pairs.role_mask("subject")), (al.Site(1), end))
    for site, mask in (*sites, (al.Site(2), end)):
        layer, streams = raw.layers[site.layer], []
        handle = layer.register_forward_hook(
            lambda _, __, y, streams=streams: streams.append(y[0] if isinstance(y, tuple) else y)
        )
        raw.run(pairs.counterfactual, [handle])
        handle = layer.register_forward_hook(
            lambda _, __, y, streams=streams, mask=mask: torch.where(mask[..., None], streams[0], y)
        )
        right = raw.run(pairs.reference, [handle]).argmax(-1) == others
        found = al.interchange(model, pairs, [site]).effects.per_pair[0, 0]
        assert found.bool().tolist() == right.tolist()
        alone = al.interchange(model, pairs[1:], [site]).effects.per_pair[0, 0]
        assert alone.tolist() == found[1:].tolist()
        shares.append(float(found.mean()))
    assert shares[-1] == 1 > min(shares), "the last stream is the answer"
    with pytest.raises(ValueError, match="expected a role among"):
        al.interchange(model, pairs, [al.Site(1, "objekt")])
    silent = PromptPairs.from_rows([{**rows[0], "counterfactual_answer": ""}], model)
    with pytest.raises(ValueError, match="found none in 1 pairs; give counterfactual_answer"):
        al.interchange(model, silent, [al.Site(1)])


def test_the_example_of_own_rows_runs() -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(PromptPairs.from_rows, "rows", globs={})
    assert example.examples and doctest.DocTestRunner().run(example).failed == 0
