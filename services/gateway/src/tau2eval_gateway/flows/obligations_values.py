"""Whether a call carries what was asked for: values as whole tokens, in one form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_WHOLE = re.compile(r"\w+(?:[.,]\d+)*", re.UNICODE)
_MONTHS = {
    month: str(number)
    for number, month in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_MONTH = re.compile(
    r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(uary|ruary|ch|il|e|y|ust|t|tember|ober"
    r"|ember)?"
)
_ORDINAL = re.compile(r"(\d{1,2})(st|nd|rd|th)")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Values:
    """Values in which others are looked for as whole tokens: 123 is not in 91234.

    Args:
        texts: One for each value, or for each message.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._lists = [tokens_of(text) for text in texts]
        self._sets = [frozenset(tokens) for tokens in self._lists]
        self._words = frozenset[str]().union(*self._sets)

    def carry(self, word: str) -> bool:
        """Returns whether a value is among them."""
        wanted = tokens_of(word)
        count = len(wanted)
        if not wanted or not self._words.issuperset(wanted):
            return False
        if count == 1:
            return True
        holding = [at for at, tokens in enumerate(self._sets) if tokens.issuperset(wanted)]
        if all(token.isdigit() for token in wanted):
            # A date, in any order of its parts.
            return bool(holding)
        if all(token.isalpha() for token in wanted):
            # A name, over several values.
            return True
        return any(
            tokens[start : start + count] == wanted
            for tokens in (self._lists[at] for at in holding)
            for start in range(len(tokens) - count + 1)
        )


def tokens_of(text: str) -> tuple[str, ...]:
    """Returns the words of a text in one form: case, number format and months do not matter."""
    tokens = _WHOLE.findall(text.casefold())
    normal = {token: _normal(token) for token in set(tokens)}
    return tuple(normal[token] for token in tokens)


def _normal(token: str) -> str:
    if token.isalpha():
        month = _MONTH.fullmatch(token) if token[:3] in _MONTHS else None
        return _MONTHS[month[1]] if month else token
    if ordinal := _ORDINAL.fullmatch(token):
        token = ordinal[1]
    if _NUMBER.fullmatch(token):
        plain = re.sub(r",(?=\d{3}\b)", "", token).replace(",", ".")
        whole, dot, rest = plain.partition(".")
        rest = rest.rstrip("0")
        return (whole.lstrip("0") or "0") + (dot + rest if rest else "")
    return token


def telling(identifiers: Sequence[str]) -> Sequence[str]:
    """Returns the identifiers that tell one thing from another: ids, codes and numbers, if any."""
    strong = [
        word
        for word in identifiers
        if any(char.isdigit() for char in word) or (word.isupper() and len(word) > 2)
    ]
    return strong or identifiers
