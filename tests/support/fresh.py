"""What a fresh Python has imported after each of a few steps: one process for all tests of that."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from support.made_runs import make_run

import arith_lens

ROOT = Path(__file__).parents[2]
PACKAGE = Path(arith_lens.__file__).parent
MODEL_LIBRARIES = {"transformers", "transformer_lens", "huggingface_hub", "tokenizers"}

STEPS = {
    "the package": "import arith_lens",
    "reading a run": """
from arith_lens.runs import load_run
load_run(run).load("effects-addition").heads.mean()
""",
    "the model": "import arith_lens.model, arith_lens.hooks",
    "all methods": """
from importlib import import_module
for name in methods:
    import_module(f"arith_lens.{name}")
""",
    "drawing": """
from figures.options import Options
from figures.exhibit import show
from figures.map_figures import fig2
from pathlib import Path
show(fig2, Options(run=Path(run), out=Path(out), formats=()))
""",
    "drawing where there are no model libraries": """
for page in Path(out).glob("*.html"):
    page.unlink()
sys.modules.update(dict.fromkeys(libraries))
show(fig2, Options(run=Path(run), out=Path(out), formats=()))
""",
}

PROGRAM = """
import json, os, sys
before = set(sys.modules)
steps, names = json.loads(sys.argv[1])
names["sys"] = sys
sys.path.insert(0, names["root"])
for step, code in steps.items():
    exec(code, names)
    modules = sorted(name for name in {*sys.modules} - before if sys.modules[name] is not None)
    sizes = [os.fstat(stream).st_size for stream in (1, 2)]
    with open(names["out"] + "/steps.jsonl", "a") as file:
        file.write(json.dumps([step, modules, sizes]) + "\\n")
"""


@dataclass(frozen=True)
class Imported:
    """What is imported after a step."""

    modules: frozenset[str]
    """Full names of all that were imported since Python started."""
    printed: int
    """Bytes that were printed so far, errors too."""

    @property
    def packages(self) -> set[str]:
        """The modules' first names."""
        return {name.partition(".")[0] for name in self.modules}


@dataclass(frozen=True)
class FreshPython:
    """A Python that took the steps."""

    after: dict[str, Imported]
    """By step."""
    run: Path
    """The run that it read and drew."""
    page: Path
    """The page that it drew last."""


def take_steps(root: Path) -> FreshPython:
    """Run the steps in a fresh Python, once for all workers; `root` gets a run and its Figure 2."""
    shared = "PYTEST_XDIST_WORKER" in os.environ
    folder = (root.parent if shared else root) / "fresh"
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            _take_steps(folder)
            (folder / "done").touch()
    lines = (folder / "steps.jsonl").read_text("utf-8").splitlines()
    after = {
        step: Imported(frozenset(modules), sum(sizes))
        for step, modules, sizes in map(json.loads, lines)
    }
    (run,) = (folder / "results" / "which_heads").iterdir()
    (page,) = folder.glob("*.html")
    return FreshPython(after, run, page)


def _take_steps(folder: Path) -> None:
    methods = {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in PACKAGE.rglob("*.py")}
    run = make_run(folder / "results", "reference")
    names = {
        "root": str(ROOT),
        "run": str(run.path),
        "out": str(folder),
        "methods": sorted(methods - {"__init__", "reference"}),
        "libraries": sorted(MODEL_LIBRARIES),
    }
    printed, errors = folder / "printed.txt", folder / "errors.txt"
    command = [sys.executable, "-c", PROGRAM, json.dumps([STEPS, names])]
    with printed.open("w") as out, errors.open("w") as err:
        done = subprocess.run(command, cwd=ROOT, stdout=out, stderr=err)
    assert done.returncode == 0, errors.read_text("utf-8")
