"""What Tables 1, 2 and 5 and the frontier share: reading a run of experiments/does_tuning_help."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arith_lens.answers import Answers, OverSeeds, change_over_seeds
from arith_lens.paper import BENCHMARKS, PaperTuning, paper_model
from arith_lens.runs import Run, RunError

EXPERIMENT = "does_tuning_help"
VALIDATION = "validation/"
MATHEMATICS = ("gain_lose", "compare", "groups", "two_step", *BENCHMARKS[:4])
METHODS = {"full": "full", "precise": "precise", "lora": "LoRA", "random": "random heads"}
Key = tuple[str, int, int]  # method, heads, MLPs
Texts = dict[str, str]
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One setting at one rate: its trainings, a seed each."""

    key: Key
    rate: float
    trainings: tuple[str, ...]  # results of the run
    facts: tuple[Mapping[str, Any], ...]
    answers: tuple[Answers, ...] = field(repr=False)

    @property
    def title(self) -> str:
        """What was tuned, in words."""
        method, heads, mlps = self.key
        if method == "full":
            return "full"
        beside = f" + {mlps} MLP{'s' * (mlps > 1)}" if mlps else ""
        return f"{METHODS[method]}, {heads} head{'s' * (heads > 1)}{beside}"

    @property
    def parameters(self) -> int:
        return self.facts[0]["parameters"]

    @property
    def speed(self) -> float:
        """Training examples a second, mean over the trainings."""
        return sum(facts["samples_per_second"] for facts in self.facts) / len(self.facts)

    def change(self, before: Answers, tasks: Sequence[bool]) -> OverSeeds:
        """Of the questions where `tasks` is True."""
        chosen = [*tasks]
        return change_over_seeds(
            before.select(chosen), [answers.select(chosen) for answers in self.answers]
        )


def answers_before(run: Run) -> Answers:
    """Of the model as it was. Raises RunError where the run has none."""
    return Answers.from_arrays(run.load_arrays("before"))


def groups(answers: Answers) -> dict[str, list[bool]]:
    """Which test questions are of mathematics, and which of all other tasks."""
    test = [not task.startswith(VALIDATION) for task in answers.task]
    math = [task.split("/")[0] in MATHEMATICS for task in answers.task]
    return {
        "word problems": [t and m for t, m in zip(test, math, strict=True)],
        "generic tasks": [t and not m for t, m in zip(test, math, strict=True)],
    }


def tasks(answers: Answers) -> dict[str, list[bool]]:
    """The test questions of each task."""
    names = [_benchmark(task) for task in answers.task]
    return {
        name: [one == name for one in names]
        for name in dict.fromkeys(names)
        if name != VALIDATION.removesuffix("/")
    }


def _benchmark(task: str) -> str:
    """MMLU's subjects are one benchmark, and kinds within a task one task."""
    return "mmlu" if task.startswith("mmlu") else task.split("/")[0]


def by_rate(run: Run) -> dict[Key, dict[float, Row]]:
    """Every setting of a run, and each rate that it was trained at, the smallest first."""
    found: dict[Key, dict[float, list[str]]] = {}
    for name in run.names:
        facts = run.facts(name)
        if "method" in facts:
            key = (facts["method"], facts["heads"], facts["mlps"])
            found.setdefault(key, {}).setdefault(facts["rate"], []).append(name)
    return {
        key: {rate: _row(run, key, rate, names) for rate, names in sorted(rates.items())}
        for key, rates in found.items()
    }


def _row(run: Run, key: Key, rate: float, names: Sequence[str]) -> Row:
    ordered = tuple(sorted(names, key=lambda name: run.facts(name)["seed"]))
    return Row(
        key,
        rate,
        ordered,
        tuple(run.facts(name) for name in ordered),
        tuple(Answers.from_arrays(run.load_arrays(name)) for name in ordered),
    )


def chosen_rows(run: Run, table: int) -> list[Row]:
    """A table's rows at the rates that were chosen on validation.

    Raises:
        RunError: the run has not this table.
    """
    if f"table-{table}" not in run.names:
        there = ", ".join(name for name in run.names if name.startswith("table-"))
        raise RunError(
            f"expected table {table} in {run.path}, found {there or 'none'}. Make it: python -m "
            f"experiments.{EXPERIMENT} --table {table} --model {run.config['model']}"
        )
    found = by_rate(run)
    listed = run.load_arrays(f"table-{table}").header["rows"]
    return [found[row["method"], row["heads"], row["mlps"]][row["rate"]] for row in listed]


def summary(run: Run, row: Row, paper: PaperTuning | None = None) -> tuple[Texts, Numbers]:
    """A row of a table, as text and as numbers."""
    before = answers_before(run)
    method, heads, mlps = row.key
    text: Texts = {
        "tuned": row.title,
        "parameters": f"{row.parameters:,} ({row.parameters / row.facts[0]['of']:.1%})",
        "examples/s": f"{row.speed:.0f}",
        "rate": f"{row.rate:g}",
        "seeds": str(len(row.trainings)),
    }
    numbers: Numbers = {"method": method, "heads": heads, "mlps": mlps}
    numbers |= {name: ", ".join(row.facts[0][name]) for name in ("which_heads", "which_mlps")}
    numbers |= {"parameters": row.parameters, "of": row.facts[0]["of"], "rate": row.rate}
    numbers |= {"samples_per_second": row.speed, "seeds": len(row.trainings)}
    numbers["seconds"] = sum(facts["seconds"] for facts in row.facts) / len(row.facts)
    for name, chosen in {**groups(before), **tasks(before)}.items():
        was, change = before.select(chosen).accuracy, row.change(before, chosen)
        numbers |= numbered(name.replace(" ", "_"), was, change)
        if name in groups(before):
            text[f"{name} ({was:.1%})"] = told(was, change)
    if paper is not None:
        text |= told_by_paper(paper)
        numbers |= {f"paper_{name}": value for name, value in paper.accuracy.items()}
    return text, numbers


def task_texts(run: Run, row: Row) -> Texts:
    """A row of the table of tasks: what each is after, and its change."""
    before = answers_before(run)
    text = {"tuned": row.title}
    for name, chosen in tasks(before).items():
        change = row.change(before, chosen)
        low, high = change.ci()
        text[f"{name} ({before.select(chosen).accuracy:.0%})"] = (
            f"{100 * change.mean:+.1f} [{100 * low:+.0f}, {100 * high:+.0f}]"
        )
    return text


def told(before: float, change: OverSeeds) -> str:
    """`59.1%: +27.8 [+24.1, +31.5]; seeds +26.0 to +29.1`."""
    low, high = change.ci()
    text = (
        f"{before + change.mean:.1%}: {100 * change.mean:+.1f} "
        f"[{100 * low:+.1f}, {100 * high:+.1f}]"
    )
    if len(change.per_seed) == 1:
        return text
    least, most = (100 * end(change.per_seed) for end in (min, max))
    return f"{text}; seeds {least:+.1f} to {most:+.1f}"


def numbered(name: str, before: float, change: OverSeeds) -> Numbers:
    """The same for a program."""
    low, high = change.ci()
    values: Numbers = {"before": before, "change": change.mean, "low": low, "high": high}
    values |= {"question_error": change.question_error, "seed_error": change.seed_error}
    values |= {"questions": change.n_questions}
    values["per_seed"] = " ".join(f"{value:+.4f}" for value in change.per_seed)
    return {f"{name}_{key}": value for key, value in values.items()}


def paper_rows(run: Run, table: int) -> dict[Key, PaperTuning]:
    """What the paper has of this model in this table, by what was tuned; empty for any other."""
    paper = paper_model(run.config["model"])
    of_table = [] if paper is None else [row for row in paper.tunings if row.table == table]
    return {(row.method, row.heads, row.mlps): row for row in of_table}


def told_by_paper(paper: PaperTuning) -> Texts:
    """The paper's numbers of the same row."""
    accuracies = ", ".join(f"{name} {value:g}" for name, value in paper.accuracy.items())
    return {
        "paper": f"{accuracies}; {paper.parameters / 1e9:g}B, {paper.samples_per_second} examples/s"
    }


def notes(run: Run, rows: Sequence[Row], table: int) -> list[str]:
    """How to read a table, and what it was made from."""
    config = run.config
    grid = run.load_arrays(f"table-{table}").header["rates"][0]
    edge = [row.title for row in rows if len(grid) > 1 and row.rate in (min(grid), max(grid))]
    lines = [
        "Accuracy after: mean change in points over the seeds [95% interval, over questions and "
        "seeds together; the same questions before and after].",
        f"Rate: of {', '.join(f'{rate:g}' for rate in grid)}, the same for every row, the one "
        "with the best accuracy on validation word problems after one training (first seed); "
        "test questions and generic tasks take no part.",
        f"A training: {_trained(config)}. Examples/s: as trained here, several trainings side by "
        "side, one thread each; `make bench-finetune` measures speed.",
    ]
    if edge:
        lines.append(f"At the grid's edge, so that a rate beyond may be better: {'; '.join(edge)}.")
    return lines


def _trained(config: Mapping[str, Any]) -> str:
    times = f"{config['epochs']} epoch{'s' * (config['epochs'] > 1)}"
    return f"{config['examples'] or 'all'} word problems, {times}, {config['batch']} a step"
