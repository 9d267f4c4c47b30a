"""Words said and words heard, with the differences marked word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tau2eval_common.wer import normalize

MAX_PAIRS = 1_000_000
"""Longer turns are not aligned: the time grows with the product of their lengths."""
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b", re.I)
_CAPITALS = re.compile(r"[A-Z]{2,6}")


@dataclass(frozen=True)
class Part:
    """Words that belong together.

    Attributes:
        differs: Said and not heard, or heard and not said.
    """

    text: str
    differs: bool


@dataclass(frozen=True)
class Comparison:
    """Both sides of a turn.

    Attributes:
        differences: Words marked on the side that has more of them.
        compared: False when the turn is too long to be aligned; then nothing is marked.
    """

    said: tuple[Part, ...]
    heard: tuple[Part, ...]
    differences: int
    compared: bool


def compare(said: str, heard: str) -> Comparison:
    """Aligns the words heard with the words said.

    Case, punctuation and notation ("$50" and "fifty dollars", "A1" and "A, one") do not differ.
    A written word is marked as a whole when any part of it differs. The rates of errors come from
    `speech_accuracy`, not from here: this is for the eye.
    """
    left, right = _Side(said, heard), _Side(heard, said)
    if len(left.tokens) * len(right.tokens) > MAX_PAIRS:
        return Comparison(_whole(said), _whole(heard), 0, False)
    wrong_left, wrong_right = set(range(len(left.tokens))), set(range(len(right.tokens)))
    matcher = SequenceMatcher(None, left.tokens, right.tokens, autojunk=False)
    for block in matcher.get_matching_blocks():
        wrong_left -= set(range(block.a, block.a + block.size))
        wrong_right -= set(range(block.b, block.b + block.size))
    marked_left, marked_right = left.marked(wrong_left), right.marked(wrong_right)
    return Comparison(
        tuple(_parts(left.words, marked_left)),
        tuple(_parts(right.words, marked_right)),
        max(len(marked_left), len(marked_right)),
        True,
    )


class _Side:
    """Written words, and the spoken words that each stands for."""

    def __init__(self, text: str, other: str) -> None:
        self.words = text.split()
        self.tokens: list[str] = []
        self._owners: list[int] = []
        heard = set(normalize(other))
        for at, word in enumerate(self.words):
            # Recognisers write "May 26th" and "May 26" for the same words.
            tokens = normalize(_ORDINAL.sub("", word))
            capitals = _CAPITALS.search(word)
            if len(tokens) == 1 and capitals and tokens[0] not in heard:
                # "JFK" may have been said or heard letter by letter.
                letters = list(tokens[0])
                tokens = letters if set(letters) <= heard else tokens
            self.tokens += tokens
            self._owners += [at] * len(tokens)

    def marked(self, wrong: set[int]) -> set[int]:
        return {self._owners[token] for token in wrong}


def _parts(words: Sequence[str], marked: set[int]) -> Iterator[Part]:
    run: list[str] = []
    for at, word in enumerate(words):
        if run and (at in marked) != (at - 1 in marked):
            yield Part(" ".join(run), at - 1 in marked)
            run = []
        run.append(word)
    if run:
        yield Part(" ".join(run), len(words) - 1 in marked)


def _whole(text: str) -> tuple[Part, ...]:
    return (Part(" ".join(text.split()), False),) if text.strip() else ()
