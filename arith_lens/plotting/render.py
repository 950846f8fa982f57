"""Draw the figures given as JSON on standard input: `python -m arith_lens.plotting.render`.

`export.save` runs this in a process of its own. Each file appears whole or not at all.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    """Draw every job; exit with one line on standard error when there is no browser."""
    import kaleido
    from plotly import io

    kaleido.start_sync_server(silence_warnings=True)
    try:
        for job in json.load(sys.stdin):
            path = Path(job["path"])
            figure = io.from_json(job["figure"], skip_invalid=True)
            scale = 2 if path.suffix == ".png" else 1
            picture = io.to_image(figure, format=path.suffix[1:], scale=scale)
            partial = path.with_name(path.name + ".partial")
            partial.write_bytes(picture)
            partial.replace(path)
    except RuntimeError as error:
        sys.exit(_in_one_line(error))
    finally:
        kaleido.stop_sync_server(silence_warnings=True)


def _in_one_line(error: RuntimeError) -> str:
    if "requires Google Chrome" in str(error) or "ChromeNotFound" in repr(error):
        return "no Chrome or Chromium found (install one, or set BROWSER_PATH)"
    if "Kaleido package" in str(error):
        return "kaleido is not installed (pip install kaleido)"
    return " ".join(str(error).split())[:300]


if __name__ == "__main__":
    main()
