"""The rows of a table are written as they are computed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from arith_lens.auditing.measures import Measure
from laboratory.rows import of_measure, write_rows


def test_rows_are_written_before_the_next_one_is_computed(tmp_path: Path) -> None:
    csv = tmp_path / "rows.csv"

    def rows() -> Iterator[dict[str, Any]]:
        yield {"heads": "a", **of_measure(Measure(0.5, 0.25, 0.75, n=4))}
        assert pd.read_csv(csv).to_dict("records") == [
            {"heads": "a", "value": 0.5, "low": 0.25, "high": 0.75, "n": 4}
        ]
        yield {"heads": "b", **of_measure(Measure(1.0, 0.9, 1.0, n=4))}

    write_rows(rows(), csv)
    assert pd.read_csv(csv).heads.tolist() == ["a", "b"]
