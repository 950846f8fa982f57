"""Views show hostile tokens as themselves, run nothing of them, and ask no network."""

import html
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import arith_lens as al
from arith_lens.plotting import browser_path
from arith_lens.views import (
    JOINER,
    View,
    _FirstView,
    attention_heads,
    page,
    safe_token,
    save_page,
    script_json,
)

RUN = "document.title='PWNED'"
HOSTILE = [
    "<s>",
    f"</script><script>{RUN}</script>",
    f'<img/src="x"/onerror="{RUN}">',
    f"<svg/onload={RUN}>",
    "&lt;b&gt;",
    "<!--",
    "-->",
    "$x^2$",
    f'"onmouseover="{RUN}"',
    f"'];{RUN};//",
    f"\u2028{RUN}",
    f"\\u003cimg src=x onerror={RUN}\\u003e\n",
]
N = len(HOSTILE)
WEIGHTS = np.tril(np.random.default_rng(0).random((2, N, N)))


def coloured_tokens(tokens: Sequence[str] = HOSTILE) -> View:
    """A component of circuitsvis that writes all tokens into the page as HTML."""
    props = {
        "tokens": [safe_token(token) for token in tokens],
        "values": [0.5] * len(tokens),
        "minValue": -1,
        "maxValue": 1,
    }
    return View("ColoredTokens", props)


KINDS: dict[str, Callable[[], View]] = {
    "AttentionHeads": lambda: attention_heads(WEIGHTS, HOSTILE, HOSTILE[:2], title=HOSTILE[1]),
    "ColoredTokens": coloured_tokens,
}


def dom_of(file: Path) -> str:
    """The page as headless Chromium has it once its scripts have run."""
    browser = browser_path()
    if browser is None:
        pytest.skip("needs Chromium or Chrome")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={file.parent / 'browser'}",
         "--virtual-time-budget=6000", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def shown(dom: str) -> str:
    """What the page's elements say, without its scripts."""
    body = dom[dom.index("<body>") :]
    for script in re.findall(r"<script.*?</script>", body, re.DOTALL):
        body = body.replace(script, "")
    return html.unescape(body)


def test_every_hostile_token_is_shown_as_itself(tmp_path: Path) -> None:
    """By the component that puts all of them into the page, where others draw on a canvas."""
    file = save_page(tmp_path / "view.html", [KINDS["ColoredTokens"]()], title="tokens")
    dom = dom_of(file)
    assert title_of(dom) == "tokens"
    text = shown(dom).replace("\xa0", " ")  # circuitsvis keeps spaces from breaking
    assert [token for token in HOSTILE if safe_token(token) not in text] == []


def title_of(dom: str) -> str:
    return dom.partition("<title>")[2].partition("</title>")[0]


def test_every_kind_of_view_shows_hostile_tokens_and_runs_nothing(tmp_path: Path) -> None:
    views = [make() for make in KINDS.values()]
    assert [view.component for view in views] == [*KINDS]
    file = save_page(tmp_path / "views.html", views, title="What is shown", notes=[HOSTILE[2]])
    dom = dom_of(file)
    assert title_of(dom) == "What is shown"
    body = dom[dom.index("<body>") :]
    assert "<canvas" in body, "the attention must be drawn"
    assert f"&lt;{JOINER}s&gt;" in body and "<img" not in body.replace("&lt;img", "")
    assert f"&amp;{JOINER}lt;b" in body  # an entity is shown, not read
    assert "Run this notebook" not in body


def theirs(kind: str, token: str) -> str:
    """A page with the HTML that circuitsvis itself makes."""
    from circuitsvis import attention, tokens

    weights = np.tril(np.ones((2, 2, 2)) / 2)
    made = {
        "AttentionHeads": lambda: attention.attention_heads(weights, [token, "b"]),
        "ColoredTokens": lambda: tokens.colored_tokens([token, "b"], [0.5, 0.1]),
    }[kind]()
    return f"<!doctype html><title>safe</title>{made.local_src}"


@pytest.mark.parametrize(
    ("kind", "which"),
    [("AttentionHeads", 1), ("ColoredTokens", 2)],
)
def test_circuitsvis_own_page_would_run_them(tmp_path: Path, kind: str, which: int) -> None:
    """What the safety is for: some draw tokens as HTML, and all put them into a script."""
    file = tmp_path / "theirs.html"
    file.write_text(theirs(kind, HOSTILE[which]), encoding="utf-8")
    assert title_of(dom_of(file)) == "PWNED"


def test_a_page_carries_the_bundle_once_and_fetches_nothing() -> None:
    one = page([KINDS["ColoredTokens"]()], title="x")
    three = page([KINDS["ColoredTokens"]()] * 3, title="x")
    assert three.count('id="circuitsvis"') == 1 and len(three) < len(one) + 10_000
    assert "default-src 'none'" in three
    head = three.partition('id="circuitsvis"')[0]
    assert "http" not in head.replace("http-equiv", "")


def test_a_notebook_gets_the_bundle_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_FirstView, "first", "")
    first, second = (KINDS[kind]()._repr_html_() for kind in ("AttentionHeads", "ColoredTokens"))
    again = KINDS["AttentionHeads"]()._repr_html_()  # its cell run once more
    assert len(again) > 300_000, "the new output takes the place of the one with the bundle"
    assert 300_000 < len(first) < 600_000 and len(second) < 20_000
    assert "Run this notebook from the top" in second


def test_a_notebooks_cells_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_FirstView, "first", "")
    cells = "".join(KINDS[kind]()._repr_html_() for kind in ("ColoredTokens", "ColoredTokens"))
    file = tmp_path / "cells.html"
    file.write_text(f"<!doctype html><title>cells</title><body>{cells}", encoding="utf-8")
    dom = dom_of(file)
    assert title_of(dom) == "cells" and dom.count(f"&lt;{JOINER}s&gt;") >= 2


def test_tokens_and_data_are_made_harmless() -> None:
    assert safe_token("<s>") == f"<{JOINER}s>" and safe_token("a\n\tb") == "a↵⇥b"
    assert "</script" not in script_json(HOSTILE) and "\u2028" not in script_json(HOSTILE)
    with pytest.raises(ValueError):
        script_json(float("nan"))


def test_what_cannot_be_shown_is_refused() -> None:
    many = np.zeros((65, 2, 2))
    with pytest.raises(ValueError, match=r"at most 64 heads in a view, found 65.*al.explore"):
        attention_heads(many, ["a", "b"], ["1.1"] * 65)
    with pytest.raises(ValueError, match="patterns over 3 tokens, found"):
        attention_heads(np.zeros((1, 2, 2)), ["a", "b", "c"], ["1.1"])
    with pytest.raises(ValueError, match="name for each head"):
        attention_heads(np.zeros((2, 2, 2)), ["a", "b"], ["1.1"])
    with pytest.raises(ValueError, match="finite numbers"):
        attention_heads(np.full((1, 1, 1), np.nan), ["a"], ["1.1"])
    with pytest.raises(ValueError, match="a view at least"):
        page([], title="x")


def test_a_prompt_of_ones_own_is_seen(llama: al.HookedModel, tmp_path: Path) -> None:
    view = al.attention_view(llama, "12 + 5 = ", [al.Head(0, 1), al.Head(2, 3)])
    assert view.props["attentionHeadNames"] == ["0.1", "2.3"] and view.title == "12 + 5 = "
    file = view.save(tmp_path / "mine" / "view.html")
    assert title_of(dom_of(file)) == "12 + 5 = "
