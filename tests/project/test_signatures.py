"""Public functions have at most nine parameters; their other options are typed and documented."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

import pytest

import arith_lens as al
from arith_lens.options import refuse_unknown_options, value_object
from arith_lens.path_patching import path_patch

MOST = 9


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that a caller can give; `**options` is one."""
    every = inspect.signature(function).parameters.values()
    return [one for one in every if one.name not in ("self", "cls")]


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, and the methods of every public class that were written by hand."""
    for name in al._NAMES:
        thing = getattr(al, name)
        if not inspect.isclass(thing):
            if callable(thing):  # a table of families is none
                yield name, thing
            continue
        for member, value in vars(thing).items():
            function = getattr(value, "__func__", value)  # of a classmethod
            if inspect.isfunction(function) and not member.startswith("_"):
                yield f"{name}.{member}", function


FUNCTIONS = dict(public_functions())


def options_of(function: Callable[..., Any]) -> set[str]:
    """The names in the TypedDict of `**options`."""
    last = [one.name for one in parameters(function) if one.kind is one.VAR_KEYWORD]
    hints = get_type_hints(inspect.unwrap(function)) if last else {}
    return {name for one in last for kind in get_args(hints[one]) for name in get_type_hints(kind)}


WITH_OPTIONS = {name: function for name, function in FUNCTIONS.items() if options_of(function)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_public_function_has_more_than_nine_parameters(name: str) -> None:
    assert len(parameters(FUNCTIONS[name])) <= MOST


def test_the_count_sees_methods_and_would_see_ten_parameters() -> None:
    assert {"PromptPairs.from_tokens", "Effects.ci", "path_patch"} <= FUNCTIONS.keys()
    assert {*PROMISED} <= WITH_OPTIONS.keys()
    names = {f"a{i}": inspect.Parameter(f"a{i}", inspect.Parameter.KEYWORD_ONLY) for i in range(10)}

    def many() -> None: ...

    many.__signature__ = inspect.Signature(list(names.values()))  # pyright: ignore
    assert len(parameters(many)) > MOST


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_the_options_that_are_typed_are_those_that_are_taken(name: str) -> None:
    """An unknown option is a TypeError that lists those of the value objects."""
    required = {
        one.name: None
        for one in parameters(WITH_OPTIONS[name])
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    }
    function = inspect.unwrap(WITH_OPTIONS[name])
    with pytest.raises(TypeError, match="unexpected keyword argument 'zzz'") as refused:
        function(**required, zzz=1)
    taken = str(refused.value).partition(" and the options ")[2].partition("; ")[0].split(", ")
    assert {*taken} == options_of(WITH_OPTIONS[name])
    assert len({*taken}) == len(taken), "an option belongs to one value object"


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_every_option_is_documented_with_the_arguments(name: str) -> None:
    text = inspect.getdoc(WITH_OPTIONS[name]) or ""
    undocumented = {option for option in options_of(WITH_OPTIONS[name])
                    if not re.search(rf"\b{option}\b", text)}  # fmt: skip
    assert undocumented == set()


@pytest.mark.parametrize(
    ("name", "near"),
    [("kep_strongest", "keep_strongest"), ("sender", "senders"), ("spot_check", "spot_checks")],
)
def test_a_misspelt_option_is_named_with_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(TypeError, match=rf"path_patch\(\) got .* '{name}'. Did you mean '{near}'?"):
        inspect.unwrap(path_patch)(None, None, **{name: 1})  # pyright: ignore


PROMISED = {
    "sample_pairs": """model operation n seed templates operands answer_token counterfactual keep
        shots exemplars exemplar_set""",
    "path_patch": "model pairs senders paths metric engine run progress screen keep until",
    "knock_out": "model pairs components ablation positions means",
    "knockout_curve": "model pairs order ks ablation positions run",
    "keep_only": "model pairs components among ablation positions",
    "circuit_curve": "model pairs order kind metric fractions",
    "attribute": "model pairs method paths metric progress",
    "evaluate": "model tasks hooks limit data_dir",
    "fine_tune": "source dataset method heads mlps output",
    "edge_effects": """model pairs receivers senders inputs positions group via paths metric run
        progress""",
    "interchange_pairs": "model causal variable operands n hold_out",
    "built_model": "name family n_kv_heads beta sharpness rotation norm_weights n_layers",
    "number_subspace": "model pairs layer at value kind periods linear",
}
"""Keywords that callers rely on, written out."""


@pytest.mark.parametrize("name", PROMISED)
def test_promised_keywords_are_taken(name: str) -> None:
    function = FUNCTIONS[name]
    taken = {one.name for one in parameters(function)} | options_of(function)
    assert not {*PROMISED[name].split()} - taken


def test_value_objects_take_their_own_options_and_their_defaults() -> None:
    from arith_lens.knockout import Knockout

    some = value_object(Knockout, {"seed": 3, "among": "mlps"})
    assert (some.seed, some.ablation) == (3, "mean")
    refuse_unknown_options(path_patch, {"seed": 3}, Knockout)
    with pytest.raises(TypeError, match="'among'"):
        refuse_unknown_options(path_patch, {"among": "mlps"}, Knockout)


def test_the_old_name_of_keep_strongest_still_works_alone() -> None:
    from arith_lens.path_patching.options import Screen

    kept = [value_object(Screen, options).n_kept for options in
            ({"keep": 3}, {"keep_strongest": 3}, {"keep": None}, {})]  # fmt: skip
    assert kept == [3, 3, 64, 64]
    with pytest.raises(ValueError, match="expected keep_strongest= alone, found keep=2"):
        value_object(Screen, {"keep": 2, "keep_strongest": 3})
