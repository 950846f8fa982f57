"""Imports pause the garbage collector, and give it back."""

import gc
from collections.abc import Iterator

import pytest

import arith_lens
from arith_lens.imports import without_collections


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_a_public_name_is_imported_without_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    monkeypatch.setattr(arith_lens, "_public_name", lambda name: states.append(gc.isenabled()))
    assert arith_lens.__getattr__("path_patch") is None
    assert states == [False] and gc.isenabled()


def test_the_collector_comes_back_after_an_error_and_stays_off_where_the_user_has_none() -> None:
    with pytest.raises(ImportError), without_collections():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    with without_collections():
        pass
    assert not gc.isenabled()
