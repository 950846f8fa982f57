"""The explorer in a browser without a network: as a page from a file, and in JupyterLab."""

import json
import os
import re
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import pytest
from pandas import DataFrame, concat
from support.children import Script

import arith_lens as al
from arith_lens.exploration import explored
from arith_lens.explorer_page import Explorer, packed
from arith_lens.model import HookedModel
from arith_lens.plotting import browser_path

pytestmark = pytest.mark.filterwarnings(
    "ignore:expected logits of the answer of at least"
)  # a random model's logits
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost"
HOSTILE = "</script><img src=x onerror=document.title='PWNED'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium of this machine."""
    executable = browser_path()
    if executable is None:
        pytest.skip("needs Chromium or Chrome")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with sync_api.sync_playwright() as play:
        options = {"executable_path": executable, "args": ["--no-sandbox", OFFLINE]}
        chromium = play.chromium.launch(**options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def sets(llama: HookedModel) -> dict[str, Any]:
    """Two sets of a small model, with a hostile token."""
    pairs = al.sample_pairs(llama, "addition", n=18, keep="all", templates=["addition/1"])
    pairs = pairs.filter(al.path_patch(llama, pairs, progress=False).logit > 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("arith_lens.exploration.cost.N_STRONGEST", 3)
        one = explored(llama, pairs, setup="import arith_lens as al", progress=False)
    tables: dict[str, DataFrame] = dict(one.tables)
    tables["tokens"] = tables["tokens"].assign(token=HOSTILE)
    tables["prompts"] = tables["prompts"].assign(reference=HOSTILE)
    edges = tables["edges"].assign(certain=True)  # a random model's are not
    tables["edges"] = edges
    others = {**tables, "edges": edges.iloc[::2].reset_index(drop=True)}
    return {"addition": (one.facts, tables), "other": (one.facts, others)}


@pytest.fixture(scope="module")
def file(sets: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their page."""
    view = Explorer(sets, title="Explorer")
    return view.save(tmp_path_factory.mktemp("page") / "explorer.html")


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    """The page, open; at the end it has asked for nothing and complained about nothing."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme="dark")
    tab = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url.partition("#")[0]))
    tab.goto(file.as_uri())
    tab.wait_for_selector(".ale-grid button")
    yield tab
    assert "[object" not in tab.inner_text("body"), "a list of elements was written as text"
    assert complaints == [] and {*requests} == {file.as_uri()}
    context.close()


def address(page: Any) -> dict[str, str]:
    """What the address of the page keeps."""
    return dict(parse_qsl(page.evaluate("location.hash")[1:]))


def test_a_click_chooses_a_head_and_all_pictures_follow(page: Any) -> None:
    page.click('[data-key="cell 1.2"]')
    assert page.text_content(".ale-detail h2") == "Head 1.2"
    rows = page.locator(".ale-row h3").all_text_contents()
    assert rows == ["Effect", "Looks at", "Writes", "Fed by", "Passes on"]
    fed = page.text_content(".ale-row:has-text('Fed by')")
    assert "the interval of this rest holds 0" in fed and "not explained by" not in fed
    passed = page.text_content(".ale-row:has-text('Passes on') p")
    assert passed.startswith("most ") and "%" not in passed, "one number for a path: its edge"
    dots = page.locator(".ale-strip circle:not(.ale-mean)").count()
    assert dots == int(page.get_attribute(".ale-strip svg", "aria-label").split()[0]), "one each"
    page.click('[data-key="drawer"]')
    cards = page.eval_on_selector_all(".ale-card h3", "all => all.map(one => one.textContent)")
    assert cards[:5] == [
        "Where END looks", "On one prompt", "What it writes", "Paths in", "Paths out"
    ]  # fmt: skip
    assert page.locator(".ale-card .ale-bars").count() >= 8
    page.click('[data-key="cell MLP 1"]')
    assert page.locator(".ale-row h3").all_text_contents() == [
        "Effect", "Reads", "Writes", "Neurons"
    ]  # fmt: skip
    cards = page.eval_on_selector_all(".ale-card h3", "all => all.map(one => one.textContent)")
    assert cards[:3] == ["What it reads", "What it writes", "Its strongest neurons"], "still open"
    assert page.title() == "Explorer, addition" and page.locator("img").count() == 0
    page.select_option('[data-key="paths"]', "direct")
    assert page.input_value('[data-key="paths"]') == "direct"
    page.select_option('[data-key="paths"]', "via_mlps")
    first = page.text_content(".ale-short dd")
    page.select_option('[data-key="metric"]', "digit_contrast")
    assert page.text_content(".ale-short dd") == first, "the circuit's unit, whatever the map's is"
    assert "on C's lead over other digits" in page.text_content(".ale-row")
    assert "[object" not in page.text_content(".ale")


def test_the_graph_shows_measured_edges_and_a_slider_chooses_them(page: Any) -> None:
    nodes, edges = page.locator(".ale-node[data-key]"), page.locator(".ale-edge")
    first = edges.count()
    assert nodes.count() and first and "were measured" in page.text_content(".ale-reading")
    assert "Edges that change C's logit by " in page.text_content(".ale-graph-controls")
    for part in page.locator('.ale-node:not([data-key$="@END"])').all():
        role = part.get_attribute("data-key").partition("@")[2].removeprefix("operand ").upper()
        where = part.locator("text").last.text_content().removeprefix("at ").upper()
        assert where and (role.startswith(where.rstrip("…")) or where == "…"), "names its token"
    described = edges.first.locator("title").text_content()
    assert re.match(r".+ → .+: [+−]?\d.*%\)$", described), "an effect with its interval"
    page.evaluate(
        """() => { const slider = document.querySelector('[data-key="least"]');
        slider.value = slider.max; slider.dispatchEvent(new Event('change')); }"""
    )
    assert edges.count() == 1 <= first and "least" in address(page)
    words = page.locator(".ale-circuit details li li").all_text_contents()
    assert words == [edges.first.locator("title").text_content()], "the same in words"
    page.evaluate(
        """() => { const slider = document.querySelector('[data-key="least"]');
        slider.value = 0; slider.dispatchEvent(new Event('change')); }"""
    )
    places = nodes.evaluate_all(
        """all => all.map(one => [one, one.firstChild.getBBox()]).map(([one, box]) =>
        [+one.dataset.x, +one.dataset.y, box.width, box.height])"""
    )
    assert edges.count() > first and not [
        (one, other) for one, other in combinations(places, 2)
        if all(abs(one[i] - other[i]) < (one[i + 2] + other[i + 2]) / 2 for i in (0, 1))
    ], "no box covers another"  # fmt: skip


def test_clicks_unfold_pin_and_knock_out_and_the_address_keeps_it(page: Any) -> None:
    node = page.locator('.ale-node[data-key$="@END"]').first
    name = node.get_attribute("data-name")
    before = page.locator(".ale-edge").count()
    drawn = page.locator(".ale-edge").evaluate_all("all => all.map(one => one.dataset.edge)")
    node.click()
    added = page.locator(".ale-edge").evaluate_all(
        """(all, drawn) => all.filter(one => !drawn.includes(one.dataset.edge))
        .map(one => one.textContent)""",
        drawn,
    )
    assert not [text for text in added if re.search(r": [+−]?0\.0%", text)], "none that rounds to 0"
    assert re.search(rf"\b{name}\b", page.text_content(".ale-circuit .ale-line"), re.IGNORECASE)
    near = page.evaluate(
        """name => [...document.querySelectorAll('.ale-edge')].filter(edge =>
        edge.dataset.edge.split('|').some(part => part === name)).length""",
        name,
    )
    assert address(page)["unfold"] == name and page.locator(".ale-edge").count() >= before
    assert near >= 1, "its neighbours"
    page.wait_for_timeout(500)  # else two clicks knock out
    page.locator(f'[data-key="node {name}@END"]').first.click(modifiers=["Shift"])
    assert page.locator(".ale-pinned").count() and address(page)["pin"] == name
    page.locator(f'[data-key="node {name}@END"]').first.dblclick()
    assert address(page)["out"] == name
    line = page.text_content(".ale-out")
    assert re.search(
        r"\) right; as many random \w+: \d+% (\(.+ in|in all) 10 draws.*; whole model: \d+%", line
    )
    page.click('[data-key="step 1"]')
    kept = address(page)
    assert kept["prompt"] == "0"
    page.reload()
    page.wait_for_selector(".ale-grid button")
    assert address(page) == kept, "a link opens the same picture"
    assert page.locator(".ale-held").count() and page.locator(".ale-pinned").count()


def test_arrow_keys_step_through_prompts_and_a_ring_marks_the_prompt(page: Any) -> None:
    means = page.text_content(".ale-graph .ale-value")
    head = page.text_content("header p")
    assert head.startswith("Effects on logit of C, relative, of one part at END, mean over ")
    assert "Other pages have other numbers: " in head and ".Example: after" in head, (
        "no lead: no interval excludes 0"
    )
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert re.match("C depends most on .*After “", page.text_content("header p")), "it is first"
    assert page.input_value('[data-key="prompt"]') == "1"
    assert page.text_content(".ale-answer").startswith("C = ")
    ring, card = page.locator(".ale-chosen-dot"), page.text_content(".ale-row p b")
    assert ring.count() == 1 and ring.text_content() == f"This prompt: {card}"
    assert page.text_content(".ale-out").startswith("Nothing is knocked out: Here ")
    assert page.text_content(".ale-peek") == card, "on a phone"
    assert "(" not in page.locator(".ale-edge title").first.text_content(), (
        "one prompt: no interval"
    )
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.input_value('[data-key="prompt"]') == ""
    assert page.text_content(".ale-graph .ale-value") == means


def test_a_knockout_greys_the_edges_of_its_parts_alone_and_the_key_has_what_is_drawn(
    page: Any,
) -> None:
    """Else the circuit without a head is the palest thing of its picture."""
    key = page.locator(".ale-legend")
    above = page.locator("svg.ale-graph").bounding_box()["y"]
    assert key.bounding_box()["y"] < above and "knocked out" not in key.text_content()
    assert ("hinders" in key.text_content()) == bool(page.locator(".ale-edge-hinders").count())
    node = page.locator('.ale-node[data-key$="@END"]').first
    name = node.get_attribute("data-name")
    node.dblclick()
    edges = page.locator(".ale-edge").evaluate_all(
        """all => all.map(one => [one.dataset.edge.split('|'),
        one.classList.contains('ale-edge-dead'), +one.getAttribute('stroke-opacity')])"""
    )
    assert {dead for _, dead, _ in edges} == {True, False}
    for parts, dead, opacity in edges:
        assert dead == (name in parts) and (opacity < 0.5 if dead else opacity > 0.8), parts
    assert "--share: 0%" in page.locator(".ale-held").first.get_attribute("style")
    assert "knocked out, with grey edges" in key.text_content()
    assert not page.locator(".ale-look").count(), "it looks at nothing now"


def test_heads_and_mlps_have_a_scale_each_and_a_map_alone_ranks_them(
    browser: Any, sets: dict[str, Any], tmp_path: Path
) -> None:
    facts, tables = sets["addition"]
    few = {name: tables[name] for name in ("effects", "units")}
    view = Explorer({"sums": ({"n_pairs": facts["n_pairs"]}, few)}, title="Map")
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(view.save(tmp_path / "map.html", maps_only=True).as_uri())
    cells = tab.locator(".ale-grid button")
    strength = cells.evaluate_all(
        """all => all.map(one => [one.dataset.name,
        parseFloat(one.style.getPropertyValue('--share'))])"""
    )
    for is_mlp in (True, False):
        assert max(x for name, x in strength if name.startswith("MLP") == is_mlp) == 100
    effects = tables["effects"].query("paths == 'via_mlps' and metric == 'relative_logit'")
    sizes = effects.set_index("component")["mean"].abs().sort_values(ascending=False)
    ranked = tab.locator(".ale-bars th").all_text_contents()
    heads = [name for name in ranked if "MLP" not in name]
    assert heads == [name for name in sizes.index if "MLP" not in name][: len(heads)] != []
    tab.click(f".ale-bars button:text-is('{heads[-1]}')")
    assert tab.text_content(".ale-detail h2") == f"Head {heads[-1]}"


def test_two_sets_are_compared_with_the_same_places_and_common_edges_are_pale(page: Any) -> None:
    page.select_option('[data-key="compare"]', "other")
    assert page.locator("svg.ale-graph").count() == 2
    places = [
        dict(picture.locator(".ale-node").evaluate_all(
            "all => all.map(one => [one.dataset.key, one.getAttribute('transform')])"
        ))
        for picture in page.locator("svg.ale-graph").all()
    ]  # fmt: skip
    common = places[0].keys() & places[1].keys()
    assert common and all(places[0][key] == places[1][key] for key in common)
    shades = [
        dict(picture.locator(".ale-edge").evaluate_all(
            "all => all.map(one => [one.dataset.edge, one.getAttribute('stroke-opacity')])"
        ))
        for picture in page.locator("svg.ale-graph").all()
    ]  # fmt: skip
    for ours, others in (shades, reversed(shades)):
        assert all((shade == "0.18") == (edge in others) for edge, shade in ours.items())
    assert {*shades[0]} - {*shades[1]}, "an edge of one only"
    assert address(page)["compare"] == "other" and page.title() == "Explorer, addition beside other"
    titles = page.locator(".ale-short h2").all_text_contents()
    assert [title.split(",")[0] for title in titles] == ["Addition", "Other"]
    examples = page.locator("header p div").all_text_contents()
    assert [text.split(":")[0] for text in examples] == ["Addition", "Other"]
    assert page.text_content(".ale-short").count("An effect changes one part") == 1
    above = page.locator(".ale-circuit p:has-text('Pale: an edge of both')").bounding_box()
    assert above["y"] < page.locator("svg.ale-graph").first.bounding_box()["y"]
    page.click('[data-key="cell 1.2"]')
    rows = page.locator(".ale-row h3").all_text_contents()
    assert rows[:4] == ["Effect addition", "Effect other", "Looks at addition", "Looks at other"]
    page.click('[data-key="hold"]')
    assert page.locator(".ale-node.ale-held[data-name='1.2']").count() >= 2, "in both pictures"
    assert re.search(r"addition: \d+%.*other: \d+%", page.text_content(".ale-out"))
    maps = page.locator(".ale-maps h3").all_text_contents()
    assert [title.split("of ")[-1] for title in maps] == ["“addition”", "“other”"]
    assert page.locator(".ale-map .ale-grid").count() == page.locator(".ale-next").count() == 2
    assert page.locator(".ale-stream .ale-grid").count() == 2
    struck = page.locator(".ale-grid .ale-held").evaluate_all("all => all.map(x => x.dataset.name)")
    assert struck == ["1.2", "1.2"], "in both maps"


LIVE = """async ([text, table]) => {
  const messages = [], element = document.createElement("div");
  document.body.append(element);
  const backend = { cancel() {}, send: async message => {
    messages.push([message.kind, message.set, message.component ?? message.members.join()]);
    const tables = message.component ? {} : { sets: table };
    return { code: {}, sets: [{ name: message.set, facts: {}, tables }] };
  } };
  const explorer = await ArithLensExplorer.mount(element, text, {}, backend);
  await new Promise(done => setTimeout(done, 100));
  explorer.replace(["1.2"]);
  await new Promise(done => setTimeout(done, 300));
  const line = element.querySelector(".ale-out").textContent;
  element.remove();
  return { messages, line };
}"""


def test_in_a_notebook_both_sides_are_computed_one_after_the_other(
    page: Any, sets: dict[str, Any]
) -> None:
    """Each request is sent once, also if the answer has nothing of it."""
    few = {
        name: (
            {**facts, "beside": "other"} if name == "addition" else facts,
            {table: tables[table] for table in ("effects", "edges", "prompts", "tokens")},
        )
        for name, (facts, tables) in sets.items()
    }
    answer = {"kind": ["knock_out"], "members": ["1.2"], "accuracy": [0.5], "ci_low": [None],
              "ci_high": [None], "probability": [0.5], "n_pairs": [18]}  # fmt: skip
    seen = page.evaluate(LIVE, [packed(few), answer])
    component = seen["messages"][0][2]
    assert seen["messages"] == [
        ["component", "addition", component],
        ["component", "other", component],
        ["selection", "addition", "1.2"],
        ["selection", "other", "1.2"],
    ]
    assert all(f"{name}: 50% right" in seen["line"] for name in sets)


SHORT = """async text => {
  const element = document.createElement("div");
  document.body.append(element);
  await ArithLensExplorer.mount(element, text);
  const short = [...element.querySelectorAll(".ale-short dl > div")].map(
    one => [...one.children].map(child => child.textContent));
  element.remove();
  return Object.fromEntries(short);
}"""


def test_mlps_that_write_c_are_out_beside_random_mlps_and_the_page_says_if_they_do_no_harm(
    page: Any, sets: dict[str, Any]
) -> None:
    facts, tables = sets["addition"]
    numbers = tables["numbers"].copy()
    of = numbers["component"].isin(["MLP 1", "MLP 2"]) & (numbers["read"] == "write")
    for token, value in (("C", 9.0), ("others without A, B, C", 1.0)):
        numbers.loc[of & (numbers["token"] == token), ["mean", "ci_low", "ci_high"]] = value
    numbers = numbers[of | numbers["component"].str.contains(".", regex=False)]
    row = tables["sets"]["members"].eq("MLP 1,MLP 2") & tables["sets"]["kind"].eq("knock_out")
    drawn = tables["controls"].query("kind == 'knock_out' and n_heads == 0 and n_mlps == 2")
    assert row.sum() == 1 and len(drawn) == 10
    controls = tables["controls"].copy()
    controls.loc[drawn.index, "accuracy"] = [0.5, 0.7] * 5
    random = ", so not below random"
    cases = (0.4, 36, "40% ", ""), (0.5, 36, "50% ", random), (1, 1, "right; ", random)
    for accuracy, n, start, alike in cases:
        measured = tables["sets"].copy()
        measured.loc[row, ["accuracy", "n_pairs"]] = accuracy, n
        changed = {**tables, "numbers": numbers, "sets": measured, "controls": controls}
        short = page.evaluate(SHORT, packed({"addition": (facts, changed)}))
        text = short["Without MLP 1 and MLP 2"]
        assert text.startswith(start)
        assert f"right; as many random MLPs: 60% (50% to 70% in 10 draws){alike} Knock" in text
    assert "random sets are drawn from all 12 heads and 3 MLPs" in page.text_content(".ale-short")


def test_two_sets_are_compared_without_the_heads_that_both_have(
    page: Any, sets: dict[str, Any]
) -> None:
    facts, tables = sets["addition"]
    heads = sorted(facts["strongest"])
    both = {"addition": ["operand"] * 3, "other": ["operand", "operand", "operator"]}
    parts = {
        name: ({**facts, "beside": "other"} if name == "addition" else facts,
               {**tables, "kinds": DataFrame({"component": heads, "kind": kinds})})
        for name, kinds in both.items()
    }  # fmt: skip
    titles = page.evaluate(
        SHORT.replace("Object.fromEntries(short)", "short.map(one => one[0])"), packed(parts)
    )
    operand = [title for title in titles if title.startswith(f"Without head {heads[0]}")]
    assert operand == [f"Without head {heads[0]} and head {heads[1]}"] * 2


def test_the_page_says_where_a_and_b_are_not_told_apart(page: Any, sets: dict[str, Any]) -> None:
    facts, tables = sets["addition"]
    name = facts["strongest"][0]
    kinds = DataFrame({"component": [name], "kind": ["operand"]})
    prompts = tables["prompts"].assign(reference="1 plus 2")
    attention = tables["attention"]
    for counterfactual, share, both, together in (
        ("3 plus 4", 0.4, True, True),
        ("1 void 2", 0.4, True, False),
        ("3 plus 4", 0.01, False, False),
    ):
        looks = attention.copy()
        looks.loc[looks["role"] == "operand a", "mean"] = 0.5
        looks.loc[looks["role"] == "operand b", "mean"] = share
        changed = {**tables, "kinds": kinds, "attention": looks,
                   "prompts": prompts.assign(counterfactual=counterfactual)}  # fmt: skip
        short = page.evaluate(SHORT, packed({"addition": (facts, changed)}))
        title = f"Looks at {'both ' * both}A and B (share of attention)"
        text = short[title]
        assert ("only edges tell them apart" in text) == together


def test_an_example_is_folded_away_and_only_a_clear_lead_is_framed(
    page: Any, sets: dict[str, Any]
) -> None:
    facts, tables = sets["addition"]
    one = {"component": "1.2", "read": "write"}
    rows = [("A", 1.0), ("B", 1.1), ("C", 3.0), ("others without A, B, C", 0.0)]
    prompts = tables["prompts"].assign(problem="1 + 2", answer="3", reference="1 plus 2")
    for width, largest, framed, typical in ((0.5, 3, 1, True), (5.0, 7, 0, False)):
        numbers = DataFrame(
            [{**one, "token": token, "mean": mean, "ci_low": mean - width, "ci_high": mean + width}
             for token, mean in rows]
        )  # fmt: skip
        digits = DataFrame(
            [{**one, "prompt": prompt, "digit": digit, "logit": float(digit == largest)}
             for prompt in prompts["prompt"] for digit in range(10)]
        )  # fmt: skip
        changed = {**tables, "numbers": numbers, "digits": digits, "prompts": prompts}
        page.evaluate(
            """text => { document.body.replaceChildren(document.createElement("div"));
            return ArithLensExplorer.mount(document.body.firstChild, text); }""",
            packed({"addition": (facts, changed)}),
        )
        page.click('[data-key="cell 1.2"]')
        row = page.locator(".ale-row:has(h3:text('Writes'))")
        assert row.locator(".ale-best").count() == framed
        assert not row.locator("details").get_attribute("open")
        summary = row.locator("summary").text_content()
        assert summary.endswith("”" if typical else " (not typical)")


def test_a_head_s_card_opens_circuitsvis_which_lies_beside_the_page(
    browser: Any, file: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "explorer.html"
    alone.write_bytes(file.read_bytes())
    for path in (file, alone):
        tab = browser.new_page()
        tab.goto(path.as_uri())
        tab.click('[data-key="patterns"]')
        if path == alone:
            message = "circuitsvis.js, which lies beside this page, is missing: copy both."
            tab.wait_for_selector(f"#ale-patterns:has-text('{message}')")
            break
        tab.wait_for_selector("#ale-patterns canvas")
        tab.set_viewport_size({"width": 1280, "height": 900})
        tab.wait_for_timeout(300)
        picture = tab.locator("#ale-patterns canvas").last.bounding_box()
        assert picture["y"] + picture["height"] < 890, "END's row and the columns' names are seen"
        chosen = tab.text_content(".ale-detail h2").removeprefix("Head ")
        assert f"{chosen} Zoomed" in tab.text_content("#ale-patterns")
        assert tab.locator("dialog img").count() == 0 and tab.title() != "PWNED"
        tab.keyboard.press("Escape")
        tab.wait_for_selector("dialog", state="detached")
        tab.evaluate("CircuitsVis = { render: (id, component, props) => { window.props = props } }")
        tab.click('[data-key="patterns"]')
        tab.wait_for_function("window.props")
        props = tab.evaluate("window.props")
        assert props["attentionHeadNames"][0] == chosen
        labels = props["tokens"]
        assert (
            labels[-1].startswith("END ") and sum(one[:4] in ("A = ", "B = ") for one in labels) > 1
        )
        for query, row in enumerate(props["attention"][0]):
            assert sum(row) == pytest.approx(1, abs=2e-3) and not any(row[query + 1 :])


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_of_effects_alone_is_the_map_and_a_card(
    browser: Any, sets: dict[str, Any], tmp_path: Path, width: int
) -> None:
    facts, tables = sets["addition"]
    few = {name: tables[name] for name in ("effects", "units")}
    view = Explorer({"sums": ({"n_pairs": facts["n_pairs"]}, few)}, title="Map: small, sums")
    tab = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list[str] = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(view.save(tmp_path / "map.html", maps_only=True).as_uri())
    tab.wait_for_selector(".ale-grid button")
    assert tab.is_visible(".ale-grid") and tab.title() == "Map: small, sums"
    grid, card = (tab.locator(one).bounding_box() for one in (".ale-grid", ".ale-detail"))
    assert grid["x"] < 100, "nothing is left of it"
    beside = card["x"] > grid["x"] + grid["width"]
    assert beside if width > 820 else card["y"] > grid["y"] + grid["height"] - 1
    assert tab.text_content(".ale-line").startswith("Point at" if width > 600 else "Tap a cell")
    assert "arith-lens explore" in tab.text_content(".ale-detail")
    ends = tab.text_content(".ale-strip figcaption").partition("From ")[2]
    assert "(" in ends and not re.search(r"\([^)]* [^)]*\)", ends), "a sum stays in one line"
    for text in (
        "saved with",
        "No edges",
        "Knocked out",
        "knocks out",
        "Measure the stream",
        "In short",
        "operand head",
    ):
        assert text not in tab.text_content(".ale"), text
    for control in ("set", "pin", "hold", "stream"):
        assert not tab.locator(f'[data-key="{control}"]').count(), control
    keys = tab.eval_on_selector_all("[data-key]", "all => all.map(one => one.dataset.key)")
    for key in filter(lambda key: not key.startswith("csv "), keys):
        tab.evaluate(CLICK, key)
    tab.keyboard.press("b")
    assert complaints == [] and not tab.locator(".ale-held").count()
    assert [*tmp_path.iterdir()] == [tmp_path / "map.html"]


def test_the_ends_of_a_strip_are_its_extremes_or_zero_as_its_text_says(page: Any) -> None:
    keys = page.eval_on_selector_all(".ale-grid button", "all => all.map(x => x.dataset.key)")
    assert len(keys) > 6
    for key in keys:
        page.evaluate(CLICK, key)
        label = page.get_attribute(".ale-strip svg", "aria-label")
        least, most = re.findall(r"([+−]?[\d.]+%) \(", label)
        ends = page.locator(".ale-strip text").all_text_contents()
        assert ends[0] == (least if least.startswith("−") else "0.0%"), label
        assert ends[1] == (most if most.startswith("+") else "0.0%"), label


def test_every_head_of_a_phone_s_picture_stands_on_a_line_of_its_layer(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    for name in page.eval_on_selector_all(
        ".ale-grid button", "all => all.map(x => x.dataset.name)"
    ):
        page.evaluate(CLICK, f"cell {name}")
        page.evaluate(CLICK, "pin")
    lines = page.eval_on_selector_all(
        "svg.ale-graph .ale-layer + .ale-layer-name",
        "all => all.map(x => [x.textContent, +x.previousSibling.getAttribute('y1')])",
    )
    nodes = page.eval_on_selector_all(
        ".ale-node", "all => all.map(x => [x.dataset.name, +x.dataset.y])"
    )
    assert len(nodes) > 4 and len(lines) > len({layer for layer, _ in lines}), "rows are needed"
    for name, y in nodes:
        layer = name.removeprefix("MLP ").partition(".")[0]
        assert any(own == layer and abs(at - y) < 0.1 for own, at in lines), name
    cursor = page.eval_on_selector(".ale-token", "one => getComputedStyle(one).cursor")
    assert cursor != "pointer", "a token is no button"
    page.eval_on_selector(".ale-token-operand", "one => one.dispatchEvent(new Event('click'))")
    assert page.text_content(".ale-line").startswith("END looks at A "), "it says who looks at it"


def test_a_page_without_knockouts_offers_none(page: Any, sets: dict[str, Any]) -> None:
    facts, tables = sets["addition"]
    keys = SHORT.replace(".ale-short dl > div", ".ale-detail .ale-chips").replace(
        "child.textContent", "child.dataset.key"
    )
    few = {name: table for name, table in tables.items() if name != "sets"}
    assert page.evaluate(keys, packed({"addition": (facts, tables)})) == {"hold": "pin"}
    assert page.evaluate(keys, packed({"addition": (facts, few)})) == {"pin": None}


def test_a_row_that_was_computed_twice_is_counted_once(page: Any, sets: dict[str, Any]) -> None:
    facts, tables = sets["addition"]
    others = {key: table for key, table in tables.items() if key != "attention"}
    twice = concat([tables["patterns"]] * 2, ignore_index=True)
    seen = page.evaluate(
        SHORT.replace(".ale-short dl > div", ".ale-row"),
        packed({"addition": ({**facts, "n_pairs": 1}, {**others, "patterns": twice})}),
    )
    shares = [int(share) for share in re.findall(r" (\d+)%", seen["Looks at"])]
    assert shares and 98 <= sum(shares) <= 102


def test_readers_are_in_the_order_of_their_effects_and_a_reason_stands_for_none(
    page: Any, sets: dict[str, Any]
) -> None:
    facts, tables = sets["addition"]
    heads = tables["effects"].query("paths == 'via_mlps' and metric == 'relative_logit'")
    first = heads[heads["head"] >= 0].sort_values("mean")["component"].tolist()[:3]
    kinds = DataFrame({"component": sorted(first), "kind": "operand"})
    prompts = tables["prompts"].assign(reference="1 plus 2")
    facts = {**facts, "strongest": sorted(first)}
    seen = {}
    for other in ("3 plus 4", "1 minus 2"):
        changed = {**tables, "kinds": kinds, "prompts": prompts.assign(counterfactual=other)}
        seen[other] = page.evaluate(SHORT, packed({"addition": (facts, changed)}))
    short = seen["3 plus 4"]
    looks = next(text for title, text in short.items() if title.endswith("(share of attention)"))
    assert re.findall(r"head (\d\.\d)", looks) == first
    reason = "not measurable here: both prompts have the same operator"
    assert short["Looks at the operator"] == reason
    assert "no head is shown to" in seen["1 minus 2"]["Looks at the operator"]


def test_parts_keep_their_places_and_a_knocked_out_part_is_crossed_out(page: Any) -> None:
    def places() -> dict[str, tuple[float, float]]:
        return dict(
            page.locator(".ale-node").evaluate_all(
                "all => all.map(one => [one.dataset.key, [+one.dataset.x, +one.dataset.y]])"
            )
        )

    before = places()
    page.locator('.ale-node[data-key$="@END"]').last.click()
    page.click('[data-key="step 1"]')
    after = places()
    both = [key for key in before if key in after]
    columns, rows = zip(*(zip(before[key], after[key], strict=True) for key in both), strict=True)
    assert len(both) > 3 and all(one == other for one, other in columns)
    order = [sorted(range(len(rows)), key=lambda i, side=side: rows[i][side]) for side in (0, 1)]
    assert order[0] == order[1], "a row that a new part needs moves others up, in their order"
    heading = page.text_content(".ale-short h2")
    assert heading.startswith("In short, on “"), "the numbers are those of one prompt"
    page.click('[data-key="cell 0.1"]')
    page.click('[data-key="hold"]')
    assert page.locator(".ale-node.ale-held[data-name='0.1'] .ale-strike").count()
    mark = "one => getComputedStyle(one, '::after').content"
    assert page.eval_on_selector('[data-key="cell 0.1"]', mark) == '"×"', "as in the circuit"
    page.select_option('[data-key="set"]', "other")
    assert page.text_content(".ale-out").startswith("Without head 0.1"), "the same knockout"


@pytest.mark.parametrize(("key", "inches"), [("svg", 6.9), ("svg column", 3.3)])
def test_the_picture_is_saved_for_print_with_readable_text(
    page: Any, tmp_path: Path, key: str, inches: float
) -> None:
    with page.expect_download() as waiting:
        page.click(f'[data-key="{key}"]')
    waiting.value.save_as(tmp_path / "circuit.svg")
    root = ElementTree.parse(tmp_path / "circuit.svg").getroot()
    assert root.get("width") == f"{inches}in" and float(root.get("height", "")[:-2]) <= 9
    points_per_unit = 72 * inches / float(root.get("viewBox", "").split()[2])
    sizes = re.findall(r"font-size: ([\d.]+)px", (tmp_path / "circuit.svg").read_text("utf-8"))
    assert sizes and min(map(float, sizes)) * points_per_unit >= 6
    colours = re.findall(
        r"(?:fill|stroke): ([a-z]+)\(", (tmp_path / "circuit.svg").read_text("utf-8")
    )
    assert colours and {*colours} <= {"rgb", "rgba"}, "other programs read no mixed colours"
    assert page.get_attribute(".ale", "data-theme") == "dark", "the page keeps its theme"


def test_the_graph_is_saved_as_neuronpedias_viewer_reads_it(page: Any, tmp_path: Path) -> None:
    with page.expect_download() as waiting:
        page.click('[data-key="neuronpedia"]')
    waiting.value.save_as(tmp_path / "circuit.json")
    graph = json.loads((tmp_path / "circuit.json").read_text("utf-8"))
    ids = {node["node_id"] for node in graph["nodes"]}
    ends = {link[end] for link in graph["links"] for end in ("source", "target")}
    drawn = page.locator(".ale-edge").count()
    assert ends == ids and len(ids) == len(graph["nodes"])
    assert len([link for link in graph["links"] if link["target"] != "C@END"]) == drawn
    table = DataFrame(
        [{"node": "1.2", "layer": 1, "mean": -0.1}, {"node": "MLP 1", "layer": 1, "mean": -0.2}]
    )
    edge = DataFrame([{"sender": "1.2", "receiver": "MLP 1", "input": "mlp", "mean": -0.1}])
    library = al.CircuitGraph(table, edge, 0.95, "relative_logit", 3, 4, 9).to_neuronpedia()
    assert graph.keys() == library.keys() and graph["metadata"].keys() == library["metadata"].keys()
    assert {*graph["nodes"][0]} == {*library["nodes"][0]}
    columns = len(graph["metadata"]["prompt_tokens"])
    assert all(0 <= node["ctx_idx"] < columns for node in graph["nodes"])
    places = [(node["layer"], node["feature"], node["ctx_idx"]) for node in graph["nodes"]]
    assert len({*places}) == len(places), "the viewer tells parts apart by these"
    assert re.search(r"\(p=[01]\.\d{3}\)", graph["nodes"][-1]["clerp"]), "the viewer needs it"


def test_keys_move_in_graph_and_map_choose_and_knock_out(page: Any) -> None:
    page.focus('.ale-node[tabindex="0"]')
    first = page.evaluate("document.activeElement.dataset.key")
    moved = set()
    for key in ("ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"):
        page.keyboard.press(key)
        moved.add(page.evaluate("document.activeElement.dataset.key"))
    assert len(moved | {first}) > 1 and all(name.startswith("node ") for name in moved)
    assert page.locator('.ale-node[tabindex="0"]').count() == 1, "Tab enters the graph once"
    page.keyboard.press("p")
    assert page.locator(".ale-pinned").count()
    page.focus('[data-key="cell 0.1"]')
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.key") == "cell 1.2", "layers go upwards"
    name = page.get_attribute('[data-key="cell 1.2"]', "aria-label")
    assert re.match(r"Head 1\.2: [+−\d]", name)
    page.keyboard.press("Enter")
    assert page.get_attribute('[data-key="cell 1.2"]', "aria-selected") == "true"
    page.keyboard.press("b")
    assert page.get_attribute('[data-key="chip 1.2"]', "aria-pressed") == "true"
    assert page.evaluate("document.activeElement.dataset.key") == "cell 1.2", "focus stays"


def test_the_words_are_explained_and_roles_are_knocked_out(page: Any) -> None:
    page.click(".ale-words summary")
    assert page.is_visible("dt:has-text('key head')") and page.is_visible("dt:has-text('A, B')")
    assert page.locator(".ale-short dt").first.text_content() == "The head it depends on most"
    assert page.locator('[data-result="accuracy"]').count() == 0, "nothing is knocked out yet"
    takes = page.locator('[data-key^="take "]')
    if takes.count():
        takes.first.click()
        role = takes.first.get_attribute("data-key").removeprefix("take ")
        chips = page.locator('.ale-chips [data-key^="chip "][aria-pressed="true"]')
        names = chips.all_text_contents()
        assert names and all(role in chip for chip in names)


def test_a_knockout_is_that_of_exactly_this_set_beside_its_control(page: Any) -> None:
    page.click('[data-key="all"]')
    assert re.match(r"\d+% \(", page.text_content('[data-result="accuracy"]'))
    control = page.text_content('[data-result="control"]')
    assert re.match(r"\d+% (\(\d+% to \d+% in|in all) 10 draws", control)
    page.click('[data-key="how"]')
    page.click('[data-key="code knocked out"]')
    code = page.text_content(".ale-basket pre")
    assert "al.knock_out(model, pairs, [" in code and code.startswith("import arith_lens as al")
    page.click('[data-key="keep_only"]')
    assert page.text_content(".ale-basket h2") == "Kept alone"
    assert page.text_content('[data-key="all"]').startswith("Keep only the ")
    assert re.search(r"; (no better than )?without any head: \d+%", page.text_content(".ale-out"))
    page.click('[data-key="none"]')
    assert re.match(r"Without any head: .+ \(the base\)", page.text_content(".ale-out"))
    page.click('[data-key="all"]')
    rows = page.locator(".ale-outcome tbody th").all_text_contents()
    assert rows[1] == "only as many at random" and rows[2].count("head ") == 3
    page.click('[data-key="knock_out"]')
    others = page.eval_on_selector_all(".ale-grid button", "all => all.map(one => one.dataset.key)")
    chips = page.eval_on_selector_all(
        '[data-key^="chip "]', "all => all.map(one => one.dataset.key)"
    )
    other = next(key for key in others if key.replace("cell", "chip") not in chips)
    page.click(f'[data-key="{other}"]')
    page.click('[data-key="hold"]')
    assert other.removeprefix("cell ") in page.text_content(".ale-basket [role=alert]")
    page.click('[data-key="put back"]')
    page.click('[data-key="hold"]')
    assert not page.locator(".ale-basket [role=alert]").count(), "each part alone is measured"


def test_chips_are_in_the_order_of_strength_and_lists_of_one_kind_have_one_scale(page: Any) -> None:
    chips = page.locator('[data-key^="chip "]').all_text_contents()
    percents = [value for chip in chips for value in re.findall(r"([+−]?[\d.]+)%", chip)]
    effects = [float(value.replace("−", "-")) for value in percents]
    assert len(chips) == 3 and effects == sorted(effects)
    page.click('[data-key="cell 2.1"]')
    page.click('[data-key="drawer"]')
    axes = page.eval_on_selector_all(
        ".ale-card:has(.ale-three) .ale-axis", "all => all.map(one => one.textContent)"
    )
    assert len(axes) == 4 and len({*axes}) == 1, "queries, keys, values and the rest"
    wordings = page.text_content('.ale-card:has(h3:text("Effect by wording"))')
    assert "A plus B equals to" in wordings and "addition/" not in wordings
    assert page.locator('button:text-is("Copy as Python")').count() == 5


def test_on_a_phone_a_tap_opens_the_card_as_a_sheet_and_the_map_is_behind_a_tab(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    assert not page.is_visible(".ale-short"), "the picture is first"
    assert page.is_visible("svg.ale-graph") and not page.is_visible(".ale-grid")
    assert page.locator('[data-key="step 1"]').bounding_box()["width"] >= 32
    assert not page.is_visible(".ale-card-body") and page.is_visible(".ale-detail h2")
    for tab, part in (("graph", '.ale-node[data-key$="@END"]'), ("short", ".ale-short .ale-link")):
        page.click(f'[data-key="tab {tab}"]')
        page.locator(part).first.click()
        box = page.locator(".ale-detail").bounding_box()
        assert page.is_visible(".ale-card-body") and 844 / 3 < box["y"] <= 844 * 0.6
        assert box["y"] + box["height"] <= 845, "the sheet is on the screen"
        assert page.locator(".ale-row").nth(2).bounding_box()["y"] < 844 - 40, "three rows of it"
        page.click('[data-key="sheet"]')
        assert not page.is_visible(".ale-card-body"), "it closes"
    page.locator(".ale-short .ale-link").first.click()
    page.click('[data-key="tab map"]')
    assert not page.is_visible(".ale-card-body"), "the sheet closes with its tab"
    page.click('[data-key="tab short"]')
    page.focus('[data-key="tab short"]')
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute('[data-key="tab map"]', "aria-selected") == "true"
    assert page.is_visible(".ale-grid") and not page.is_visible("svg.ale-graph")
    page.set_viewport_size({"width": 1200, "height": 700})
    page.evaluate("scrollTo(0, 600)")
    assert page.is_visible(".ale-grid")
    at = page.locator(".ale-detail h2").bounding_box()["y"]
    assert 0 <= at < page.locator(".ale-map .ale-grid").bounding_box()["y"], "it stays"


def test_a_click_adds_edges_that_are_not_drawn_yet(page: Any, sets: dict[str, Any]) -> None:
    edges = sets["addition"][1]["edges"]
    edges = edges.sort_values("mean", key=abs, ascending=False).reset_index(drop=True)
    least = abs(edges["mean"][len(edges) // 2])
    drawn = edges["mean"].abs() >= least
    visible = edges["mean"].abs() >= 0.0005  # others are rounded to 0.0%
    for part in dict.fromkeys(edges["receiver"]):
        of = (edges["receiver"] == part) | (edges["sender"] == part)
        if (of & drawn).sum() >= 8 and (more := (of & ~drawn & visible).sum()):
            break
    else:
        pytest.fail("no part has edges of both kinds")
    page.goto(page.url.partition("#")[0] + f"#set=addition&part={part}&least={least * 0.9999}")
    assert page.locator(".ale-edge").count() == drawn.sum()
    page.click(f'[data-key="cell {part}"]')
    assert page.locator(".ale-edge").count() == drawn.sum() + min(more, 8)


def test_graph_map_and_card_show_one_effect_and_every_part_that_the_summary_names(
    page: Any,
) -> None:
    for name in dict.fromkeys(page.locator(".ale-short .ale-link").all_text_contents()):
        name = name.removeprefix("head ")
        node = page.locator(f'.ale-node[data-key="node {name}@END"]')
        assert node.count() == 1, f"{name} is not in the graph"
        page.click(f'[data-key="cell {name}"]')
        card = page.text_content(".ale-row p b").partition(" (")[0]
        cell = page.get_attribute(f'[data-key="cell {name}"]', "aria-label")
        assert node.locator(".ale-value").text_content() == card
        assert cell.partition(": ")[2].startswith(card)
        looks = page.locator(".ale-look title").all_text_contents()
        assert all(text.startswith(f"Head {name} looks at") for text in looks)


OVERLAPS = """() => [...document.querySelectorAll('svg.ale-graph')].flatMap(picture => {
  const boxes = [...picture.querySelectorAll('.ale-node rect')].map(x => x.getBoundingClientRect());
  return boxes.flatMap((a, place) => boxes.slice(place + 1).filter(b =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2).map(b => [a.x, a.y, b.x, b.y]));
})"""


@pytest.mark.parametrize("width", [390, 828, 1280, 1600])
def test_no_click_makes_a_box_cover_another(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(300)
    assert page.evaluate(OVERLAPS) == []
    names = page.eval_on_selector_all(
        ".ale-map button[data-name]", "all => all.map(x => x.dataset.name)"
    )
    assert len(names) > 6
    for key in ("cell {}", "pin", "hold"):  # each chosen, then all pinned, then all knocked out
        for name in names:
            page.evaluate(CLICK, f"cell {name}")
            page.evaluate(CLICK, key.format(name))
            assert page.evaluate(OVERLAPS) == [], (width, key, name)
    assert page.locator(".ale-node.ale-held").count() >= len(names)
    page.select_option('[data-key="compare"]', "other")
    assert page.locator("svg.ale-graph").count() == 2 and page.evaluate(OVERLAPS) == []


CROSSINGS = """() => [...document.querySelectorAll('svg.ale-graph')].flatMap(picture => {
  const to = picture.getScreenCTM().inverse();
  const at = (x, y) => new DOMPoint(x, y).matrixTransform(to);
  const boxes = [...picture.querySelectorAll('.ale-node rect, .ale-token rect')].map(x => {
    const { left, right, top, bottom } = x.getBoundingClientRect();
    return [at(left, top), at(right, bottom)];
  });
  const within = ([low, high], { x, y }, by) =>
    x > low.x - by && x < high.x + by && y > low.y - by && y < high.y + by;
  return [...picture.querySelectorAll('.ale-edge, .ale-look')].flatMap(edge => {
    const long = edge.getTotalLength();
    const points = [...Array(101).keys()].map(step => edge.getPointAtLength(long * step / 100));
    const foreign = boxes.filter(box => !within(box, points[0], 1) && !within(box, points[100], 1));
    return foreign.filter(box => points.some(point => within(box, point, 0)))
      .map(() => edge.dataset.edge ?? 'look');
  });
})"""


BEGINNINGS = """() => [...document.querySelectorAll('svg.ale-graph')].flatMap(picture => {
  const to = picture.getScreenCTM();
  return [...picture.querySelectorAll('.ale-edge[data-edge^=embeddings]')].map(edge => {
    const role = edge.dataset.edge.split('|')[1], long = edge.getTotalLength();
    const token = [...picture.querySelectorAll('.ale-token')].find(x => x.dataset.role === role);
    const { left, width, top } = token.querySelector('rect').getBoundingClientRect();
    const at = x => edge.getPointAtLength(x).matrixTransform(to);
    const [start, next] = [at(0), at(Math.min(30, long))];
    return [(start.x - left) / width, start.y - top, next.x - start.x];
  });
})"""
"""Where in its token's box a line begins, how far from the top, and how far aside it runs."""


@pytest.mark.parametrize("width", [390, 1280])
def test_no_line_crosses_a_box_that_is_not_its_end(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    names = page.eval_on_selector_all(".ale-node", "all => all.map(x => x.dataset.name)")
    all_parts = ",".join({*names})
    for state in ("", f"&pin={all_parts}", f"&pin={all_parts}&out={all_parts}"):
        page.evaluate("state => { location.hash = `set=addition${state}` }", state)
        page.wait_for_timeout(300)
        assert page.evaluate(CROSSINGS) == [], state
        for share, below, aside in page.evaluate(BEGINNINGS):
            assert 0.25 < share < 0.75 and abs(below) < 2, (state, share, below)
            assert abs(aside) < 1, "a token's line rises before it turns"
    assert page.evaluate(BEGINNINGS), "tokens have lines"
    assert page.locator(".ale-edge").count() > 20
    height = page.get_attribute(".ale-node", "data-y")
    page.eval_on_selector(".ale-edge", f"one => one.setAttribute('d', 'M0 {height}h400')")
    assert page.evaluate(CROSSINGS), "a line through a box is seen"


CLICK = "key => document.querySelector(`[data-key='${key}']`).click()"


def test_a_link_to_what_is_chosen_is_copied(page: Any) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click('[data-key="cell 1.2"]')
    page.click('[data-key="link"]')
    page.wait_for_selector('button:text-is("Copied")')
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.url and "part=1.2" in copied


def test_the_stream_has_a_cell_for_each_layer_and_token(page: Any, sets: dict[str, Any]) -> None:
    table = sets["addition"][1]["stream"]
    cells = page.locator(".ale-stream .ale-cell")
    assert cells.count() == len(table) == table.layer.nunique() * table.position.nunique()
    last = table[(table.layer == table.layer.max()) & (table.position == table.position.max())]
    shown = page.locator(".ale-stream [role=row]").nth(1).locator(".ale-cell").last
    mean = f"{100 * last['mean'].item():.1f}%".replace("-", "−")
    assert f"at END: {mean}" in shown.get_attribute("title"), "the last layer is on top"


CONTRAST = """all => all.map(one => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = colour => {
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)
      .map(x => x / 255).map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const style = getComputedStyle(one), [x, y] = [light(style.color), light(style.backgroundColor)];
  return Math.max(x, y) / Math.min(x, y);
})"""
"""The contrast of text and background, as WCAG defines it, of each element."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_can_be_read_on_every_colour(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for share in range(0, 101, 10):
        page.eval_on_selector_all(
            ".ale-grid button",
            "(all, share) => all.forEach((one, place) => { one.style.setProperty('--share', share);"
            " one.style.setProperty('--hue', `var(--${place % 2 ? 'helps' : 'hinders'})`);"
            " one.style.transition = 'none'; })",
            f"{share}%",
        )
        contrasts = page.eval_on_selector_all(".ale-grid button", CONTRAST)
        assert min(contrasts) >= 4.5, (share, min(contrasts))
    assert min(page.eval_on_selector_all(".ale-cells span", CONTRAST)) >= 4.5


def test_on_paper_every_picture_is_there_in_the_light_theme(page: Any) -> None:
    page.set_viewport_size({"width": 700, "height": 1000})
    assert page.get_attribute(".ale", "data-theme") == "dark" and not page.is_visible(".ale-grid")
    page.emulate_media(media="print")
    for picture in (".ale-short", "svg.ale-graph", ".ale-card-body", ".ale-outcome", ".ale-grid"):
        assert page.is_visible(picture), picture
    for control in ("select", "[role=tab]", ".ale-export", '[data-key="hold"]'):
        assert not page.locator(f"{control}:visible").count(), control
    ink = page.eval_on_selector(".ale", "one => getComputedStyle(one).color")
    assert ink == "rgb(31, 36, 48)"


@pytest.mark.parametrize("width", [390, 900, 1600])
def test_nothing_is_wider_than_the_screen(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_attribute(".ale", "data-theme") == "dark"


NOTEBOOK = """import arith_lens as al
model = al.load_model("reference")
pairs = al.sample_pairs(model, n=4, templates=["addition/1"])
al.explore(model, pairs, progress=False)"""


LAB = """
from support.kernels import waiting_kernel
launch = waiting_kernel()
from jupyter_client.provisioning import local_provisioner
from jupyterlab.labapp import main
local_provisioner.launch_kernel = launch
main()
"""
"""JupyterLab, whose kernel has the libraries already."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a notebook in a running JupyterLab."""
    if find_spec("jupyterlab") is None or find_spec("anywidget") is None:
        pytest.skip("needs jupyterlab and anywidget: pip install -e '.[notebook]'")
    cell = {"cell_type": "code", "id": "one", "metadata": {}, "outputs": [],
            "execution_count": None, "source": NOTEBOOK}  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "try.ipynb").write_text(json.dumps(notebook))
    folders = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    root = str(Path(al.__file__).parents[1])
    environment: dict[str, Any] = dict.fromkeys(folders, str(tmp_path / "jupyter"))
    environment["PYTHONPATH"] = root
    arguments = ["--no-browser", "--allow-root", "--port=18899", "--IdentityProvider.token=",
                 f"--ServerApp.root_dir={tmp_path}"]  # fmt: skip
    (output := tmp_path / "lab.txt").touch()
    server = Script(LAB, *arguments, output=output, n=0, **environment)
    try:
        until = time.monotonic() + 120
        while not (match := re.search(r"http://localhost:\d+/lab", server.printed)):
            assert server.process.is_alive() and time.monotonic() < until, server.printed
            time.sleep(0.2)
        yield f"{match[0]}/tree/try.ipynb"
    finally:
        server.process.terminate()
        server.wait(30)


def test_in_jupyterlab_it_computes_on_a_click_and_patches_own_prompts(
    browser: Any, lab: str
) -> None:
    tab = browser.new_page(viewport={"width": 1500, "height": 1000})
    tab.set_default_timeout(240_000)
    tab.goto(lab)
    tab.click(".jp-Notebook .jp-CodeCell .cm-content")
    time.sleep(1)
    tab.keyboard.press("Shift+Enter")
    tab.wait_for_selector(".ale-grid button")
    tab.click('[data-key="cell 3.4"]')
    tab.wait_for_selector(".ale-row:has-text('Passes on')")
    tab.click('[data-key="hold"]')
    tab.wait_for_selector('[data-result="accuracy"]:has-text("%")')
    for name, text in (
        ("reference", "4 plus 5 equals to "),
        ("counterfactual", "4 plus "),
        ("answer", "9"),
    ):
        tab.fill(f'[data-key="own {name}"]', text)
    tab.click('[data-key="own run"]')
    tab.wait_for_selector(".ale-status [role=alert]:has-text('token')")
    tab.fill('[data-key="own counterfactual"]', "4 void 5 equals to ")
    tab.click('[data-key="own run"]')
    tab.wait_for_selector(".ale-controls:has-text('own prompt 1')")
    tab.wait_for_selector(".ale-short:has-text('mean over the one prompt')")
    title, text = (tab.locator(f".ale-short {tag}").first.bounding_box() for tag in ("dt", "dd"))
    assert text["y"] >= title["y"] + title["height"] - 1, "the notebook's own style is overruled"
    assert tab.input_value('[data-key="set"]') == "own prompt 1"
    if folder := os.environ.get("ARITH_LENS_PICTURES"):
        tab.set_viewport_size({"width": 1500, "height": 2600})
        tab.wait_for_timeout(500)
        tab.locator(".ale").screenshot(path=f"{folder}/lab.png")
