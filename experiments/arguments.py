"""The arguments of a command, read from its code: nothing that computes is imported.

PyTorch and the model libraries take seconds to import. A help text, or the refusal of a wrong
argument, needs only the command's signature and the classes of its settings. Only the lines that
define these are executed here.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import field, fields, make_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import tyro

ROOT = Path(__file__).parents[1]
DEFAULT_ROOT = Path("results")
"""The folder of all runs, unless the user names another one."""


def experiment_command(
    config_class: Any, run: Callable[..., Any] = lambda config, **options: {"": config, **options}
) -> Callable[..., Any]:
    """The function that the command line of an experiment calls.

    Args:
        config_class: a dataclass of the experiment's settings.
        run: it gets the settings and the options; by default it returns them.
    """

    def command(
        config: Annotated[config_class, tyro.conf.arg(name="")],  # pyright: ignore
        *,
        root: Path = DEFAULT_ROOT,
        dry_run: bool = False,
        again: bool = False,
    ) -> Any:
        """Compute, save and print.

        Args:
            config: what to compute.
            root: the folder of all runs.
            dry_run: print what it would cost, and stop; no weights are loaded.
            again: compute stored results again; without it, finished results are used, and
                stopped ones are continued.
        """
        return run(config, root=root, dry_run=dry_run, again=again)

    return command


def exhibit_command(
    options_class: Any,
    settings_class: Any = None,
    show: Callable[..., Any] = lambda *parts: dict(enumerate(parts)),
) -> Callable[..., Any]:
    """The function that the command line of an exhibit calls.

    Args:
        options_class: a dataclass of the exhibit's options.
        settings_class: the settings of the experiment whose run it shows; None if it shows none.
        show: it gets the options, and the settings if there are any; by default it returns them.
    """

    def main(options: Annotated[options_class, tyro.conf.arg(name="")]) -> Any:  # pyright: ignore
        """Draw and write the exhibits, and print what was written."""
        return show(options)

    if settings_class is None:
        return main
    if not hasattr(options_class, "model"):
        settings_class = _without_model(settings_class)

    def main_with_settings(
        options: Annotated[options_class, tyro.conf.arg(name="")],  # pyright: ignore
        config: Annotated[settings_class, tyro.conf.arg(name="")],  # pyright: ignore
    ) -> Any:
        """Draw and write the exhibits of the run with these settings, and print what was written.

        Args:
            options: where the files go.
            config: the settings of the experiment, as its command has them.
        """
        return show(options, config)

    return main_with_settings


def _without_model(settings_class: Any) -> Any:
    """The class of settings, without the option `--model`."""
    if not hasattr(settings_class, "model"):
        return settings_class
    hidden = ("model", tyro.conf.Suppress[str], field(default=settings_class.model))
    name = settings_class.__name__
    return make_dataclass(name, [hidden], bases=(settings_class,), frozen=True)


def signature(module: str, variable: str, settings_class: Any = None) -> Callable[..., Any]:
    """A function with the arguments of a command, which returns the values that it gets.

    Args:
        module: the dotted name of the module that defines the command.
        variable: the `Experiment`, or the function, that the command starts.
        settings_class: for an exhibit, the settings of its experiment.
    """
    slice_ = _slice(module)
    definition = slice_.definition(variable)
    if isinstance(definition, ast.ImportFrom):
        return signature(str(definition.module), variable, settings_class)
    if isinstance(definition, ast.Assign):  # an Experiment: its second argument is the settings
        return experiment_command(experiment_settings(module, variable))
    assert isinstance(definition, ast.FunctionDef)
    returns = ast.unparse(definition.returns) if definition.returns else ""
    if returns.startswith("list[") or settings_class is not None:
        options_class = slice_.value(_name_of_class(definition.args.args[0].annotation))
        has_settings = any(field.name == "settings" for field in fields(options_class))
        return exhibit_command(options_class, settings_class if has_settings else None)
    _drop_body(definition)
    return slice_.value(variable)


def experiment_settings(module: str, variable: str) -> Any:
    """The class of an experiment's settings; None if its command has no such class.

    Args:
        module: the dotted name of the module that defines the experiment.
        variable: the `Experiment`, or the function, that its command starts.
    """
    slice_ = _slice(module)
    definition = slice_.definition(variable)
    if isinstance(definition, ast.Assign):
        assert isinstance(definition.value, ast.Call)
        return slice_.value(ast.unparse(definition.value.args[1]))
    assert isinstance(definition, ast.FunctionDef)
    first = definition.args.args[:1]
    is_config = bool(first) and first[0].arg == "config"
    return slice_.value(_name_of_class(first[0].annotation)) if is_config else None


def _name_of_class(annotation: ast.expr | None) -> str:
    """The class of an argument; of `Annotated[Config, ...]`, the `Config`."""
    assert annotation is not None
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        annotation = annotation.slice.elts[0]
    return ast.unparse(annotation)


def constant(module: str, name: str) -> Any:
    """The value of a constant of a module, which is not imported."""
    return _slice(module).value(name)


@cache
def _slice(module: str) -> "_Slice":
    return _Slice(module)


class _Slice:
    """Those definitions of a module that were needed so far."""

    def __init__(self, module: str) -> None:
        path = ROOT.joinpath(*module.split("."))
        file = path.with_suffix(".py")
        file = file if file.is_file() else path / "__init__.py"
        self._file = str(file)
        self._module = ModuleType(f"arguments of {module}")
        self._module.__file__ = self._file  # where tyro reads the descriptions of settings
        sys.modules[self._module.__name__] = self._module
        self._definitions: dict[str, ast.stmt] = {}
        for statement in ast.parse(file.read_text(encoding="utf-8")).body:
            for name in _defined(statement):
                self._definitions[name] = statement

    def definition(self, name: str) -> ast.stmt:
        """The statement of the module that defines a name."""
        return self._definitions[name]

    def value(self, name: str) -> Any:
        """The value of a name; what it needs is executed first."""
        names = vars(self._module)
        if name not in names:
            statement = self._definitions[name]
            if isinstance(statement, ast.ImportFrom) and _is_sliced(str(statement.module)):
                (original,) = [n.name for n in statement.names if name in (n.asname, n.name)]
                names[name] = _slice(str(statement.module)).value(original)
            else:
                self._execute(_without_methods(statement))
        return names[name]

    def _execute(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                definition = self._definitions.get(node.id, statement)
                if definition is not statement:
                    self.value(node.id)
        code = compile(ast.Module([statement], []), self._file, "exec")
        exec(code, vars(self._module))


def _is_sliced(module: str) -> bool:
    """Whether the definitions of a module are executed one by one; others are imported."""
    return module.partition(".")[0] in ("experiments", "figures", "laboratory")


def _defined(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module defines."""
    match statement:
        case ast.Import(names) | ast.ImportFrom(names=names):
            yield from ((name.asname or name.name).partition(".")[0] for name in names)
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            nodes = (node for target in targets for node in ast.walk(target))
            yield from (node.id for node in nodes if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _without_methods(statement: ast.stmt) -> ast.stmt:
    """A class without its methods; other statements as they are."""
    if isinstance(statement, ast.ClassDef):
        fields = [part for part in statement.body if not isinstance(part, ast.FunctionDef)]
        statement.body = fields or [ast.Pass()]
    return ast.fix_missing_locations(statement)


def _drop_body(function: ast.FunctionDef) -> None:
    """Make it a function that returns the values that it gets, by name."""
    docstring = function.body[:1] if ast.get_docstring(function) else []
    function.body = [*docstring, ast.parse("return locals()").body[0]]
    function.returns, function.decorator_list = None, []
