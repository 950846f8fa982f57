"""The library works without the repository, and without what draws."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import arith_lens

ROOT = Path(__file__).parents[2]
OPTIONAL = (
    "anywidget", "circuitsvis", "jupyterlab", "kaleido", "lm_eval", "peft", "plotly", "pytest",
    "tyro",
)  # fmt: skip
"""What the extras install."""

PROGRAM = """
import sys
from importlib.machinery import PathFinder

class Required(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in OPTIONAL else super().find_spec(name, path, target)

OPTIONAL, repository, wheel = sys.argv[1].split(), sys.argv[2], sys.argv[3]
kept = [f for f in sys.meta_path if f is not PathFinder and "editable" not in str(f).lower()]
sys.meta_path[:] = [*kept, Required]
sys.path[:] = [wheel, *(p for p in sys.path if p not in ("", repository))]
import arith_lens
assert arith_lens.__file__.startswith(wheel), arith_lens.__file__
exec(compile(open(wheel + "/example.py").read(), "README.md", "exec"), {})
"""

DRAWING = """
try:
    al.path_patch(model, pairs).heads.heatmap()
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, away from the repository."""
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
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


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


def test_the_readme_runs_from_the_wheel_with_required_packages_alone(wheel: Path) -> None:
    (example,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    (wheel / "example.py").write_text(example + DRAWING, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, " ".join(OPTIONAL), str(ROOT), str(wheel)],
        cwd=wheel,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "right without" in run.stdout
    assert "pip install 'arith-lens[drawing]'" in run.stdout


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
