"""Evaluations kept in runs, compared in pairs, and what users get wrong."""

import os

os.environ["HF_DATASETS_OFFLINE"] = "1"  # read when datasets is imported

import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.children import Script
from support.fresh import FreshPython

import arith_lens as al
from arith_lens.answers import answer_questions
from arith_lens.hooks import hooks_digest
from arith_lens.knockout import knockout_hooks
from arith_lens.model import HookedModel
from arith_lens.reference.sets import world_questions

pytest.importorskip("lm_eval", reason="needs the extra `evaluation`: pip install '.[evaluation]'")

DATA = Path(__file__).parents[1] / "data"
QUICK: dict[str, Any] = {"data_dir": DATA, "shots": 0, "max_new_tokens": 4, "progress": False}


@pytest.fixture(scope="module")
def trained() -> HookedModel:
    return al.load_model("reference")


@pytest.fixture(scope="module")
def small(make_model: Any) -> HookedModel:
    return make_model("llama", max_position_embeddings=4096)


def same(a: al.EvaluationResult, b: al.EvaluationResult) -> bool:
    """Whether all is equal but the time it took."""
    x, y = a.to_arrays(), b.to_arrays()
    headers = [{k: v for k, v in of.header.items() if k != "seconds"} for of in (x, y)]
    tensors = [
        torch.equal(x.tensors[k].nan_to_num(-1), y.tensors[k].nan_to_num(-1)) for k in x.tensors
    ]
    return headers[0] == headers[1] and x.tensors.keys() == y.tensors.keys() and all(tensors)


def test_the_closed_world_is_answered_as_by_answer_questions(trained: HookedModel) -> None:
    """Another way to ask the same questions, which the model cards' count is tested against."""
    found = al.evaluate(trained, "world_generic", limit=40, progress=False)
    by_prompt = {q.prompt: q for q in world_questions("generic_test")}
    from arith_lens.evaluation.harness import world_generic

    prompts = world_generic()["test"]["prompt"][:40]
    questions = [by_prompt[prompt] for prompt in prompts]
    expected = answer_questions(trained, questions, whole_words=False)
    assert found.answers.correct.tolist() == expected.correct.tolist()
    assert 0.5 < found.answers.accuracy < 1
    assert {task for task in found.answers.task} == {f"world_generic/{q.task}" for q in questions}
    assert sum(len(found.task(kind)) for kind in found.tasks if "/" in kind) == 40


CHILD = """
import sys, torch
import arith_lens as al
torch.set_num_threads(int(sys.argv[2]))
model = al.load_model("reference")
with al.open_run("killed", {}, model=model, root=sys.argv[1]) as run:
    al.evaluate(model, "world_two_digit", limit=192, max_new_tokens=3, progress=False, run=run)
"""


def test_a_killed_evaluation_goes_on_where_it_was(
    trained: HookedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 after the first part; what is kept is read, the rest asked; all is as unbroken."""
    arguments = [str(tmp_path), str(torch.get_num_threads())]
    child = Script(CHILD, *arguments, output=tmp_path / "printed.txt")
    while not list(tmp_path.rglob("shards/*/*.safetensors")):
        assert child.process.is_alive(), "it must be killed before it ends"
        time.sleep(0.05)
    child.process.kill()
    assert child.wait() == -signal.SIGKILL
    n_shards = len(list(tmp_path.rglob("shards/*/*.safetensors")))
    batch_sizes: list[int] = []
    write = HookedModel.generate

    def counted(self: Any, tokens: torch.Tensor, **options: Any) -> Any:
        batch_sizes.append(len(tokens))
        return write(self, tokens, **options)

    monkeypatch.setattr(HookedModel, "generate", counted)
    question: dict[str, Any] = {"limit": 192, "max_new_tokens": 3, "progress": False}
    with al.open_run("killed", {}, model=trained, root=tmp_path) as run:
        found = al.evaluate(trained, "world_two_digit", **question, run=run)
        assert 0 < n_shards < 3
        assert sum(batch_sizes) == 192 - 64 * n_shards
        batch_sizes.clear()
        again = al.evaluate(trained, "world_two_digit", **question, run=run)
        assert batch_sizes == [], "a finished one is not asked again"
    assert same(found, again)
    assert same(found, al.evaluate(trained, "world_two_digit", **question))
    saved = al.load_run(run.path).load_arrays("evaluation")
    assert same(al.EvaluationResult.from_arrays(saved), found)


def test_other_hooks_are_another_evaluation(small: HookedModel, tmp_path: Path) -> None:
    """Both in one run under one name: nothing of the first may pass for the second."""
    first = knockout_hooks(small, [al.Head(0, 1)], ablation="zero")
    second = knockout_hooks(small, [al.Head(2, 3)], ablation="zero")
    plain = al.evaluate(small, "svamp", **QUICK)
    with al.open_run("two", {}, root=tmp_path) as run:
        for hooks in (first, second, first):
            found = al.evaluate(small, "svamp", hooks=hooks, run=run, **QUICK)
            assert same(found, al.evaluate(small, "svamp", hooks=hooks, **QUICK))
            assert found.answers.said != plain.answers.said


def test_hooks_of_the_package_are_known_again_and_no_others(small: HookedModel) -> None:
    def hooks(value: float) -> Any:
        vector = torch.full((small.d_head,), value)
        source = {"blocks.1.attn.hook_z": vector.expand(small.n_heads, -1)}
        return knockout_hooks(small, [al.Head(1, 2)], source)

    assert hooks_digest(hooks(1.0)) == hooks_digest(hooks(1.0)) != hooks_digest(hooks(2.0))
    used = hooks(1.0)
    al.evaluate(small, "addsub", hooks=used, limit=1, **QUICK)
    assert hooks_digest(used) == hooks_digest(hooks(1.0)), "a forward leaves no trace"
    scaled = [al.scale_heads([al.Head(1, 2)], factor) for factor in (0.5, 0.5, 2.0)]
    assert hooks_digest(scaled[0]) == hooks_digest(scaled[1]) != hooks_digest(scaled[2])
    mine = [("blocks.0.hook_mlp_out", lambda mlp, hook: mlp * 0)]
    assert hooks_digest(mine) != hooks_digest(mine)
    assert hooks_digest([]) is None


def test_two_evaluations_compare_in_pairs_and_refuse_other_questions(trained: HookedModel) -> None:
    options: dict[str, Any] = {"limit": 40, "max_new_tokens": 5, "progress": False}
    tasks = ["world_generic", "world_two_digit"]
    before = al.evaluate(trained, tasks, **options)
    heads = [al.Head(5, index) for index in range(8)]
    out = knockout_hooks(trained, heads, ablation="zero")
    after = al.evaluate(trained, tasks, hooks=out, **options)
    change = before.change_to(after, "world_two_digit")
    gone = before.task("world_two_digit").correct & ~after.task("world_two_digit").correct
    assert change.lost == int(gone.sum()) > 0
    assert before.change_to(after).n_questions == 80
    assert change.p_value < 0.05
    with pytest.raises(ValueError, match=r"world_generic .* found another prompts_sha256"):
        shorter: dict[str, Any] = {**options, "limit": 39}
        before.change_to(al.evaluate(trained, tasks, **shorter))
    with pytest.raises(KeyError, match="expected a task of world_generic, world_two_digit"):
        before.task("svamp")
    assert "world_two_digit: " in str(before)
    assert min(before.summary()["seconds"].dropna()) > 0


def test_doubtful_golds_are_counted_and_can_be_left_out(small: HookedModel) -> None:
    found = al.evaluate(small, ["svamp", "mmlu_elementary_mathematics"], **QUICK)
    doubtful = [bool(flag) for flag in found.flag]
    assert sum(doubtful[: len(found.task("svamp"))]) == 1
    assert len(found.task("svamp")) - len(found.task("svamp", trusted=True)) == 1
    summary = found.summary().set_index("task")
    assert summary.loc["svamp", "flagged"] == 1
    assert "doubtful" in str(found)
    frame = found.to_dataframe()
    assert next(iter(frame[frame["flag"] != ""]["task"])) == "svamp"


def test_what_decides_the_numbers_is_written_down(small: HookedModel) -> None:
    options: dict[str, Any] = {**QUICK, "limit": 2, "shots": {"gsm8k": 3, "csqa": 1}}
    found = al.evaluate(small, ["gsm8k", "csqa"], **options)
    gsm8k = found.settings["tasks"]["gsm8k"]
    assert (gsm8k["shots"], gsm8k["n_questions"]) == (3, 4)
    assert gsm8k["prompt"]["doc_to_text"] == "Question: {{question}}\nAnswer:"
    assert gsm8k["prompt"]["generation_kwargs"]["max_gen_toks"] == 4
    assert "parse_number" in gsm8k["extractor"]
    assert len(gsm8k["data_sha256"]) == len(gsm8k["prompts_sha256"]) == 64
    assert found.settings["harness"].startswith("lm_eval 0.4.")
    assert found.settings["tasks"]["commonsense_qa"]["shots"] == 1
    other = al.evaluate(small, ["gsm8k", "csqa"], seed=5, **options)
    assert other.settings["tasks"]["gsm8k"]["prompts_sha256"] != gsm8k["prompts_sha256"]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"tasks": "svmap"}, ValueError, r"found 'svmap'.* Did you mean svamp.*mmlu_<subject>"),
        ({"tasks": []}, ValueError, "expected a task, found none: name some of addsub"),
        ({"limit": 0}, ValueError, "expected limit of 1 or more, or None, found 0"),
        ({"shots": -1}, ValueError, "expected shots of 0 or more"),
        ({"shots": {"svamp": 9}}, ValueError, "at most 8 shots of svamp"),
        ({"shots": {"gsm8k": 2}}, ValueError, "found shots of gsm8k"),
        ({"data_dir": Path("nowhere")}, FileNotFoundError, "nowhere/svamp/SVAMP.json"),
        ({"tasks": "mmlu", "data_dir": DATA}, ValueError, "found abstract_algebra"),
        ({"tasks": "addsub", "data_dir": None}, ValueError, "data_dir="),
        ({"tasks": "gsm8k", "data_dir": None}, FileNotFoundError, "data_dir="),
        ({"shots": {"svamp": 8}, "model": "short"}, ValueError, r"at most 124 tokens.*fewer shots"),
    ],
)
def test_mistakes_are_named(
    small: HookedModel, llama: HookedModel, options: dict[str, Any], error: Any, said: str
) -> None:
    arguments = {"tasks": "svamp", **QUICK, **options}
    model = llama if arguments.pop("model", None) else small
    with pytest.raises(error, match=said):
        al.evaluate(model, **arguments)


def test_prompts_that_are_too_long_can_be_cut_as_the_harness_cuts_them(llama: HookedModel) -> None:
    options: dict[str, Any] = {**QUICK, "shots": 1}
    found = al.evaluate(llama, "svamp", **options, too_long="truncate")
    assert found.settings["tasks"]["svamp"]["truncated"] == len(found)


def test_hooks_need_a_loaded_model() -> None:
    hooks = al.ablate_heads([al.Head(0, 0)], ablation="zero")
    with pytest.raises(TypeError, match="expected a loaded model with hooks, found 'reference'"):
        al.evaluate("reference", "svamp", hooks=hooks, **QUICK)


def test_without_the_harness_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arith_lens.evaluation.evaluating.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"arith-lens\[evaluation\]"):
        al.evaluate("reference", "svamp", **QUICK)


def test_the_harness_is_not_imported_before_it_is_asked(fresh_python: FreshPython) -> None:
    modules = fresh_python.after["all methods"].modules
    assert "arith_lens.evaluation" in modules and "lm_eval" not in modules
