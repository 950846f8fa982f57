"""Run one experiment: `python -m experiments <question> [options]`."""

import ast
import runpy
import sys
from importlib import import_module
from pathlib import Path

from experiments.command import command

FOLDER = Path(__file__).parent
TOOLS = {
    "convert_gsm8k": "datasets",
    "convert_world": "datasets",
    "measure_reference": "reference_models",
    "merge_runs": "run_folders",
    "ship_runs": "run_folders",
    "speed": "speed.path_patching",
    "speed_fine_tuning": "speed.fine_tuning",
    "speed_scale": "speed.scale",
    "train_reference": "reference_models",
    "training_splits": "datasets",
}
"""Commands that are no question about a model: each is the function of that name in a module."""


def questions() -> dict[str, str]:
    """Every experiment by name, with the first sentence of its module."""
    files = [*FOLDER.glob("*.py"), *FOLDER.glob("*/__main__.py")]
    about = {}
    for file in sorted(files):
        name = file.parent.name if file.parent != FOLDER else file.stem
        source = ast.parse(file.read_text(encoding="utf-8"))
        if "__main__" in ast.dump(source) and name not in ("__main__", "__init__"):
            about[name] = (ast.get_docstring(source) or "").partition("\n")[0]
    return about


def tools() -> dict[str, str]:
    """Every tool by name, with the first sentence of its function."""
    about = {}
    for name, module in TOOLS.items():
        source = ast.parse((FOLDER / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        (function,) = (
            part for part in source.body if isinstance(part, ast.FunctionDef) and part.name == name
        )
        about[name] = (ast.get_docstring(function) or "").partition("\n")[0]
    return about


def main() -> None:
    """Start the command that the first argument names."""
    about = questions() | tools()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        width = max(map(len, about))
        print("python -m experiments <question> [options]; each has --help and most --dry-run\n")
        print("\n".join(f"{one:{width}}  {sentence}" for one, sentence in about.items()))
        return
    if name not in about:
        sys.exit(f"expected an experiment among {', '.join(about)}, found {name!r}")
    del sys.argv[1]
    if name in TOOLS:
        module = import_module(f"experiments.{TOOLS[name]}")
        command(getattr(module, name), name, None, shares=False)
    else:
        runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
