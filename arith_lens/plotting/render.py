"""Draw the figures given as JSON on standard input: `python -m arith_lens.plotting.render`.

`export.save` runs this in a process of its own. Each file appears whole or not at all.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Draw every job in one browser; without a browser exit with one line on standard error."""
    from plotly import io

    jobs = json.load(sys.stdin)
    paths = [Path(job["path"]) for job in jobs]
    partials = [path.with_name(path.name + ".partial") for path in paths]
    try:
        figures: list[Any] = [io.from_json(job["figure"]) for job in jobs]
        io.write_images(
            figures,
            list[str | Path](partials),
            format=[path.suffix[1:] for path in paths],
            scale=[2 if path.suffix == ".png" else 1 for path in paths],
            width=[figure.layout.width for figure in figures],  # the layout's own is not asked
            height=[figure.layout.height for figure in figures],
        )
        for partial, path in zip(partials, paths, strict=True):
            partial.replace(path)
    except (RuntimeError, OSError, ValueError) as error:
        sys.exit(_in_one_line(error))
    finally:
        for partial in partials:
            partial.unlink(missing_ok=True)


def _in_one_line(error: Exception) -> str:
    if "requires Google Chrome" in str(error):
        return "no Chrome or Chromium found (install one, or set BROWSER_PATH)"
    if "Kaleido package" in str(error):
        return "kaleido is not installed (pip install kaleido)"
    return " ".join(str(error).split())[:300] or type(error).__name__


if __name__ == "__main__":
    main()
