"""The forms in which one value is written: amounts, dates, times, ids, words.

A form that can be read in two ways (05/06/2024, 1.234) gives both readings: a value that fits one
of them is backed by it.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

_SIGNS = r"[$\u20ac\u00a3\u00a5\u20b9]"
_CURRENCY = rf"(?:us|usd|eur|gbp|jpy|inr|cad|aud|chf|{_SIGNS})"
NUMBER = re.compile(
    rf"(?<![\w.,])(?<!\d[-/:])(?<![A-Za-z]-)[-+\u2212]?{_CURRENCY}?\s?[-+\u2212]?"
    rf"(\d[\d.,'\u2019\u00a0\u202f]{{0,38}})(?:\s?(k|m|%|{_CURRENCY}|dollars?|euros?|pounds?))?"
    r"(?!\w|[-/:]\d)",
    re.IGNORECASE,
)
"""A number that is a word of its own, with a currency or a per cent sign or none."""
_ENGLISH = re.compile(r"\d{1,3}(?:,\d{2,3})*(?:,\d{3})(?:\.\d+)?|\d+(?:\.\d+)?")
_EUROPEAN = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+,\d{1,2}|\d+,\d{4,}")
_SCALE = {"k": 1_000, "m": 1_000_000}
_GROUP_MARKS = re.compile(r"(?<=\d)['\u2019\u00a0\u202f](?=\d{3}(?!\d))")

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTH = {name[:length]: at for at, name in enumerate(_MONTHS, 1) for length in (3, len(name))}
_MONTH["sept"] = 9
_MONTH_WORD = "(" + "|".join(sorted(_MONTH, key=len, reverse=True)) + r")\b\.?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?(?![\d:])"
_YEAR = r"(?:,?\s*(?:of\s+)?(\d{4}|'\d{2})(?![\d:]))?"
_MONTH_DAY = re.compile(rf"\b{_MONTH_WORD}\s*(?:the\s+)?{_DAY}{_YEAR}", re.IGNORECASE)
_DAY_MONTH = re.compile(
    rf"(?<![\w.,-]){_DAY}[\s-]*(?:of\s+)?[\s-]*{_MONTH_WORD}(?:-(\d{{4}})|{_YEAR})", re.IGNORECASE
)
_ISO = re.compile(r"(?<![\w-])(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?![\d-])")
_COMPACT = re.compile(r"(?<!\w)(\d{4})(\d{2})(\d{2})(?:T\d{4,6}Z?)?(?!\w)")
_NUMERIC = re.compile(r"(?<![\w./-])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?![\w/-])")
_SHORT = re.compile(r"(?<![\w./-])(\d{1,2})/(\d{1,2})(?![\w/-])")
_ORDINAL = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)\b", re.IGNORECASE)
_YEARS = re.compile(r"(?<![\w.,])((?:19|20)\d{2})(?![\w])")
_CLOCK = re.compile(
    r"(?<![\w:.])([01]?\d|2[0-3]):([0-5]\d)(?::[0-5]\d(?:\.\d+)?)?\s*([ap])?\.?(?:m\b)?",
    re.IGNORECASE,
)
_STAMPED = re.compile(r"\d{4}-\d{2}-\d{2}[T ](\d{2}):(\d{2})")
_HOUR = re.compile(r"(?<![\w:.])(1[0-2]|0?[1-9])\s*([ap])\.?m\b", re.IGNORECASE)

_TOKEN = re.compile(r"[^\s\"'`()\[\]{}<>,;|\u201c\u201d\u2018\u2019\u2192=]+")
_EDGES = ".,:;!?#*~-\u2013\u2014\u2026/\\&+"
_PARTS = re.compile(r"[/:\u2013\u2014\u2192#]+")
_LETTERS_JOINED = re.compile(r"[a-z]+(?:-[a-z]+)+")
_NOT_ALNUM = re.compile(r"[\W_]+")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_PHONE = re.compile(r"(?<![\w.])\+?\(?\d(?:[\s().-]{0,2}\d){6,18}(?!\w)")


def fold(text: str) -> str:
    """Returns text with compatible characters as one and in one case."""
    return unicodedata.normalize("NFKC", text).casefold()


def numbers_in(text: str) -> Iterator[Decimal]:
    """Yields the sizes of the numbers that stand in a text as words of their own."""
    for match in NUMBER.finditer(text):
        yield from _readings(match.group(1), match.group(2) or "")


def number_of(text: str) -> frozenset[Decimal]:
    """Returns what a text that is one number may mean; empty when it is none."""
    match = NUMBER.fullmatch(text.strip())
    return frozenset(_readings(match.group(1), match.group(2) or "")) if match else frozenset()


def decimal_of(value: float) -> Decimal | None:
    """Returns the size of a JSON number; None for NaN and infinity."""
    number = abs(Decimal(repr(value)))
    return number if number.is_finite() else None


def _readings(digits: str, suffix: str) -> Iterator[Decimal]:
    digits = _GROUP_MARKS.sub("", digits.rstrip(".,'\u2019\u00a0\u202f"))
    if not digits:
        return
    forms = set()
    if _ENGLISH.fullmatch(digits):
        forms.add(digits.replace(",", ""))
    if _EUROPEAN.fullmatch(digits):
        forms.add(digits.replace(".", "").replace(",", "."))
    for form in sorted(forms):
        try:
            yield Decimal(form) * _SCALE.get(suffix.lower(), 1)
        except InvalidOperation:  # pragma: no cover - the patterns leave only decimals
            continue


_TIME_BEHIND = re.compile(
    r"[\s,]*(?:T|at\s)?\s*(?:\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?|\d{1,2})\s*(?:[ap]\.?m\.?)?"
    r"\s*(?:z|utc|[-+]\d{2}:?\d{2})?",
    re.IGNORECASE,
)


def is_date(text: str) -> bool:
    """Returns whether a text is one date, with or without a year and a time of day."""
    text = text.strip()
    for pattern in (_ISO, _COMPACT, _NUMERIC, _MONTH_DAY, _DAY_MONTH):
        match = pattern.match(text)
        if match:
            rest = text[match.end() :]
            if not rest.strip(" ,.") or _TIME_BEHIND.fullmatch(rest):
                return True
    return False


def is_time(text: str) -> bool:
    """Returns whether a text is one time of day."""
    text = text.strip()
    return any(pattern.fullmatch(text) for pattern in (_CLOCK, _HOUR))


def dates_in(text: str) -> Iterator[datetime.date]:
    """Yields the dates with a year in a text, in each of their readings."""
    for year, month, day in _spelled(text):
        if year is not None:
            yield from _date(year, month, day)
    for match in _ISO.finditer(text):
        yield from _date(int(match[1]), int(match[3]), int(match[4]))
    for match in _COMPACT.finditer(text):
        yield from _date(int(match[1]), int(match[2]), int(match[3]))
    for match in _NUMERIC.finditer(text):
        year = int(match[4]) + (2000 if len(match[4]) == 2 else 0)
        first, second = int(match[1]), int(match[3])
        yield from _date(year, first, second)
        if first != second:
            yield from _date(year, second, first)


def month_days_in(text: str) -> Iterator[tuple[int, int]]:
    """Yields (month, day) of the dates without a year."""
    for year, month, day in _spelled(text):
        if year is None:
            yield month, day
    for match in _SHORT.finditer(text):
        yield int(match[1]), int(match[2])
        yield int(match[2]), int(match[1])


def ordinals_in(text: str) -> Iterator[int]:
    """Yields days of a month said without it: "the 20th"."""
    for match in _ORDINAL.finditer(text):
        yield int(match[1])


def years_in(text: str) -> Iterator[int]:
    """Yields numbers that are years."""
    for match in _YEARS.finditer(text):
        yield int(match[1])


def times_in(text: str) -> Iterator[int]:
    """Yields times of day, in minutes."""
    for match in _CLOCK.finditer(text):
        hour = int(match[1])
        if match[3] and hour <= 12:
            hour = hour % 12 + (12 if match[3].lower() == "p" else 0)
        yield hour * 60 + int(match[2])
    for match in _STAMPED.finditer(text):
        yield int(match[1]) * 60 + int(match[2])
    for match in _HOUR.finditer(text):
        yield (int(match[1]) % 12 + (12 if match[2].lower() == "p" else 0)) * 60


def _spelled(text: str) -> Iterator[tuple[int | None, int, int]]:
    for match in _MONTH_DAY.finditer(text):
        yield _year(match[3]), _MONTH[match[1].lower()], int(match[2])
    for match in _DAY_MONTH.finditer(text):
        yield _year(match[3] or match[4]), _MONTH[match[2].lower()], int(match[1])


def _year(text: str | None) -> int | None:
    if not text:
        return None
    return 2000 + int(text[1:]) if text.startswith("'") else int(text)


def _date(year: int, month: int, day: int) -> Iterator[datetime.date]:
    if 1900 <= year <= 2999 and 1 <= month <= 12 and 1 <= day <= 31:
        try:
            yield datetime.date(year, month, day)
        except ValueError:
            return


def tokens_in(text: str) -> Iterator[str]:
    """Yields the words of a folded text that an id may be, each as a whole.

    Slashes and colons part words (SFO/JFK, id:ABC123); hyphens part them between letters only, and
    nothing parts digits: 123 is no word of 91234 or 12-123.
    """
    for match in _TOKEN.finditer(text):
        token = match.group().strip(_EDGES)
        if not token:
            continue
        yield token
        parts = [part.strip(_EDGES) for part in _PARTS.split(token)]
        if len(parts) > 1:
            yield from (part for part in parts if part)
        for part in parts:
            if _LETTERS_JOINED.fullmatch(part):
                yield from part.split("-")


def compact(token: str) -> str:
    """Returns a word without marks: ABC-123 and abc_123 are one id."""
    return _NOT_ALNUM.sub("", token)


def phones_in(text: str) -> Iterator[str]:
    """Yields the digits of telephone and card numbers, however they are grouped."""
    for match in _PHONE.finditer(text):
        yield re.sub(r"\D", "", match.group())


_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SPOKEN = {**{word: str(at) for at, word in enumerate(_DIGITS)}, "oh": "0"}
_SPOKEN_MARKS = {"underscore": "_", "dash": "-", "hyphen": "-", "dot": ".", "at": "@"}
_SPELLING = re.compile(r"[^\W_]+")


def spelled_in(text: str) -> Iterator[str]:
    """Yields ids that are spelled out in a folded text: "m i a underscore l i 3 6 6 8"."""
    words = _SPELLING.findall(text)
    current = ""
    pieces = 0
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else ""
        piece = _SPOKEN.get(word, word)
        mark = _SPOKEN_MARKS.get(word, "") if current else ""
        joins = current[-1:] in ("_", "-", ".", "@")
        if mark or len(piece) == 1 or joins or (current and piece.isdigit()):
            current += mark or piece
            pieces += 1
            continue
        if pieces > 1:
            yield from _with_tails(current)
        starts = following in _SPOKEN_MARKS
        current, pieces = (word, 1) if starts else ("", 0)
    if pieces > 1:
        yield from _with_tails(current)


def _with_tails(spelled: str) -> Iterator[str]:
    # "it is a b c": the article and the letters run together.
    spelled = spelled.rstrip("_-.@")
    for start in range(min(3, len(spelled))):
        if len(spelled) - start >= 3:
            yield spelled[start:]


def words_of(text: str) -> list[str]:
    """Returns the words of a text, folded and without endings: round_trip, Round-Trips."""
    return [stem(word) for word in _WORD.findall(fold(_CAMEL.sub(" ", text)))]


def stem(word: str) -> str:
    """Returns a folded word without the endings of English inflection; short ones as they are."""
    for ending in ("ing", "ed", "es", "s", "e"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= 3:
            return rest[:-1] if len(rest) > 3 and rest[-1] == rest[-2] else rest
    return word
