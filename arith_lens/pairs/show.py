"""How pairs print: a summary in a few lines, and a table whose tokens are coloured by role."""

from html import escape
from typing import TYPE_CHECKING

from arith_lens.pairs.roles import Role

if TYPE_CHECKING:
    from arith_lens.pairs.prompt_pairs import PromptPairs

SHOWN = 8  # pairs of the table
COLOURS = {
    Role.OPERAND_A: "#cfe3f7",
    Role.OPERATOR: "#fbd9b5",
    Role.OPERAND_B: "#cdeac8",
    Role.END: "#e3d4f0",
    Role.BOS: "#e4e4e4",
}


def summary(pairs: "PromptPairs") -> str:
    """Pairs, distinct references, operations, computed pairs, tokens, and the selection."""
    lines = [f"{len(pairs)} pairs, {pairs.n_distinct} distinct reference prompts"]
    if len(pairs):
        shortest, longest = int(pairs.lengths.min()), int(pairs.lengths.max())
        lines[0] += f", {shortest} to {longest} tokens"
    if pairs.operation is not None and pairs.template is not None:
        names = ", ".join(dict.fromkeys(pairs.operation))
        lines.append(f"{names}; templates: {len(set(pairs.template))}")
    if pairs.computed is not None:
        n_computed = int(pairs.computed.sum())
        lines.append(
            f"{n_computed} computed (C is neither A nor B), {len(pairs) - n_computed} that copying "
            "an operand would answer"
        )
    lines.append(str(pairs.selection) if pairs.selection else "not filtered by any model's answers")
    return "\n".join(lines)


def table(pairs: "PromptPairs") -> str:
    """The first pairs as HTML: reference above counterfactual, token above token, coloured by role.

    Tokens that differ are underlined; C stands behind the reference. No script, no network, and
    every token escaped.
    """
    grids = "".join(_grid(pairs, i) for i in range(min(SHOWN, len(pairs))))
    more = f"<div>and {len(pairs) - SHOWN} more</div>" if len(pairs) > SHOWN else ""
    key = " ".join(
        f'<span style="{_ink(colour)};padding:0 4px">{escape(str(role))}</span>'
        for role, colour in COLOURS.items()
    )
    said = escape(summary(pairs)).replace("\n", "<br>")
    legend = f"<div>{key}</div>" if pairs.spans is not None else ""
    return f"<div><div>{said}</div>{legend}{grids}{more}</div>"


def _grid(pairs: "PromptPairs", pair: int) -> str:
    shown = pairs.attention_mask[pair].nonzero()[:, 0].tolist()
    colours = _colours(pairs, pair)
    rows = []
    for side in ("reference", "counterfactual"):
        own, other = pairs.reference[pair], pairs.counterfactual[pair]
        tokens = own if side == "reference" else other
        cells = "".join(
            _cell(pairs, int(tokens[c]), colours.get(c), changed=bool(own[c] != other[c]))
            for c in shown
        )
        answer = f"<td>→</td>{_cell(pairs, int(pairs.answer[pair]), None)}"
        rows.append(f"<tr><th {_LEFT}>{side}</th>{cells}{answer * (side == 'reference')}</tr>")
    return f'<table style="margin:6px 0;border-collapse:collapse">{"".join(rows)}</table>'


def _colours(pairs: "PromptPairs", pair: int) -> dict[int, str]:
    if pairs.spans is None:
        return {}
    return {
        column: COLOURS[role]
        for role, span in pairs.spans.items()
        for column in range(*span[pair].tolist())
    }


_TOKEN = "text-align:center;padding:1px 4px;font-family:monospace;border:1px solid #d8dbe2"
_LEFT = 'style="text-align:left;padding:1px 8px 1px 0;font-weight:normal"'


def _ink(colour: str) -> str:
    return f"background:{colour};color:#222"


def _cell(pairs: "PromptPairs", token: int, colour: str | None, *, changed: bool = False) -> str:
    piece = escape((pairs.pieces or {}).get(token, str(token)))
    style = f"{_TOKEN};{_ink(colour)}" if colour else _TOKEN
    inside = f"<u>{piece}</u>" if changed else piece
    return f'<td style="{style}">{inside}</td>'
