"""Run one experiment: `python -m experiments <question> [options]`."""

from importlib import import_module
from pathlib import Path

from experiments.command import command, commands, first_sentence, imported, named_command

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
"""Commands that answer no question about a model: each is a function of this name in a module."""


def tools() -> dict[str, str]:
    """Every tool by name, with the first sentence of its function."""
    sentences = {}
    for name, module in TOOLS.items():
        source = (FOLDER / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        sentences[name] = first_sentence(source.partition(f"\ndef {name}(")[2])
    return sentences


def main() -> None:
    """Start the command that the first argument names."""
    usage = (
        "python -m experiments <question> [options]; each has --help and most --dry-run\n"
        "In brackets: the exhibit that draws it."
    )
    name = named_command(commands(FOLDER) | tools(), "an experiment", usage)
    if name in TOOLS:
        module = import_module(f"experiments.{TOOLS[name]}")
        command(getattr(module, name), name, None, shares=False)
    elif name is not None:
        module = imported(FOLDER, name)
        main = module.main  # an Experiment, or a function
        shares = getattr(main, "shares", getattr(module, "SHARES", False))
        command(getattr(main, "command", main), name, module.__doc__, shares=shares)


if __name__ == "__main__":
    main()
