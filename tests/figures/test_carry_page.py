"""The numbers and outcomes of the pages on carries are those of the shipped tables."""

import re
from pathlib import Path
from typing import Any

from figures.carry import chosen_layer
from figures.tables.table import from_csv, records, select

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how_it_calculates.md").read_text(encoding="utf-8")
PREDICTIONS = (ROOT / "docs" / "studies" / "predictions.md").read_text(encoding="utf-8")
TESTS = {
    "other ones digits": "digits",
    "sources of other tens": "tens",
}
SPACES = {
    "whole stream": "whole",
    "one direction": "mean",
    "everything but it": "everything but",
    "carry shuffled": "variable shuffled",
}
CORRELATION = "correlation with the ones' sum"
WORDS = {"holds here": "holds", "does not hold here": "fails", "not decided": "open"}


def numbers(model: str) -> Any:
    gallery = ROOT / "figures" / "gallery"
    path = (gallery if model == "reference" else gallery / model) / "carry.csv"
    if not path.exists():
        path = ROOT / "docs" / "studies" / "carry_other_trainings.csv"
    return select(from_csv(path.read_text(encoding="utf-8")), model=model)


def outcomes(model: str) -> Any:
    """The predictions on carries in a model, with their outcomes."""
    path = ROOT / "docs" / "studies" / "predictions.csv"
    return select(from_csv(path.read_text(encoding="utf-8")), question="carry", model=model)


def cells_of(page: str, header: str) -> list[list[str]]:
    """The lines of the table whose header begins so; the header first."""
    table = page[page.index(header) :].split("\n\n")[0].splitlines()
    lines = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table]
    return [lines[0], *lines[2:]]


def wrong_cells(cell: str, one: Any) -> list[str]:
    """The numbers of a cell, value and ends in percent, that are not those of a row."""
    texts = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", cell)]
    known = [one.value, one.low, one.high][: len(texts)]
    return [
        f"{cell}: {known}"
        for text, number in zip(texts, known, strict=True)
        if abs(100 * number - text) > 0.51
    ]


def wrong_directions(page: str) -> list[str]:
    """The cells of the table of trainings that differ from those of their tables."""
    wrong: list[str] = []
    header, *lines = cells_of(page, "| exit of layer, at END |")
    assert {line[0] for line in lines} >= {*SPACES}
    assert len(header) == 3
    for column, title in enumerate(header[1:], 1):
        model, layer = re.findall(r"`(.*)`, (\d+)", title)[0]
        table = numbers(model)
        assert chosen_layer(table) == int(layer)
        rows = select(table, kind="interchange", variable="ones_carry", layer=int(layer))
        for line in lines:
            test = next((end for end in TESTS if line[0].endswith(f", {end}")), "")
            space = SPACES[line[0].removesuffix(f", {test}")]
            (one,) = records(select(rows, space=space, test=TESTS.get(test, "layers")))
            wrong += wrong_cells(line[column], one)
    return wrong


def test_the_direction_is_graded_and_near_the_first_component_as_its_tables_say() -> None:
    path = ROOT / "docs" / "studies" / "carry_doses.csv"
    words, doses = " ".join(PAGE.split()), from_csv(path.read_text(encoding="utf-8"))
    cosines, graded, shares = [], [], []
    for model, layer in (("reference", 9), ("reference-mistral", 6)):
        by = select(doses, model=model).set_index("measure").value
        cosines.append(f"{by['|cos| with the first principal component']:.2f}")
        graded += [f"{by[f'{CORRELATION}, carry {i}']:.2f}" for i in (0, 1)]
        numerals = [f"{100 * by[f'follow a dose of {d}']:.0f}" for d in (0.25, 0.5, 0.75, 1, 2, 5)]
        shares.append(f"{', '.join(numerals[:-1])} and {numerals[-1]}%")
        (own,) = records(
            select(
                numbers(model), layer=layer, variable="ones_carry", test="layers", space="written"
            )
        )
        assert abs(own.value - by["follow a dose of 1"]) < 1e-4, "the carry's own table agrees"
    assert "(|cos| {} in `reference`, {} in `reference-mistral`)".format(*cosines) in words
    assert "ones' sum at {} and {} ({} and {})".format(*graded) in words
    assert f"turns {shares[0]} ({shares[1]}) of the answers" in words


def test_the_direction_in_each_training_is_that_of_its_table() -> None:
    assert wrong_directions(PAGE) == []
    assert len(wrong_directions(PAGE.replace("94 [89, 96]", "84 [89, 96]"))) == 1


def test_the_direction_in_other_trainings_is_that_of_their_table() -> None:
    shares = []
    for seed in range(1, 5):
        table = numbers(f"reference-{seed}")
        keys = {"test": "layers", "space": "mean", "layer": chosen_layer(table)}
        (one,) = records(select(table, kind="interchange", variable="ones_carry", **keys))
        shares.append(100 * one.value)
    words = f"one direction turns {min(shares):.0f} to {max(shares):.0f}% of the answers"
    assert words in " ".join(PAGE.split())


def test_the_numbers_of_problems_are_those_of_the_tables() -> None:
    header = cells_of(PAGE, "| exit of layer, at END |")[0]
    sizes = set()
    for model in re.findall(r"`(.*?)`", " ".join(header)):
        rows = select(numbers(model), variable="ones_carry", test="layers", space="mean")
        sizes.add(int(rows.n.iloc[-1]))
    (size,) = sizes
    assert f"over {size} problems per model" in " ".join(PAGE.split())


def verdicts(model: str, prediction: str) -> list[str]:
    """The outcomes of a prediction in a model; one for all sums of the tens digits."""
    own = [WORDS[verdict] for verdict in select(outcomes(model), prediction=prediction).verdict]
    if prediction in ("C12", "C13") and own:
        assert len(own) == 7
        return [next(word for word in ("fails", "open", "holds") if word in own)]
    return own


def wrong_outcomes(page: str) -> list[str]:
    """The outcomes on the page that are not those of their table."""
    header, *lines = cells_of(page, "| prediction | measured |")
    names = [*dict.fromkeys(line[0] for line in lines)]
    assert names == [f"C{i}" for i in range(1, 14)]
    models = [[header[2].strip("`")], [header[3].strip("`")]]
    wrong = []
    for column, group in enumerate([*models, [f"reference-{seed}" for seed in range(1, 5)]], 2):
        for name in names:
            known = zip(*(verdicts(model, name) for model in group), strict=True)
            cells = [line[column] for line in lines if line[0] == name]
            if cells != ([", ".join(one) for one in known] or ["not measured"] * len(cells)):
                wrong.append(f"{header[column]} {name}: {cells}")
    return wrong


def test_each_prediction_has_the_outcome_of_its_table() -> None:
    assert wrong_outcomes(PREDICTIONS) == []
    for one, another in (
        ("| holds | open | fails, f", "| open | open | fails, f"),
        ("open, open, open, fails", "open, open, open, open"),
        ("direction, in each sum of the tens | open", "direction, in each sum of the tens | holds"),
    ):
        assert one in PREDICTIONS and len(wrong_outcomes(PREDICTIONS.replace(one, another))) == 1


def wrong_outcomes_of_gemma(page: str) -> list[str]:
    """The outcomes of the pretrained model that are not those of its table."""
    table = numbers("gemma-3-270m")
    shares = {one.what: one for one in records(select(table, kind="accuracy"))}
    own = {one.prediction: one for one in records(outcomes("gemma-3-270m"))}
    known = {name: [one] for name, one in own.items()}
    known["G2"] = [shares["with a carry"], shares["without a carry"], own["G2"]]
    wrong = []
    for name, words in cells_of(page, "| prediction on Gemma | outcome |")[1:]:
        if not words.startswith(WORDS[own[name].verdict]):
            wrong.append(name)
        cells = re.findall(r"(\d+(?:%| points) \[\d+, \d+\])", words)
        for cell, one in zip(cells, known.pop(name), strict=True):
            wrong += wrong_cells(cell, one)
    return [*wrong, *known]


def test_the_outcomes_of_gemma_are_those_of_its_table() -> None:
    assert wrong_outcomes_of_gemma(PREDICTIONS) == []
    assert len(wrong_outcomes_of_gemma(PREDICTIONS.replace("| G3 | open: ", "| G3 | holds: "))) == 1


def test_writers_and_readers_are_those_of_the_table() -> None:
    header, writers, strongest, others, readers = cells_of(PAGE, "| | `reference`, layer 9 |")
    held = {"two strongest heads": strongest, "two other heads of these layers": others}
    assert len(header) == 3
    for column, title in enumerate(header[1:], 1):
        table = numbers(re.findall("`(.*)`", title)[0])
        for kind, line in (("writer", writers), ("reader", readers)):
            named = re.findall(r"((?:MLP )?\d+(?:\.\d+)?) (\d+% \[\d+, \d+\])", line[column])
            assert len(named) >= 2
            rows = select(table, kind=kind).sort_values("value", ascending=kind == "reader")
            assert [name for name, _ in named] == rows.component.tolist()[: len(named)]
            for name, cell in named:
                (one,) = records(select(rows, component=name))
                assert wrong_cells(cell, one) == []
        for name, line in held.items():
            (one,) = records(select(table, kind="held", held=name))
            assert wrong_cells(line[column].split("(")[0], one) == []
