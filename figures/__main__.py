"""Draw one exhibit: `python -m figures <exhibit> [options]`."""

from pathlib import Path

from experiments.launcher import commands, named_command, start

FOLDER = Path(__file__).parent


def _order(name: str) -> tuple[str, int]:
    """Figure 12 comes after Figure 2."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def main() -> None:
    """Start the exhibit that the first argument names."""
    by_name = commands(FOLDER)
    sentences = {name: by_name[name] for name in sorted(by_name, key=_order)}
    usage = "python -m figures <exhibit> [options]; each has --help"
    if (name := named_command(sentences, "an exhibit", usage)) is not None:
        start("figures", name)


if __name__ == "__main__":
    main()
