"""PromptPairs as a table in a notebook."""

from collections.abc import Mapping
from typing import Any

from arith_lens.pairs.tokens import Role

N_PAIRS = 8  # pairs in the table
ROLE_INKS: Mapping[str, str] = {
    Role.OPERAND_A: "operand",
    Role.OPERATOR: "operator",
    Role.OPERAND_B: "operand",
    Role.END: "answer",
    Role.BOS: "control",
    Role.EXAMPLES: "control",
}
"""The meaning of each role's colour, which is pale in the table."""
_TABLE = """
{% macro cell(piece, colour, changed) %}
<td style="text-align:center;padding:1px 4px;font-family:monospace;border:1px solid #d8dbe2
  {%- if colour %};background:{{ colour }};color:#222{% endif %}">
{%- if changed %}<u>{{ piece }}</u>{% else %}{{ piece }}{% endif %}</td>
{%- endmacro %}
<div><div>{{ summary.splitlines()|join("<br>"|safe) }}</div>
{% if coloured %}<div>{% for role, colour in colours.items() %}
<span style="background:{{ colour }};color:#222;padding:0 4px">{{ role }}</span>
{% endfor %}</div>{% endif %}
{% for grid in grids %}<table style="margin:6px 0;border-collapse:collapse">
{% for side, cells, answer in grid %}
<tr><th style="text-align:left;padding:1px 8px 1px 0;font-weight:normal">{{ side }}</th>
{% for piece, colour, changed in cells %}{{ cell(piece, colour, changed) }}{% endfor %}
{% if answer is not none %}<td>→</td>{{ cell(answer, none, false) }}{% endif %}</tr>
{% endfor %}</table>{% endfor %}
{% if more > 0 %}<div>and {{ more }} more</div>{% endif %}</div>
""".strip()


def html_table(pairs: Any) -> str:
    """The first pairs as HTML: reference above counterfactual, token above token, coloured by role.

    Tokens that differ are underlined; C stands behind the reference. No script, no network, and
    every token escaped.
    """
    from arith_lens.plotting import COLOURS, render, tint

    roles = [role for role in pairs.spans or () if bool(pairs.role_mask(role).any())]
    inks = {role: ROLE_INKS.get(role, "operand") for role in roles}
    colours = {role: tint(COLOURS[ink], 0.25) for role, ink in inks.items()}
    return render(
        _TABLE,
        summary=pairs.summary(),
        colours=colours,
        coloured=pairs.spans is not None,
        grids=[_grid(pairs, i, colours) for i in range(min(N_PAIRS, len(pairs)))],
        more=len(pairs) - N_PAIRS,
    )


def _grid(
    pairs: Any, pair: int, inks: Mapping[str, str]
) -> list[tuple[str, list[tuple[Any, ...]], str | None]]:
    """Two rows: the side, its cells (piece, colour, whether it differs), and the answer."""
    tokens = [side[pair].tolist() for side, _ in pairs.sides]
    masks = [mask[pair] for _, mask in pairs.sides]
    columns = (masks[0] | masks[1]).nonzero()[:, 0].tolist()
    colours = {
        column: inks[role]
        for role, span in (pairs.spans or {}).items()
        for column in range(*span[pair].tolist())
    }
    others = (
        range(len(tokens[0])) if pairs.counterparts is None else pairs.counterparts[pair].tolist()
    )
    of_other = {others[column]: colour for column, colour in colours.items()}
    named = pairs.pieces or {}

    def cells(side: int, inks: Mapping[int, str]) -> list[tuple[Any, ...]]:
        ids, mask = tokens[side], masks[side]
        return [
            (named.get(ids[i], str(ids[i])), inks.get(i), tokens[0][i] != tokens[1][i])
            if mask[i]
            else ("", None, False)
            for i in columns
        ]

    answer = int(pairs.answer[pair])
    right = named.get(answer, str(answer))
    return [("reference", cells(0, colours), right), ("counterfactual", cells(1, of_other), None)]
