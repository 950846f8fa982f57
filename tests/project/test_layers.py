"""The package's modules import downwards only, and importing the package does nothing."""

import ast
import functools
import inspect
import re
import sys
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from support.fresh import FreshPython

import arith_lens
from arith_lens.model.families import FAMILIES

PACKAGE = Path(arith_lens.__file__).parent
LAYERS = {
    "tensor_parallel": -1,  # below memory, which all processes have in common
    **dict.fromkeys(["activations", "caller_warnings", "code_digest", "components"], 0),
    **dict.fromkeys(
        [
            "imports",
            "memory",
            "named_models",
            "operations",
            "options",
            "plotting",
            "progress",
            "statistics",
            "untrusted",
        ],
        0,
    ),
    **dict.fromkeys(["arrays", "hooks", "intervals", "model", "paper"], 1),
    **dict.fromkeys(["problems", "templates", "views"], 1),
    **dict.fromkeys(["explorer_page"], 2),  # shows tables, and knows no model
    **dict.fromkeys(["effects"], 3),
    **dict.fromkeys(["benchmarks", "pairs", "runs"], 4),
    **dict.fromkeys(["metrics", "next_tokens", "word_problems"], 5),
    **dict.fromkeys(["answers", "attention", "built", "knockout", "methods", "probes"], 6),
    **dict.fromkeys(["interchanges"], 6),
    **dict.fromkeys(["numbers", "path_patching"], 7),
    **dict.fromkeys(["reference"], 7),  # reads the shipped sets
    **dict.fromkeys(["edges", "fine_tuning", "mediation", "neurons"], 8),
    **dict.fromkeys(["attribution", "evaluation"], 9),  # evaluation asks the closed world's sets
    **dict.fromkeys(["auditing", "logit_attribution"], 9),
    **dict.fromkeys(["exploration"], 10),
    **dict.fromkeys(["__main__"], 11),
}
"""The number of each module: it may import lower numbers only (and its own package's files)."""


def modules() -> dict[str, list[Path]]:
    """Each module's files: one, or a package's."""
    files: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts != ("__init__",):
            files.setdefault(parts[0], []).append(path)
    return files


@functools.cache
def import_nodes(source: str) -> list[ast.Import | ast.ImportFrom]:
    """The imports anywhere in a file, inside functions too; each file is parsed once."""
    nodes = ast.walk(ast.parse(source))
    return [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a file imports."""
    for node in import_nodes(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        else:
            assert node.level == 0, f"{path} imports relatively"
            assert node.module is not None
            if node.module == "arith_lens":
                yield from (f"arith_lens.{name.name}" for name in node.names)
            else:
                yield node.module


def upward(name: str, imported: str) -> bool:
    """Whether `imported` is of this package and not below the module `name`."""
    package, _, rest = imported.partition(".")
    target = rest.split(".")[0]
    if package != "arith_lens" or target in (name, "__version__"):
        return False
    return LAYERS[target] >= LAYERS[name]


def test_every_module_has_a_number() -> None:
    assert modules().keys() == LAYERS.keys()


@pytest.mark.parametrize("name", LAYERS)
def test_a_module_imports_lower_numbers_only(name: str) -> None:
    found = [
        f"{path.name} imports {imported}"
        for path in modules().get(name, [])
        for imported in imports(path)
        if upward(name, imported)
    ]
    assert found == []


def test_an_import_upwards_would_be_seen() -> None:
    assert upward("components", "arith_lens.effects")
    assert upward("hooks", "arith_lens.model.loading")
    assert not upward("model", "arith_lens.model.loading")
    assert not upward("effects", "arith_lens.plotting")


PACKAGES = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
BEHIND_FACES = 0.10
"""The largest share of names that may be imported from inside another package."""


def names_of_packages(path: Path) -> Iterator[tuple[str, bool]]:
    """What a file imports from packages of the library that it is not in.

    Returns:
        For each name: its full name, and whether it comes from a file inside the package.
    """
    parts = path.relative_to(PACKAGE.parent).parts
    own = parts[1] if parts[0] == PACKAGE.name else None
    for node in import_nodes(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("arith_lens."):
            _, package, *rest = str(node.module).split(".")
            if package not in PACKAGES - {own}:
                continue
            for name in (alias.name for alias in node.names):
                yield f"{node.module}.{name}", bool(rest) or is_file(package, name)


def is_file(package: str, name: str) -> bool:
    """Whether a name of a package is one of its files, and not a function of the same name."""
    face = (PACKAGE / package / "__init__.py").read_text(encoding="utf-8")
    return (PACKAGE / package / f"{name}.py").exists() and f" as {name}\n" not in face


def users_of_packages() -> list[Path]:
    """All files of the library, the experiments, the figures and the laboratory."""
    folders = ("arith_lens", "experiments", "figures", "laboratory")
    return [path for name in folders for path in (PACKAGE.parent / name).rglob("*.py")]


def test_packages_are_used_through_the_names_that_they_show() -> None:
    names = [name for path in users_of_packages() for name in names_of_packages(path)]
    behind = sorted(name for name, is_inside in names if is_inside)
    assert len(names) > 500, "the test must see the imports"
    assert len(behind) <= BEHIND_FACES * len(names), behind


def test_nothing_is_imported_from_inside_path_patching() -> None:
    inside = {
        f"{path.name}: {name}"
        for path in users_of_packages()
        for name, is_inside in names_of_packages(path)
        if is_inside and name.startswith("arith_lens.path_patching.")
    }
    assert inside == set()


def test_an_import_from_inside_a_package_would_be_seen(tmp_path: Path, monkeypatch: Any) -> None:
    root = tmp_path / "arith_lens"
    (root / "path_patching").mkdir(parents=True)
    for name in ("sweep", "__init__"):
        (root / "path_patching" / f"{name}.py").touch()
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", root)
    file = root / "neurons.py"
    lines = {
        "from arith_lens.path_patching.sweep import Trunk": True,
        "from arith_lens.path_patching import sweep": True,
        "from arith_lens.path_patching import Trunk": False,
    }
    for line, is_inside in lines.items():
        file.write_text(line)
        assert [one for _, one in names_of_packages(file)] == [is_inside]


def files_of(*roots: Path) -> dict[str, Path]:
    """The Python files of some packages, by dotted name; that of a package is its `__init__`."""
    files = {}
    for root in roots:
        for path in root.rglob("*.py"):
            parts = (root.name, *path.relative_to(root).with_suffix("").parts)
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imported_files(path: Path, files: Collection[str]) -> Iterator[str]:
    """The files among `files` that a file imports, inside functions and for type checkers too."""
    for node in import_nodes(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in files)
        else:
            for name in node.names:
                names = (f"{node.module}.{name.name}", str(node.module))
                yield from [one for one in names if one in files][:1]


def cycle_in(*roots: Path) -> tuple[str, ...]:
    """A circle of imports between the files of packages, in order; empty where there is none."""
    files = files_of(*roots)
    graph = {name: {*imported_files(path, files)} - {name} for name, path in files.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def test_no_files_import_each_other_in_a_circle() -> None:
    packages = ("arith_lens", "experiments", "figures", "laboratory")
    assert cycle_in(*(PACKAGE.parent / package for package in packages)) == ()


@pytest.mark.parametrize(
    "back",
    [
        "def g():\n    import planted.a\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.a import f\n",
        "from planted import other\n",
    ],
)
def test_a_circle_of_imports_would_be_seen(tmp_path: Path, back: str) -> None:
    planted, second = tmp_path / "planted", tmp_path / "second"
    for root in (planted, second):
        root.mkdir()
        (root / "__init__.py").write_text("")
    (planted / "a.py").write_text("from planted.b import f\n")
    (planted / "b.py").write_text("def f():\n    from planted import c\n    return c\n")
    (planted / "c.py").write_text("x = 1\n")
    (planted / "other.py").write_text("from second import d\n")
    (second / "d.py").write_text("import planted.a\n")
    assert cycle_in(planted, second) == ()
    (planted / "c.py").write_text(back)
    assert {"planted.a", "planted.b", "planted.c"} <= {*cycle_in(planted, second)}


USERS = re.compile(
    r"\b(experiments|figures|laboratory|notebooks)[./]\w"
    r"|[`(]make \w|\bmake (setup|report|claims|gallery|fig\d+|table\d)\b"
)
"""An experiment, a figure, or a make target."""
FLAGS = re.compile(r"(?<![\w(-])--(?!use_fsdp)[a-z]\w+")
"""A flag of a command line; the library's own command, `__main__`, may name its flags."""


@pytest.mark.parametrize("name", LAYERS)
def test_the_library_names_nothing_that_uses_it(name: str) -> None:
    lines = [
        f"{path.name}: {line.strip()}"
        for path in modules()[name]
        for line in path.read_text(encoding="utf-8").splitlines()
        if USERS.search(line) or (name != "__main__" and FLAGS.search(line))
    ]
    assert lines == []


@pytest.mark.parametrize(
    "line",
    [
        "run `python -m experiments.which_heads`",
        "see figures/paths.py",
        "`make setup` does",
        "--keep all",
    ],
)
def test_the_name_of_a_user_would_be_seen(line: str) -> None:
    assert USERS.search(line) or FLAGS.search(line)


@pytest.mark.parametrize("package", ["arith_lens", "experiments", "figures", "notebooks"])
def test_nothing_that_a_user_runs_imports_the_laboratory(package: str) -> None:
    importers = {
        path.name: imported
        for path in (PACKAGE.parent / package).rglob("*.py")
        for imported in imports(path)
        if imported.split(".")[0] == "laboratory"
    }
    assert importers == {}


def test_the_laboratory_draws_nothing() -> None:
    used = {name for path in PACKAGE.parent.glob("laboratory/**/*.py") for name in imports(path)}
    assert {"laboratory.world", "experiments.command"} <= used
    assert not {name for name in used if name.split(".")[0] == "figures"}


def test_transformer_lens_is_imported_by_model_alone() -> None:
    importers = {
        name
        for name, paths in modules().items()
        for path in paths
        if any(imported.split(".")[0] == "transformer_lens" for imported in imports(path))
    }
    assert importers == {"model"}


FAMILY_NAMES = {*FAMILIES, *(row.built.name for row in FAMILIES.values() if row.built)}


def named_families(source: str) -> set[str]:
    """The families that a file names as strings, alone or in a collection."""
    constants = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return FAMILY_NAMES & {node.value for node in constants if isinstance(node.value, str)}


def test_one_table_lists_the_families() -> None:
    lists = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if len(named_families(path.read_text(encoding="utf-8"))) > 1
    }
    assert lists == {"model/families.py"}


def test_a_second_list_of_families_would_be_seen() -> None:
    assert named_families('def f(x):\n    return x.model_type in ("llama", "gemma3_text")\n') == {
        "llama",
        "gemma3_text",
    }
    assert named_families('NORMS = {"gemma2": 1, "other": "gemma3"}') == {"gemma2", "gemma3"}


def test_figures_use_neither_models_nor_methods() -> None:
    used = {name for path in PACKAGE.parent.glob("figures/**/*.py") for name in imports(path)}
    assert not {name for name in used if name.split(".")[0] in ("transformers", "transformer_lens")}
    assert "arith_lens.runs" in used
    assert not {name for name in used if name.startswith(("arith_lens.model", "arith_lens.path"))}
    assert not {name for name in used if name in ("arith_lens", "experiments.settings")}


def test_importing_the_package_imports_nothing_heavy_and_prints_nothing(
    fresh_python: FreshPython,
) -> None:
    heavy = {"torch", "numpy", "plotly", "pandas", "transformers", "transformer_lens"}
    assert not heavy & fresh_python.after["the package"].packages
    assert "arith_lens" in fresh_python.after["the package"].modules
    assert fresh_python.after["the package"].printed == 0


def test_no_module_loads_a_model_library_when_imported(fresh_python: FreshPython) -> None:
    modules = fresh_python.after["all methods"].modules
    assert {f"arith_lens.{name}" for name in LAYERS if name != "reference"} <= modules
    assert not {"transformers", "transformer_lens", "plotly"} & modules


def test_every_public_name_is_there_and_typed() -> None:
    """The stub is what type checkers and editors read; `as` makes a name public there."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    declared = {
        str(alias.asname): f"arith_lens.{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    namespaces = {name for name in arith_lens._NAMES if name not in declared}
    assert {*arith_lens.__all__} <= {*declared} and len(arith_lens.__all__) <= 32
    assert sorted({*arith_lens.__all__, *namespaces}) == dir(arith_lens)
    assert all(inspect.ismodule(getattr(arith_lens, name)) for name in namespaces)
    for name, module in declared.items():
        public, defined = getattr(arith_lens, name), getattr(sys.modules[module], name)
        assert inspect.unwrap(public) is inspect.unwrap(defined)


def test_the_names_that_notebooks_rely_on_are_public() -> None:
    """Written out, so that none is lost by taking it from the package alone."""
    promised = """
        load_model HookedModel record sample_pairs PromptPairs Role path_patch plan
        ComponentEffects Effects compare key_heads Head Mlp open_run load_run
        patch_heads patch_mlps ablate_heads ablate_mlps scale_heads freeze capture
        knock_out knockout_curve Outcomes KnockoutCurve evaluate EvaluationResult
    """
    assert not set(promised.split()) - set(arith_lens._NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'path_pach'; did you mean 'path_patch'"):
        _ = arith_lens.path_pach  # pyright: ignore[reportAttributeAccessIssue]
