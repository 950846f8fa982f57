"""The tables that the explorer shows, the code that computes each, and their packed form."""

import gzip
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Tables: TypeAlias = "Mapping[str, DataFrame]"
SetFacts: TypeAlias = Mapping[str, Any]
"""About one set of prompts: `setup` (code that makes `model` and `pairs`), `note` (text), `missing`
(by table, why it is not computed)."""

N_DIGITS = 4
"""Significant digits of numbers on a page."""

TABLES = {
    "effects": "one row per paths, metric and component: mean effect, 95% interval, key head",
    "units": "one row per paths, metric, component and unit (template or problem): mean effect",
    "prompts": "one row per prompt of the sample: its texts, answer, problem and template",
    "tokens": "one row per token of these prompts: its text and role",
    "attention": "one row per head and role: attention from END, 95% interval",
    "kinds": "one row per head: operand, operator or other",
    "patterns": "one row per head, prompt, query and key: attention weight",
    "numbers": "one row per component, what is read, and role (A, B, C, others): logit, interval",
    "digits": "one row per component, what is read, prompt and digit: logit",
    "inputs": "one row per head, input (q, k, v) and sender: share of the head's change, interval",
    "carriers": "one row per head and MLP: what the MLP carries and conveys of its effect",
    "neurons": "one row per MLP and strong neuron: direct effect, interval, cosines with digits",
    "sets": "one row per knocked-out or kept set of components: accuracy, 95% interval, mean p(C)",
    "answers": "one row per such set and prompt: p(C), the most likely tokens",
}
"""What each table has rows of."""

CODE = {
    "effects": 'effects = al.path_patch(model, pairs, paths={paths}, metric={metric})\n'
    "table = effects.to_dataframe()",
    "units": "effects = al.path_patch(model, pairs, paths={paths}, metric={metric})\n"
    "from arith_lens.effects import effect_tables\n"
    'table = effect_tables(effects)["units"].query("component == \'{component}\'")',
    "attention": 'looks = al.attention_by_role(model, pairs, "{component}")\n'
    "table = looks.to_dataframe()",
    "patterns": "from arith_lens.attention import patterns_of\n"
    'patterns = patterns_of(model, {reference}, "{component}")\n'
    "table = patterns.to_dataframe()",
    "numbers": 'probe = al.head_probe(model, pairs, "{component}")\n'
    "table = probe.to_dataframe()",
    "mlp_numbers": 'probe = al.mlp_probe(model, pairs, read="{read}", unit="logit")\n'
    'table = probe.to_dataframe().query("layer == {layer}")',
    "inputs": 'feeding = al.composition(model, pairs[{rows}], "{component}")\n'
    "table = feeding.to_dataframe()",
    "carriers": 'mediation = al.mediators(model, pairs[{rows}], "{component}")\n'
    "table = mediation.to_dataframe()",
    "neurons": 'neurons = al.neuron_effects(model, pairs[{rows}], "{component}")\n'
    'table = neurons.to_dataframe().sort_values("mean")',
    "knock_out": 'without = al.knock_out(model, pairs, {members})\n'
    "table = without.to_dataframe()",
    "keep_only": 'kept = al.keep_only(model, pairs, {members}, among="{among}", positions="end")\n'
    "table = kept.to_dataframe()",
}  # fmt: skip
"""The lines that compute a picture's table; names in braces are what is chosen."""


def packed(parts: Mapping[str, tuple[SetFacts, Tables]]) -> str:
    """Facts and tables of sets of prompts, as base64 of compressed JSON.

    Numbers are rounded to `N_DIGITS` significant digits; NaN becomes null.
    """
    sets = [
        {"name": name, "facts": dict(facts), "tables": {
            table: {str(column): _column(values) for column, values in frame.items()}
            for table, frame in tables.items() if len(frame)
        }}
        for name, (facts, tables) in parts.items()
    ]  # fmt: skip
    text = json.dumps({"sets": sets, "code": CODE}, allow_nan=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unpacked(text: str) -> dict[str, Any]:
    """The JSON of `packed`."""
    return json.loads(gzip.decompress(b64decode(text)))


def _column(values: "Series") -> Any:
    """Numbers as a list; texts as their levels, and the code of each."""
    array = values.to_numpy()
    if array.dtype.kind in "ib":
        return array.tolist()
    if array.dtype.kind == "f":
        return [float(f"{x:.{N_DIGITS}g}") if np.isfinite(x) else None for x in array.tolist()]
    codes, levels = values.astype(str).factorize()
    return {"levels": list(levels), "codes": codes.tolist()}
