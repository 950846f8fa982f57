"""Read the number that a text gives as its answer.

The rule, in order:

1. Calculator annotations (`<<48/2=24>>`), bold marks and LaTeX around a number are removed.
2. If the text has markers ("answer is", "answer:", "####", a LaTeX box), the last marker that a
   number follows in the same sentence is used. The answer is the first number of this sentence. If
   it begins a calculation ("3 + 4 = 7"), the answer is the number after the last "="; a calculation
   without a result is no answer. If no number follows any marker, there is no answer.
3. Without a marker, the answer is the last number of the text.

A number is read whole. Sign, thousands separators, decimals, exponent, fraction and multiplier
("million") belong to it. A unit, a currency and a percent sign do not (25% is 25). These are no
numbers: parts of a time (3:30), a date (3/4/2024), a list without spaces (1,2) or a name (A4,
COVID-19), and numbers in words.
"""

import math
import re
import unicodedata

ANSWER_TOLERANCE = 1e-3
"""The largest difference of a right number from the gold answer, in its own unit."""
MULTIPLIERS = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_VULGAR = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_CURRENCY = r"(?:US)?[$£€¥₹]\s?"
_DECIMAL = r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    rf"""
    (?<!\w) (?<!\d[.:/,]) (?<![a-z]-)  # neither in a name nor within another number
    (?P<sign> (?<![)%])-(?=\S) | \bnegative\s )?
    (?: {_CURRENCY} (?P<inner>-)? )?
    (?:
        (?P<whole>\d+) \s (?P<part>\d+) / (?P<parts>\d+)
      | (?P<top>{_DECIMAL}) \s?/\s? (?P<bottom>{_DECIMAL})
      | (?: (?P<ones>\d+)\s? )? (?P<vulgar>[{_VULGAR}])
      | (?P<plain>{_DECIMAL})
        (?: e(?P<e>[+-]?\d+)(?!\w) | \s?[x×*]\s?10(?:\^|\*\*)\{{?(?P<power>-?\d+)\}}? )?
    )
    (?! [\d⁰¹²³⁴⁵⁶⁷⁸⁹] | [.,:/]\d )
    (?: \s (?P<multiplier>{"|".join(MULTIPLIERS)}) \b )?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MARKER = re.compile(
    r"\banswer(?:\s+to\s[^.?!\n]{0,80}?)?\s*(?:\bis\b|[:=])|####|\\boxed\{", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bNo)[.!?](?=\s|$)|\n")
_CLAUSE_END = re.compile(r",\s|;|\s\(|\b(?:because|since|as|so)\b")
_GOES_ON = re.compile(
    rf"[-+*×÷x/^]\s?(?:{_CURRENCY})?[\d(.]|.*\s[-+*×÷x/^]\s(?:{_CURRENCY})?[\d(.]"
)
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"))
_REWRITTEN = (
    (re.compile(r"<<[^>]*(?:>>|$)"), ""),
    (re.compile(r"(?<!\w)\*\*(?=\S)(.+?)(?<=\S)\*\*(?!\w)"), r"\1"),
    (re.compile(r"\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}"), r"\1/\2"),
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile(r"(?<=\d)(?:\{,\}|[\u00a0\u2009\u202f])(?=\d{3}(?!\d))"), ""),
)


def parse_number(text: str) -> float | None:
    """The number that a text gives as its answer, or None (the rule is at the top of this module).

    A text that continues a prompt which ends in "The answer is " has no marker. Call
    `parse_number("The answer is " + text)`, so that its first sentence is used.
    """
    text = _rewritten(text)
    before, *marked = _MARKER.split(text)
    for part in reversed(marked):
        sentence = _first_sentence(part)
        if _numbers(sentence):
            return _answer(sentence)
    numbers = [] if marked else _numbers(before)
    return numbers[-1][1] if numbers else None


def same_number(
    number: int | float | None, gold: int | float, tolerance: int | float = ANSWER_TOLERANCE
) -> bool:
    """Whether a number equals the gold answer within a tolerance. None does not."""
    return number is not None and abs(number - gold) <= tolerance


def without_separators(number: str) -> str:
    """A written number without outer spaces, thousands separators and dollar sign."""
    return number.strip().replace(",", "").replace("$", "")


def _rewritten(text: str) -> str:
    text = text.translate(_DASHES)
    for pattern, instead in _REWRITTEN:
        text = pattern.sub(instead, text)
    return text


def _first_sentence(text: str) -> str:
    text = re.sub(r"^(?:-|minus)\s+(?=\S)", "-", text.lstrip(" \t\r\n:="))
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text


def _answer(sentence: str) -> float | None:
    """A sentence's first number, or the result of the calculation that it begins."""
    match, number = _numbers(sentence)[0]
    rest = sentence[match.end() :]
    stop = _CLAUSE_END.search(rest)
    rest = rest[: stop.start()] if stop else rest
    if "=" in rest:
        results = _numbers(rest.rpartition("=")[2])
        return results[0][1] if results else None
    return None if _GOES_ON.match(rest.lstrip()) else number


def _numbers(text: str) -> list[tuple[re.Match[str], float]]:
    matches = [(match, _value(match)) for match in _NUMBER.finditer(text)]
    return [(match, value) for match, value in matches if value is not None]


def _value(match: re.Match[str]) -> float | None:
    """The value of a match; None for a divisor of zero, a mixed number's part above 1, infinity."""
    size = _size(match)
    if size is None:
        return None
    size *= MULTIPLIERS.get((match["multiplier"] or "").lower(), 1)
    negative = bool(match["sign"]) != bool(match["inner"])
    return (-size if negative else size) if math.isfinite(size) else None


def _size(match: re.Match[str]) -> float | None:
    if match["whole"]:
        part, parts = int(match["part"]), int(match["parts"])
        return int(match["whole"]) + part / parts if part < parts else None
    if match["top"]:
        bottom = float(without_separators(match["bottom"]))
        return float(without_separators(match["top"])) / bottom if bottom else None
    if match["vulgar"]:
        return int(match["ones"] or 0) + unicodedata.numeric(match["vulgar"])
    power = match["e"] or match["power"]
    return float(without_separators(match["plain"]) + (f"e{power}" if power else ""))
