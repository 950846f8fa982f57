"""The report: one page from the runs there are, offline, with nothing in it read as HTML."""

import base64
import errno
import gzip
import html
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from markupsafe import Markup
from pandas import DataFrame
from support.drawings import unpacked, written
from support.made_runs import make_run

from arith_lens.model import HookedModel
from arith_lens.plotting import browser_path
from arith_lens.runs import find_runs
from experiments import catalogue, results, study, which_heads
from experiments.finding import NotComputed, RunSettings
from experiments.questions import exhibit_entries, terms
from experiments.selection import LARGEST_OPERAND
from experiments.settings import Experiment
from experiments.study import whole_study
from figures import collection, gallery, report
from figures.claims import CLAIMS, check_claims
from figures.claims.checking import with_stored
from figures.claims.page import GROUPS
from figures.collection import SECTIONS, Collection, MissingExhibit, collected, name_of
from figures.common import chosen_run
from figures.exhibit import Chart, Table, named_for_files, prose, show, write_exhibit
from figures.explorer import explorer
from figures.map_figures import fig2, fig15
from figures.options import GALLERY, ExplorerOptions, LargeMapOptions, Options
from figures.report import report_page
from figures.tables.table import IDENTITY, MEASURED

pytestmark = pytest.mark.usefixtures("rough_intervals")

RUN = "document.title='PWNED'"
HOSTILE = f"</script><script>{RUN}</script><img src=x onerror={RUN}>&lt;b&gt;"


def page_of(root: Path, model: str = "made") -> str:
    report.main(report.ReportOptions(model=model, root=root, out=root, beside=()))
    return file_of(root).read_text(encoding="utf-8")


def file_of(root: Path) -> Path:
    (file,) = root.glob("report-*.html")
    return file


def dom_of(file: Path) -> tuple[str, list[str]]:
    """The page as headless Chromium has it once its scripts have run, and its complaints."""
    browser = browser_path()
    if browser is None:
        pytest.skip("needs Chromium or Chrome")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={file.parent / 'browser'}",
         "--enable-logging=stderr", "--log-level=0",
         "--virtual-time-budget=8000", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run, and the page made from it."""
    root = tmp_path_factory.mktemp("results")
    make_run(root, "made")  # of "reference" there are shipped tables too
    page_of(root)
    return root


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return file_of(root).read_text(encoding="utf-8")


def test_one_run_is_enough_and_the_rest_is_named_in_one_line_at_the_end(page: str) -> None:
    drawn_exhibits = ["fig2", "fig15", "fig12"]
    assert re.findall(r'class="chart" id="(\w+)-chart"', page) == drawn_exhibits
    (line,) = re.findall(r'<p class="absent" id="missing">(.*?)</p>', page, re.DOTALL)
    assert page.index('id="missing"') > page.index('<section id="claims"')
    count = int(line.partition(" ")[0])
    (quick,) = re.findall(
        r"whole_study --model made [^<]*</code> computes (\d+), in about 15 minutes\.$", line
    )
    assert len(line) < 200, "one line"
    rest = page[page.index("<summary>Which are missing</summary>") :]
    (names,) = re.findall(r"<p>It computes (.*?)\. Commands of their own", rest)
    (others,) = re.findall(r"Commands of their own compute (.*?): <code>", rest)
    assert int(quick) == len(names.split(", ")) > 10 and "Figure 3" in names
    assert count == int(quick) + len(others.split(", ")) > 20 and "Table 1" in others
    assert " experiments does_tuning_help --" in rest
    assert "(not computed)" not in page and 'class="missing"' not in page
    links = re.findall(r'href="#([\w-]+)"', page)
    assert {*drawn_exhibits, "runs", "answer", "terms"} <= {*links}
    assert all(f'id="{link}"' in page for link in links)


def test_make_report_computes_what_is_missing_of_a_usual_study() -> None:
    missing = MissingExhibit("fig3", "Figure 3: T", "", "python -m experiments are_they_needed --x")
    for model, command in (("reference", "make report"), ("gpt2", "make report MODEL=gpt2")):
        of_model = collection.Collection(model, ((SECTIONS[0], (missing,)),), ())
        first, second = report._missing_text(of_model, report.RESULTS)
        assert first.startswith("1 ") and f"<code>{command}</code>" in first and "15 min" in first
        assert "Figure 3" in second


def test_the_page_begins_with_the_answer(page: str, root: Path) -> None:
    start = page[page.index("<header>") : page.index('<section id="which"')]
    assert start.index('id="fig2-chart"') < start.index('"dots"')
    dots = re.findall(r'class="dot ([\w-]+)" href="#claim-(\w+)"', start)
    assert {key for _, key in dots} == {claim.key for claim in CLAIMS} and len(dots) == len(CLAIMS)
    rows = re.findall(r'<tr id="claim-(\w+)">.*?class="verdict ([\w-]+)"', page, re.DOTALL)
    assert {(judgement, key) for key, judgement in rows} == {*dots}


def test_a_phone_has_figures_of_its_own_and_a_dark_screen_its_colours(page: str) -> None:
    heights, page = [], unpacked(page)
    for name in ("fig2", "fig12", "fig15"):
        (data,) = re.findall(rf'id="{name}-chart-narrow">(.*?)</script>', page, flags=re.DOTALL)
        (wide,) = re.findall(rf'id="{name}-chart-data">(.*?)</script>', page, flags=re.DOTALL)
        narrow_layout, layout = json.loads(data)["layout"], json.loads(wide)["layout"]
        assert narrow_layout["width"] <= 396 < layout["width"]
        heights.append(narrow_layout["height"] > layout["height"])
    assert any(heights)
    paper = page.partition("@media print {")[2].partition("}")[0]
    inks = re.findall(
        r"(--[\w]+):", page.partition("@media (prefers-color-scheme: dark) {")[2].partition("}")[0]
    )
    assert {*inks} - {"--link"} <= {*re.findall(r"(--[\w]+):", paper)}, "paper is light"
    assert "@media (prefers-color-scheme: dark)" in page


def test_words_are_explained_once_and_captions_stand_below(page: str) -> None:
    for term in terms():
        assert page.count(f"<dt>{html.escape(term.name)}</dt>") == 1
    (fig15,) = re.findall(r'<figure id="fig15">.*?</figure>', page, flags=re.DOTALL)
    assert fig15.index('id="fig15-chart"') < fig15.index("<figcaption")
    assert page.index('<details id="contents">') < page.index('id="answer"')


def test_two_tables_of_a_number_have_two_names() -> None:
    titles = {"Table 1: gains": "Table 1", "Table 1: gains: every task": "Table 1, every task",
              "What is held?": "its name"}  # fmt: skip
    for title, name in titles.items():
        assert report._short_name(MissingExhibit("its_name", title, "")) == name


def test_the_contents_name_what_is_shown_by_its_title(page: str) -> None:
    (contents,) = re.findall(r'<nav aria-label="Contents">.*?</nav>', page, flags=re.DOTALL)
    links = dict(re.findall(r'<a href="#([\w-]+)">([^<]+)</a>', contents))
    assert links["fig2"] == "Figure 2"
    assert page.index("<main>") < page.index('<section id="') < page.index("</main>")


def test_the_line_knows_what_the_study_computes() -> None:
    assert study.STUDY[0].name == "which_heads"


def test_the_page_shows_no_folder_of_this_machine(root: Path, page: str) -> None:
    assert str(root) not in page and "found none" not in page
    assert " experiments are_they_needed --model made" in page


def test_only_this_models_heads_are_links_and_texts_have_one_minus_and_code(tmp_path: Path) -> None:
    make_run(tmp_path, "made")
    page = page_of(tmp_path)
    paper = re.findall(r'<td data-name="In the paper">(.*?)</td>', page, re.DOTALL)
    assert any("head 12.22 of LLaMA2-7B" in cell for cell in paper)
    assert not any("href" in cell for cell in paper)
    assert any("−14.0% for head 12.22" in cell for cell in paper)
    texts = re.sub(r"<(script|style|code|pre)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert re.findall(r"(?<![\w.)\]-])-\d[^ ]*", texts) == []
    assert prose("`make x`: -5% <b>") == Markup("<code>make x</code>: −5% &lt;b&gt;")
    assert prose("llama-2 2024-11-23 1e-05 [-3, +4]") == "llama-2 2024-11-23 1e-05 [−3, +4]"


def test_the_report_on_own_prompts_shows_what_applies_and_says_what_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, "made")
    make_run(tmp_path, "made", pairs="my/mine.jsonl", keep="all")
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"model": "made", "root": tmp_path, "beside": ()}
    own = RunSettings({"pairs": "my/mine.jsonl", "keep": "all"})
    report.main(report.ReportOptions(**options, settings=own))
    page = (tmp_path / "figures" / "made" / "report-made-mine.html").read_text("utf-8")
    assert "<title>How made answers mine.jsonl</title>" in page
    drawn = re.findall(r'class="chart" id="([\w-]+)-chart"', page)
    assert drawn == ["fig2", "fig15"]
    assert 'id="claims"' not in page
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("Not shown")]
    assert "Figure 3" in line and line in html.unescape(page)
    assert "--model made --pairs my/mine.jsonl --keep all" in page
    with pytest.raises(SystemExit, match=r"whole_study --model made --pairs other.jsonl"):
        report.main(report.ReportOptions(**options, settings=RunSettings({"pairs": "other.jsonl"})))


def test_the_study_of_own_prompts_computes_what_can_use_them(
    llama: HookedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[Any] = []
    known = tuple(counted(experiment, computed) for experiment in study.OWN_PROMPTS)
    assert [experiment.name for experiment in known] == ["which_heads", "what_does_each_part_do"]
    monkeypatch.setattr(study, "OWN_PROMPTS", known)
    monkeypatch.setattr(study, "loaded_model", lambda config: llama)
    (tmp_path / "mine.jsonl").write_text("{}")
    own = study.StudyConfig(pairs=tmp_path / "mine.jsonl", keep="all")
    whole_study(own, root=tmp_path)
    assert [(config.pairs, config.keep) for config in computed] == [(own.pairs, "all")] * 2


def test_sections_headings_and_heads_are_links_to_where_they_are_shown(tmp_path: Path) -> None:
    make_run(tmp_path, "made")
    of_computed = {"problems": "computed", "operations": [*LARGEST_OPERAND]}
    make_run(tmp_path, "made", **of_computed)  # claims on all operations name its heads
    page = page_of(tmp_path)
    (bar,) = re.findall(r'<nav class="bar".*?</nav>', page, flags=re.DOTALL)
    sections = re.findall(r'<section id="(\w+)"', page)
    assert sections == ["answer", "which", "runs", "claims"]
    shown = re.findall(r'href="#(\w+)"', bar)
    assert shown == ["answer", "contents", "terms", "runs", "claims"], "few on a phone"
    assert "position: sticky" in page
    headings = re.findall(r'<h[23]><a class="self" href="#(\w+)">', page)
    assert {*sections, "fig2", "fig15"} - {"answer"} <= {*headings}
    assert '<a href="#fig15">head 4.6</a>' in page


def test_without_any_run_the_command_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"found none.*whole_study --model gpt2 --root"):
        report.main(report.ReportOptions(model="gpt2", root=tmp_path))


def test_a_report_begins_with_the_verdicts_of_its_models_newest_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[str, Any] = {"title": "", "caption": "", "notes": [], "numbers": DataFrame()}
    table = Table(name="t", cells=DataFrame(), runs=(make_run(tmp_path, "reference"),), **words)
    exhibits = collection.Collection("reference", ((SECTIONS[0], (table,)),), ())
    assert 'id="audit"' not in report.report_page(exhibits, tmp_path), "none was made"
    runs = [
        SimpleNamespace(model=model, load=lambda _, model=model: f"verdicts on {model}")
        for model in ("reference-mistral", "reference", "reference")
    ]
    monkeypatch.setattr(report, "find_runs", lambda name, root: runs * (name == "audit"))
    monkeypatch.setattr(report, "answer_of", Markup)
    page = report.report_page(exhibits, tmp_path)
    assert page.count("verdicts on") == page.count("verdicts on reference<") == 1
    assert page.index("verdicts on") < page.index('id="answer"')


def test_a_damaged_run_is_said_on_the_page(tmp_path: Path) -> None:
    broken = make_run(tmp_path, "reference")
    (broken.folder(results.MAP.name("division")) / "result.safetensors").write_bytes(b"")
    found = collected(fig2, "reference", tmp_path)
    assert isinstance(found, MissingExhibit) and "damaged" in found.reason and not found.command
    words: dict[str, Any] = {"title": "", "caption": "", "notes": [], "numbers": DataFrame()}
    table = Table(name="t", cells=DataFrame(), runs=(broken,), **words)
    exhibits = collection.Collection("reference", ((SECTIONS[0], (found, table)),), ())
    assert "damaged" in report.report_page(exhibits)


def test_an_error_of_the_program_costs_no_other_figure_and_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(options: Options) -> list:
        raise KeyError("texts")

    make_run(tmp_path, "made")
    entries = {**exhibit_entries(), "fails": exhibit_entries()["fig15"]}
    monkeypatch.setattr(collection, "exhibit_entries", lambda: entries)
    monkeypatch.setattr(collection, "SECTIONS", [replace(SECTIONS[0], exhibits=(fails, fig15))])
    monkeypatch.setattr(collection, "check_claims", lambda *given, **more: [])
    with pytest.raises(KeyError, match="texts"):
        collected(fails, "made", tmp_path)
    with pytest.raises(SystemExit, match=r"not drawn because of errors of the program.*: fails"):
        page_of(tmp_path)
    page = file_of(tmp_path).read_text(encoding="utf-8")
    assert "KeyError(&#39;texts&#39;)" in page and 'id="fig15-chart"' in page
    assert "Traceback" in capsys.readouterr().err


def test_a_report_that_the_disk_refuses_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    make_run(tmp_path, "made")
    monkeypatch.setattr(collection, "SECTIONS", [replace(SECTIONS[0], exhibits=(fig15,))])
    monkeypatch.setattr(collection, "check_claims", lambda *given, **more: [])
    (tmp_path / "report-made.html").write_text("as it was")
    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(SystemExit, match=r"the report is not written: .*No space left"):
        page_of(tmp_path)
    assert (tmp_path / "report-made.html").read_text() == "as it was"


TRIED = {"n": 9, "operations": ("addition",)}


def test_a_try_out_is_not_taken_for_the_study_and_has_files_of_its_own(tmp_path: Path) -> None:
    full = make_run(tmp_path, "made", n=None)
    tried = make_run(tmp_path, "made", **TRIED)
    own = make_run(tmp_path, "made", pairs="my/pairs of.jsonl", keep="all")

    def shown(**options: Any) -> Path:
        settings = RunSettings.of_paper(**options)
        chosen = Options(model="made", root=tmp_path, settings=settings)
        return chosen_run(chosen, "which_heads").path

    assert shown() == full.path
    assert shown(**TRIED) == tried.path
    assert shown(pairs=Path("my/pairs of.jsonl"), keep="all") == own.path
    with pytest.raises(NotComputed, match=rf"{tried.path} has n 9, operations addition"):
        shown(n=10)
    words: dict[str, Any] = {"title": "", "caption": "", "notes": [], "numbers": DataFrame()}
    names = [
        named_for_files(Table(name="t", cells=DataFrame(), runs=(run,), **words)).name
        for run in (full, tried, own)
    ]
    assert names == ["t-made", "t-made-addition", "t-made-pairs_of"]


def test_a_try_out_alone_is_drawn_under_its_own_name_but_in_no_report(tmp_path: Path) -> None:
    make_run(tmp_path, "made", **TRIED)
    (chart,) = fig15(LargeMapOptions(model="made", root=tmp_path))
    assert named_for_files(chart).name == "which_heads_in_numbers-made-addition"
    found = collected(fig15, "made", tmp_path)
    assert isinstance(found, MissingExhibit) and "n 9, operations addition" in found.reason


def counted(experiment: Experiment[Any], computed: list[Any]) -> Experiment[Any]:
    """The experiment, but for its work: it notes the configuration and stores nothing."""
    return replace(
        experiment,
        compute=lambda run, model, config: computed.append(config),
        report=lambda run: None,
    )


def test_the_study_computes_anew_what_was_tried_or_is_of_other_weights(
    llama: HookedModel, mistral: HookedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[Any] = []
    monkeypatch.setattr(study, "STUDY", (counted(which_heads.main, computed),))
    monkeypatch.setattr(study, "OF_COMPUTED_PROBLEMS", {})
    for model, n, more in (
        (llama, 9, 1),
        (llama, None, 1),
        (mistral, None, 1),
        (llama, None, 0),
        (mistral, None, 0),
    ):
        monkeypatch.setattr(study, "loaded_model", lambda config, model=model: model)
        computed.clear()
        whole_study(study.StudyConfig(model="made", n=n), root=tmp_path)
        assert len(computed) == more


def test_names_are_data_and_the_browser_draws_offline_without_complaint(tmp_path: Path) -> None:
    make_run(tmp_path, HOSTILE, data_dir=f"of/{HOSTILE}")
    page = page_of(tmp_path, HOSTILE)
    assert "default-src 'none'" in page and "<script>document" not in page
    file = file_of(tmp_path)
    before, complaints = dom_of(file)
    for _ in range(3):  # on a busy machine the browser may end before it has drawn
        if 'data-drawn="yes"' not in before:
            before, complaints = dom_of(file)
    assert complaints == []
    assert 'data-drawn="yes"' in before
    print_ = "<script>dispatchEvent(new Event('beforeprint'))</script></body>"
    file.write_text(page.replace("</body>", print_), encoding="utf-8")
    dom, complaints = dom_of(file)
    assert complaints == []
    assert html.unescape(dom.partition("<title>")[2].partition("</title>")[0]) == (
        f"How {HOSTILE} calculates"
    )
    body = dom[dom.index("<body>") :]
    assert "<img" not in body.replace("&lt;img", "") and "&lt;img src=x onerror=" in body
    assert body.count('data-drawn="yes"') == body.count('class="chart') == 3
    assert body.count('class="main-svg"') >= 5
    elements = re.sub(r"<script.*?</script>", "", body, flags=re.DOTALL)
    outside = re.findall(r'(?:src|href)="(?!data:|#)([^"]*)"', elements)
    assert {*outside} <= {"https://arxiv.org/abs/2409.01659"}


def test_the_numbers_of_a_chart_are_its_file(page: str, root: Path, tmp_path: Path) -> None:
    (packed,) = re.findall(r'"fig2.csv.gz" href="data:application/gzip;base64,([^"]*)"', page)
    options = Options(model="made", root=root, out=tmp_path, formats=())
    show(fig2, options)
    assert gzip.decompress(base64.b64decode(packed)) == written(tmp_path, "fig2.csv").read_bytes()


def test_the_small_print_is_text_below_and_the_chart_is_shorter(page: str, root: Path) -> None:
    (chart,) = fig2(Options(model="made", root=root))
    (data,) = re.findall(r'id="fig2-chart-data">(.*?)</script>', unpacked(page), flags=re.DOTALL)
    layout = json.loads(data)["layout"]
    assert layout["height"] < chart.figure.layout.height
    said = [note["text"] for note in layout["annotations"]]
    assert not any("Framed: key" in text for text in said) and "Framed: key" in page
    was, is_ = chart.figure.layout, layout
    above = [
        (1 - was.yaxis.domain[1]) * was.height,
        (1 - is_["yaxis"]["domain"][1]) * is_["height"],
    ]
    assert above[0] == pytest.approx(above[1], abs=0.5)


def test_every_exhibit_answers_a_question() -> None:
    answers = [exhibits for question in SECTIONS for exhibits in question.exhibits]
    assert len(answers) == len({*answers})
    assert {*map(name_of, answers)} == catalogue.exhibits().keys()
    folder = Path(report.__file__).parent
    modules = {
        path.stem
        for path in folder.glob("*.py")
        if "\ndef exhibits(" in path.read_text(encoding="utf-8")
    }
    assert modules < catalogue.exhibits().keys()


def test_a_table_and_a_chart_write_what_they_show(tmp_path: Path) -> None:
    words = {"title": "T", "caption": "L", "notes": ["<b>small</b>"], "runs": ()}
    shown = DataFrame({"token": ["<s>"]})
    table = Table(name="t", numbers=shown, cells=shown, **words)
    files = write_exhibit(table, tmp_path)
    assert [file.name for file in files] == ["t.csv", "t.html"]
    text = files[1].read_text(encoding="utf-8")
    assert "&lt;s&gt;" in text and "&lt;b&gt;small" in text and "<b>" not in text
    assert '<div class="box" tabindex="0"><table' in text, "a phone scrolls the table alone"


def test_the_study_computes_what_is_missing_and_says_what_failed(
    llama: HookedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    computed: list[Any] = []

    def fails(run: object, model: object, config: object) -> None:
        raise ValueError("no such data")

    some = [counted(experiment, computed) for experiment in study.STUDY[:4]]
    some[1] = replace(some[1], compute=fails)
    monkeypatch.setattr(study, "STUDY", some)
    monkeypatch.setattr(study, "OF_COMPUTED_PROBLEMS", {some[0].name: {"metric": "logit"}})
    monkeypatch.setattr(study, "loaded_model", lambda config: llama)
    first = some[0].config(n=5)
    some[0].fill(some[0].open(first, llama, tmp_path), llama, first)
    with pytest.raises(SystemExit, match="failed, see above: which_paths"):
        whole_study(study.StudyConfig(n=5), root=tmp_path)
    assert [config.n for config in computed] == [5] * 4
    last = computed[-1]
    assert (last.problems, last.metric) == ("computed", "logit")
    assert last.operations == ("multiplication", "division")
    said = capsys.readouterr()
    assert "which_heads: stored" in said.out and "no such data" in said.err
    assert "which_heads, computed problems: computing" in said.out
    assert len(find_runs("which_heads", root=tmp_path)) == 2
    whole_study(study.StudyConfig(), root=tmp_path, dry_run=True)
    assert "which_paths: to be computed" in capsys.readouterr().out
    whole_study(study.StudyConfig(n=5), root=tmp_path, dry_run=True)
    said = capsys.readouterr().out
    assert "which_heads: stored" in said and "which_heads, computed problems: stored" in said


def test_a_module_without_a_run_is_missing(tmp_path: Path) -> None:
    found = collected(fig2, "reference", tmp_path)
    assert not isinstance(found, list)
    assert found.title.startswith("Figure 2: ")
    assert found.command.endswith(f" which_heads --model reference --root {tmp_path}")
    make_run(tmp_path, "reference")
    (chart,) = collected(fig2, "reference", tmp_path)  # pyright: ignore
    assert isinstance(chart, Chart)


def test_the_gallery_is_small_and_its_page_shows_what_is_there() -> None:
    root = Path(gallery.__file__).parents[1]
    pictures = [*(root / "figures" / "gallery").rglob("*.svg")]
    assert 0 < sum(file.stat().st_size for file in pictures) < 2e6
    page = (root / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert len(re.sub("<img[^>]*>", "", page).split()) <= 1500
    shown = re.findall(r'(?:\]\(|src="|srcset=")\.\./(figures/gallery/[^)"]*)[)"]', page)
    assert len(shown) > 20 and all((root / file).is_file() for file in shown)


def test_a_gallery_is_drawn_from_runs_the_same_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("figures.tables.resampled",):  # intervals are drawn, not judged
        monkeypatch.setattr(f"{module}.N_RESAMPLES", 100)
    make_run(tmp_path, "reference")
    (tmp_path / "docs").mkdir()
    claims_page = tmp_path / "docs" / "claims.md"
    claims_page.write_text("before\n<!-- verdicts -->\nstale\n<!-- end of verdicts -->\nafter\n")
    options = gallery.GalleryOptions(
        root=tmp_path,
        out=tmp_path / "gallery",
        docs=tmp_path / "docs",
        pictures=False,
    )
    found = []
    for _ in range(2):
        gallery.main(options)
        files = [claims_page, *sorted(options.out.rglob("*.csv"))]
        found.append({file: file.read_bytes() for file in files})
    assert found[0] == found[1] and options.out / "fig2.csv" in found[0]
    assert options.out / "claims.csv" in found[0]
    for file in options.out.rglob("*.csv"):
        assert str(tmp_path) not in file.read_text("utf-8")
    assert "missing: Figure 3" in capsys.readouterr().out
    verdicts = claims_page.read_text(encoding="utf-8")
    assert (
        verdicts.startswith("before\n") and verdicts.endswith("after\n") and "stale" not in verdicts
    )
    assert "`reference` | `reference-mistral` |" in verdicts


def test_a_gallery_without_runs_leaves_the_page_alone(tmp_path: Path) -> None:
    page = tmp_path / "claims.md"
    page.write_text("as it was", encoding="utf-8")
    with pytest.raises(SystemExit, match="which_heads"):
        gallery.main(gallery.GalleryOptions(root=tmp_path, out=tmp_path / "gallery", docs=tmp_path))
    assert page.read_text(encoding="utf-8") == "as it was"


def test_every_group_of_claims_has_its_place_in_the_report() -> None:
    assert {claim.group for claim in CLAIMS} == {*GROUPS}


GALLERY_TABLES = Path(gallery.__file__).parent / "gallery"


def test_the_tables_of_the_gallery_have_one_schema() -> None:
    """The pretrained model's older tables wait for its next study."""
    paths = [*GALLERY_TABLES.glob("*.csv")]
    paths += [*(GALLERY_TABLES / "reference-mistral").glob("*.csv")]
    heads = {path.name: path.read_text("utf-8").partition("\n")[0].split(",") for path in paths}
    assert len(heads) > 20
    for name, columns in heads.items():
        assert columns[:2] == [*IDENTITY] and columns[-len(MEASURED) :] == [*MEASURED], name


def test_claims_of_a_folder_of_tables_have_the_verdicts_of_its_table(tmp_path: Path) -> None:
    without_runs = check_claims("reference", roots=(tmp_path,))
    assert {one.judgement for one in without_runs} == {"not measured"}
    assert with_stored(without_runs, "reference", tmp_path) == without_runs
    for model, folder in (("reference", "."), ("reference-mistral", "reference-mistral")):
        rows = pd.read_csv(GALLERY_TABLES / folder / "claims.csv", keep_default_na=False)
        stored = dict(zip(rows.claim, rows.holds, strict=True))
        verdicts = with_stored(without_runs, model, GALLERY_TABLES)
        assert {one.claim.key: one.judgement for one in verdicts}.items() <= stored.items()
        assert len({one.judgement for one in verdicts}) > 2
    first = verdicts[0]
    assert first.why.startswith(f"{rows.measure[0]} {100 * float(rows.value[0]):.1f}%")


def test_a_long_table_is_folded_and_tables_alone_have_no_empty_words() -> None:
    def body(n_rows: int) -> str:
        cells = DataFrame({"a": [str(i) for i in range(n_rows)]})
        table = Table(name="t", title="T", caption="C.", runs=(), numbers=cells, cells=cells)
        return report_page(Collection("reference", ((SECTIONS[0], (table,)),), ()))

    assert '<details class="rows"><summary>11 rows' in body(11) and 'class="rows"' not in body(10)
    assert 'class="under"' not in body(10) and "<p>.</p>" not in body(10)
    with pytest.raises(NotComputed, match="what_does_each_part_do"):
        explorer(ExplorerOptions(root=GALLERY_TABLES))


def test_a_report_of_shipped_tables_shows_what_its_heading_says_and_then_what_paths_keep() -> None:
    known = {name_of(one): one for section in SECTIONS for one in section.exhibits}
    makers = [known[name] for name in ("circuit", "fig3", "carry")]
    for model, heading in (
        ("reference", "Without the ten strongest of 96 heads, 11% [5, 22] of one-digit additions "),
        ("reference-mistral", ""),
    ):
        parts = [collected(one, model, GALLERY) for one in makers]
        exhibits = tuple(one for part in parts if isinstance(part, list) for one in part)
        page = report_page(Collection(model, ((SECTIONS[0], exhibits),), ()), GALLERY)
        assert f"<h1>{heading or f'How {model} calculates</h1>'}" in page
        header = page.partition("<header>")[2].partition("</header>")[0]
        assert "suffice" not in header and header.count("strongest paths keep ") == 1
        assert re.findall('href="#(circuit-[^"]+)"', header)[0] in re.findall('id="([^"]+)"', page)
        tables = page.split("As a table</summary>")[1:]
        assert tables and all(one.startswith('<div class="box" tabindex="0">') for one in tables)
        answer = page.partition('id="answer"')[2].partition("</section>")[0]
        assert 'id="fig3-chart"' in answer and "circuit-of" not in answer, "as its heading"
        assert answer.index("</figure>") < answer.index("Numbers as CSV"), "beside the picture"
