"""What pytest does around the tests. Their fixtures are in support/fixtures.py."""

import gc
import os
import re
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported, so before everything
os.environ["TQDM_DISABLE"] = "1"

import pytest

gc.disable()  # until all tests are

DRAWING_IMPORT = re.compile(
    r"^ *(?:from|import) (?:arith_lens\.(?:plotting|views)|notebooks)\b"
    r"|^ *from figures\.map_figures import .*\bfig2\b"
    r"|^ *from arith_lens import .*\bplotting\b",
    re.MULTILINE,
)
"""Figure 2 stands for the other figures: all are written by one function."""


def pytest_configure(config: pytest.Config) -> None:
    """Import the fixtures, and with them the libraries, unless this process only starts workers."""
    if config.option.collectonly or config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("support.fixtures")


@pytest.hookimpl(tryfirst=True)  # before pytest reads the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `pictures` the tests of files that import what draws figures or pages."""
    files = {item.path for item in items}
    drawing = {path for path in files if DRAWING_IMPORT.search(path.read_text(encoding="utf-8"))}
    for item in items:
        if item.path in drawing:
            item.add_marker("pictures")


MANY = 200
"""Modules whose import makes so many objects that they are worth a freeze."""
_n_modules = 0


def freeze_modules() -> None:
    """Take what was imported out of the garbage collector's care.

    It is never freed. Each full collection would look at every function and class of the
    libraries, which took an eighth of the tests' time.
    """
    global _n_modules
    if len(sys.modules) >= _n_modules + MANY:
        _n_modules = len(sys.modules)
        gc.collect()
        gc.freeze()


def pytest_collection_finish() -> None:
    freeze_modules()
    gc.set_threshold(20_000)  # at the usual 700, collections took 6% of the time
    gc.enable()


def pytest_runtest_teardown() -> None:
    freeze_modules()
