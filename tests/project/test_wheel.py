"""The library works without the repository, and without what draws."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import arith_lens

ROOT = Path(__file__).parents[2]
OPTIONAL = (
    "anywidget", "circuitsvis", "jupyterlab", "kaleido", "lm_eval", "peft", "plotly", "pytest",
    "tyro",
)  # fmt: skip
"""What the extras install."""

REQUIRED_ALONE = """
import sys
from importlib.machinery import PathFinder

class Required(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {optional} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Required
"""
"""Imported at the start of a Python whose extras are to be missing."""

DRAWING = """
try:
    al.path_patch(model, pairs).heads.heatmap()
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, away from the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> Path:
    """The unpacked wheel."""
    with zipfile.ZipFile(wheel_file) as archive:
        archive.extractall(wheel_file.parent / "unpacked")
    return wheel_file.parent / "unpacked"


Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(wheel_file: Path) -> Run:
    """Runs a program of a new environment, in an empty home: the wheel and what it requires."""
    folder = wheel_file.parent / "environment"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "--python", str(folder), "install", "-q"]
    install += ["--no-deps", "--no-index", "--no-warn-script-location", str(wheel_file)]
    subprocess.run(install, check=True, capture_output=True)
    own = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "required.pth").write_text("\n".join(own))
    (packages / "sitecustomize.py").write_text(REQUIRED_ALONE.format(optional=OPTIONAL))
    home = wheel_file.parent / "home"
    home.mkdir()
    settings = {"HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(folder / "bin" / program), *words]
        environment = {"PATH": os.defpath, **settings}
        return subprocess.run(command, cwd=home, capture_output=True, text=True, env=environment)

    return run


def test_the_wheel_has_one_package_and_its_command(wheel: Path) -> None:
    names = {path.name for path in wheel.iterdir()}
    info = f"arith_lens-{arith_lens.__version__}.dist-info"
    assert names == {"arith_lens", info}
    scripts = (wheel / info / "entry_points.txt").read_text("utf-8")
    assert "arith-lens = arith_lens.__main__:main" in scripts


def test_the_wheel_holds_the_library_alone(wheel: Path) -> None:
    names = {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"arith_lens"}
    assert (wheel / "arith_lens" / "__init__.pyi").is_file()
    for file in ("cards.js", "graph.js", "explorer.js", "explorer.css"):
        assert (wheel / "arith_lens" / "explorer_page" / file).is_file()
    assert (wheel / "arith_lens" / "reference" / "reference" / "model.safetensors").is_file()


def test_the_readme_runs_from_the_wheel_with_required_packages_alone(installed: Run) -> None:
    (example,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    run = installed("python", "-c", f"{example}print(al.__file__)\n{DRAWING}")
    assert run.returncode == 0, run.stderr[-3000:]
    assert "right without" in run.stdout and str(ROOT) not in run.stdout
    assert "pip install 'arith-lens[drawing]'" in run.stdout


def test_the_command_of_the_wheel_works_outside_any_checkout(installed: Run) -> None:
    run = installed("arith-lens", "map", "reference", "--operation", "addition", "--n", "6")
    assert run.returncode == 0, run.stderr[-3000:]
    *_, file, following = run.stdout.splitlines()
    home = Path(installed("python", "-c", "import os; print(os.getcwd())").stdout.strip())
    folder = home / "arith-lens" / "reference-addition"
    assert (
        home / file.removeprefix("open ") == folder / "map.html" and (folder / "map.html").exists()
    )
    assert len((folder / "map.csv").read_text().splitlines()) == 1 + 12 * 8 + 12
    command = "arith-lens explore reference --operation addition --n 6"
    assert following.startswith("next: "), "then its folder, which is not on PATH"
    assert following.endswith(f"/bin/{command}")


def test_the_help_imports_no_library(installed: Run) -> None:
    program = "from arith_lens.__main__ import main; import sys; print(*sys.modules)"
    modules = installed("python", "-c", program).stdout.split()
    assert "arith_lens.__main__" in modules
    assert not {"torch", "numpy", "pandas", "scipy", "transformers"} & {*modules}
    assert "audit" in installed("arith-lens", "--help").stdout


@pytest.mark.parametrize("address", ["", "https://example.org/owner/name/"])
def test_the_long_description_has_no_link_that_leads_nowhere(address: str) -> None:
    description = pytest.importorskip("laboratory.description")
    metadata: dict[str, Any] = {"version": "1.2.3"}
    description.Description(str(ROOT), {"address": address}).update(metadata)
    text = metadata["readme"]["text"]
    links = re.findall(r"""\]\(([^)]+)|(?:src|srcset)="([^"]+)""", text)
    targets = {link or source for link, source in links}
    own = {one for one in targets if one.startswith("https://example.org/owner/name/")}
    relative = {one for one in targets if not one.startswith("https://")}
    assert not relative and len(targets - own) == 2
    assert metadata["urls"].get("Source", "") == address.rstrip("/")
    if address:
        files = {re.sub(r".*/v1\.2\.3/([^#]*).*", r"\1", one) for one in own}
        assert len(files) > 20 and all((ROOT / file).exists() for file in files)
    else:
        assert "What we found" in text and not own


def test_an_editable_install_has_this_package_alone(tmp_path: Path) -> None:
    """What pip writes for one, read by a Python that has nothing else and runs elsewhere."""
    editables = pytest.importorskip("editables", reason="hatchling writes such installs with it")
    target = tmp_path / "installed"
    builder = f"from hatchling.build import build_editable; build_editable({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", builder], cwd=ROOT, check=True, capture_output=True)
    (file,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(target)
    shutil.copytree(Path(editables.__file__).parent, target / "editables")
    program = f"""
import site
from importlib.util import find_spec
site.addsitedir({str(target)!r})
for name in {[path.name for path in ROOT.iterdir() if path.name.isidentifier()]}:
    if find_spec(name):
        print(name, find_spec(name).origin)
"""
    command = [sys.executable, "-I", "-S", "-c", program]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [f"arith_lens {ROOT / 'arith_lens' / '__init__.py'}"]
