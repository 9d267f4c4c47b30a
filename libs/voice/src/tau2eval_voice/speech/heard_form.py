"""From a recogniser's transcript to the text that a model reads: spelled identifiers joined.

A light touch. Only what cannot be ordinary prose is joined: characters around the spoken word
"underscore", and runs of single characters with one kind of separator. Everything else stays as
the recogniser wrote it, also what it misheard.
"""

from __future__ import annotations

import re
from itertools import pairwise

from tau2eval_voice.speech.number_words import DIGIT_WORDS

__all__ = ["from_spoken"]

_DIGIT_BY_WORD = {word: str(digit) for digit, word in enumerate(DIGIT_WORDS)}
_DIGIT_WORD = "|".join(DIGIT_WORDS)
# Mostly one separator throughout a run, which ends it before the next word of prose.
_SEPARATOR = r"(?: ?- ?|, ?|\.(?! )| )"
_LETTER = r"[A-Za-z](?![A-Za-z0-9'])"
_DIGIT = rf"(?:\d(?!\d)|(?:{_DIGIT_WORD})\b)"
_CHARACTER = rf"(?:{_LETTER}|{_DIGIT})"
_START = r"(?<![\w'.-])"


def _run(item: str, group: str, least: int) -> str:
    """Pattern of at least `least` + 1 items with one separator between all of them."""
    return rf"{item}(?P<{group}>{_SEPARATOR}){item}(?:(?P={group}){item}){{{least - 1},60}}"


def _part(number: int) -> str:
    """Pattern of what stands on one side of an underscore."""
    digits = rf"\d{{1,12}}(?:-\d{{1,12}}){{1,12}}|{_run(_DIGIT, f'd{number}', 1)}"
    # Separators may differ here, but a blank comes second: "it is a D-A-I-K-I".
    mixed = rf"{_LETTER}(?:[-,.] ?){_LETTER}(?:(?:[-,.] ?| ){_LETTER}){{0,60}}"
    letters = rf"(?P<l{number}>{mixed}|{_run(_LETTER, f's{number}', 1)})"
    return rf"(?:{letters}|{digits}|[A-Za-z]-[A-Za-z]{{2,30}}|[A-Za-z0-9]{{1,40}})"


_UNDERSCORE_WORD = r"[ ,.-]{0,3}(?:(?:\bunderscore|\bunder score|_)[ ,.-]{0,3}){1,2}"
_UNDERSCORED = re.compile(
    rf"{_START}{_part(0)}"
    + "".join(
        rf"(?:{_UNDERSCORE_WORD}{_part(number)})" + ("?" * (number > 1)) for number in (1, 2, 3)
    ),
    re.I,
)
_SINGLES = re.compile(rf"{_START}{_run(_CHARACTER, 's', 3)}(?![\w'])", re.I)
_HYPHENATED = re.compile(r"(?<![\w'-])[A-Za-z0-9](?:-[A-Za-z0-9]){2,60}(?![\w'-])")
_CHAIN = re.compile(r"(?<![\w'-])[A-Z0-9]{1,7}(?:-[A-Z0-9]{1,7}){1,9}(?![\w'-])")
_INITIALS = re.compile(r"(?<![\w.])[A-Z](?:\.[A-Z]){2,9}(?:\.(?= [a-z]))?(?!\w)")
_PIECE = re.compile(rf"\b(?:underscore|under score)\b|_|\b(?:{_DIGIT_WORD})\b|[A-Za-z0-9]+", re.I)
_CHAIN_LENGTHS = range(5, 13)


def from_spoken(text: str) -> str:
    """Joins identifiers that a recogniser wrote letter by letter.

    "D-A-I-K-I underscore M-U-L-L-E-R underscore 1116" becomes "daiki_muller_1116", and
    "H, A, T, 0, 0, 3" becomes "HAT003". Identifiers with an underscore come out in small letters,
    others in capitals. Text without a spelled identifier is returned unchanged.
    """
    text = _UNDERSCORED.sub(_join_underscored, text)
    text = _INITIALS.sub(lambda m: m[0].replace(".", ""), text)
    text = _HYPHENATED.sub(_join_hyphenated, text)
    text = _CHAIN.sub(_join_chain, text)
    return _SINGLES.sub(_join_singles, text)


def _join_underscored(match: re.Match[str]) -> str:
    spelled = any(match[f"l{number}"] for number in range(4))
    pieces = _PIECE.findall(match[0])
    if not spelled and not any(_character(piece).isdigit() for piece in pieces):
        # "Let me underscore that": a verb.
        return match[0]
    joined = "".join("_" if _is_underscore(piece) else _character(piece) for piece in pieces)
    return joined.replace("__", "_").lower()


def _is_underscore(piece: str) -> bool:
    return piece.lower() in ("underscore", "under score", "_")


def _character(piece: str) -> str:
    return _DIGIT_BY_WORD.get(piece.lower(), piece)


def _join_hyphenated(match: re.Match[str]) -> str:
    joined = match[0].replace("-", "")
    return joined.upper() if any(map(str.isalpha, joined)) else match[0]


def _join_chain(match: re.Match[str]) -> str:
    """Joins "6-0-R-X9-E" but not "COVID-19"."""
    pieces = match[0].split("-")
    joined = "".join(pieces)
    mixed = any(map(str.isalpha, joined)) and any(map(str.isdigit, joined))
    spelled = sum(len(piece) == 1 for piece in pieces) >= 2 or any(
        not piece.isalpha() and not piece.isdigit() for piece in pieces
    )
    return joined if mixed and spelled and len(joined) in _CHAIN_LENGTHS else match[0]


def _join_singles(match: re.Match[str]) -> str:
    characters = [_character(piece) for piece in _PIECE.findall(match[0])]
    joined = "".join(characters).upper()
    letters = [character for character in joined if character.isalpha()]
    if len(letters) < 2 or _is_enumeration(letters):
        return match[0]
    return joined


def _is_enumeration(letters: list[str]) -> bool:
    """True of A, B, C, D: choices, not a code."""
    return len(letters) > 2 and all(ord(b) - ord(a) == 1 for a, b in pairwise(letters))
