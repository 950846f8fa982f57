"""What every table must be: one schema, unique keys, numbers within what is possible."""

import re
from collections.abc import Iterator
from math import inf
from typing import Any, get_args

import numpy as np
from pandas import DataFrame

from figures.tables.number import _STYLES, Unit  # pyright: ignore[reportPrivateUsage]
from figures.tables.table import DIGITS, IDENTITY, MEASURED, NUMERIC

INTERVAL = re.compile(
    r"95% over (problems( of one shuffle| of the mean of 5 draws)?|questions|sentences|trainings"
    r"|seeds and questions|draws and problems|draws and questions|problems and sets of examples)"
)
RANGE = re.compile(
    r"(median and )?range of \d+ (draws|shuffles|seeds|trainings|prompts|orders|splits|tasks"
    r"|operations|random sets|random graphs|untrained models)"
)
PERCENTILES = re.compile(
    r"10th to 90th percentile of \d+ samples|2\.5th to 97\.5th percentile of \d+ draws"
)
"""What the ends of a number are. Percentiles of samples can leave the samples' mean out."""
BOUNDS = {"above", "below"}
"""Columns of a claim's bounds, which may be infinite."""
RANK_UNIT, RANK_MEASURES = "correlation", ("missed ", "recall ")
"""Statistics of ranks, which are smaller in a resample: its percentiles can leave the value out."""


def faults(frame: DataFrame) -> Iterator[str]:
    """What is wrong with a table as its CSV file has it, one text per kind of fault."""
    columns = [*frame.columns]
    first, last = columns[: len(IDENTITY)], columns[-len(MEASURED) :]
    if (*first, *last) != (*IDENTITY, *MEASURED) or len({*columns}) < len(columns):
        yield f"columns: {columns}"
        return
    for name, wrong in {**_keys(frame), **_numbers(frame)}.items():
        if wrong.any():
            one = frame[wrong].iloc[0].to_dict()
            yield f"{name}: {int(wrong.sum())} of {len(frame)} rows, such as {one}"


def _keys(frame: Any) -> dict[str, Any]:
    """By fault, which rows have texts or keys that are wrong."""
    keys = [name for name in frame.columns if name not in MEASURED[1:]]
    faulty = {
        "the same keys": frame.duplicated(keys),
        "no measure": (frame.measure == "") & frame.value.notna(),
        "an unknown spread": ~frame.spread.map(_is_known),
        "an unknown unit": ~frame.unit.isin(get_args(Unit)),
    }
    for name in {*frame.columns} - {*NUMERIC}:
        faulty[f"a line break in {name}"] = frame[name].str.contains("[\r\n]")
    for name in {*frame.columns} & {*NUMERIC} - BOUNDS:
        faulty[f"infinite {name}"] = frame[name].abs() == inf
    return faulty


def _is_known(spread: str) -> bool:
    kinds = (INTERVAL, RANGE, PERCENTILES)
    return spread == "" or any(kind.fullmatch(spread) for kind in kinds)


def _numbers(frame: Any) -> dict[str, Any]:
    """By fault, which rows have numbers that are wrong."""
    has_low, has_high = frame.low.notna(), frame.high.notna()
    rounding = 2 * 10.0**-DIGITS * frame.value.abs() + 1e-12
    outside = (frame.low > frame.value + rounding) | (frame.high < frame.value - rounding)
    free = (frame.unit == RANK_UNIT) | frame.measure.str.startswith(RANK_MEASURES)
    free |= frame.spread.map(lambda text: PERCENTILES.fullmatch(text) is not None)
    faulty = {
        "one end": has_low != has_high,
        "ends without a value": has_low & frame.value.isna(),
        "ends the wrong way round": frame.low > frame.high,
        "ends without a spread, or a spread without ends": has_low != (frame.spread != ""),
        "a value outside its ends": outside & ~free,
        "no number of units": (frame.n < 0) | (frame.n != np.floor(frame.n)) & frame.n.notna(),
    }
    least, most = (
        frame.unit.map({unit: getattr(style, end) for unit, style in _STYLES.items()})
        for end in ("least", "most")
    )
    for name in ("value", "low", "high"):
        numbers = frame[name]
        faulty[f"impossible {name}"] = (numbers < least - 1e-9) | (numbers > most + 1e-9)
    return faulty
