"""The site's pages, for mkdocs: those of the repository where they are, and those of functions.

A page keeps its path, so that its links are those that it has in the repository. Added are a page
of functions for each task of docs/api.md, one of each notebook with its stored outputs, and the
explorer of a shipped model, which `make docs` computes.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINKED = (
    "*.md", "*.cff", "LICENSE", "docs/**/*", "figures/gallery/**/*", "figures/claims/*.toml",
    "laboratory/speed/**/*.csv", "notebooks/*.ipynb", "arith_lens/reference/*/README.md",
)  # fmt: skip
"""The pages of the repository, and the files that they link."""
EXPLORER = ROOT / "results" / "site" / "reference-addition" / "explorer.html"
SCRIPT = EXPLORER.with_name("circuitsvis.js")
LIVE = (
    "[Open the explorer of `reference`](explorer-reference.html){ .md-button .md-button--primary }"
)
STYLE = """.md-grid { max-width: 72rem } .md-sidebar { width: 9.8rem }
.md-typeset table code { word-break: normal; white-space: normal }"""
"""Pictures have room for their own width, 828 pixels; long names in tables stay in one line."""
BOOSTS = {
    **{"docs/data.md": 5, "docs/setup.md": 4, "docs/faults.md": 2, "docs/api/": 0.1},
    **dict.fromkeys(("CHANGELOG.md", "CONTRIBUTING.md", "arith_lens/", "docs/studies/"), 0.1),
}
"""How far a search moves the pages whose paths begin so; 1 where none does."""
TASK = re.compile(r"^## (.+)\n\n\| to \| name \|\n((?:\|.*\n)*)", re.MULTILINE)
ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
NAME = re.compile(r"`([\w.]+)`")
BLANK = re.compile(r"^\s*\n", re.MULTILINE)
FUNCTION = re.compile(r"^:::.*\.([a-z_]+)$", re.MULTILINE)
"""An entry, which shows the function alone where a module has the same name."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site, with those of the theme."""
    for file in list(files):
        if file.src_dir == config.docs_dir:  # it comes again, with its path in the repository
            files.remove(file)
    paths = {path for pattern in LINKED for path in ROOT.glob(pattern) if path.is_file()}
    sources = {path.relative_to(ROOT).as_posix(): path for path in sorted(paths)}
    for name, path in (("explorer-reference.html", EXPLORER), ("circuitsvis.js", SCRIPT)):
        sources |= {f"docs/{name}": path} if path.exists() else {}
    for uri, path in sources.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    pages = {f"notebooks/{one.stem}.md": notebook_page(one) for one in ROOT.glob("*/*.ipynb")}
    for title, names in tasks().items():
        entries = "\n".join(f"::: arith_lens.{name}\n" for name in names)
        entries = FUNCTION.sub(r"\g<0>\n    options: { members: [\1] }", entries)
        pages[f"docs/api/{title.lower().replace(' ', '-')}.md"] = f"# {title}\n\n{entries}"
    pages["docs/site.css"] = STYLE
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """docs/api.md links each name to its entry, and the explorer's page the explorer."""
    uri = page.file.src_uri
    boosts = [boost for start, boost in BOOSTS.items() if uri.startswith(start)]
    page.meta.update({"search": {"boost": (*boosts, 1)[0]}, "tags": []})  # its tags are the hub's
    if uri == "docs/explorer.md" and EXPLORER.exists():
        return markdown.replace("\n<picture>", f"\n{LIVE}\n\n<picture>", 1)
    if uri != "docs/api.md":
        return markdown
    public = {name for names in tasks().values() for name in names}

    def linked(name: re.Match[str]) -> str:
        return f"[{name[0]}][arith_lens.{name[1]}]" if name[1] in public else name[0]

    return ROW.sub(lambda row: NAME.sub(linked, row[0]), markdown)


def tasks() -> dict[str, list[str]]:
    """The public names by the task that they are for, in the order of docs/api.md."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    return {
        title: [name for row in rows.splitlines() for name in NAME.findall(row.split(" | ")[-1])]
        for title, rows in TASK.findall(text)
    }


def notebook_page(path: Path) -> str:
    """The cells of a notebook, and what they printed and drew when it was stored."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [stored_output(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts)


def stored_output(output: dict[str, Any]) -> str:
    """Its picture, else its table or its view, else its text."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if picture := data.get("image/png"):
        return f'<img alt="" src="data:image/png;base64,{picture.strip()}">'
    if page := "".join(data.get("text/html", "")):
        return f'<div style="overflow-x: auto">{BLANK.sub("", page)}</div>'
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
