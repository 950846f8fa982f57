"""Rows of a table that are printed and written as they come."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def of_measure(measure: Any) -> dict[str, float]:
    """The columns of a number of an audit: its interval and how many problems it rests on."""
    return {name: getattr(measure, name) for name in ("value", "low", "high", "n")}


def write_rows(rows: Iterable[Row], csv: Path | None) -> None:
    """Print each row, and write all so far; after a stop, the file has what was computed."""
    import pandas as pd

    done: list[Row] = []
    for row in rows:
        done.append(row)
        print(*row.values(), flush=True)
        if csv is not None:
            pd.DataFrame(done).to_csv(csv, index=False, float_format="%.4f")
