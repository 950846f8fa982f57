"""Tokens and data on their way into HTML: shown as themselves, and nothing of them runs."""

import json
from typing import Any

JOINER = "\u2060"  # WORD JOINER: invisible in HTML, on a canvas and in tooltips
SHOWN = {"\n": "↵", "\r": "↵", "\t": "⇥", "\u2028": "↵", "\u2029": "↵"}


def safe_token(token: str) -> str:
    """A token as circuitsvis may show it: `<` and `&` begin no tag and no entity.

    Some of its components put tokens into the page as HTML, others draw them; an escaped token
    would show its escapes in the latter, so an invisible character keeps letters apart instead.
    """
    for letter, sign in SHOWN.items():
        token = token.replace(letter, sign)
    return token.replace("&", f"&{JOINER}").replace("<", f"<{JOINER}")


def script_json(value: Any) -> str:
    """JSON for inside a `<script>`, which no text in it can end. Raises ValueError for NaN."""
    text = json.dumps(value, allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
