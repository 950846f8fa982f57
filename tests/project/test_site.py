"""The site is built without a warning, has every page and public name, and asks no other host."""

import inspect
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from operator import attrgetter
from pathlib import Path
from urllib.parse import unquote

import pytest

import arith_lens as al

ROOT = Path(__file__).parents[2]
for needed in ("mkdocs", "material", "mkdocstrings_handlers.python"):
    pytest.importorskip(needed, reason="pip install -e '.[site]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; --strict makes a broken link or an unknown name an error."""
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_page_of_the_docs_is_in_the_navigation_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w/]+\.md)", text)
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(listed) == len({*listed}) and pages <= {*listed}


def test_each_public_name_has_an_entry_that_the_tasks_link(site: Path) -> None:
    tasks = (site / "docs" / "api.html").read_text("utf-8")
    entries = "".join(page.read_text("utf-8") for page in (site / "docs" / "api").glob("*.html"))
    names = re.findall(r'href="api/[\w-]+\.html#arith_lens\.([\w.]+)"', tasks)
    public = {name for name in al._NAMES if not inspect.ismodule(getattr(al, name))}
    assert {name.rpartition(".")[2] for name in names} == public
    assert [name for name in names if f'id="arith_lens.{name}"' not in entries] == []
    assert 'id="arith_lens.no_such_name"' not in entries
    for name in names:  # a function has no members but itself, in a module of its name
        own = {*re.findall(rf'id="arith_lens\.{re.escape(name)}\.(\w+)"', entries)}
        kind = attrgetter(name)(al)
        assert inspect.isclass(kind) or own <= {name.rpartition(".")[2]}, name


class Requests(HTMLParser):
    """What a browser loads for a page, and what it links."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.loaded += [values[name] for name in ("src", "srcset") if name in values]
        if "href" in values:
            (self.loaded if tag == "link" else self.linked).append(values["href"])


LEFT_OUT = re.compile("https?:|data:|#|mailto:")


def broken(page: Path) -> list[str]:
    """The links of a page that lead to no file, and what it loads from other hosts."""
    seen = Requests(page)
    own = [
        one for one in seen.loaded + seen.linked if not re.match(r"https?:|data:|#|mailto:", one)
    ]
    lost = [
        one
        for one in own
        if not (page.parent / unquote(re.split("[?#]", one)[0])).exists() and one != "."
    ]
    return lost + [one for one in seen.loaded if re.match(r"(https?:)?//", one)]


def test_a_search_shows_the_pages_to_begin_with_before_what_changed(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    entries = {one["location"]: one for one in index["docs"]}
    places = {"CSV": "data.html#your-own-prompts", "GGUF": "setup.html#your-own-model"}
    for word, place in places.items():
        assert entries[f"docs/{place}"]["text"].startswith(f"<p>{word}")
        assert entries[f"docs/{place}"]["boost"] > 1 > entries["CHANGELOG.html"]["boost"]
    of_name = entries["docs/api/knock-out.html#arith_lens.keep_only"]
    assert entries["docs/knockout.html"]["boost"] > of_name["boost"], "a method, then its functions"
    assert not any(one.get("tags") for one in index["docs"]), "a tag would count a million times"
    words = re.split(index["config"]["separator"], "of map.csv, head 5.5, arith-lens")
    assert words == ["of", "map", "csv", "head", "5.5", "arith", "lens"]


def test_links_lead_to_files_and_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 50
    assert {page.name: lost for page in pages if (lost := broken(page))} == {}
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", style.read_text("utf-8")), style


def test_a_lost_link_and_another_host_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = '<a href="none.html#a"></a><a href="https://x.org"></a><script src="//y.org/z"></script>'
    page.write_text(text, "utf-8")
    assert broken(page) == ["//y.org/z", "none.html#a", "//y.org/z"]
