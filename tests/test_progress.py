"""Signs of long work: a line at its start and more while it lasts; only the innermost work's."""

import io
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from arith_lens import progress


class Lines(io.StringIO):
    """A stream that says when it got so many signs."""

    def __init__(self, sign: str, count: int) -> None:
        super().__init__()
        self.sign, self.count, self.seen = sign, count, threading.Event()

    def write(self, text: str, /) -> int:
        written = super().write(text)
        if self.getvalue().count(self.sign) >= self.count:
            self.seen.set()
        return written


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Signs every hundredth of a second, to a stream that waits for so many of them."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_SIGNS", 0.01)

    def watch(sign: str, count: int) -> Lines:
        monkeypatch.setattr(sys, "stderr", lines := Lines(sign, count))
        return lines

    return watch


def test_work_is_named_at_its_start_and_again_until_it_ends(watched: Any) -> None:
    lines = watched("s so far", 3)
    with progress.working("loading"):
        assert lines.getvalue() == "loading …\n"
        assert lines.seen.wait(20)
    ended = lines.getvalue()
    assert ended.count("loading: 0 s so far\n") >= 3
    assert threading.Event().wait(0.1) is False
    assert lines.getvalue() == ended


def test_while_inner_work_shows_signs_the_outer_shows_none(watched: Any) -> None:
    lines = watched("inner: 0 s", 3)
    with progress.working("outer"):
        with progress.working("inner"):
            assert lines.seen.wait(20)
        inner = lines.getvalue()
        lines.sign, lines.count = "outer: 0 s", 1
        lines.seen.clear()
        assert lines.seen.wait(20)
    assert "outer: " not in inner[inner.index("inner") :]


def test_a_bar_moves_while_nothing_is_finished(watched: Any) -> None:
    """One shard of a large model takes a minute: the bar shows 0 of 4 again and again."""
    lines = watched("0/4", 3)
    with progress.bar(visible=True, total=4, desc="sweep", disable=False) as bar:
        assert lines.seen.wait(20)
        assert bar.n == 0
    hidden = watched("sweep", 1)
    with progress.bar(visible=False, total=4, desc="sweep") as bar:
        bar.update(4)
    assert hidden.getvalue() == ""


def test_items_are_counted_with_their_names(watched: Any) -> None:
    lines = watched("so far", 1)
    assert [*progress.counted(["addition", "division"], "operations")] == ["addition", "division"]
    said = [line for line in lines.getvalue().splitlines() if "so far" not in line]
    assert said == ["operations: 1 of 2, addition …", "operations: 2 of 2, division …"]


def test_work_that_is_not_shown_or_fails_leaves_no_sign(watched: Any) -> None:
    lines = watched("quiet", 1)
    with progress.working("quiet", visible=False):
        pass
    assert lines.getvalue() == ""
    with pytest.raises(ValueError, match="planted"), progress.working("failing"):
        raise ValueError("planted")
    assert progress._signs == []


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_in_a_pipe_is_a_line_now_and_then(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def tqdm(**options: Any) -> Any:
        seen.clear()
        seen.update(options)
        return nullcontext(SimpleNamespace(refresh=lambda: None))

    monkeypatch.setattr("tqdm.auto.tqdm", tqdm)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: terminal))
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with progress.bar(visible=True, total=3):
        assert not seen.get("disable")
        assert seen.get("mininterval") == (None if terminal else progress.SECONDS_BETWEEN_LINES)
    with progress.bar(visible=False, total=3):
        assert seen["disable"]


@pytest.mark.parametrize("downloads", [True, False])
def test_while_a_model_is_loaded_transformers_shows_no_bar_and_downloads_do(
    downloads: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import utils
    from transformers.utils import logging

    logging.enable_progress_bar()
    if not downloads:
        utils.disable_progress_bars()
    try:
        with progress.loading("loading it"):
            assert not logging.is_progress_bar_enabled()
            assert utils.are_progress_bars_disabled() is not downloads
        assert logging.is_progress_bar_enabled()
        assert utils.are_progress_bars_disabled() is not downloads
    finally:
        utils.enable_progress_bars()
    assert capsys.readouterr().err.startswith("loading it")
