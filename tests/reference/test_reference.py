"""The shipped models are what their cards say, by plain Transformers from the shipped weights."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas
import pytest
import torch

import arith_lens
from laboratory import model_cards as measure

FOLDER = Path(arith_lens.__file__).parent / "reference"
NAMES = ("reference", "reference-mistral")
GALLERY = Path(arith_lens.__file__).parents[1] / "figures" / "gallery"
MEGABYTE = 2**20
EVERY = {"word_problems_test": 16}
"""Of a figure's questions one in so many is asked in a test, so that they are about 250."""
EVERY_OTHER = 8


@pytest.fixture(scope="module", params=NAMES)
def folder(request: pytest.FixtureRequest) -> Path:
    return FOLDER / request.param


@pytest.fixture(scope="module")
def plain(folder: Path) -> tuple[Any, Any]:
    return measure.load_plain(folder)


@pytest.fixture(scope="module")
def card(folder: Path) -> dict[str, dict[str, float]]:
    return json.loads((folder / "figures.json").read_text())


def test_the_card_prints_the_figures_beside_the_weights(
    folder: Path, card: dict[str, dict[str, float]]
) -> None:
    text = (folder / "README.md").read_text()
    assert all(row in text for row in measure.card_rows(card))


@pytest.fixture(scope="module")
def recorded(folder: Path) -> dict[str, measure.AnswersByTask]:
    """Of each question behind the card's figures, whether it was answered right."""
    return measure.unpack(json.loads((folder / "outcomes.json").read_text()))


def measured_anew(
    plain: tuple[Any, Any], recorded: dict[str, measure.AnswersByTask], name: str
) -> dict[str, float]:
    """A figure of which some questions are asked anew, and the others are as recorded."""
    found = measure.question_outcomes(*plain, name, every=EVERY.get(name, EVERY_OTHER))
    return mixed_in(found, recorded, name)


def mixed_in(
    found: measure.AnswersByTask, recorded: dict[str, measure.AnswersByTask], name: str
) -> dict[str, float]:
    """A figure with the outcomes of the questions that were asked, and the others as recorded."""
    changed, every = 0, EVERY.get(name, EVERY_OTHER)
    for part, right in found.items():
        changed += sum(
            was != is_ for was, is_ in zip(recorded[name][part][::every], right, strict=True)
        )
    n_asked = sum(map(len, found.values()))
    assert n_asked >= 80 and changed <= 0.005 * n_asked + 1
    mixed = {part: list(right) for part, right in recorded[name].items()}
    for part, right in found.items():
        mixed[part][::every] = right
    return measure.figures({"null_prompts": recorded["null_prompts"], name: mixed})[name]


def test_the_card_counts_every_question(
    card: dict[str, dict[str, float]], recorded: dict[str, measure.AnswersByTask]
) -> None:
    assert tuple(recorded) == measure.FIGURES
    for name, parts in recorded.items():
        by_part = measure.figure_questions(name)
        assert {part: len(right) for part, right in parts.items()} == {
            part: len(questions) for part, questions in by_part.items()
        }
    for name, figures in measure.figures(recorded).items():
        assert figures == pytest.approx(card[name])


@pytest.mark.parametrize("name", ["single_digit", "null_prompts", "two_digit_test", "generic_test"])
def test_the_figures_come_out_of_the_shipped_weights(
    plain: tuple[Any, Any],
    card: dict[str, dict[str, float]],
    recorded: dict[str, measure.AnswersByTask],
    name: str,
) -> None:
    """Other processors round otherwise: an answer in two hundred may flip."""
    found = measured_anew(plain, recorded, name)
    assert found == pytest.approx(card[name], abs=0.005 + 1 / 23)
    assert sum(found.values()) == pytest.approx(sum(card[name].values()), rel=0.01)


def test_word_problems_come_out_of_the_shipped_weights(
    plain: tuple[Any, Any],
    card: dict[str, dict[str, float]],
    recorded: dict[str, measure.AnswersByTask],
) -> None:
    found = measured_anew(plain, recorded, "word_problems_test")
    assert found == pytest.approx(card["word_problems_test"], abs=0.01)


def test_damaged_weights_are_seen(
    plain: tuple[Any, Any],
    card: dict[str, dict[str, float]],
    recorded: dict[str, measure.AnswersByTask],
) -> None:
    """The measuring can fail: without layer 0's attention, calculation breaks down."""
    weight = plain[0].model.layers[0].self_attn.o_proj.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()
        right = measure.question_outcomes(*plain, "single_digit", every=EVERY_OTHER)
        with pytest.raises(AssertionError):
            mixed_in(right, recorded, "single_digit")
        weight.copy_(kept)
    found = {part: fmean(outcome) for part, outcome in right.items()}
    assert sum(found.values()) < 0.8 * sum(card["single_digit"].values())


def test_the_model_is_small_and_has_enough_heads(folder: Path) -> None:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    assert config.num_hidden_layers * config.num_attention_heads >= 96
    assert config.max_position_embeddings == 8192
    assert sum(file.stat().st_size for file in folder.iterdir()) < 12 * MEGABYTE


def test_the_mistral_groups_its_queries_and_its_window_is_shorter_than_the_stories() -> None:
    from arith_lens.templates import FIGURE_10

    model = arith_lens.load_model("reference-mistral")
    assert (model.n_heads, model.n_kv_heads) == (8, 4)
    window = model.bridge.original_model.config.sliding_window
    words = {"NAME": "Mary", "GOT": "got", "OBJECT": "apples"}
    story, _ = FIGURE_10[-1].render(2, 3, words)
    assert len(model.tokenizer(story)["input_ids"]) > window


def test_both_models_share_one_tokenizer_and_one_shape() -> None:
    files = [(FOLDER / name / "tokenizer.json").read_bytes() for name in NAMES]
    assert files[0] == files[1]
    configs = [json.loads((FOLDER / name / "config.json").read_text()) for name in NAMES]
    sizes = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size")
    assert [configs[0][size] for size in sizes] == [configs[1][size] for size in sizes]


def test_the_gallery_shows_the_shipped_weights() -> None:
    """Other processors round otherwise; effects to a tenth of a per cent are the figure's."""
    model = arith_lens.load_model("reference")
    pairs = arith_lens.sample_pairs(model, "addition")
    effects = arith_lens.path_patch(model, pairs, progress=False)
    table = pandas.read_csv(GALLERY / "fig2.csv")
    shown = table[(table["operation"] == "addition") & (table["measure"] == "effect")]
    rows = [*zip(shown["component"], shown["value"], strict=True)]
    for is_mlp, found in ((False, effects.heads), (True, effects.mlps)):
        means = [value for name, value in rows if name.startswith("MLP") == is_mlp]
        assert found.mean().flatten().tolist() == pytest.approx(means, abs=1e-3)
    assert [str(head) for head in arith_lens.key_heads(effects)] == ["5.5", "3.4"]
