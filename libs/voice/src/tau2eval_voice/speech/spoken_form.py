"""From a model's words to the words that a synthesiser is given.

Identifiers are spelled with commas between the letters and a pause before them: of twelve
reservation codes Whisper then wrote ten exactly, and seven without the pause ("four" was heard as
"for", N as "and"). Numbers, dates, times and amounts are written out as they are spoken.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from tau2eval_voice.speech.markup import strip_markup
from tau2eval_voice.speech.number_words import DIGIT_WORDS, number
from tau2eval_voice.speech.quantities import expand_quantities, expand_unit

__all__ = ["spell", "to_spoken"]

_MARK_WORDS = {"_": "underscore", "-": "dash"}
_SPELLED_WORDS = "underscore|dash|hyphen"
_DIGIT_WORDS = "|".join(DIGIT_WORDS)

# "D-A-I-K-I", "D A I K I", "D, A, I", "1-1-1-6", "D.A.I.K.I.": at least three single characters.
_SPELLED = re.compile(
    rf"(?<![\w'-])(?:[A-Za-z0-9](?![A-Za-z0-9'])|(?:{_SPELLED_WORDS})\b)"
    r"(?:(?: ?- ?|, ?|\. ?| |_)"
    r"(?:[A-Za-z0-9](?![\w'])|[A-Za-z0-9](?=_[A-Za-z0-9](?![A-Za-z0-9']))"
    rf"|(?:{_SPELLED_WORDS}|{_DIGIT_WORDS})\b)){{2,80}}",
    re.I,
)
_SPELLED_ITEM = re.compile(rf"(?:{_SPELLED_WORDS}|{_DIGIT_WORDS})\b|[A-Za-z0-9]|_", re.I)
_UNDERSCORED = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z0-9]+(?:_+[A-Za-z0-9]+)+(?![A-Za-z0-9_])")
_PARENTHESISED_CODE = re.compile(r"\(\s?([A-Z]{3})\s?\)")
_MIXED = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z]{0,40}\d)(?=\d{0,40}[A-Za-z])[A-Za-z0-9]{2,80}(?![A-Za-z0-9])"
)
_CAPITALS = re.compile(r"(?<![A-Za-z0-9'&.])[A-Z]{3,40}(?![A-Za-z0-9'&])")
_CODE_CONTEXT = re.compile(
    r"\b(?:code|codes|reservation|reservations|booking|confirmation|locator|record|id|number|PNR)\b",
    re.I,
)
_CODE_LENGTH = 6
_AIRPORT_LENGTH = 3
# Capitals for emphasis, not codes: words of three and six letters that callers and agents use.
_WORDS = frozenset(
    (
        "NOT", "AND", "THE", "YOU", "ALL", "ANY", "FOR", "ARE", "CAN", "BUT", "NOW", "NEW",
        "ONE", "TWO", "DAY", "PER", "WAS", "HAS", "HAD", "YES", "OUR", "OUT", "ITS", "WHO",
        "WHY", "HOW", "MAY", "ADD", "TAX", "FEE", "BAG", "NON", "USE", "SEE", "SET", "GET",
        "PAY", "TRY", "TOO", "END", "OFF", "OLD", "OWN", "LET", "PLEASE", "CANCEL", "REFUND",
        "FLIGHT", "ALWAYS", "CANNOT", "SHOULD", "RETURN", "BEFORE", "ONLINE", "UPDATE",
        "CHANGE", "NUMBER", "CREDIT", "AMOUNT", "TRAVEL", "ONEWAY", "WITHIN", "UNLESS",
        "EITHER", "SINGLE", "DIRECT", "ACTION", "POLICY", "CALLER", "REASON", "STATUS",
        "NOTICE", "FAMILY", "SECOND", "ENTIRE", "SYSTEM", "ACCEPT", "ONLY", "MUST", "VERY",
        "SURE", "EXTRA", "AGENT", "HUMAN",
    )
)  # fmt: skip
_LEAD_IN_LENGTH = 5
# The comma inside a spelled identifier, until the end: two identifiers in a row keep apart.
_INNER = "\x1f"
_BETWEEN_IDENTIFIERS = re.compile(rf"(?<={_INNER})(\w+)(?: ?[,:]{{1,2}} ?| )(?=\w+{_INNER})")
_CLOCK_TIME = re.compile(r"\d ?[ap]\.? ?m\b", re.I)
_VOWELS = re.compile(r"[AEIOU]")
_SYMBOLS: dict[str, str] = {
    "&": " and ", "%": " percent ", "@": " at ", "+": " plus ", "=": " equals ", "°": " degrees ",
    "—": ", ", "(": ", ", ")": ", ", "[": ", ", "]": ", ", "{": ", ", "}": ", ",
    "_": " ", "/": " or ", "$": " dollars ", "€": " euros ", "£": " pounds ", "¢": " cents ",
}  # fmt: skip
_KEPT_PUNCTUATION = frozenset(" .,;:?!'-" + _INNER)


def to_spoken(text: str) -> str:
    """Writes out what a synthesiser should say.

    Args:
        text: A model's words: a sentence or more, with or without Markdown.

    Returns:
        Words with plain punctuation: no digits and no markup, on one line. Empty when there is
        nothing to say. Never longer than 20 characters per character of `text`.
    """
    text = strip_markup(text)
    text = _SPELLED.sub(_respell, text)
    text = _PARENTHESISED_CODE.sub(lambda m: f", {_spell(m[1])},", text)
    text = _UNDERSCORED.sub(_underscored, text)
    text = expand_quantities(text)
    text = _MIXED.sub(_mixed, text)
    text = _spell_capitals(text)
    text = re.sub(r"\d+(?:\.\d+)?", lambda m: f" {number(m[0])} ", text)
    return _tidy(text)


def spell(identifier: str) -> str:
    """Spells "GV1_x" as "G, V, one, underscore, X"; leaves out characters without a name."""
    return _spell(identifier).replace(_INNER, ", ")


def _spell(identifier: str) -> str:
    return _INNER.join(word for word in map(_letter, identifier) if word)


def _letter(character: str) -> str:
    if character in _MARK_WORDS:
        return _MARK_WORDS[character]
    if character.isascii() and character.isdigit():
        return DIGIT_WORDS[int(character)]
    return character.upper() if character.isalpha() else ""


def _lead_in(match: re.Match[str], characters: int) -> str:
    """A pause before an identifier, where the text has none; "code 4W" -> "code: four"."""
    before = match.string[max(0, match.start() - 9) : match.start()].rstrip()
    if characters < _LEAD_IN_LENGTH:
        return " "
    return ": " if before and (before[-1].isalnum() or before[-1] == "'") else " "


def _spelled_out(match: re.Match[str]) -> str:
    return f"{_lead_in(match, len(match[0]))}{_spell(match[0])}"


def _respell(match: re.Match[str]) -> str:
    items = _SPELLED_ITEM.findall(match[0])
    letters = [item for item in items if len(item) == 1 and item != "_"]
    if len(letters) < 3 or _CLOCK_TIME.search(match[0]):
        return match[0]
    words = [item.lower() if len(item) > 1 else _letter(item) for item in items]
    tail = "." if match[0].endswith(".") else ""
    return f"{_lead_in(match, len(items))}{_INNER.join(words)}{tail}"


def _underscored(match: re.Match[str]) -> str:
    token = match[0]
    if any(character.isdigit() for character in token):
        return _spelled_out(match)
    # A value such as basic_economy is words.
    return token.replace("_", " ")


def _mixed(match: re.Match[str]) -> str:
    return expand_unit(match[0]) or _spelled_out(match)


def _spell_capitals(text: str) -> str:
    """Spells codes of letters only; writes shouted words small."""
    words = re.findall(r"[A-Za-z]{4,}", text)
    loud = sum(map(str.isupper, words))
    shouting = loud > 3 and 2 * loud > len(words)

    def replace(match: re.Match[str]) -> str:
        token = match[0]
        if shouting or token in _WORDS or len(token) > _CODE_LENGTH:
            return token.lower()
        if len(token) == _AIRPORT_LENGTH:
            return _spell(token)
        before = text[max(0, match.start() - 60) : match.start()]
        if len(token) == _CODE_LENGTH and (
            _CODE_CONTEXT.search(before) or not _pronounceable(token)
        ):
            return _spelled_out(match)
        return token if _pronounceable(token) else _spell(token)

    return _CAPITALS.sub(replace, text)


def _pronounceable(token: str) -> bool:
    longest = max(map(len, _VOWELS.split(token)))
    return bool(_VOWELS.search(token)) and longest <= 3


def _tidy(text: str) -> str:
    """Symbols as words, everything else unspeakable away, punctuation and blanks in order."""
    out = []
    for character in text:
        if character in _KEPT_PUNCTUATION or (character.isascii() and character.isalpha()):
            out.append(character)
        elif character in _SYMBOLS:
            out.append(_SYMBOLS[character])
        elif character.isalpha():
            out.append(_latin(character))
        elif unicodedata.category(character) != "Mn":
            out.append(" ")
    text = re.sub(r" {2,}", " ", "".join(out)).replace(" ,", ",")
    text = _BETWEEN_IDENTIFIERS.sub(r"\1; ", text)
    text = text.replace(_INNER, ", ")
    for pattern, replacement in _TIDYING:
        text = pattern.sub(replacement, text)
    text = text.lstrip(" .,;:?!-").rstrip(" ,;:-")
    return text if any(map(str.isalpha, text)) else ""


def _latin(character: str) -> str:
    """An accented letter without its accent; letters of other scripts as they are."""
    base = unicodedata.normalize("NFKD", character)
    kept = [c for c in base if c.isalpha() and unicodedata.category(c) != "Nl"]
    return "".join(kept)


_Replacement = str | Callable[[re.Match[str]], str]
_TIDYING: tuple[tuple[re.Pattern[str], _Replacement], ...] = (
    # A hyphen that joins nothing is a pause, and so is a run of them.
    (re.compile(r"(?<![A-Za-z])-+(?=[A-Za-z])|-{2,}"), " "),
    (re.compile(r"(?: -+)+ "), ", "),
    (re.compile(r"-+(?![A-Za-z])"), " "),
    (re.compile(r"(?<![A-Za-z])'+|'+(?![A-Za-z])"), " "),
    (re.compile(r" {2,}"), " "),
    (re.compile(r" (?=[.,;:?!])"), ""),
    (re.compile(r"\.{2,}"), "."),
    # Of several marks in a row the strongest is kept.
    (re.compile(r"[.,;:?!](?: ?[.,;:?!])+"), lambda m: _strongest(m[0])),
    (re.compile(r"(?<=[,;:?!])(?=[A-Za-z])"), " "),
    (re.compile(r" {2,}"), " "),
)


def _strongest(marks: str) -> str:
    return next(mark for mark in "?!.:;," if mark in marks)
