"""Words as lessons are found by them: folded, without stop words, cut to their stems.

English endings are cut; words of other languages stay whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_APOSTROPHES: Final = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")
_MIN_STEM: Final = 3

_GRAMMAR: Final = """
    a an the this that these those there here it its i me my mine myself we us our ours you your
    yours he him his she her hers they them their theirs who whom whose which what when where why
    how and or but nor so if then else than as at by for from in into of off on onto out over to
    too under until up down upon with within without about after again against all also am any are
    be because been before being below between both can cannot cant could couldnt did didnt do does
    doesnt doing done dont each either ever every few had has have having id ill im is isnt ive just
    let lets like may might more most must never no none not now once one only other otherwise own
    same shall should some such very was wasnt well were will wont would wouldnt youd youll youre
    youve thats theres yet still even whether while per via rather instead first second last next
"""
# What nearly every turn of a service call holds, and what nearly every lesson is phrased in.
_COMMON: Final = """
    please thank thanks hello hi hey okay ok yes yeah sure sorry help need want wish able get got
    getting go going gone make made making give given take know see look tell told say said ask
    asked try use used using thing way lot new good great really actually already
    user customer caller agent assistant tool call function always whenever sometimes
"""
GRAMMAR_WORDS: Final = frozenset(_GRAMMAR.split())
"""Say nothing anywhere."""
COMMON_WORDS: Final = frozenset(_COMMON.split())
"""Say nothing by themselves; in a phrase ("human agent") they do."""


def words_of(text: str) -> list[str]:
    """Returns the words of a text in order, in lower case, without those of the grammar."""
    folded = _APOSTROPHES.sub("", unicodedata.normalize("NFKC", text)).casefold()
    return [word for word in _WORD.findall(folded) if word not in GRAMMAR_WORDS]


def phrase_stems(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the stems of words, for phrases."""
    return tuple(stem(word) for word in words)


def telling_stems(words: Sequence[str]) -> frozenset[str]:
    """Returns the stems of the words that say something by themselves."""
    return frozenset(stem(word) for word in words if word not in COMMON_WORDS)


def stem(word: str) -> str:
    """Returns the stem of a lower-case word: cancel for cancels, cancelled and cancellation."""
    if not word.isascii() or not word.isalpha():
        return word
    base = _plural(word)
    for ending, instead in _ENDINGS:
        kept = base.removesuffix(ending)
        if kept != base and len(kept) >= _MIN_STEM and _has_vowel(kept):
            base = kept + instead
            break
    if len(base) > _MIN_STEM and base[-1] == base[-2] and base[-1] not in "aeiousz":
        base = base[:-1]
    if len(base) > _MIN_STEM and base[-1] == "e":
        base = base[:-1]
    if len(base) > _MIN_STEM and base[-1] == "y" and base[-2] not in "aeiou":
        base = base[:-1] + "i"
    return base


_ENDINGS: Final = (
    ("ifications", "ify"),
    ("ification", "ify"),
    ("izations", "ize"),
    ("ization", "ize"),
    ("ations", ""),
    ("ation", ""),
    ("ments", ""),
    ("ment", ""),
    ("ables", ""),
    ("able", ""),
    ("ingly", ""),
    ("ings", ""),
    ("ing", ""),
    ("ied", "y"),
    ("edly", ""),
    ("ed", ""),
    ("ally", "al"),
    ("ly", ""),
    ("ions", ""),
    ("ion", ""),
)
"""Endings and what stands for them, the longest first where one holds another."""


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("xes", "ches", "shes", "zes")) and len(word) > 4:
        return word[:-2]
    if word.endswith("s") and len(word) > _MIN_STEM and word[-2] not in "siu":
        return word[:-1]
    return word


def _has_vowel(text: str) -> bool:
    return any(letter in "aeiouy" for letter in text)
