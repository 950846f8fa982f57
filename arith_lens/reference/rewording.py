"""Word problems of the closed world told so that nothing is left to calculate.

As in Figure 10's stories, things and names change from sentence to sentence, so that the numbers
count different things; and words that say what to do with them ("sells", "more ... than",
"in each") give way to words that leave every number as it is. Candidates are words that the world
knows where it has some of that kind, of several lengths: the tokenizer decides which fit.
"""

import re
from collections.abc import Collection
from itertools import product

from arith_lens.reference.word_problems import CONTAINERS, FAMILIES
from arith_lens.templates import SLOTS
from arith_lens.word_problems import Edit, question_edits

PARTS = ("question", "operators", "referents", "possession")
"""What can be reworded: words that ask, words that calculate, things and names, "has"."""

Words = tuple[str, ...]
_IDLE: Words = (
    *("paints", "washes", "carries", "praises", "folds", "admires", "likes", "sees", "loves"),
    *("knows", "hates", "opens", "touches", "describes"),
    *(
        f"{verb} {preposition}"
        for verb, preposition in product(
            ("looks", "smiles", "laughs", "talks", "thinks", "sings", "dreams", "walks"),
            ("at", "about", "near", "behind"),
        )
    ),
)
_LOOK: Words = (
    *("good", "grey", "pink", "blue", "green", "white", "black", "brown", "empty", "old", "wet"),
    *("thin", "wide", "thick", "hollow", "silver", "copper", "coloured", "nameless"),
)
_STUFF: Words = ("iron", "gold", "white", "blue", "green", "pink", "zinc", "silver", "town", "tin")
_BESIDE: Words = ("near", "from", "after", "behind", "before", "beside")
_WORDS: dict[str, tuple[str, Words]] = {
    "verb": ("operators", _IDLE),
    "more": ("operators", _LOOK),
    "than": ("operators", _BESIDE),
    "left": ("operators", _LOOK),
    "with": ("operators", ("and", "or", "near", "behind", "beside")),
    "each": ("operators", _STUFF),
    "all": ("operators", _STUFF),
    "shared": ("operators", ("front", "view", "sight", "memory", "praise", "honor", "need")),
    "into": ("operators", _BESIDE),
    "equally": ("operators", ("anyhow", "indeed", "today", "again", "yesterday", "somehow")),
    "things": ("referents", SLOTS["OBJECT"][::2]),
    "asked": ("referents", SLOTS["OBJECT"][1::2]),  # other things than in the sentence before
    "containers": ("referents", CONTAINERS),
    "name": ("referents", SLOTS["NAME"]),
    "has": ("possession", _IDLE),
}
"""Of each group in `_TOLD`, less its number: its part and its candidates."""

_VERB = r"[a-z]+(?: [a-z]+)?"
_TOLD: dict[str, Words] = {
    "gain_lose": (
        rf"(?P<has>has) \d+ \w+\. \w+ (?P<verb>{_VERB}) \d+ (?P<things>\w+)\. "
        r"How many (?P<asked>\w+) does (?P<name>\w+)",
    ),
    "compare": (
        r"(?P<has>has) \d+ \w+\. \w+ (?P<has2>has) \d+ (?P<things>\w+)\. "
        r"How many (?P<more>more) (?P<asked>\w+) does (?P<name>\w+) have (?P<than>than)",
        r"(?P<has>has) \d+ \w+\. \w+ (?P<has2>has) \d+ (?P<more>more|fewer) (?P<things>\w+) "
        r"(?P<than>than) \w+\. How many (?P<asked>\w+) does (?P<name>\w+)",
    ),
    "groups": (
        r"(?P<has>has) \d+ \w+ (?P<with>with) \d+ \w+ in (?P<each>each)\. "
        r"How many (?P<asked>\w+) are there in (?P<all>all)",
        r"(?P<verb>puts) \d+ \w+ (?P<into>into) \d+ \w+ (?P<equally>equally)\. "
        r"How many (?P<asked>\w+) are in (?P<shared>each) of the (?P<containers>\w+)",
    ),
    "two_step": (
        rf"(?P<has>has) \d+ \w+, (?P<verb>{_VERB}) \d+ (?P<things>\w+) and then "
        rf"(?P<verb2>{_VERB}) \d+ (?P<things2>\w+)\. How many (?P<asked>\w+) are (?P<left>left)",
    ),
}


def world_edits(text: str, family: str, change: Collection[str] = PARTS) -> tuple[Edit, ...]:
    """The edits that reword a word problem of the closed world, in order.

    Args:
        text: the problem, as in the world's sets.
        family: which of the four it belongs to.
        change: the parts to reword, among `PARTS`. "question": `question_edits`; "operators": verbs
            that change a number, comparisons, "in each", "equally", "left"; "referents": the things
            behind the last numbers and in the question, and the name there; "possession": "has".

    Raises:
        ValueError: an unknown family or part, no part, or a text that is not the family's.
    """
    if family not in FAMILIES:
        raise ValueError(f"family={family!r}: expected one of {', '.join(FAMILIES)}")
    parts = {change} if isinstance(change, str) else set(change)
    if not parts or not parts <= set(PARTS):
        raise ValueError(f"change={change!r}: expected one or more of {', '.join(PARTS)}")
    match = next(filter(None, (re.search(told, text) for told in _TOLD[family])), None)
    if match is None:
        raise ValueError(f"expected a problem of the family {family}, found {text!r}")
    asking = question_edits(text) if "question" in parts else ()
    found = [_edit(match, group) for group in match.groupdict() if _part(group) in parts]
    free = [e for e in found if not any(e.start < a.stop and a.start < e.stop for a in asking)]
    return tuple(sorted([*asking, *free], key=lambda edit: edit.start))


def _part(group: str) -> str:
    return _WORDS[group.rstrip("2")][0]


def _edit(match: re.Match[str], group: str) -> Edit:
    return Edit(*match.span(group), _WORDS[group.rstrip("2")][1])
