"""Every public name says what it is, and has its place on the API pages."""

import inspect
from pathlib import Path

import pytest

import arith_lens as al


@pytest.mark.parametrize("name", al.__all__)
def test_public_names_have_docstrings_of_their_own(name: str) -> None:
    thing = getattr(al, name)
    said = inspect.getdoc(thing) or ""
    assert said and not said.startswith(f"{name}("), "a dataclass's made-up docstring is none"
    members = vars(thing).items() if inspect.isclass(thing) else ()
    silent = [
        member
        for member, value in members
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and not inspect.getdoc(getattr(thing, member))
    ]
    assert silent == []


def test_the_pages_are_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pdoc = pytest.importorskip("pdoc", reason="pdoc builds the pages")
    pdoc.render.configure(docformat="google", show_source=False)
    pdoc.pdoc("arith_lens", output_directory=tmp_path)
    page = (tmp_path / "arith_lens.html").read_text("utf-8")
    assert [name for name in al.__all__ if f'id="{name}"' not in page] == []
    assert "Args:" in page or "Arguments:" in page
    assert 'src="http' not in page and "url(http" not in page, "it opens offline"
