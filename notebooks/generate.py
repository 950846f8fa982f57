"""The notebooks from their sources: `python notebooks/generate.py` runs each, keeping its outputs.

The percent files are what is edited and tested. Conversion goes one way, without jupytext's pairing
(paired, an editor would load the inputs from the `.py`). Figures are stored as plotly and, where a
browser can draw them, as PNG too, so that a page that runs no script shows them.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from arith_lens.plotting import browser_path

NOTEBOOKS_FOLDER = Path(__file__).parent
WIDGET = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def sources() -> list[Path]:
    """The percent files."""
    return sorted(
        path for path in NOTEBOOKS_FOLDER.glob("*.py") if path.name != Path(__file__).name
    )


def converted(source: Path) -> Any:
    """A notebook of the source's cells, without outputs; the same at each call."""
    import jupytext

    notebook = jupytext.read(source)
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    return notebook


def executed(source: Path, *, timeout: int = 600) -> Any:
    """The notebook run from top to bottom, in the folder it lies in.

    Raises `nbclient.exceptions.CellExecutionError` with the traceback of a cell that fails.
    """
    from nbclient import NotebookClient

    notebook = converted(source)
    resources = {"metadata": {"path": str(source.parent)}}
    client = NotebookClient(
        notebook, timeout=timeout, kernel_name="python3", resources=resources, coalesce_streams=True
    )
    with TemporaryDirectory() as folder, patch.dict(os.environ, environment(folder)):
        client.execute()
    return without_traces(notebook)


def environment(folder: str) -> dict[str, str]:
    """The settings of a run: this checkout's package, no network, no files in the user's home."""
    path = os.pathsep.join(
        [str(NOTEBOOKS_FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    jupyter = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    return dict.fromkeys(jupyter, folder) | {
        "HF_HUB_OFFLINE": "1",
        "PLOTLY_RENDERER": "plotly_mimetype+png" if browser_path() else "plotly_mimetype",
        "PYTHONPATH": path,
    }


def without_traces(notebook: Any) -> Any:
    """Without what belongs to the run and not to its results: times and progress bars."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if WIDGET not in o.get("data", {})]
    return notebook


def main(names: list[str]) -> None:
    """Generate all notebooks, or those named."""
    import nbformat

    if browser_path() is None:
        print("no Chrome or Chromium found: the figures are stored without PNG", flush=True)
    for source in sources():
        if not names or source.stem in names:
            target = source.with_suffix(".ipynb")
            nbformat.write(executed(source), target)
            print(f"{target} ({target.stat().st_size / 1e6:.2f} MB)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
