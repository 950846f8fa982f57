"""Draw the figures given as JSON on standard input: `python -m arith_lens.plotting.render`.

`export.save` runs this in a process of its own. Each file appears whole or not at all.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from arith_lens.plotting.export import browser_path, partial_of


def main() -> None:
    """Draw every job in one browser; without a browser exit with one line on standard error."""
    from plotly import io

    jobs = json.load(sys.stdin)
    paths = [Path(job["path"]) for job in jobs]
    partials = [partial_of(path) for path in paths]
    try:
        browser = browser_path()
        if browser is None:
            raise RuntimeError("no Chrome or Chromium found (install one, or set BROWSER_PATH)")
        os.environ["BROWSER_PATH"] = browser
        figures: list[Any] = [io.from_json(job["figure"]) for job in jobs]
        io.write_images(
            figures,
            list[str | Path](partials),
            format=[path.suffix[1:] for path in paths],
            scale=[
                job["scale"] if path.suffix == ".png" else 1
                for job, path in zip(jobs, paths, strict=True)
            ],
            width=[figure.layout.width for figure in figures],  # the layout's own is not asked
            height=[figure.layout.height for figure in figures],
        )
        for partial, path in zip(partials, paths, strict=True):
            if path.suffix == ".svg":
                partial.write_bytes(_settled(partial.read_text(encoding="utf-8")).encode())
            partial.replace(path)
    except (ImportError, RuntimeError, OSError, ValueError) as error:
        sys.exit(_in_one_line(error))
    finally:
        for partial in partials:
            partial.unlink(missing_ok=True)


def _settled(svg: str) -> str:
    """The same picture with its parts named in their order: plotly names them at random, and equal
    figures are to give equal files."""
    found = re.findall(r'(?:id="defs-|\btrace)([0-9a-f]{6})\b', svg)
    for number, uid in enumerate(dict.fromkeys(found)):
        svg = re.sub(rf"(defs-|clip|trace|[\"#]g){uid}", rf"\g<1>{number:06}", svg)
    return svg


def _in_one_line(error: Exception) -> str:
    if isinstance(error, ImportError) or "Kaleido package" in str(error):
        return "kaleido is not installed (pip install kaleido)"
    return " ".join(str(error).split())[:300] or type(error).__name__


if __name__ == "__main__":
    main()
