"""The command `arith-lens`: get a pretrained model, and audit a model.

Exit codes: 0; 1 for what a user can mend, with one clear line; 130 if it was stopped.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

AUDIT_OPTIONS: dict[str, dict[str, Any]] = {
    "operation": {"default": "addition", "help": "the operation whose problems are asked"},
    "pairs": {"type": Path, "help": "a file of your own prompts (JSON lines or CSV) in its place"},
    "shots": {"type": int, "help": "solved examples before each problem; 1, of shipped models 0"},
    "draws": {"type": int, "default": 100, "help": "random sets of heads, as controls"},
    "out": {"type": Path, "default": Path("audit"), "help": "the folder of the results"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with its arguments (those of the process, if None). Returns the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        chosen.run(chosen)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from what is stored", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, ImportError, MemoryError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser("arith-lens", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    about = "list the models that have a name, or get a pretrained one"
    models = commands.add_parser("models", help=about, description=about)
    models.add_argument("action", nargs="?", choices=["get"])
    models.add_argument("name", nargs="?", help="such as smollm2-135m")
    models.set_defaults(run=_models)
    about = "ask seven questions about a model and a task"
    audit = commands.add_parser("audit", help=about, description=about)
    audit.add_argument("model", help="a name, a folder, a GGUF file or a hub id")
    for name, option in AUDIT_OPTIONS.items():
        audit.add_argument(f"--{name}", **option)
    audit.set_defaults(run=_audit)
    return parser


def _models(chosen: Namespace) -> None:
    from arith_lens.model import get_pretrained, load_model
    from arith_lens.named_models import PRETRAINED, REFERENCE_MODELS

    if chosen.action is None:
        for name in REFERENCE_MODELS:
            print(f"{name}: ships with this package")
        for name, model in PRETRAINED.items():
            print(f"{name}: {model.hub_id}, quantised, {model.n_bytes / 1e6:.0f} MB to download")
        return
    if chosen.name is None:
        raise ValueError(f"expected a name after get, found none; one of {', '.join(PRETRAINED)}")
    get_pretrained(chosen.name)
    print(load_model(chosen.name))  # which converts it the first time


def _audit(chosen: Namespace) -> None:
    from arith_lens.auditing import audit, four_operations, operation_pairs
    from arith_lens.model import load_model
    from arith_lens.pairs import PromptPairs
    from arith_lens.runs import open_run

    model = load_model(chosen.model)
    options: dict[str, Any] = {"draws": chosen.draws}
    if chosen.pairs is None:
        pairs: Any = operation_pairs(model, chosen.operation, shots=chosen.shots)
        options["means_over"] = four_operations(model, shots=chosen.shots)
    else:
        pairs = PromptPairs.from_file(chosen.pairs, model)
    with open_run("audit", {}, model=model, root=chosen.out / "runs") as run:
        result = audit(model, pairs, run=run, **options)
    task = chosen.operation if chosen.pairs is None else chosen.pairs.stem
    folder = result.save(chosen.out / f"{Path(model.name).name}-{task}")
    print(f"{result}\n\nopen {folder / 'audit.html'}")


if __name__ == "__main__":
    sys.exit(main())
