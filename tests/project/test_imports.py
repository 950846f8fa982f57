"""Imports pause the garbage collector, and give it back."""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import arith_lens
from arith_lens.imports import MANY, without_collections
from experiments.catalogue import experiments
from experiments.command import loaded


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    gc.unfreeze()
    yield
    gc.enable()
    gc.freeze()


def test_a_public_name_is_imported_without_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    monkeypatch.setattr(arith_lens, "_public_name", lambda name: states.append(gc.isenabled()))
    assert vars(arith_lens)["__getattr__"]("path_patch") is None
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


@pytest.mark.parametrize("n_modules", [1, MANY + 1])
def test_many_imports_alone_move_objects_to_the_oldest_generation(
    n_modules: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    young: list[object] = []
    with without_collections():
        for i in range(n_modules):
            monkeypatch.setitem(sys.modules, f"made_up_{i}", ModuleType("made_up"))
        young.append([])
    oldest = gc.get_objects(generation=2)
    assert any(one is young[0] for one in oldest) == (n_modules > MANY)
    assert gc.get_freeze_count() == 0, "garbage can be collected as before"


def test_a_command_freezes_what_its_first_import_made_and_never_a_model() -> None:
    which_heads = experiments()["which_heads"]
    assert loaded(which_heads) is which_heads.load()
    frozen = gc.get_freeze_count()
    assert frozen > 0
    models = [[] for _ in range(1000)]
    loaded(which_heads)
    assert gc.get_freeze_count() <= frozen and len(models) == 1000
