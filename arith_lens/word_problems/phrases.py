"""Phrases that ask for a number, and replacements that do not.

The paper's example is "Calculate the number of gigabytes still available" -> "Describe the location
of gigabytes still available" (Appendix E). Little is changed, the sentence stays a sentence, and
nothing is left to calculate. The tokenizer decides which candidate fits. So every phrase has many
candidates of different lengths, in lists of one grammatical kind.
"""

import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product

NICE = (
    *("nice", "fine", "good", "plain", "common", "pretty", "famous", "lovely", "proper", "usual"),
    *("typical", "special", "favorite", "beautiful", "wonderful", "interesting", "ordinary"),
    *("old", "new", "odd", "bad", "dry", "sad", "big", "neat", "rare"),
)
ADJECTIVES = (
    *("nice", "fine", "good", "kind", "calm", "happy", "pretty", "famous", "lovely", "useful"),
    *("clever", "pleasant", "beautiful", "wonderful", "interesting"),
)
ADVERBS = (
    *("well", "gladly", "badly", "nicely", "happily", "calmly", "quietly", "kindly", "openly"),
    *("secretly", "honestly", "beautifully", "wonderfully"),
)
CLEARLY = (
    *("clearly", "truly", "sadly", "visibly", "obviously", "certainly", "strangely"),
    *("apparently", "surprisingly", "unfortunately"),
)
THINGS = ("things", "ones", "items", "objects", "presents", "possessions")
PART_NOUNS = ("part", "side", "kind", "sort", "corner", "version", "section")
NOUNS = (
    *("location", "color", "name", "story", "shape", "origin", "history", "meaning", "reason"),
    *("purpose", "beauty", "style", "smell", "sound", "look", "background", "importance"),
)
PLURALS = (
    *("locations", "colors", "names", "stories", "shapes", "origins", "meanings", "reasons"),
    *("places", "styles", "sounds", "looks", "backgrounds"),
)
OCCASION_NOUNS = ("place", "moment", "season", "corner", "station", "occasion", "mood", "spirit")
SONGS = (
    *("song", "story", "name", "place", "color", "game", "book", "word", "food", "animal"),
    *("picture", "language", "instrument", "kind"),
)
TELL = (
    *("describe", "explain", "mention", "discuss", "imagine", "remember", "illustrate"),
    *("tell us", "talk about", "think of"),
)
MAIN = ("main", "usual", "true", "real", "proper", "public", "famous", "ordinary", "traditional")
SUIT = ("suit", "please", "fit", "help", "amuse", "delight", "entertain")
SUITS = ("suits", "pleases", "fits", "helps", "amuses", "delights", "entertains")
SUITED = ("suited", "pleased", "helped", "amused", "delighted", "entertained")
AFTER_IN = ("public", "private", "general", "secret", "town", "winter", "theory", "principle")
AFTER_ON = ("purpose", "paper", "stage", "holiday", "principle", "vacation")
SOMEHOW = (
    *("outside", "nearby", "indoors", "gladly", "again", "yesterday", "somehow", "tomorrow"),
    *("at home", "in town", "with joy", "at school", "by accident", "for a change"),
)
WHERE = ("where", "when", "why")
LATE_ADVERBS = ("exactly", "else", "then", "now", "again", "actually")
JUST = ("just", "exactly", "and", "so", "say", "precisely", "really")
QUESTION_PRONOUNS = ("which", "what", "whose")
COMPARING_ADJECTIVES = ("other", "better", "nicer", "older", "different")

CALCULATED = (
    *("number", "total", "sum", "difference", "average", "amount", "cost", "price", "percentage"),
    *("percent", "ratio", "profit", "value", "age", "weight", "length", "distance", "area"),
    *("perimeter", "volume", "width", "height", "speed", "rate", "time", "score", "salary"),
    *("income", "fee", "bill", "expense", "quantity", "product", "revenue", "discount", "tax"),
    *("balance", "budget", "capacity", "count", "size", "temperature", "probability", "chance"),
    *("fraction", "mean", "median", "grade", "population", "depth", "duration", "wage"),
    *("payment", "pay", "change", "charge", "tip", "rent", "interest", "loss", "worth", "tally"),
    *("portion", "proportion", "share", "increase", "decrease", "reduction", "result", "measure"),
    *("gain", "thickness", "mass", "elevation", "circumference", "earning", "saving", "radius"),
    *("diameter", "money", "year", "day", "hour", "month"),
)
"""Nouns for what is calculated."""


Words = tuple[str, ...]


@dataclass(frozen=True)
class PhraseEdit:
    """Characters of a text, and their possible replacements."""

    start: int
    stop: int
    candidates: Words
    needed: bool = True
    """Whether the text still asks for a number without this edit."""


@dataclass(frozen=True)
class _Rule:
    """A pattern, and the candidates of each of its groups, or of the whole pattern."""

    pattern: re.Pattern[str]
    candidates: tuple[Words, ...]


def _rule(pattern: str, *candidates: Words) -> _Rule:
    return _Rule(re.compile(rf"\b(?:{pattern})", re.IGNORECASE), candidates)


def _phrases(*slots: Words) -> Words:
    """Every way to fill the slots with different words."""
    return tuple(" ".join(words) for words in product(*slots) if len(set(words)) == len(words))


def _either(*listed: str) -> str:
    return f"(?:{'|'.join(sorted(listed, key=len, reverse=True))})"


_BE = (
    r"(?:['\u2019]s| is| are| was| were| will| would| should| could| can| might| must| has| had)\b"
)
_AUXILIARY = r"(?:do|does|did|is|are|was|were|will|would|can|could|should|must|has|have|had|might)"
_NO_NOUN = (
    rf"(?= (?:{_AUXILIARY}|he|she|it|they|we|you|I|the|his|her|their|its|my|of|in|on|at|per|each|"
    r"for|to|from|than|if|after|before|until|when)\b|[,.?;:!]|$)"
)
_MORE = "(?:more|fewer|less|additional|extra|total|combined|other|different)"
_SLOW = _either("long", "far", "fast", "quickly", "often", "soon", "late", "early", "high")
_SIZE = _either(
    *("long", "far", "fast", "soon", "late", "early", "high", "old", "tall", "big", "heavy"),
    *("deep", "wide", "large", "likely", "thick", "expensive", "small", "short", "cold", "hot"),
    "strong",
)
_COMPARATIVE = (
    r"(?=(?: more)? (?:longer|older|taller|heavier|farther|further|faster|bigger|larger|higher|"
    r"cheaper|younger|later|earlier|better|worse|deeper|wider|smaller|shorter|colder|hotter|"
    r"expensive|costly)\b)"
)
_THEIR = r"(?:the|a|an|his|her|their|its|your|my|our|this|that|[\w]+['\u2019]s|each)"
_WHOLE = (
    r"(?:total|average|combined|overall)(?= (?!(?:of|in|for|from|at|on|per|is|was|if|that)\b)[a-z])"
)
_SINGULAR = rf"(?!{_WHOLE}){_either(*CALCULATED)}"
_PLURAL = _either(*(f"{noun}s" for noun in CALCULATED), "odds", "losses", "quantities")
_NOUN = rf"(?:({_SINGULAR})|({_PLURAL}))\b"
_TAKE = r"(?:(take)|(takes)|(took|taken))\b"

_ASKING = (
    _rule(rf"how many \w+ {_SIZE}\b", _phrases(("how",), ADJECTIVES, ("and",), ADJECTIVES)),
    _rule(r"how many(?= of\b)", _phrases(JUST, ("which",))),
    _rule(r"how much(?= of\b)", _phrases(QUESTION_PRONOUNS, PART_NOUNS)),
    _rule(rf"how much{_COMPARATIVE}", _phrases(("how",), CLEARLY)),
    _rule(
        rf"how (?:many|much) {_MORE}{_NO_NOUN}",
        _phrases(QUESTION_PRONOUNS, COMPARING_ADJECTIVES, THINGS),
    ),
    _rule(rf"how (?:many|much) {_MORE}\b", _phrases(QUESTION_PRONOUNS, COMPARING_ADJECTIVES, NICE)),
    _rule(r"how much(?= (?:is|are|was|were)\b)", _phrases(WHERE, LATE_ADVERBS)),
    _rule(rf"how (?:many|much){_NO_NOUN}", _phrases(QUESTION_PRONOUNS, THINGS)),
    _rule(r"how much(?= (?-i:[A-Z]))", _phrases(QUESTION_PRONOUNS, THINGS)),
    _rule(r"how many\b", _phrases(QUESTION_PRONOUNS, NICE)),
    _rule(r"how much\b", _phrases(("what",), NICE)),
    _rule(rf"how (long)\b[^.?!]{{0,60}}? {_TAKE}", ADVERBS, SUIT, SUITS, SUITED),
    _rule(r"how (far away)\b", _phrases(CLEARLY, ADJECTIVES)),
    _rule(rf"how ({_SIZE})(?= (?:is|are|was|were|am)\b|[^.?!]* be\b)", ADJECTIVES),
    _rule(rf"how ({_SLOW})\b", ADVERBS),
    _rule(rf"how ({_SIZE})\b", ADJECTIVES),
    _rule(
        rf"(calculate|compute|determine|find out|find|figure out|work out|estimate) {_THEIR}\b"
        rf"[^.?!,]{{0,50}}? {_NOUN}",
        *(TELL, NOUNS, PLURALS),
    ),
    _rule(r"(?:calculate|compute|determine)\b", TELL),
)
_ASKING_WHAT = (
    _rule(rf"what ({_SINGULAR})(?= of\b)", PART_NOUNS),
    _rule(rf"(?:at|in|by) what ({_SINGULAR})\b", OCCASION_NOUNS),
    _rule(rf"what ({_SINGULAR})\b", SONGS),
    _rule(
        rf"what(?:{_BE})?(?: be)?(?: {_THEIR})\b(?: [^.?!,]{{0,50}}?)? ?\b{_NOUN}",
        *(NOUNS, PLURALS),
    ),
    _rule(r"what(?=['\u2019]s\b| \w)", WHERE),
)
_REMINDERS = (
    _rule(r"in (total|all(?=[,.?!;]| \w+ing\b| if\b| for\b| on\b))\b", AFTER_IN),
    _rule(r"on (average)\b", AFTER_ON),
    _rule(r"altogether|all together", SOMEHOW),
    _rule(r"(?:combined|total|overall)(?=[,.?!;])", SOMEHOW),
    _rule(_WHOLE, MAIN),
)
_STOP = re.compile(
    r"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)[.?!](?=[\s\"\u201d']+[A-Z\"\u201c(]|\s*$)"
)


def question_edits(text: str) -> tuple[PhraseEdit, ...]:
    """The phrases of a question that ask for a number, in order. May be empty.

    Words in the same sentences that suggest a calculation ("in total", "altogether") are included
    and marked as not needed.
    """
    edits: list[PhraseEdit] = []
    for rule in _ASKING:
        edits += _edits_of_rule(rule, text, (0, len(text)), edits)
    sentences = _sentences(text)
    for span in sentences:
        is_last = not text[span[1] :].strip()
        if not is_last and not text[slice(*span)].rstrip().endswith("?"):
            continue
        if not any(_overlap((edit.start, edit.stop), span) for edit in edits):
            edits += next(
                filter(None, (_edits_of_rule(r, text, span, edits) for r in _ASKING_WHAT)), []
            )
    hit = [s for s in sentences if any(_overlap((e.start, e.stop), s) for e in edits)]
    for rule in _REMINDERS:
        for span in hit:
            edits += [replace(e, needed=False) for e in _edits_of_rule(rule, text, span, edits)]
    return tuple(sorted(edits, key=lambda edit: edit.start))


def _edits_of_rule(
    rule: _Rule, text: str, within: tuple[int, int], earlier: list[PhraseEdit]
) -> list[PhraseEdit]:
    """The edits of a rule in a part of the text, without those that overlap with earlier edits."""
    busy = [(edit.start, edit.stop) for edit in earlier]
    edits: list[PhraseEdit] = []
    for match in rule.pattern.finditer(text, *within):
        groups = range(1, len(rule.candidates) + 1) if match.re.groups else (0,)
        spans = [(match.span(g), rule.candidates[max(g - 1, 0)]) for g in groups]
        spans = [(span, candidates) for span, candidates in spans if span[0] >= 0]
        if any(_overlap(span, other) for span, _ in spans for other in busy):
            continue
        edits += [
            PhraseEdit(*span, _capitalised(words) if text[span[0]].isupper() else words)
            for span, words in spans
        ]
    return edits


@cache
def _capitalised(candidates: Words) -> Words:
    return tuple(phrase[0].upper() + phrase[1:] for phrase in candidates)


def _sentences(text: str) -> list[tuple[int, int]]:
    """The spans of sentences. A full stop in a number or before a small letter ends no sentence."""
    ends = [match.end() for match in _STOP.finditer(text)]
    bounds = [0, *ends] if ends and ends[-1] >= len(text.rstrip()) else [0, *ends, len(text)]
    return list(pairwise(bounds))


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
