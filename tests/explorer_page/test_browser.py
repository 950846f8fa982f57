"""The explorer in a browser without a network: as a page from a file, and in JupyterLab."""

import json
import os
import re
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pandas import DataFrame
from support.children import Script

import arith_lens as al
from arith_lens.exploration import explored
from arith_lens.explorer_page import Explorer
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
def file(llama: HookedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a small model, with a hostile token."""
    pairs = al.sample_pairs(llama, "addition", n=18, keep="all", templates=["addition/1"])
    pairs = pairs.filter(al.path_patch(llama, pairs, progress=False).logit > 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("arith_lens.exploration.exploring.N_STRONGEST", 3)
        one = explored(llama, pairs, setup="import arith_lens as al", progress=False)
    tables: dict[str, DataFrame] = dict(one.tables)
    tables["tokens"] = tables["tokens"].assign(token=HOSTILE)
    tables["prompts"] = tables["prompts"].assign(reference=HOSTILE)
    tables["edges"] = tables["edges"].assign(certain=True)  # a random model's are not
    view = Explorer({"addition": (one.facts, tables)}, title="Explorer")
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
    assert complaints == [] and {*requests} == {file.as_uri()}
    context.close()


def test_a_click_chooses_a_head_and_all_pictures_follow(page: Any) -> None:
    page.click('[data-key="cell 1.2"]')
    assert page.text_content(".ale-detail h2") == "Head 1.2"
    cards = page.eval_on_selector_all(".ale-card h3", "all => all.map(one => one.textContent)")
    assert cards[:5] == [
        "Where END looks", "On one prompt", "What it writes", "Paths in", "Paths out"
    ]  # fmt: skip
    assert page.locator(".ale-card .ale-bars").count() >= 8
    page.click('[data-key="cell MLP 1"]')
    cards = page.eval_on_selector_all(".ale-card h3", "all => all.map(one => one.textContent)")
    assert cards[:3] == ["What it reads", "What it writes", "Its strongest neurons"]
    assert page.title() == "Explorer" and page.locator("img").count() == 0
    page.select_option('[data-key="paths"]', "direct")
    assert "direct" in page.input_value('[data-key="paths"]')


def test_the_graph_shows_measured_edges_and_its_nodes_choose(page: Any) -> None:
    nodes = page.locator(".ale-graph .ale-node[data-key]")
    edges = page.locator(".ale-edge")
    first = edges.count()
    assert (
        nodes.count()
        and first
        and "edges were measured" in page.text_content("section:has(> .ale-graph)")
    )
    described = edges.first.locator("title").text_content()
    assert re.match(r".+ → .+: [+−]?\d.*%\)$", described), "an effect with its interval"
    page.evaluate(
        """() => { const slider = document.querySelector('[data-key="least"]');
        slider.value = slider.max; slider.dispatchEvent(new Event('change')); }"""
    )
    assert edges.count() == 1 <= first and "least=" in page.evaluate("location.hash")
    node = nodes.last
    node.focus()
    page.keyboard.press("p")
    assert page.locator(".ale-pinned").count() and edges.count() >= 1
    page.keyboard.press("Enter")
    name = page.evaluate("document.activeElement.dataset.key")
    assert name.startswith("node ")
    page.click('[data-key="cell 1.2"]')
    assert "part=1.2" in page.evaluate("location.hash")
    page.reload()
    page.wait_for_selector(".ale-grid button")
    assert page.text_content(".ale-detail h2") == "Head 1.2", "the address keeps the choice"


def test_keys_move_choose_and_fill_the_basket(page: Any) -> None:
    page.focus('.ale-grid [tabindex="0"]')
    page.focus('[data-key="cell 0.1"]')
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.key") == "cell 1.2"
    name = page.get_attribute('[data-key="cell 1.2"]', "aria-label")
    assert re.match(r"Head 1\.2: [+−\d]", name)
    page.keyboard.press("Enter")
    assert page.get_attribute('[data-key="cell 1.2"]', "aria-selected") == "true"
    page.keyboard.press("b")
    assert page.get_attribute('[data-key="chip 1.2"]', "aria-pressed") == "true"
    assert page.evaluate("document.activeElement.dataset.key") == "cell 1.2", "focus stays"


def test_the_words_are_explained_and_roles_fill_the_basket(page: Any) -> None:
    page.click(".ale-words summary")
    assert page.is_visible("dt:has-text('key head')")
    assert "[object" not in page.text_content(".ale")
    page.click('[data-key="none"]')
    assert page.locator(".ale-result thead th").count() == 2, "no column without a basket"
    takes = page.locator('[data-key^="take "]')
    if takes.count():
        takes.first.click()
        role = takes.first.text_content().removesuffix(" heads")
        chips = page.locator('.ale-chips [aria-pressed="true"]').all_text_contents()
        assert chips and all(role in chip for chip in chips)
    page.click('[data-key="all"]')
    page.select_option(
        '[data-key="set"]', index=page.locator('[data-key="set"] option').count() - 1
    )
    assert not page.locator(".ale-basket [role=alert]").count(), "the basket follows the prompts"


def test_the_basket_shows_the_knockout_of_exactly_this_set(page: Any) -> None:
    page.click('[data-key="all"]')
    assert re.match(r"\d+% \(", page.text_content('[data-result="accuracy"]'))
    control = page.text_content('[data-result="control"]')
    assert re.match(r"without as many at random: \d+% \(10 draws: \d+% to \d+%\)", control)
    page.click('[data-key="code basket"]')
    code = page.text_content(".ale-basket pre")
    assert "al.knock_out(model, pairs, [" in code and code.startswith("import arith_lens as al")
    page.click('[data-key="keep_only"]')
    header = page.text_content(".ale-result thead")
    assert header.endswith("kept") and header.count("head ") == 3
    others = page.eval_on_selector_all(".ale-grid button", "all => all.map(one => one.dataset.key)")
    chips = page.eval_on_selector_all(".ale-chips button", "all => all.map(one => one.dataset.key)")
    other = next(key for key in others if key.replace("cell", "chip") not in chips)
    page.click(f'[data-key="{other}"]')
    page.click('[data-key="hold"]')
    assert "not " + other.removeprefix("cell ") in page.text_content(".ale-basket [role=alert]")


def test_chips_are_in_the_order_of_strength_and_lists_of_one_kind_have_one_scale(page: Any) -> None:
    ranking = page.eval_on_selector_all(
        ".ale-ranking button", "all => all.map(one => one.textContent)"
    )
    chips = page.eval_on_selector_all(
        '[data-key^="chip "]', "all => all.map(one => one.dataset.key)"
    )
    assert [chip.replace("chip", "head") for chip in chips] == ranking[: len(chips)]
    page.click('[data-key="cell 2.1"]')
    axes = page.eval_on_selector_all(
        ".ale-card:has(.ale-three) .ale-axis", "all => all.map(one => one.textContent)"
    )
    assert len(axes) == 4 and len({*axes}) == 1, "queries, keys, values and the rest"
    assert page.is_visible("text=not explained by single parts")
    wordings = page.text_content('.ale-card:has(h3:text("Effect by wording"))')
    assert "A plus B equals to" in wordings and "addition/" not in wordings
    assert page.locator('button:text-is("Copy as Python")').count() == 4


def test_on_a_phone_a_tap_says_what_was_chosen_and_leads_to_it(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 700})
    page.click('[data-key="cell 1.2"]')
    assert page.text_content(".ale-jump").startswith("Head 1.2: ")
    assert page.locator(".ale-jump").bounding_box()["y"] < 700
    page.click('[data-key="jump"]')
    assert 0 <= page.locator(".ale-detail h2").bounding_box()["y"] < 200
    page.set_viewport_size({"width": 1200, "height": 700})
    assert not page.is_visible(".ale-jump")
    page.evaluate("scrollTo(0, 900)")
    assert page.locator(".ale-grid").bounding_box()["y"] >= 0, "the map stays"


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
    environment = dict.fromkeys(folders, str(tmp_path / "jupyter")) | {"PYTHONPATH": root}
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
    tab.wait_for_selector(".ale-card:has-text('Paths out') .ale-bars")
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
    assert tab.input_value('[data-key="set"]') == "own prompt 1"
    if folder := os.environ.get("ARITH_LENS_PICTURES"):
        tab.locator(".ale").screenshot(path=f"{folder}/lab.png")
