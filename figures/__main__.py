"""Draw one exhibit: `python -m figures <exhibit> [options]`."""

import ast
import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def sentences() -> dict[str, str]:
    """Every exhibit by name, with the first sentence of its module."""
    files = [*FOLDER.glob("*.py"), *FOLDER.glob("*/__main__.py")]
    by_name = {}
    for file in sorted(files):
        name = file.parent.name if file.parent != FOLDER else file.stem
        source = ast.parse(file.read_text(encoding="utf-8"))
        if "__main__" in ast.dump(source) and name not in ("__main__", "__init__"):
            by_name[name] = (ast.get_docstring(source) or "").partition("\n")[0]
    return dict(sorted(by_name.items(), key=lambda item: _order(item[0])))


def _order(name: str) -> tuple[str, int]:
    """Figure 12 comes after Figure 2."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def main() -> None:
    """Start the exhibit that the first argument names."""
    exhibits = sentences()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        width = max(map(len, exhibits))
        print("python -m figures <exhibit> [options]; each has --help\n")
        print("\n".join(f"{one:{width}}  {sentence}" for one, sentence in exhibits.items()))
        return
    if name not in exhibits:
        sys.exit(f"expected an exhibit among {', '.join(exhibits)}, found {name!r}")
    del sys.argv[1]
    runpy.run_module(f"figures.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
