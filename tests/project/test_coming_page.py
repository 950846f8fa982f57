"""The page on ten tasks: TransformerLens and this package give the same numbers."""

import re
from pathlib import Path
from typing import Any

import torch
from torch.testing import assert_close

PAGE = Path(__file__).parents[2] / "docs" / "coming_from_transformerlens.md"


def test_ten_tasks_give_the_same_numbers_as_transformerlens() -> None:
    names: dict[str, Any] = {}
    compared = []
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL):
        names.pop("theirs", None)
        exec(compile(block, PAGE.name, "exec"), names)
        if "theirs" not in names:
            continue
        theirs, ours = names["theirs"], names["ours"]
        if isinstance(theirs, torch.Tensor):
            assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
            assert float(theirs.detach().abs().max()) > 0.1, "something to compare"
            theirs = tuple(theirs.flatten().tolist())
        else:
            assert ours == theirs != ""
        compared.append(theirs)
    assert len(compared) == len({*compared}) == 10, "no two tasks are the same"


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text("utf-8").split()) <= 900
