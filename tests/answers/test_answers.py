"""Questions are answered as plain Transformers answers them, with hooks and without."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import arith_lens as al
from arith_lens.answers import AccuracyChange, Answers, Question, answer_questions, load_questions
from arith_lens.answers.answering import is_right
from arith_lens.reference.sets import world_questions
from laboratory import model_cards as measure

PROMPTS = ["3 plus 5 = ", "The sum of 3 and 5 is ", "John has 3 cups and 12 tables", "Q: 7"]
HEAD = al.Head(1, 2)


def greedy(hf: Any, tokenizer: Any, prompt: str, n: int) -> str:
    """One prompt, unpadded, by repeated whole forwards of the plain model."""
    ids = tokenizer(prompt)["input_ids"]
    new: list[int] = []
    with torch.no_grad():
        for _ in range(n):
            logits = hf(input_ids=torch.tensor([ids + new]), use_cache=False).logits
            new.append(int(logits[0, -1].argmax()))
            if new[-1] == 2:  # </s>
                break
    before = tokenizer.decode(ids, skip_special_tokens=True)
    return tokenizer.decode(ids + new, skip_special_tokens=True)[len(before) :]


def without_head(hf: Any) -> Any:
    """The plain model without one head's output."""
    d_head = hf.config.hidden_size // hf.config.num_attention_heads

    def zero(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        z = inputs[0].clone()
        z[..., HEAD.index * d_head : (HEAD.index + 1) * d_head] = 0
        return (z,)

    return hf.model.layers[HEAD.layer].self_attn.o_proj.register_forward_pre_hook(zero)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_batches_write_what_the_plain_model_writes_alone(make_hf, make_model, tokenizer, family):
    """Unequal lengths, left padding, a sliding window, grouped heads; with a head out, and not."""
    model, hf = make_model(family), make_hf(family)
    questions = [Question(prompt, "8") for prompt in PROMPTS]
    plain = [greedy(hf, tokenizer, prompt, 5) for prompt in PROMPTS]
    found = answer_questions(model, questions, max_new_tokens=5)
    assert list(found.said) == plain
    handle = without_head(hf)
    knocked = [greedy(hf, tokenizer, prompt, 5) for prompt in PROMPTS]
    handle.remove()
    hooks = al.ablate_heads([HEAD], ablation="zero")
    for size in (1, 4):
        found = answer_questions(model, questions, hooks=hooks, max_new_tokens=5, batch_size=size)
        assert list(found.said) == knocked
    assert knocked != plain, "the test must be able to fail"
    again = answer_questions(model, questions, max_new_tokens=5)
    assert list(again.said) == plain, "the first answers come again after all others"


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_of_choices_the_likeliest_next_token_is_taken(make_hf, make_model, tokenizer, family):
    model, hf = make_model(family), make_hf(family)
    choices = ("plus", "minus", "John", "Mary")
    ids = [tokenizer(f"{choice}")["input_ids"][1] for choice in choices]
    expected = []
    for prompt in PROMPTS:
        prompt = prompt.rstrip(" ")
        logits = hf(input_ids=torch.tensor([tokenizer(prompt)["input_ids"]])).logits[0, -1]
        expected.append(choices[int(logits[ids].argmax())])
    questions = [Question(p.rstrip(" "), " plus", choices=choices) for p in PROMPTS]
    found = answer_questions(model, questions)
    assert list(found.said) == expected
    assert found.correct.tolist() == [choice == "plus" for choice in expected]


@pytest.fixture(scope="module")
def trained() -> al.HookedModel:
    return al.load_model("reference")


@pytest.fixture(scope="module")
def plain() -> tuple[Any, Any]:
    return measure.load_plain(Path(al.__file__).parent / "reference" / "reference")


@pytest.mark.parametrize(("name", "every"), [("generic_test", 14), ("word_problems_test", 40)])
def test_the_reference_model_answers_as_its_card_counts(trained, plain, name, every):
    """Question by question as the model's card counts, by plain teacher-forced Transformers."""
    questions = world_questions(name)[::every]
    found = answer_questions(trained, questions, whole_words=False)
    counted = measure.is_right(*plain, [(q.prompt, q.answer) for q in questions])  # pyright: ignore[reportCallIssue]
    assert found.correct.tolist() == counted
    assert 0.1 < found.accuracy < 1


def test_a_knockout_is_compared_in_pairs(trained):
    questions = world_questions("word_problems_test")[::80]
    before = answer_questions(trained, questions)
    heads = [al.Head(5, index) for index in range(8)]
    after = answer_questions(trained, questions, hooks=al.ablate_heads(heads, ablation="zero"))
    change = before.change_to(after)
    assert change.lost == int((before.correct & ~after.correct).sum()) > 0
    assert change.difference == pytest.approx(after.accuracy - before.accuracy)
    low, high = change.ci()
    assert low <= change.difference <= high
    assert "lost" in str(change)


@pytest.mark.parametrize(
    ("said", "answer", "right"),
    [
        ("12", "12", True),
        (" 12.", "12", True),
        ("$1,200 in all", "1200", True),
        ("12.0", "12", True),
        ("120", "12", False),
        ("1", "12", False),
        ("-12", "12", False),
        ("12.5", "12", False),
        ("0.3333", "0.3333333333", True),
        ("about 12", "12", False),
        (" grey.", " grey", True),
        (" greyish", " grey", False),
        ("", "12", False),
        ("", " grey", False),
    ],
)
def test_a_number_counts_by_its_value_and_a_word_by_its_letters(said, answer, right):
    assert is_right(said, Question("", answer)) == right


def answers(correct: list[bool], task: str = "t") -> Answers:
    n = len(correct)
    return Answers(torch.tensor(correct), ("",) * n, ("x",) * n, (task,) * n)


def test_intervals_agree_with_wilsons_formula_and_with_scipy():
    from scipy.stats import binomtest, bootstrap

    before = answers([True] * 30 + [False] * 10)
    n, share, z2 = 40, 30 / 40, 1.959963984540054**2  # Wilson's formula
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n**2))) / (1 + z2 / n)
    assert before.ci() == pytest.approx((centre - half, centre + half))
    after = answers([False] * 12 + [True] * 18 + [True] * 2 + [False] * 8)
    change = before.change_to(after)
    assert (change.lost, change.gained) == (12, 2)
    assert change.p_value == pytest.approx(binomtest(2, 14).pvalue)
    moved = after.correct.float() - before.correct.float()
    drawn = bootstrap((moved.numpy(),), lambda x, axis: x.mean(axis), method="percentile", rng=0)
    expected = drawn.confidence_interval
    assert change.ci() == pytest.approx((expected.low, expected.high), abs=0.05)


def test_the_interval_of_a_change_holds_where_few_answers_change():
    """Of 40 questions, 2% become wrong on average: a bootstrap would often have no width."""
    draw, missed = np.random.default_rng(0), 0
    for _ in range(300):
        lost, gained, same = draw.multinomial(40, [0.02, 0.0, 0.98])
        change = AccuracyChange(1.0, 1 - lost / 40, int(lost), int(gained), 40)
        low, high = change.ci()
        assert low < high and same == 40 - lost
        missed += not low <= -0.02 <= high
    assert missed < 0.06 * 300


def test_answers_go_to_a_file_and_back():
    both = Answers(torch.tensor([True, False]), ("8", "9"), ("8", "8"), ("a", "b"))
    back = Answers.from_arrays(both.to_arrays())
    assert back.correct.tolist() == [True, False]
    assert (back.said, back.expected, back.task) == (both.said, both.expected, both.task)
    assert list(both.to_dataframe().columns) == ["task", "expected", "said", "correct"]
    assert {name: a.accuracy for name, a in both.by_task().items()} == {"a": 1.0, "b": 0.0}
    assert "a: 1 of 1 right" in str(both)


@pytest.fixture
def data_dir(tmp_path):
    """Records of ours in the benchmarks' schemas."""
    for name in ("gsm8k", "svamp", "addsub", "singleeq", "mmlu/test", "mmlu/dev"):
        (tmp_path / name).mkdir(parents=True)
    record = {"question": "How many are 2 and 2?", "answer": "<<2+2=4>>4\n#### 1,004"}
    (tmp_path / "gsm8k" / "test.jsonl").write_text(json.dumps(record) + "\n")
    record = {"Body": "Ann has 2 hats. ", "Question": "How many?", "Answer": 2.0}
    (tmp_path / "svamp" / "SVAMP.json").write_text(json.dumps([record]))
    record = {"sQuestion": "Ann has 0.5 l . How much ? ", "lSolutions": ["0.5"]}
    (tmp_path / "addsub" / "AddSub.json").write_text(json.dumps([record]))
    (tmp_path / "singleeq" / "questions.json").write_text(json.dumps([record]))
    header = "question,choice0,choice1,choice2,choice3,answer\n"
    rows = '"Is ""so""\nor not?",yes,no,both,none,1\n'
    (tmp_path / "mmlu" / "test" / "law_test.csv").write_text(header + rows)
    (tmp_path / "mmlu" / "dev" / "law_dev.csv").write_text("Who?,me,you,we,they,C\n")
    return tmp_path


def test_benchmarks_are_read_from_their_files(data_dir):
    (question,) = load_questions("gsm8k", data_dir)
    assert question == Question("How many are 2 and 2? The answer is ", "1004", "gsm8k")
    (question,) = load_questions("svamp", data_dir, prompt="{question} = ")
    assert question == Question("Ann has 2 hats. How many? = ", "2", "svamp")
    for name in ("addsub", "singleeq"):
        (question,) = load_questions(name, data_dir)
        assert question.answer == "0.5"
    (question,) = load_questions("mmlu", data_dir, shots=1)
    head = "The following are multiple choice questions (with answers) about law.\n\n"
    shot = "Who?\nA. me\nB. you\nC. we\nD. they\nAnswer: C\n\n"
    prompt = 'Is "so"\nor not?\nA. yes\nB. no\nC. both\nD. none\nAnswer:'
    assert question == Question(head + shot + prompt, " B", "mmlu/law", tuple("ABCD"))


def test_the_published_files_are_read_whole(data_directory):
    counts = {"gsm8k": 1319, "svamp": 1000, "addsub": 395, "singleeq": 508, "mmlu": 14042}
    for name, count in counts.items():
        assert len(load_questions(name, data_directory)) == count
    humanities = load_questions("mmlu", data_directory, subjects="humanities")
    assert len(humanities) == 4705
    assert len({question.task for question in humanities}) == 13


def test_mistakes_are_said_plainly(llama, data_dir):
    with pytest.raises(ValueError, match="expected at least one Question"):
        answer_questions(llama, [])
    with pytest.raises(ValueError, match=r"the model's context, found \d+ in question 1"):
        answer_questions(llama, [Question("3 ", "3"), Question("3 plus " * 2000, "3")])
    with pytest.raises(ValueError, match="a different next token each"):
        answer_questions(llama, [Question("3", " John", choices=("xa", "xb"))])
    with pytest.raises(ValueError, match="found 'mnli'"):
        load_questions("mnli", data_dir)
    with pytest.raises(ValueError, match="'humanities' or names of law"):
        load_questions("mmlu", data_dir, subjects="physics")
    with pytest.raises(FileNotFoundError, match="MMLU's files"):
        load_questions("mmlu", data_dir, split="val")
    (data_dir / "svamp" / "SVAMP.json").write_text('[{"Body": "x"}]')
    with pytest.raises(ValueError, match="record 0: expected the benchmark's schema"):
        load_questions("svamp", data_dir)
    with pytest.raises(ValueError, match="same questions"):
        answers([True]).change_to(answers([True, False]))
