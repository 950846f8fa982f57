"""Benchmarks as the harness's own class for Transformers answers them, with hooks and without."""

import os

os.environ["HF_DATASETS_OFFLINE"] = "1"  # read when datasets is imported

import csv
import functools
import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.components import Activations
from arith_lens.knockout import counterfactual_means, knockout_hooks
from arith_lens.model import HookedModel, PrefixCache
from laboratory import model_cards as measure

lm_eval: Any = pytest.importorskip(
    "lm_eval", reason="needs the extra `evaluation`: pip install '.[evaluation]'"
)

DATA = Path(__file__).parents[1] / "data"
NUMBER_TASKS = ("gsm8k", "svamp", "addsub", "singleeq")
CHOSEN = ("commonsense_qa", "mmlu_elementary_mathematics", "mmlu_philosophy")
SIX = (*NUMBER_TASKS, *CHOSEN)
SHOTS = {"gsm8k": 2, "svamp": 1, "addsub": 0, "singleeq": 1, "commonsense_qa": 2, "mmlu": 1}
OPTIONS: dict[str, Any] = {"limit": 3, "shots": SHOTS, "max_new_tokens": 6, "progress": False}
KNOCKED_OUT = (al.Head(0, 1), al.Head(2, 3), al.Mlp(1))
HEADS = tuple(al.Head(layer, index) for layer in (3, 5, 11) for index in range(0, 8, 2))
FAMILIES = ("llama", "mistral")


def hub_records(task: str) -> dict[str, list[dict[str, Any]]]:
    """The samples as the hub's data sets have them, read without the library."""
    if task == "gsm8k":
        files = {split: DATA / "gsm8k" / f"{split}.jsonl" for split in ("train", "test")}
        return {split: lines(path) for split, path in files.items()}
    if task == "commonsense_qa":
        files = {"train": "train_rand_split.jsonl", "validation": "dev_rand_split.jsonl"}
        return {
            split: [flat(record) for record in lines(DATA / "csqa" / name)]
            for split, name in files.items()
        }
    if task.startswith("mmlu_"):
        subject = task.removeprefix("mmlu_")
        return {
            split: rows(DATA / "mmlu" / split / f"{subject}_{split}.csv")
            for split in ("dev", "test")
        }
    name = {"svamp": "SVAMP.json", "addsub": "AddSub.json", "singleeq": "questions.json"}[task]
    records = json.loads((DATA / task / name).read_text(encoding="utf-8"))
    if task == "svamp":
        questions = [(f"{r['Body'].strip()} {r['Question'].strip()}", r["Answer"]) for r in records]
    else:
        questions = [(r["sQuestion"].strip(), r["lSolutions"][0]) for r in records]
    return {"test": [{"question": q, "answer": f"{float(a):.10g}"} for q, a in questions]}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def flat(record: dict[str, Any]) -> dict[str, Any]:
    question = record["question"]
    choices = {key: [choice[key] for choice in question["choices"]] for key in ("label", "text")}
    return {"question": question["stem"], "choices": choices, "answerKey": record["answerKey"]}


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {
                "question": row["question"],
                "choices": [row[f"choice{i}"] for i in range(4)],
                "answer": int(row["answer"]),
            }
            for row in csv.DictReader(file)
        ]


@pytest.fixture(scope="module", params=FAMILIES)
def both(request: pytest.FixtureRequest, make_hf: Any, make_model: Any) -> tuple[Any, HookedModel]:
    """The same random model in plain Transformers and loaded."""
    sizes = {"max_position_embeddings": 4096}
    return make_hf(request.param, **sizes), make_model(request.param, **sizes)


@pytest.fixture(scope="module")
def means(both: tuple[Any, HookedModel]) -> Activations:
    pairs = al.sample_pairs(both[1], "addition", n=12, keep="all")
    return counterfactual_means(both[1], pairs, KNOCKED_OUT)


@functools.cache
def harness_tasks(shots: tuple[tuple[str, int], ...]) -> tuple[Any, list[Any]]:
    """The tasks by the harness's own files, their data made in the hub's schema."""
    from datasets import Dataset, DatasetDict
    from lm_eval.tasks import TaskManager

    from arith_lens.evaluation.harness import HARNESS_TASKS, OURS

    folders = [HARNESS_TASKS / name for name in ("gsm8k", "commonsense_qa", "mmlu/default")]
    manager = TaskManager(include_defaults=False, include_path=[*folders, OURS])
    tasks = []
    for name in SIX:
        splits = {split: Dataset.from_list(docs) for split, docs in hub_records(name).items()}
        data = {"custom_dataset": lambda splits=splits, **_: DatasetDict(splits)}
        group = {"group": "of this test", "task": [{"task": name, **data}]}
        tasks.append(manager.load([group])["tasks"][name])
        tasks[-1].set_config("num_fewshot", dict(shots).get(name, dict(shots)["mmlu"]))
    return manager, tasks


def plain_lm(hf: Any, tokenizer: Any) -> Any:
    """The harness's own class for Transformers, one prompt at a time."""
    models = importlib.import_module("lm_eval.models.huggingface")
    return models.HFLM(pretrained=hf, tokenizer=tokenizer, batch_size=1)


def asked_of_plain(
    hf: Any, tokenizer: Any, *, shots: dict[str, int] = SHOTS, limit: int = 3
) -> dict[str, Any]:
    """The harness's own evaluation, of its own class for Transformers."""
    manager, tasks = harness_tasks(tuple(shots.items()))
    found = lm_eval.simple_evaluate(
        model=plain_lm(hf, tokenizer),
        tasks=tasks,
        task_manager=manager,  # or it reads every task there is
        limit=limit,
        gen_kwargs={"max_gen_toks": OPTIONS["max_new_tokens"]},
        bootstrap_iters=0,
    )
    assert found is not None
    return dict(found)


@contextmanager
def knocked_out(
    hf: Any, means: Activations, *, out: Any = KNOCKED_OUT, writes: bool = True
) -> Iterator[None]:
    """Components replaced in plain Transformers at every position but the first, which is BOS.

    With one prompt at a time and a cache, a forward of one token is a step of writing.
    """

    def first(activation: torch.Tensor) -> int:
        return 0 if writes and activation.shape[1] == 1 else 1

    d_head = hf.config.hidden_size // hf.config.num_attention_heads
    handles = []
    for one in out:
        layer = hf.model.layers[one.layer]
        if isinstance(one, al.Head):
            vector = means[f"blocks.{one.layer}.attn.hook_z"][one.index]
            part = slice(one.index * d_head, (one.index + 1) * d_head)

            def heads(_: Any, given: Any, part: slice = part, vector: Any = vector) -> Any:
                z = given[0].clone()
                z[:, first(z) :, part] = vector
                return (z,)

            handles.append(layer.self_attn.o_proj.register_forward_pre_hook(heads))
        else:
            vector = means[f"blocks.{one.layer}.hook_mlp_out"]

            def mlps(_: Any, __: Any, written: Any, vector: Any = vector) -> Any:
                changed = written.clone()
                changed[:, first(written) :] = vector
                return changed

            handles.append(layer.mlp.register_forward_hook(mlps))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@pytest.fixture
def without_machine_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness asks pip and the compiler for their versions, which takes seconds."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda _: None)


def reported(ours: al.EvaluationResult) -> dict[str, Any]:
    """What is compared: what was said, what counted, and the means."""
    return {
        name: (
            ours.task(name).said,
            tuple(ours.task(name).correct.tolist()) if "acc,none" in means else None,
            means,
        )
        for name, means in ours.harness().items()
    }


def told_by_harness(found: dict[str, Any]) -> dict[str, Any]:
    """The same, from its log and its results."""
    return {name: outcomes_of(found["samples"][name], found["results"][name]) for name in SIX}


def outcomes_of(samples: list[dict[str, Any]], results: dict[str, Any]) -> tuple[Any, ...]:
    means = {k: v for k, v in results.items() if "," in k and "stderr" not in k}
    first = [sample for sample in samples if sample["filter"] == samples[0]["filter"]]
    if "acc,none" not in means:
        return tuple(sample["resps"][0][0] for sample in first), None, means
    likelihoods = [[float(r[0][0]) for r in sample["resps"]] for sample in first]
    said = tuple("ABCDE"[row.index(max(row))] for row in likelihoods)
    return said, tuple(bool(sample["acc"]) for sample in first), means


@pytest.mark.usefixtures("without_machine_report")
def test_all_benchmarks_come_out_as_of_plain_transformers_in_the_harness(
    both: Any, means: Any, tokenizer: Any
) -> None:
    """Six benchmarks, with hooks and without: outcomes, texts and numbers; each sees the other."""
    hf, model = both
    hooks = knockout_hooks(model, KNOCKED_OUT, means)
    ours = reported(al.evaluate(model, SIX, data_dir=DATA, **OPTIONS))
    ours_out = reported(al.evaluate(model, SIX, data_dir=DATA, hooks=hooks, **OPTIONS))
    plain = told_by_harness(asked_of_plain(hf, tokenizer))
    with knocked_out(hf, means):
        plain_out = told_by_harness(asked_of_plain(hf, tokenizer))
    assert ours == plain
    assert ours_out == plain_out
    assert all(plain[name][0] != plain_out[name][0] for name in NUMBER_TASKS), (
        "it must be able to fail"
    )
    assert plain != plain_out


@pytest.mark.parametrize("name", ["reference", "reference-mistral"])
@pytest.mark.usefixtures("without_machine_report")
def test_the_shipped_models_come_out_as_loaded_by_plain_transformers(
    name: str,
) -> None:
    """The same checkpoint, loaded by each; trained, so that choices differ; with hooks and not."""
    hf, tokenizer = measure.load_plain(Path(al.__file__).parent / "reference" / name)
    none = dict.fromkeys(SHOTS, 0)
    quick: dict[str, Any] = {**OPTIONS, "shots": none}
    vectors = {f"blocks.{one.layer}.attn.hook_z": torch.zeros(8, 16) for one in HEADS}
    model = al.load_model(name)
    ours = [
        reported(al.evaluate(model, SIX, data_dir=DATA, hooks=hooks, **quick))
        for hooks in ([], knockout_hooks(model, HEADS, vectors))
    ]
    plain = told_by_harness(asked_of_plain(hf, tokenizer, shots=none))
    with knocked_out(hf, vectors, out=HEADS):
        plain_out = told_by_harness(asked_of_plain(hf, tokenizer, shots=none))
    assert ours == [plain, plain_out]
    assert all(plain[name][0] != plain_out[name][0] for name in NUMBER_TASKS), (
        "it must be able to fail"
    )
    chosen = [plain[name][0] for name in CHOSEN]
    assert len({letter for of in chosen for letter in of}) > 1
    assert chosen != [plain_out[name][0] for name in CHOSEN], "it must be able to fail"


CONTEXTS = ("3 plus 5 equals to", "Q: What is the sum of 3 and 5? A:", "", "John has ", "<s>3 and")
CONTINUATIONS = (" 8", " 8 cups", " the total number of tables", "A", " B")


def requests(kind: str, arguments: list[Any]) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, args, i, ("made", i, 1)) for i, args in enumerate(arguments)]  # pyright: ignore[reportArgumentType]


def test_likelihoods_of_any_continuation_are_those_of_plain_transformers(
    both: Any, means: Any, tokenizer: Any
) -> None:
    """Unequal lengths, an empty context, a space at the end, BOS in the text; several batches."""
    from arith_lens.evaluation.hooked_lm import HookedLM

    hf, model = both
    all_requests = requests(
        "loglikelihood", [(c, continuation) for c in CONTEXTS for continuation in CONTINUATIONS]
    )
    plain = plain_lm(hf, tokenizer)
    hooks = knockout_hooks(model, KNOCKED_OUT, means)
    expected = plain.loglikelihood(all_requests, disable_tqdm=True)
    with knocked_out(hf, means, writes=False):
        expected_out = plain.loglikelihood(all_requests, disable_tqdm=True)
    for size in (1, 3, None):
        for of_hooks, wanted in (([], expected), (hooks, expected_out)):
            lm = HookedLM(model, of_hooks, batch_size=size, progress=False)
            found = lm.loglikelihood(all_requests)
            torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted))
    changed = (torch.tensor(expected) - torch.tensor(expected_out)).abs()[:, 0] > 1e-4
    assert changed.sum() == len(all_requests) - 1, (
        "of one token after BOS alone, nothing can change"
    )


def test_texts_end_at_the_first_stop_as_those_of_plain_transformers(
    both: Any, tokenizer: Any
) -> None:
    from arith_lens.evaluation.hooked_lm import HookedLM

    hf, model = both
    plain = plain_lm(hf, tokenizer)

    def generation_requests(stops: list[str]) -> list[Any]:
        settings = {"until": stops, "max_gen_toks": 9, "do_sample": False}
        return requests("generate_until", [(c, settings) for c in CONTEXTS if c])

    whole = plain.generate_until(generation_requests([]))
    stops = [whole[0][2:4], whole[2][3]]
    expected = plain.generate_until(generation_requests(stops))
    assert expected[0] == whole[0].split(stops[1])[0][:2], "it must stop within the text"
    for size in (1, None):
        lm = HookedLM(model, batch_size=size, progress=False)
        assert lm.generate_until(generation_requests(stops)) == expected
        assert lm.generate_until(generation_requests([])) == whole


EXAMPLE = "Q: What is the sum of 3 and 5? A: 8\n\nQ: John has 4 cups. How many are left? A: 6\n\n"
SHARED = 4 * EXAMPLE
QUESTIONS = (
    "Q: What is 3 plus 5? A:",
    "Q: What is 9 plus 5? A:",
    "3 and",
    "Q: Why? A: John has ",
)


@pytest.fixture
def prefixes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of tokens that were computed once for several prompts."""
    counts = []
    compute = PrefixCache.of

    def counted(model: Any, tokens: Any) -> PrefixCache:
        counts.append(len(tokens))
        return compute(model, tokens)

    monkeypatch.setattr(PrefixCache, "of", counted)
    return counts


def test_examples_that_prompts_begin_with_are_computed_once(
    both: Any, means: Any, tokenizer: Any, prefixes: list[int]
) -> None:
    """Texts and likelihoods, with hooks and without, of one length together and of others."""
    from arith_lens.evaluation.hooked_lm import HookedLM

    hf, model = both
    plain = plain_lm(hf, tokenizer)
    contexts = [SHARED + question for question in QUESTIONS]
    settings = {"until": ["\n"], "max_gen_toks": 6, "do_sample": False}
    written = requests("generate_until", [(context, settings) for context in contexts])
    scored = [(context, said) for context in contexts for said in CONTINUATIONS]
    likelihoods = requests("loglikelihood", scored)
    texts = []
    for hooks in ([], knockout_hooks(model, KNOCKED_OUT, means)):
        knockout = knocked_out(hf, means) if hooks else nullcontext()
        with knockout:
            expected_text = plain.generate_until(written)
        with knocked_out(hf, means, writes=False) if hooks else nullcontext():
            expected = torch.tensor(plain.loglikelihood(likelihoods, disable_tqdm=True))
        lm = HookedLM(model, hooks, progress=False)
        texts.append(lm.generate_until(written))
        assert texts[-1] == expected_text
        torch.testing.assert_close(torch.tensor(lm.loglikelihood(likelihoods)), expected)
    assert texts[0] != texts[1], "it must be able to fail"
    n_shared = len(tokenizer(SHARED).input_ids)
    shares = model.bridge.original_model.config.model_type == "llama"  # the other has a window
    assert len(prefixes) == 4 * shares and all(count > 0.9 * n_shared for count in prefixes)


@pytest.fixture(scope="module")
def llama(make_model: Any) -> HookedModel:
    return make_model("llama", max_position_embeddings=4096)


def test_a_beginning_with_other_tokens_is_seen(
    llama: HookedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arith_lens.evaluation.hooked_lm import HookedLM

    likelihoods = requests("loglikelihood", [(SHARED + question, " 8") for question in QUESTIONS])
    right = torch.tensor(HookedLM(llama, progress=False).loglikelihood(likelihoods))
    compute = PrefixCache.of
    monkeypatch.setattr(
        PrefixCache, "of", lambda model, tokens: compute(model, [tokens[0], *tokens[:0:-1]])
    )
    wrong = torch.tensor(HookedLM(llama, progress=False).loglikelihood(likelihoods))
    assert ((right - wrong).abs()[:, 0] > 1e-4).all()


@pytest.mark.parametrize("case", ["positions", "prompt", "function", "short", "alone"])
def test_prompts_run_whole_where_that_is_needed(
    llama: HookedModel, prefixes: list[int], case: str
) -> None:
    """Hooks that may depend on the place in the prompt; prefixes that are too short to pay."""
    from arith_lens.evaluation.hooked_lm import HookedLM

    hooks: Any = {
        "positions": al.ablate_heads([al.Head(0, 1)], ablation="zero", positions=slice(-3, None)),
        "prompt": knockout_hooks(llama, [al.Head(0, 1)], ablation="zero"),
        "function": [("blocks.0.attn.hook_z", lambda z, hook: z)],
    }.get(case, [])
    steps: Any = "prompt" if case in ("prompt", "positions") else "all"
    questions = QUESTIONS[:1] if case == "alone" else QUESTIONS
    begins = "" if case == "short" else SHARED
    settings = {"until": ["\n"], "max_gen_toks": 2, "do_sample": False}
    lm = HookedLM(llama, hooks, hook_steps=steps, progress=False)
    lm.generate_until(
        requests("generate_until", [(begins + question, settings) for question in questions])
    )
    assert not prefixes
