"""Rows of a table in words."""

from pandas import DataFrame

from figures.common import sample_size
from figures.tables.table import keys_of, records, select


def sizes_text(table: DataFrame, key: str = "operation") -> str:
    """The sizes of the samples: `addition: 324 references of 36 problems; …`."""
    parts = []
    for name in keys_of(table, key):
        sizes = select(table, measure=("references", "problems"), **{key: name})
        facts = {one.measure: int(one.value) for one in records(sizes)}
        known = {"distinct": facts.get("references"), "problems": facts.get("problems")}
        parts.append(f"{name}: {sample_size(known)}")
    return "; ".join(parts)
