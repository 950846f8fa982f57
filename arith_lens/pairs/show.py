"""How pairs print: a summary in a few lines, and a table whose tokens are coloured by role."""

from html import escape

from arith_lens.pairs.prompt_pairs import PromptPairs, Role

SHOWN = 8  # pairs of the table
COLOURS = {
    Role.OPERAND_A: "#cfe3f7",
    Role.OPERATOR: "#fbd9b5",
    Role.OPERAND_B: "#cdeac8",
    Role.END: "#e3d4f0",
    Role.BOS: "#e4e4e4",
}


def summary(pairs: PromptPairs) -> str:
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


def table(pairs: PromptPairs) -> str:
    """The first pairs as HTML: no script, no network, every token escaped."""
    rows = "".join(
        f"<tr>{_cell(pairs, i, 'reference')}{_cell(pairs, i, 'counterfactual')}"
        f"<td>{_token(pairs, int(pairs.answer[i]), None)}</td></tr>"
        for i in range(min(SHOWN, len(pairs)))
    )
    key = " ".join(
        f'<span style="background:{colour};color:#222">{escape(str(role))}</span>'
        for role, colour in COLOURS.items()
    )
    head = "<tr><th>reference</th><th>counterfactual</th><th>C</th></tr>"
    legend = f"<div>{key}</div>" if pairs.spans is not None else ""
    return f"<div><pre>{escape(summary(pairs))}</pre>{legend}<table>{head}{rows}</table></div>"


def _cell(pairs: PromptPairs, pair: int, side: str) -> str:
    tokens = getattr(pairs, side)[pair].tolist()
    shown = pairs.attention_mask[pair].tolist()
    colours = _colours(pairs, pair)
    parts = [
        _token(pairs, token, colours.get(column))
        for column, token in enumerate(tokens)
        if shown[column]
    ]
    return f"<td>{' '.join(parts)}</td>"


def _colours(pairs: PromptPairs, pair: int) -> dict[int, str]:
    if pairs.spans is None:
        return {}
    return {
        column: COLOURS[role]
        for role, span in pairs.spans.items()
        for column in range(*span[pair].tolist())
    }


def _token(pairs: PromptPairs, token: int, colour: str | None) -> str:
    piece = escape((pairs.pieces or {}).get(token, str(token)))
    style = f' style="background:{colour};color:#222"' if colour else ""
    return f"<code{style}>{piece}</code>"
