"""What an audit found: a table of verdicts, the heads, and what the verdicts rest on."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.auditing.verdicts import QUESTIONS, Measure, Verdict, beyond, reading, sentence
from arith_lens.components import Head, Mlp
from arith_lens.effects import ComponentEffects, Effects

if TYPE_CHECKING:
    from pandas import DataFrame

NUMBERS = ("value", "low", "high", "control_low", "control_high", "n")
COLUMNS = ("question", "lens", "verdict", *NUMBERS)
PARTS = {
    "effects": ComponentEffects,
    "origin": Effects,
    "attention": Effects,
    "reads": Effects,
}
"""The results that an audit holds, and their classes."""


@dataclass(frozen=True)
class Audit:
    """The verdicts on seven questions, and the heads that they are about."""

    rows: tuple[Verdict, ...]
    """One verdict for each question and lens."""
    model: str
    n_heads: int
    few: int
    """The largest number of heads that counts as few."""
    sufficient: tuple[Head, ...] = ()
    """The heads that suffice alone; none if the verdict is not `holds`."""
    needed: tuple[Head, ...] = ()
    """The heads without which the model fails; none if the verdict is not `holds`."""
    heads: tuple[Head, ...] = ()
    """The heads that were kept alone and left out, whatever the verdict."""
    smallest: int | None = None
    """How many of the strongest heads keep 90% of the first half's answers, few or not."""
    curve: tuple[tuple[int, float], ...] = ()
    """Numbers of heads, and the share of the first half's answers that they keep."""
    layer: int | None = None
    """The layer in which END's stream gains most of the other problem's answers."""
    mlp: Mlp | None = None
    """The MLP that alone makes most answers the other problem's."""
    strongest: Mapping[str, tuple[Head, ...]] = field(default_factory=dict)
    """By lens, the few heads that answer to it most, the strongest first."""
    effects: ComponentEffects | None = None
    """The exact map, on all problems that are answered right."""
    origin: Effects | None = None
    """Whether the answer is the other problem's, [site space pair]: streams, then MLPs."""

    attention: Effects | None = None
    """The attention of the heads from END by role, [head role pair]; None without roles."""
    reads: Effects | None = None
    """The effect on C's logit of each path from tokens into the heads' q, k and v."""

    @property
    def verdicts(self) -> "DataFrame":
        """One row per question and lens, with a number, its 95% interval and its controls."""
        from pandas import DataFrame

        rows = [
            (one.question, one.lens, one.verdict, *(getattr(one.measure, n) for n in NUMBERS))
            for one in self.rows
        ]
        return DataFrame(rows, columns=list(COLUMNS))

    def to_dataframe(self) -> "DataFrame":
        """The verdicts."""
        return self.verdicts

    def readers(self) -> "DataFrame":
        """For each head, the path into it that helps the answer most: from which tokens, by which
        input (q, k or v). Empty where no path helps, or edges cannot be computed."""
        from pandas import DataFrame

        columns = ["head", "reads", "input", "effect", "ci_low", "ci_high"]
        if self.reads is None:
            return DataFrame(columns=columns)
        table = self.reads.to_dataframe().rename(columns={"receiver": "head", "mean": "effect"})
        places = [name for name in self.reads.axes if name not in ("receiver", "input", "sender")]
        table["reads"] = table[places[0]] if places else "all tokens"
        table = table[table.effect < 0]
        strongest = table.groupby("head", sort=False).effect.idxmin()
        return table.loc[strongest, columns].reset_index(drop=True)

    def first(self, question: str) -> Verdict:
        """The verdict on a question under the first lens."""
        return next(one for one in self.rows if one.question == question)

    def sentences(self) -> dict[str, str]:
        """The verdict on each question in words."""
        names = {
            "few": self.few,
            "n_heads": self.n_heads,
            "size": len(self.heads),
            "heads": ", ".join(map(str, self.heads)),
            "place": f"layer {self.layer}",
            "reads": reading(self.readers().itertuples()),
            "beyond": beyond(self.rows),
        }
        return {question: sentence(self.first(question), **names) for question in QUESTIONS}

    def save(self, path: str | Path, *, task: str = "") -> Path:
        """Write the table if the path ends in `.csv`; else a folder with `audit.csv`, `audit.html`
        and `audit.safetensors`, which `load` reads. `task` heads the page. Returns the path."""
        path = Path(path)
        if path.suffix == ".csv":
            self.verdicts.to_csv(path, index=False)
            return path
        path.mkdir(parents=True, exist_ok=True)
        self.verdicts.to_csv(path / "audit.csv", index=False)
        self.to_arrays().save(path / "audit.safetensors")
        self.page(path / "audit.html", task=task)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Audit":
        """Read `audit.safetensors`, or the folder that `save` wrote."""
        path = Path(path)
        return cls.from_arrays(Arrays.load(path / "audit.safetensors" if path.is_dir() else path))

    def page(self, path: str | Path, *, task: str = "") -> Path:
        """Write one HTML page that needs no network; the answer comes first. `task`, such as
        "addition", is in its title. Returns its path."""
        from arith_lens.auditing.page import page_of

        path = Path(path)
        path.write_text(page_of(self, task), encoding="utf-8")
        return path

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        held = {name: getattr(self, name) for name in PARTS}
        parts = {name: value.to_arrays() for name, value in held.items() if value is not None}
        names = ("model", "n_heads", "few", "smallest", "layer")
        header: dict[str, Any] = {name: getattr(self, name) for name in names}
        for name in ("sufficient", "needed", "heads"):
            header[name] = [*map(str, getattr(self, name))]
        header |= {"rows": [asdict(one) for one in self.rows], "curve": self.curve}
        header["strongest"] = {lens: [*map(str, top)] for lens, top in self.strongest.items()}
        header["mlp"] = None if self.mlp is None else str(self.mlp)
        header["parts"] = [*parts]
        return joined_arrays("audit", parts, {}, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Audit":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        arrays.require("audit")
        header = arrays.header
        rows = tuple(
            Verdict(**{**row, "measure": Measure(**row["measure"])}) for row in header["rows"]
        )
        parts = {name: PARTS[name].from_arrays(arrays.part(name)) for name in header["parts"]}
        names = ("model", "n_heads", "few", "smallest", "layer")
        of_heads: dict[str, Any] = {
            name: tuple(map(Head.parse, header[name])) for name in ("sufficient", "needed", "heads")
        }
        by_lens = header.get("strongest", {}).items()
        of_heads["strongest"] = {lens: tuple(map(Head.parse, top)) for lens, top in by_lens}
        mlp = header["mlp"] and Mlp.parse(header["mlp"])
        curve = tuple((k, value) for k, value in header["curve"])
        plain = {name: header[name] for name in names}
        return cls(rows, mlp=mlp, curve=curve, **plain, **of_heads, **parts)

    def __repr__(self) -> str:
        questions: dict[str, list[str]] = {}
        for question, text in self.sentences().items():
            questions.setdefault(text, []).append(question)
        lines = [" ".join([*same, text]) for text, same in questions.items()]
        return "\n".join([f"Audit of {self.model}", *lines])

    def _repr_html_(self) -> str:
        from arith_lens.auditing.page import answer_of

        return answer_of(self)
