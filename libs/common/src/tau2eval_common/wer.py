"""Word error rate of what was heard against what was said.

Both sides are brought to one notation first: recognisers write "$50", "May 19th" and "3 p.m."
where the synthesiser was given "fifty dollars", "May nineteenth" and "three p.m.". Where a figure
can be read in several ways (2024, 7447, 3:00), the reading that occurs in the words said is taken,
as the transcript does not tell them apart. Nothing else is forgiven: every word said counts once,
also fillers and names, and words that were heard but not said count as errors.

Letters and digits of spelled identifiers are kept apart from ordinary words, as they fail in
another way and are far more of them per thing said.

Needs jiwer and num2words, which are imported at the first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypedDict

__all__ = ["WordErrors", "normalize", "score"]

# What a recogniser without an idea hands on; not a word that it heard.
_INAUDIBLE = "(inaudible)"
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_MARKS = {"_": "underscore", "-": "dash"}


class WordErrors(TypedDict):
    """The result, as plain numbers.

    Attributes:
        ordinary_wer: Errors per ordinary word said, as a fraction; may exceed 1. None when no
            ordinary word was said.
        identifier_wer: The same for the letters, digits and marks of spelled identifiers.
        exact_identifiers: How many spelled identifiers were heard without an error.
        identifiers: How many were said.
        words: Ordinary words said.
        ordinary_errors: Substitutions, deletions and insertions among ordinary words.
        identifier_tokens: Letters, digits and marks said in identifiers.
        identifier_errors: Substitutions, deletions and insertions inside identifiers.
    """

    ordinary_wer: float | None
    identifier_wer: float | None
    exact_identifiers: int
    identifiers: int
    words: int
    ordinary_errors: int
    identifier_tokens: int
    identifier_errors: int


def score(said: list[str], heard: list[str]) -> WordErrors:
    """Aligns all words heard with all words said, and counts the errors.

    Args:
        said: Spoken forms of one speaker's utterances, in order, as far as they were played.
        heard: Transcripts that the other side got of them, in order. They may be cut in other
            places than the utterances.
    """
    reference = _Reference.of(said)
    hypothesis: list[str] = []
    for text in heard:
        hypothesis += _words(text.replace(_INAUDIBLE, " "), reference.choose)
    wrong, inserted_at = _align(reference.tokens, hypothesis)

    spans = reference.identifiers
    inside = [index for start, end in spans for index in range(start, end)]
    # Between two tokens of one identifier; at its edges an insertion counts as ordinary.
    gaps = {index for start, end in spans for index in range(start + 1, end)}
    identifier_errors = sum(wrong[index] for index in inside)
    identifier_errors += sum(count for index, count in inserted_at.items() if index in gaps)
    errors = sum(wrong) + sum(inserted_at.values())
    exact = sum(
        not any(wrong[start:end]) and not any(i in inserted_at for i in range(start + 1, end))
        for start, end in spans
    )
    words = len(reference.tokens) - len(inside)
    return WordErrors(
        ordinary_wer=(errors - identifier_errors) / words if words else None,
        identifier_wer=identifier_errors / len(inside) if inside else None,
        exact_identifiers=exact,
        identifiers=len(spans),
        words=words,
        ordinary_errors=errors - identifier_errors,
        identifier_tokens=len(inside),
        identifier_errors=identifier_errors,
    )


def normalize(text: str) -> list[str]:
    """The words of a text as they are compared: small letters, figures as words."""
    return _words(text, lambda readings: readings[0])


@dataclass(frozen=True)
class _Reference:
    """The words said: tokens, and where identifiers lie among them."""

    tokens: list[str]
    identifiers: list[tuple[int, int]]
    text: str

    @classmethod
    def of(cls, said: Iterable[str]) -> _Reference:
        tokens: list[str] = []
        spans: list[tuple[int, int]] = []
        for utterance in said:
            position = 0
            for match in _IDENTIFIER.finditer(utterance):
                tokens += normalize(utterance[position : match.start()])
                start = len(tokens)
                tokens += _spelled(match[0])
                spans.append((start, len(tokens)))
                position = match.end()
            tokens += normalize(utterance[position:])
        return cls(tokens, spans, f" {' '.join(tokens)} ")

    def choose(self, readings: list[str]) -> str:
        """The first reading that was said somewhere, else the first."""
        return next((r for r in readings if f" {r} " in self.text), readings[0])


def _align(reference: list[str], hypothesis: list[str]) -> tuple[list[bool], dict[int, int]]:
    """For each reference token whether it is wrong; insertions by the token they stand before."""
    if not reference or not hypothesis:
        inserted = {0: len(hypothesis)} if hypothesis else {}
        return [True] * len(reference), inserted
    import jiwer

    wrong = [False] * len(reference)
    inserted_at: dict[int, int] = {}
    result = jiwer.process_words(" ".join(reference), " ".join(hypothesis))
    for chunk in result.alignments[0]:
        if chunk.type in ("substitute", "delete"):
            wrong[chunk.ref_start_idx : chunk.ref_end_idx] = [True] * (
                chunk.ref_end_idx - chunk.ref_start_idx
            )
        elif chunk.type == "insert":
            count = chunk.hyp_end_idx - chunk.hyp_start_idx
            inserted_at[chunk.ref_start_idx] = inserted_at.get(chunk.ref_start_idx, 0) + count
    return wrong, inserted_at


_Choose = Callable[[list[str]], str]

_ITEM = rf"(?:[A-Za-z]|{'|'.join(_DIGITS)}|underscore|dash)"
_MIXED = r"(?=[A-Za-z0-9]{0,60}\d)(?=[A-Za-z0-9]{0,60}[A-Za-z])[A-Za-z0-9]{2,60}"
# Spelled with commas, as spoken forms are; or, in words that were not written out, as it stands.
_IDENTIFIER = re.compile(
    rf"(?<![\w'-]){_ITEM}(?:, {_ITEM}(?![\w'-])){{2,200}}"
    rf"|(?<!\w)[A-Za-z0-9]{{1,60}}(?:_[A-Za-z0-9]{{1,60}}){{1,9}}(?!\w)"
    rf"|(?<!\w)(?!\d{{1,6}}(?:st|nd|rd|th|[ap]m|k|kg|lbs?|h|hrs?|min)\b){_MIXED}(?!\w)",
    re.I,
)
_NUMBER = r"\d{1,3}(?:,\d{3}){1,5}(?:\.\d{1,9})?(?!\d)|\d{1,40}(?:\.\d{1,9}(?!\d))?"
_TOKEN = re.compile(
    rf"""
      (?P<hour>\d{{1,2}}):(?P<minute>\d\d)(?!\d)
    | (?P<half>\b[ap])(?:\.\ ?m\b\.?|\ M\b)
    | (?P<currency>[$€£])\ ?(?P<amount>{_NUMBER})
      (?:\ (?P<scale>hundred|thousand|million|billion)\b)?
    | (?P<ordinal>\d{{1,6}})(?:st|nd|rd|th)\b
    | (?P<clock>\d{{1,2}})(?P<clockhalf>[ap])\.?m\b\.?
    | (?P<identifier>(?<!\w)[A-Za-z0-9]{{1,60}}(?:_[A-Za-z0-9]{{1,60}}){{1,9}}(?!\w))
    | (?P<mixed>(?<![^\W_]){_MIXED}(?![^\W_]))
    | (?P<number>{_NUMBER})(?P<percent>\ ?%)?(?![A-Za-z])
    | (?P<mark>_)
    | (?P<capitals>(?<![^\W_])[A-Z]{{2,12}}(?![^\W_])(?!['\u2019]))
    | (?P<word>[^\W\d_]+(?:['\u2019][^\W\d_]+)*)
    | (?P<rest>[^\W_]+)
    | (?P<sign>[&%+@=])
    """,
    re.X | re.I,
)
_HALF_FOLLOWS = re.compile(r" ?[ap]\.? ?m\b", re.I)
_SIGNS = {"&": "and", "%": "percent", "+": "plus", "@": "at", "=": "equals"}
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
}
# Two spellings of one and the same word or words.
_SPELLINGS = {
    "ok": "okay", "alright": "all right", "mr": "mister", "mrs": "missus", "dr": "doctor",
    "cannot": "can not", "gonna": "going to", "wanna": "want to",
    "vs": "versus", "oclock": "o'clock", "goodbye": "good bye",
}  # fmt: skip
_CONTRACTIONS = {
    "won't": "will not", "can't": "can not", "shan't": "shall not", "let's": "let us",
    "it's": "it is", "that's": "that is", "what's": "what is", "there's": "there is",
    "here's": "here is", "where's": "where is", "who's": "who is", "how's": "how is",
    "he's": "he is", "she's": "she is",
}  # fmt: skip
_ENDINGS = {"n't": " not", "'m": " am", "'re": " are", "'ve": " have", "'ll": " will"}


def _words(text: str, choose: _Choose) -> list[str]:
    tokens: list[str] = []
    text = re.sub(r"\bper cent\b", "percent", text, flags=re.I)
    for match in _TOKEN.finditer(text):
        tokens += _token(match, choose, tokens).split()
    return tokens


def _token(match: re.Match[str], choose: _Choose, before: list[str]) -> str:
    """The words of one token; `before` are the words already there."""
    groups = match.groupdict()
    if word := groups["word"]:
        return _word(word)
    if capitals := groups["capitals"]:
        if not capitals.isupper():
            return _word(capitals)
        return choose([_word(capitals), " ".join(capitals.lower())])
    if number := groups["number"]:
        joined = match.string[match.start() - 1 : match.start()] == "-"
        spelled = bool(before) and (
            len(before[-1]) == 1 or before[-1] == "underscore" or (joined and before[-1] in _DIGITS)
        )
        readings = _readings(number, spelled=spelled)
        if re.fullmatch(r"\d{1,2}\.[0-5]\d", number):
            # A time with a dot: only if it was said.
            readings += _times(int(number.partition(".")[0]), number[-2:], on_the_hour=True)
        words = choose(readings)
        return f"{words} percent" if groups["percent"] else words
    if amount := groups["amount"]:
        return choose(_amounts(groups["currency"], amount, groups["scale"]))
    if ordinal := groups["ordinal"]:
        return _number_words(int(ordinal), "ordinal")
    if hour := groups["hour"]:
        half_follows = _HALF_FOLLOWS.match(match.string, match.end())
        return choose(_times(int(hour), groups["minute"], on_the_hour=not half_follows))
    if half := groups["half"] or groups["clockhalf"]:
        clock = groups["clock"]
        return (f"{_number_words(int(clock))} " if clock else "") + f"{half.lower()}m"
    if spelled_text := groups["identifier"] or groups["mixed"] or groups["rest"]:
        return " ".join(_spelled_characters(spelled_text))
    return _SIGNS.get(match[0], _MARKS["_"])


def _word(word: str) -> str:
    word = word.lower().replace("\u2019", "'")
    if word in _SPELLINGS:
        return _SPELLINGS[word]
    if word in _CONTRACTIONS:
        return _CONTRACTIONS[word]
    for ending, words in _ENDINGS.items():
        if word.endswith(ending):
            return word[: -len(ending)] + words
    return word


def _spelled(text: str) -> list[str]:
    """Tokens of an identifier, spelled or as it stands."""
    if "," in text:
        return [item.strip().lower() for item in text.split(",")]
    return _spelled_characters(text)


def _spelled_characters(text: str) -> list[str]:
    return [
        _DIGITS[int(c)] if c.isascii() and c.isdigit() else _MARKS.get(c, c.lower()) for c in text
    ]


def _readings(text: str, *, spelled: bool) -> list[str]:
    """How a figure may be spoken, the most likely first."""
    whole, _, fraction = text.replace(",", "").partition(".")
    digits = " ".join(_DIGITS[int(c)] for c in whole)
    tail = " point " + " ".join(_DIGITS[int(c)] for c in fraction) if fraction else ""
    readings: list[str] = []
    if len(whole) <= 12:
        value = int(whole)
        readings.append(_number_words(value) + tail)
        if not tail:
            readings.append(_number_words(value, "ordinal"))
            if len(whole) == 4 and value % 1000:
                year = _year(value)
                readings.insert(0 if "," not in text and 1900 <= value < 2100 else 1, year)
    looks_spelled = spelled or len(whole) > 6 or (len(whole) > 1 and whole[0] == "0")
    readings.insert(0 if looks_spelled and "," not in text else len(readings), digits + tail)
    return readings


def _amounts(sign: str, text: str, scale: str | None) -> list[str]:
    one, many, small_one, small_many = _CURRENCIES[sign]
    whole, _, fraction = text.replace(",", "").partition(".")
    if scale:
        return [f"{words} {scale.lower()} {many}" for words in _readings(text, spelled=False)]
    unit = one if whole == "1" else many
    readings = []
    for words in _readings(whole, spelled=False):
        if not fraction or not int(fraction):
            readings.append(f"{words} {unit}")
            continue
        cents = int(fraction[:2].ljust(2, "0"))
        small = f"{_number_words(cents)} {small_one if cents == 1 else small_many}"
        if not int(whole):
            readings.append(small)
        readings += [f"{words} {unit} and {small}", f"{words} {unit} {small}"]
    return readings


def _times(hour: int, minute: str, *, on_the_hour: bool) -> list[str]:
    words = _number_words(hour)
    if minute == "00":
        return [f"{words} o'clock", f"{words} hundred", words] if on_the_hour else [words]
    if minute[0] == "0":
        return [f"{words} {zero} {_DIGITS[int(minute[1])]}" for zero in ("oh", "o", "zero")]
    return [f"{words} {_number_words(int(minute))}"]


def _year(value: int) -> str:
    century, rest = divmod(value, 100)
    if rest == 0:
        return f"{_number_words(century)} hundred"
    if rest < 10:
        return f"{_number_words(century)} oh {_DIGITS[rest]}"
    return f"{_number_words(century)} {_number_words(rest)}"


@lru_cache(maxsize=4096)
def _number_words(value: int, form: str = "cardinal") -> str:
    """1234 as "one thousand two hundred thirty four": no "and", hyphens or commas."""
    from num2words import num2words

    words = str(num2words(value, to=form)).replace("-", " ").replace(",", " ")
    return " ".join(word for word in words.split() if word != "and")
