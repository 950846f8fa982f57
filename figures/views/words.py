"""Rows of a table in words."""

from pandas import DataFrame

from figures.common import sample_size
from figures.tables.table import keys_of, records, select


def sizes_text(table: DataFrame, key: str = "operation") -> str:
    """The sizes of the samples: `addition: 324 references of 36 problems; …`."""
    sizes = {name: size_text(table, **{key: name}) for name in keys_of(table, key)}
    return "; ".join(f"{name}: {size}" for name, size in sizes.items() if size)


def size_text(table: DataFrame, **keys: str) -> str:
    """The size of the sample with these keys: `324 references of 36 problems`, or ""."""
    sizes = select(table, measure=("references", "problems"), **keys)
    facts = {one.measure: int(one.value) for one in records(sizes)}
    return sample_size({"distinct": facts.get("references"), "problems": facts.get("problems")})
