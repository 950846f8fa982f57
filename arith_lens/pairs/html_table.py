"""Prompt pairs as HTML, for notebooks: token above token, coloured by role."""

from typing import TYPE_CHECKING, Any

from arith_lens.pairs.tokens import Role

if TYPE_CHECKING:
    from arith_lens.pairs.prompt_pairs import PromptPairs

N_PAIRS = 8  # pairs in the table
ROLE_COLOURS = {
    Role.OPERAND_A: "#cfe3f7",
    Role.OPERATOR: "#fbd9b5",
    Role.OPERAND_B: "#cdeac8",
    Role.END: "#e3d4f0",
    Role.BOS: "#e4e4e4",
    Role.EXAMPLES: "#f3f0dc",
}


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


def html_table(pairs: "PromptPairs") -> str:
    """The first pairs as HTML: reference above counterfactual, token above token, coloured by role.

    Tokens that differ are underlined; C stands behind the reference. No script, no network, and
    every token escaped.
    """
    from arith_lens.plotting.markup import render

    return render(
        _TABLE,
        summary=pairs.summary(),
        colours=ROLE_COLOURS,
        coloured=pairs.spans is not None,
        grids=[_grid(pairs, i) for i in range(min(N_PAIRS, len(pairs)))],
        more=len(pairs) - N_PAIRS,
    )


def _grid(pairs: "PromptPairs", pair: int) -> list[tuple[str, list[tuple[Any, ...]], str | None]]:
    """Two rows: the side, its cells (piece, colour, whether it differs), and the answer."""
    columns = pairs.attention_mask[pair].nonzero()[:, 0].tolist()
    colours = _colours(pairs, pair)
    tokens = pairs.reference[pair].tolist(), pairs.counterfactual[pair].tolist()
    reference, counterfactual = (
        [(_piece(pairs, row[i]), colours.get(i), tokens[0][i] != tokens[1][i]) for i in columns]
        for row in tokens
    )
    answer = _piece(pairs, int(pairs.answer[pair]))
    return [("reference", reference, answer), ("counterfactual", counterfactual, None)]


def _colours(pairs: "PromptPairs", pair: int) -> dict[int, str]:
    if pairs.spans is None:
        return {}
    return {
        column: ROLE_COLOURS[role]
        for role, span in pairs.spans.items()
        for column in range(*span[pair].tolist())
    }


def _piece(pairs: "PromptPairs", token: int) -> str:
    return (pairs.pieces or {}).get(token, str(token))
