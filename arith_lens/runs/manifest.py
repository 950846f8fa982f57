"""What a run says about itself: its manifest (`run.json`), and where its results come from.

The software, machine, model and data of a computation make its identity. Equal identities give
equal bits.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.code_digest import UnknownCode, digest_of_code
from arith_lens.hooks import has_identity, hooks_digest
from arith_lens.runs.files import RunError, is_digest, is_name, listed, now, plain_value, write
from arith_lens.statistics import Units
from arith_lens.untrusted import parse_json

RUN_FORMAT = 3
"""The version of the layout of a run folder; folders of other versions are refused."""

RUN_FILE = "run.json"


def new_manifest(
    experiment: str, config: Mapping[str, Any], provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest of a run in which nothing has been computed."""
    return {
        "arith_lens_run": RUN_FORMAT,
        "experiment": experiment,
        "config": config,
        "status": "new",
        "started": now(),
        "wall_seconds": 0.0,
        "provenance": provenance,
        "results": {},
        "unfinished": {},
    }


def decisive_parts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same for two runs to be the same, by the words of an error.

    Model and input files are there as digests.
    """
    provenance = manifest["provenance"]
    model = provenance.get("model") or {}
    return {
        "experiment": manifest["experiment"],
        "version": provenance["versions"]["arith-lens"],
        "configuration:": manifest["config"],
        "model's weights": model.get("weights_sha256"),
        "model's configuration": model.get("configuration_sha256"),
        "input files": provenance.get("inputs") or [],
    }


def key_parts(manifest: Mapping[str, Any]) -> list[Any]:
    """The decisive parts and the format, in the order in which a run's key is made of them."""
    experiment, *others = decisive_parts(manifest).values()
    return [experiment, RUN_FORMAT, *others]


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write run.json. Raises RunError if that fails; the earlier manifest then stays."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    write(folder / RUN_FILE, text.encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read run.json.

    Raises:
        RunError: there is no run, or it is damaged or of another version.
    """
    file = folder / RUN_FILE
    if not file.is_file():
        raise RunError(
            f"expected a run folder with a run.json, found none at {folder}. "
            "Give a folder results/<experiment>/<key>, or run the experiment first."
        )
    try:
        manifest = parse_json(file.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(
            f"expected a run's entry in {file}, found a damaged file ({error}). Delete the folder "
            "and run again."
        ) from error
    if not isinstance(manifest, dict) or "arith_lens_run" not in manifest:
        raise RunError(
            f"expected a file that arith_lens has written, found another one at {file}. Give a "
            "folder of results/."
        )
    if manifest["arith_lens_run"] != RUN_FORMAT:
        raise RunError(
            f"expected a run of format {RUN_FORMAT}, found {manifest['arith_lens_run']} in "
            f"{folder}. Delete that folder and run the experiment again, or read it with the "
            "version in its provenance."
        )
    if lacking := _lacking(manifest):
        raise RunError(
            f"expected {listed(lacking)} in {file}, found none, or of another kind: it is damaged. "
            "Delete it and run again."
        )
    return manifest


def _lacking(manifest: Mapping[str, Any]) -> list[str]:
    """The entries that a manifest lacks, or that are of another type than a run writes."""
    kinds = {
        "experiment": str,
        "config": dict,
        "status": str,
        "wall_seconds": int | float,
        "provenance": dict,
        "results": dict,
        "unfinished": dict,
    }
    lacking = [name for name, kind in kinds.items() if not isinstance(manifest.get(name), kind)]
    if {"results", "unfinished"} & {*lacking}:
        return lacking
    parts = {"identity": str, "kind": str, "facts": dict}
    lacking += [
        f"{part} of {name}"
        for name, entry in manifest["results"].items()
        for part, kind in parts.items()
        if not isinstance(entry, dict) or not isinstance(entry.get(part), kind)
    ]
    return lacking or _foreign_names(manifest)


def _foreign_names(manifest: Mapping[str, Any]) -> list[str]:
    """The names and identities of a manifest that could lead out of the root: they become paths."""
    results, unfinished = manifest["results"], manifest["unfinished"]
    identities = {name: entry["identity"] for name, entry in results.items()} | unfinished
    return [
        f"a name of letters, digits, _ and - in place of {name!r}"
        for name in (manifest["experiment"], *results, *unfinished)
        if not is_name(name)
    ] + [
        f"a digest as the identity of {name}"
        for name, key in identities.items()
        if not is_digest(key)
    ]


RESULT_CLASSES = {
    "answers": ("answers", "Answers"),
    "attention_patterns": ("attention", "Patterns"),
    "audit": ("auditing", "Audit"),
    "before_after": ("effects", "BeforeAfter"),
    "circuit_curve": ("knockout", "CircuitCurve"),
    "component_effects": ("effects", "ComponentEffects"),
    "effects": ("effects", "Effects"),
    "evaluation": ("evaluation", "EvaluationResult"),
    "exploration": ("exploration", "Exploration"),
    "heuristic_matches": ("neurons", "HeuristicMatches"),
    "greedy_mask": ("knockout", "GreedyMask"),
    "interchange": ("interchanges", "Interchange"),
    "knockout_curve": ("knockout", "KnockoutCurve"),
    "knockout_curves": ("knockout", "KnockoutCurves"),
    "mediation": ("mediation", "Mediation"),
    "neuron_maps": ("neurons", "NeuronMaps"),
    "next_tokens": ("next_tokens", "NextTokens"),
    "outcomes": ("knockout", "Outcomes"),
    "swaps": ("numbers", "Swaps"),
}
"""For each kind of result: the module within arith_lens, and the class in it."""


def read_result(arrays: Arrays) -> Any:
    """The result in `arrays`, as an object of its class.

    Raises:
        RunError: no class of this package has this kind.
    """
    kind = arrays.header["kind"]
    if kind not in RESULT_CLASSES:
        raise RunError(
            f"expected a result of a kind among {listed(RESULT_CLASSES)}, found a result of kind "
            f"{kind!r}; read it with the from_arrays of its class, from load_arrays"
        )
    module, name = RESULT_CLASSES[kind]
    return getattr(import_module(f"arith_lens.{module}"), name).from_arrays(arrays)


_PACKAGES = ("arith-lens", "torch", "transformers", "transformer-lens", "numpy", "safetensors")


@runtime_checkable
class SavedPairs(Protocol):
    """The attributes of prompt pairs that a run needs; `PromptPairs` has them."""

    @property
    def reference(self) -> Int[Tensor, "pair pos"]: ...
    @property
    def counterfactual(self) -> Int[Tensor, "pair pos"]: ...
    @property
    def answer(self) -> Int[Tensor, " pair"]: ...
    @property
    def attention_mask(self) -> Bool[Tensor, "pair pos"]: ...
    @property
    def counterfactual_answer(self) -> Int[Tensor, " pair"]: ...
    @property
    def counterparts(self) -> Int[Tensor, "pair pos"] | None: ...
    @property
    def computed(self) -> Bool[Tensor, " pair"] | None: ...
    @property
    def reference_text(self) -> tuple[str, ...] | None: ...
    @property
    def n_distinct(self) -> int: ...
    @property
    def units(self) -> Units: ...
    @property
    def selection(self) -> Any: ...  # None, or a dataclass of how the filter chose

    def to_jsonl(self, path: Path) -> None: ...


def software() -> dict[str, Any]:
    """Versions, machine and threads. No package is imported to find them."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "versions": {name: installed(name) for name in _PACKAGES},
    }


def describe_model(model: Any) -> dict[str, Any]:
    """Name, weights, configuration, shape, dtype, device and attention kernel of a model, the file
    of quantised weights that it comes from, and what is put in front of texts; {} for None."""
    if model is None:
        return {}
    from arith_lens.model import configuration_hash

    return {
        "name": model.name,
        "weights_sha256": fingerprint("weights_hash", model),
        "configuration_sha256": configuration_hash(model),
        "n_layers": model.n_layers,
        "n_heads": model.n_heads,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "attn_implementation": model.attn_implementation,
        "quantised_from": model.quantised_from,
        "first_token": model.first_token,
    }


def fingerprint(function: str, model: Any) -> str | None:
    """A hash of the model by a function of `arith_lens.model`; None on the meta device."""
    import arith_lens.model

    try:
        return getattr(arith_lens.model, function)(model)
    except ValueError:
        return None


@cache  # reading the packages' metadata takes milliseconds
def installed(package: str) -> str | None:
    """A package's version; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe_pairs(pairs: SavedPairs) -> Mapping[str, Any]:
    """The number of pairs, of distinct references, of problems (None if not known) and of tokens; a
    digest of all tokens; what the filter did."""
    digest = hashlib.sha256()
    for tensor in (pairs.reference, pairs.counterfactual, pairs.answer, pairs.attention_mask):
        digest.update(f"{tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().long().numpy().tobytes())
    if bool((pairs.counterfactual_answer >= 0).any()):  # else the digest is that of pairs without
        digest.update(pairs.counterfactual_answer.cpu().long().numpy().tobytes())
    if pairs.counterparts is not None:
        digest.update(pairs.counterparts.cpu().long().numpy().tobytes())
    for unit in (pairs.units["template"], pairs.units["problem"]):
        digest.update(json.dumps(unit).encode())
    return {
        "pairs": len(pairs.answer),
        "distinct": pairs.n_distinct,
        "problems": None if pairs.units["problem"] is None else len({*pairs.units["problem"]}),
        "tokens": list(pairs.reference.shape)[1],
        "data_sha256": digest.hexdigest(),
        "selection": pairs.selection,
    }


def identity_of(model: Any, pairs: SavedPairs | None, **question: Any) -> dict[str, Any]:
    """Everything that decides the numbers of a computation, as JSON. Equal identities give equal
    bits.

    Args:
        model: the model that computes.
        pairs: the data; None if `question` says what the data are.
        question: the method and its settings.

    Raises:
        RunError: the model has a hook that is not of this package, or runs code of the user that
            refers to something without a description.
    """
    from arith_lens.model import (
        compute_device,
        configuration_hash,
        numeric_settings,
        tokenizer_hash,
    )

    bridge = getattr(model, "bridge", model)
    weight = next(bridge.parameters())
    data = {"data_sha256": None} if pairs is None else describe_pairs(pairs)
    return {
        "question": plain_value(question),
        "data_sha256": data["data_sha256"],
        "labels_sha256": _digest_of_labels(pairs),
        "model": {
            # weights that cannot be read are equal to no others
            "weights_sha256": fingerprint("weights_hash", model) or f"unknown {uuid4()}",
            "buffers_sha256": fingerprint("buffers_hash", model),
            "configuration_sha256": configuration_hash(model),
            "hooks_sha256": _digest_of_hooks(model),
            "code_sha256": _digest_of_code(model),
            "tokenizer_sha256": tokenizer_hash(getattr(model, "tokenizer", None)),
            "dtype": str(weight.dtype),
            "device": _device(compute_device(bridge)),
            "attn_implementation": bridge.original_model.config._attn_implementation,
        },
        "threads": torch.get_num_threads(),
        "settings": numeric_settings(),
        "versions": software()["versions"],
    }


def _device(device: torch.device) -> str:
    """The device, in as much detail as the bits of a result depend on it."""
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    return f"{device.type} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _digest_of_labels(pairs: SavedPairs | None) -> str | None:
    """A digest of what results store besides numbers: templates, roles, operands, texts."""
    names = (
        *("template", "operation", "operands", "computed", "spans", "problem", "examples"),
        *("exemplar_set", "reference_text", "counterfactual_text", "answer_text"),
    )
    labels = {name: getattr(pairs, name, None) for name in names}
    known = {name: label for name, label in labels.items() if label is not None}
    text = json.dumps(known, sort_keys=True, default=Tensor.tolist)
    return hashlib.sha256(text.encode()).hexdigest() if known else None


def _digest_of_hooks(model: Any) -> str | None:
    """A digest of the active hooks; RunError for one that cannot be recognised again."""
    from arith_lens.model import active_hooks, unknown_influences

    hooks = active_hooks(model)
    unknown = [hook for hook in hooks if not has_identity(hook)] + unknown_influences(model)
    for name, function in unknown:
        raise RunError(
            f"expected a model without hooks, or with hooks of arith_lens.hooks alone, found "
            f"{function!r:.80} at {name}: a run cannot tell what another function computes, "
            "nor whether it is the same one next time. Remove it (model.bridge.reset_hooks(), "
            "or remove() of its handle), or compute without run="
        )
    return hooks_digest(hooks)


def _digest_of_code(model: Any) -> str:
    """A digest of the code of a model's forward; RunError if it cannot be recognised again."""
    from arith_lens.model import code_hash

    try:
        return code_hash(model)
    except UnknownCode as error:
        raise RunError(
            "expected a model whose code can be recognised next time, found a class or function of "
            f"your own that cannot be described ({error}). Let it refer to functions and plain "
            "values alone, undo it, or compute without run="
        ) from error


def method_identity(method: Callable[..., Any]) -> dict[str, str]:
    """The name of a method, and a digest of its code unless it is a function of this package.

    Raises:
        RunError: it refers to something without a description.
    """
    module, qualname = (getattr(method, part, "") for part in ("__module__", "__qualname__"))
    name = f"{module}.{qualname}"
    if name.startswith("arith_lens.") and getattr(sys.modules[module], qualname, None) is method:
        return {"method": name}
    try:
        return {"method": name, "code_sha256": digest_of_code(method)}
    except UnknownCode as error:
        raise RunError(
            f"expected a method that can be recognised next time, found {method!r:.80}, "
            f"which refers to something that cannot be described ({error}). Give what changes as "
            "a setting, or call the method and store its result with run.save"
        ) from error
