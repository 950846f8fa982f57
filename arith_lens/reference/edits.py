"""Edits of the closed world's word problems, such that nothing is left to calculate.

As in Figure 10's stories, things and names change from sentence to sentence, so the numbers are of
different things. Words that say what to do with them ("sells", "more ... than", "in each") are
replaced by words that change no number. Candidates have several lengths, and are words of the world
if it has such words. The tokenizer decides which of them fit.
"""

import re
from collections.abc import Collection
from itertools import product

from arith_lens.options import check_choice
from arith_lens.templates import SLOTS
from arith_lens.word_problems import PhraseEdit, question_edits

PROBLEM_FAMILIES = ("gain_lose", "compare", "groups", "two_step")
CONTAINERS = ("boxes", "bags", "baskets", "shelves", "trays", "drawers", "crates", "jars")
REWORDED_PARTS = ("question", "operators", "referents", "possession")
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
"""Of each group in `_STORY_VERBS`, less its number: its part and its candidates."""

_VERB = r"[a-z]+(?: [a-z]+)?"
_STORY_VERBS: dict[str, Words] = {
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


def world_edits(
    text: str, family: str, change: Collection[str] = REWORDED_PARTS
) -> tuple[PhraseEdit, ...]:
    """The edits that reword a word problem of the closed world, in order.

    Args:
        text: the problem, as in the world's sets.
        family: which of the four it belongs to.
        change: the parts to reword, among `REWORDED_PARTS`. "question": `question_edits`;
            "operators": verbs that change a number, comparisons, "in each", "equally", "left";
            "referents": the things behind the last numbers and in the question, and the name there;
            "possession": "has".

    Raises:
        ValueError: an unknown family or part, no part, or a text that is not the family's.
    """
    check_choice("family", family, PROBLEM_FAMILIES)
    parts = {change} if isinstance(change, str) else set(change)
    if not parts or not parts <= set(REWORDED_PARTS):
        raise ValueError(
            f"expected change= one or more of {', '.join(REWORDED_PARTS)}, found {change!r}"
        )
    match = next(filter(None, (re.search(pattern, text) for pattern in _STORY_VERBS[family])), None)
    if match is None:
        raise ValueError(f"expected a problem of the family {family}, found {text!r}")
    asking = question_edits(text) if "question" in parts else ()
    edits = []
    for group in match.groupdict():
        part, candidates = _WORDS[group.rstrip("2")]
        if part in parts:
            edits.append(PhraseEdit(*match.span(group), candidates))
    free = [e for e in edits if not any(e.start < a.stop and a.start < e.stop for a in asking)]
    return tuple(sorted([*asking, *free], key=lambda edit: edit.start))
