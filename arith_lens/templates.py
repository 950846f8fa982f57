"""Wordings: the operation templates, the null words, and the positions of A and B.

The templates come from the rows of `operations`: Figure 8's nine for each of the paper's four
operations (Appendix A), two for exponentiation.
Figure 10's twelve, time spans and stories of addition, follow as data with their word lists.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

from arith_lens.operations import OPERATIONS

CharSpans = dict[str, tuple[int, int]]

# The replacements of an operator word. The paper names none, nothing, null; the rest are ours, so
# that there are words of one to four tokens under every tokenizer. Words that suggest subtracting
# or adding (without, missing, lacking, besides) are left out on purpose.
NULL_WORDS = (
    *("none", "nothing", "null", "void", "blank", "empty", "nil", "nowhere", "nobody", "never"),
    *("neither", "zilch", "vacant", "hollow", "unknown", "whatever", "somehow", "anyhow"),
    *("indeed", "perhaps", "maybe", "elsewhere", "otherwise", "somewhere", "someone", "whichever"),
    *("nix", "nay", "nah", "barren", "nought", "silence", "silent"),
    *("unnamed", "unsaid", "nameless", "pointless"),
    *("meaningless", "nothingness", "emptiness", "vacancy", "wordless", "untold", "nonsense"),
)

# The paper names <, > and @. Signs of calculation (% ^ ! : and the like) are left out: a
# counterfactual must not ask for another calculation.
NULL_SYMBOLS = ("<", ">", "@", "#", "&", "~", "$", "|", ";", "?", "_", "`")


@dataclass(frozen=True)
class Template:
    """One wording of an operation. C comes after its text.

    A final space belongs to the text: a SentencePiece tokenizer makes it the token `▁`, and only
    then is the next token the answer's digit.
    """

    name: str
    """The operation and the index in TEMPLATES, such as "addition/2"."""
    operation: str
    text: str
    """The text with the fields {A}, {op} and {B}, such as "The {op} of {A} and {B} is "."""
    word: str
    """The word for {op} in the reference prompt, such as "addition" or a symbol."""
    slot: str
    """The kind of the operation's words that {op} is: "symbol", "infix", "noun", …"""

    @property
    def kind(self) -> str:
        """`"symbol"` or `"word"`: replacements are from NULL_SYMBOLS or from NULL_WORDS."""
        return "symbol" if self.slot == "symbol" else "word"

    def render(self, a: int, b: int, word: str | None = None) -> tuple[str, CharSpans]:
        """The prompt, and the half-open character spans of "A", "op" and "B" in it.

        Args:
            a, b: the operands.
            word: the word in place of the operator; None: the true one, for the reference prompt.
        """
        return fill(self.text, A=str(a), op=self.word if word is None else word, B=str(b))


def fill(pattern: str, **fields: str) -> tuple[str, CharSpans]:
    """`pattern` with its {fields} filled in, and each field's half-open character span.

    A field that occurs more than once has the span of its first occurrence.
    """
    text = ""
    spans: CharSpans = {}
    for literal, field, _, _ in Formatter().parse(pattern):
        text += literal
        if field is not None:
            spans.setdefault(field, (len(text), len(text) + len(fields[field])))
            text += fields[field]
    return text, spans


TEMPLATES: dict[str, tuple[Template, ...]] = {
    name: tuple(
        Template(f"{name}/{i}", name, pattern.text, operation.word(pattern.slot), pattern.slot)
        for i, pattern in enumerate(operation.patterns)
    )
    for name, operation in OPERATIONS.items()
}


def other_operators(template: Template) -> dict[str, str]:
    """The words that can replace {op} to ask for another calculation, each with its operation.

    Empty for "to the power of", because no other operation has such a word.
    """
    return {
        word: name
        for name in OPERATIONS[template.operation].counterfactuals
        for word in OPERATIONS[name].requests(template.slot)
    }


@dataclass(frozen=True)
class StoryTemplate:
    """One of Figure 10's addition templates, and its wording without the addition.

    `text` and `counterfactual` share their slots: {A} and {B}, and names in capitals of lists in
    SLOTS. A slot that ends in 2 or 3 is another, different draw from the same list.
    """

    name: str
    """"story/1" to "story/12", numbered as in Figure 10."""
    text: str
    """The wording of the reference."""
    counterfactual: str
    """The wording of the counterfactual."""
    operation: str = "addition"

    def render(self, a: int, b: int, words: Mapping[str, str]) -> tuple[str, CharSpans]:
        """The reference prompt, and the character spans of its slots, with "A" and "B"."""
        return fill(self.text, A=str(a), B=str(b), **words)

    def render_counterfactual(
        self, a: int, b: int, words: Mapping[str, str]
    ) -> tuple[str, CharSpans]:
        """The prompt without addition, with the same words, and its character spans."""
        return fill(self.counterfactual, A=str(a), B=str(b), **words)

    def sample(self, rng: random.Random, a: int, b: int) -> tuple[str, str]:
        """A reference prompt and a counterfactual with the same operands and shared words.

        One word is drawn per slot, without repeats from one list, by `rng.random()` only. The two
        token counts may differ; the caller draws again until they agree. The answer a + b is the
        next number. In stories 1 and 2 the year's first three digits are in the prompt, so a + b
        must be one digit.
        """
        words: dict[str, str] = {}
        for _, slot, _, _ in Formatter().parse(self.text + self.counterfactual):
            if slot is None or slot in words or slot in ("A", "B"):
                continue
            free = [word for word in SLOTS[slot.rstrip("23")] if word not in words.values()]
            words[slot] = free[int(rng.random() * len(free))]
        return self.render(a, b, words)[0], self.render_counterfactual(a, b, words)[0]


# The paper prints the first words of each list and "..."; the lists are continued here.
SLOTS: dict[str, tuple[str, ...]] = {
    "EVENT": (
        *("war", "conflict", "project", "festival", "journey", "strike", "drought", "trial"),
        *("meeting", "contest", "voyage", "siege", "storm", "course", "exhibition", "campaign"),
    ),
    "LASTED": ("lasted", "spanned", "extended", "continued", "persisted", "endured"),
    "LAST": ("last", "span", "extend", "continue", "persist", "endure"),
    "PAINTED": ("painted", "washed", "carried", "praised", "borrowed", "folded", "admired"),
    "PAINT": ("paint", "wash", "carry", "praise", "borrow", "fold", "admire"),
    "THINGS": ("chairs", "doors", "birds", "shoes", "walls", "songs", "lamps", "stones", "boats"),
    "MONTH": (
        *("Jan.", "Feb.", "Mar.", "Apr.", "May", "Jun."),
        *("Jul.", "Aug.", "Sep.", "Oct.", "Nov.", "Dec."),
    ),
    "YYY": tuple(str(year) for year in range(100, 200)),
    "OBJECT": (
        *("apples", "oranges", "pears", "cups", "tables", "books", "pencils", "coins", "stamps"),
        *("marbles", "lemons", "plates", "flowers", "toys", "cards", "shells", "hats", "ropes"),
    ),
    "GETS": ("gets", "obtains", "acquires", "gains", "receives", "collects", "buys"),
    "GOT": ("got", "obtained", "acquired", "gained", "received", "collected", "bought"),
    "NAME": (
        *("Mary", "John", "James", "Linda", "Robert", "Susan", "David", "Karen", "Peter", "Laura"),
        *("Paul", "Emma", "Mark", "Alice", "George", "Helen", "Frank", "Sarah", "Henry", "Julia"),
        *("Jack", "Grace", "Thomas", "Rose", "Daniel", "Clara", "Simon", "Diana", "Adam", "Ruth"),
        *("Brian", "Sophie", "Kevin", "Nora", "Oscar", "Irene", "Philip", "Lucy", "Martin", "Eva"),
        *("Andrew", "Amy", "Edward", "Anna", "Steven", "Betty", "Walter", "Carol", "Arthur"),
        *("Donna", "Albert", "Ellen", "Harold", "Fiona", "Louis", "Gloria", "Roger", "Hannah"),
        *("Ralph", "Iris", "Victor", "Jane", "Samuel", "Judith", "Dennis", "Kate", "Gerald"),
        *("Lily", "Joseph", "Martha", "Patrick", "Molly", "Eric", "Nancy", "Stephen", "Olivia"),
        *("Gary", "Paula", "Leo", "Rachel", "Max", "Sandra", "Neil", "Teresa", "Hugo", "Vera"),
        *("Ivan", "Wendy", "Keith", "Zoe", "Carl", "Agnes", "Ben", "Bella", "Noah", "Daisy"),
        *("Luke", "Edith", "Felix", "Holly"),
    ),
}


# (tense, unit, rest): the counterfactual has another verb and a thing in place of the time span.
_PAST, _FUTURE = ("{LASTED}", "{PAINTED}"), ("will {LAST}", "will {PAINT}")
_TIME_SPANS = (
    (_PAST, "years", "from the year {YYY}{B} to the year {YYY}"),
    (_PAST, "years", "from {YYY}{B} to {YYY}"),
    (_PAST, "days", "from {MONTH} {B} to {MONTH} "),
    (_FUTURE, "days", "from {MONTH} {B} to {MONTH} "),
    (_PAST, "hours", "from {B} pm to "),
    (_FUTURE, "hours", "from {B} pm to "),
    (_PAST, "hours", "from {B} am to "),
    (_FUTURE, "hours", "from {B} am to "),
)
# (with the addition, without it): the counterfactual is about three different things.
_OBJECTS = (
    (
        "{NAME} has {A} {OBJECT}, then {NAME} {GETS} {B} {OBJECT}. What's the total number of "
        "{OBJECT} that {NAME} has? The answer is ",
        "{NAME} has {A} {OBJECT}, then {NAME} {GETS} {B} {OBJECT2}. What's the total number of "
        "{OBJECT3} that {NAME2} has? The answer is ",
    ),
    (
        "{NAME} {GOT} {A} {OBJECT}, and {NAME2} {GOT} {B} {OBJECT}. What's the total number of "
        "{OBJECT} that they {GOT}? The answer is ",
        "{NAME} {GOT} {A} {OBJECT}, and {NAME2} {GOT} {B} {OBJECT2}. What's the total number of "
        "{OBJECT3} that they {GOT}? The answer is ",
    ),
    (
        "{NAME} has {A} {OBJECT}, and {NAME2} has {B} {OBJECT}. What's the total number of "
        "{OBJECT} that they have? The answer is ",
        "{NAME} has {A} {OBJECT}, and {NAME2} has {B} {OBJECT2}. What's the total number of "
        "{OBJECT3} that they have? The answer is ",
    ),
    (
        "{NAME} {GOT} {A} {OBJECT} yesterday, and {NAME} {GOT} {B} {OBJECT} today. What's the "
        "total number of {OBJECT} that {NAME} {GOT}? The answer is ",
        "{NAME} {GOT} {A} {OBJECT} yesterday, and {NAME} {GOT} {B} {OBJECT2} today. What's the "
        "total number of {OBJECT3} that {NAME2} {GOT}? The answer is ",
    ),
)


_WORDINGS = (
    *(
        (
            f"The {{EVENT}} {verb} {{A}} {unit} {rest}",
            f"The {{EVENT}} {null_verb} {{A}} {{THINGS}} {rest}",
        )
        for (verb, null_verb), unit, rest in _TIME_SPANS
    ),
    *_OBJECTS,
)
FIGURE_10: tuple[StoryTemplate, ...] = tuple(
    StoryTemplate(f"story/{n}", *wording) for n, wording in enumerate(_WORDINGS, 1)
)

# The largest answer of a time span: a year's last digit, the days of a month, the hours of a clock.
LARGEST_ANSWERS: dict[str, int] = {
    **dict.fromkeys(("story/1", "story/2"), 9),
    **dict.fromkeys(("story/3", "story/4"), 28),
    **dict.fromkeys(("story/5", "story/6", "story/7", "story/8"), 12),
}
