"""The example of each public function runs as it stands."""

import doctest
import functools
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import arith_lens as al

FUNCTIONS = [name for name in al._NAMES if inspect.isfunction(getattr(al, name))]
EXAMPLES = {
    name: example
    for name in FUNCTIONS
    for example in doctest.DocTestFinder(recurse=False).find(getattr(al, name), name, globs={})
    if example.examples
}
load_model = functools.cache(al.load_model)


@pytest.fixture
def cached_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The package, which loads each model once, in a folder of its own."""
    monkeypatch.setattr(al, "load_model", load_model, raising=False)
    monkeypatch.chdir(tmp_path)
    return al


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_public_function_runs(cached_models: ModuleType, name: str) -> None:
    assert cached_models is al
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(EXAMPLES[name])
    assert results.attempted and not results.failed


def test_every_function_to_begin_with_has_an_example() -> None:
    assert {name for name in FUNCTIONS if name in al.__all__} <= {*EXAMPLES}
