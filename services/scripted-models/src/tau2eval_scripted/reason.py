"""The reason for a call, said by the caller: first person, short, without stage directions."""

from __future__ import annotations

import re

from .speak import place

MAX_SENTENCES = 2
MAX_WORDS = 45

# Sentences that direct the caller's acting instead of saying what is wanted.
_DIRECTION = re.compile(
    r"\bthe agent\b|\bmention\b|\bmake up\b|\bhalfway\b|\bpersistently\b|\bpretend\b", re.I
)
_WANT = re.compile(
    r"\b(?:want|need|like|looking|complain\w*|frustrated|contact\w*|calling|think)\b", re.I
)
_PAREN = re.compile(r"\s*\([^)]*(?:\bmention\b|\bi\.e\.)[^)]*\)")

_SHORT_PLACES = {"sf": "San Francisco", "ny": "New York"}
_OPENINGS = (
    (r"^First, (?:try to )?(?=\w)", "I would like to "),
    (
        r"^You (?:are contacting|contact) customer (?:service|support)(?= (?:to|because)\b)",
        "I am calling",
    ),
    (r"^You are contacting (?=to\b)", "I am calling "),
    (r"^You are (?:also )?looking to\b", "I would also like to"),
)
# After these words "you" is whom something is done to.
_OBJECT = r"(told|help|for|to|with|let|lets|tell|upgrade|give|gives|ask|asks|allows|of|from)"
_RULES = (
    (r"\byou(?:'re| are)\b", "I am"),
    (r"\byou've\b", "I have"),
    (r"\byou'll\b", "I will"),
    (r"\byou were\b", "I was"),
    (rf"\b{_OBJECT} you\b", r"\1 me"),
    (r"\byourself\b", "myself"),
    (r"\byours\b", "mine"),
    (r"\byour\b", "my"),
    (r"\byou\b", "I"),
)


def spoken_reason(task: str) -> str:
    """Returns the reason for a call as the caller says it.

    Args:
        task: tau2's reason_for_call, which speaks to the caller in the second person.
    """
    text = " ".join(_PAREN.sub("", task).replace("\n-", ",").split())
    text = re.sub(r" to ?: ?, ?", " to ", text)
    sentences = [s.strip() for s in re.split(r"(?<=[.!?])\s+", text) if s.strip()]
    usable = [s for s in sentences if not _DIRECTION.search(s)] or sentences[:1]
    wants = [s for s in usable if _WANT.search(s)] or usable
    chosen: list[str] = []
    for sentence in usable:
        # What is wanted comes first; what leads to it only where there is room.
        if sentence in wants[:MAX_SENTENCES] or len(usable) <= MAX_SENTENCES:
            if chosen and sum(len(s.split()) for s in (*chosen, sentence)) > MAX_WORDS:
                break
            chosen.append(sentence)
    return " ".join(_first_person(sentence) for sentence in chosen[:MAX_SENTENCES])


def _first_person(sentence: str) -> str:
    for pattern, replacement in _OPENINGS:
        sentence = re.sub(pattern, replacement, sentence)
    for pattern, replacement in _RULES:
        sentence = re.sub(pattern, replacement, sentence, flags=re.I)
    for short, city in _SHORT_PLACES.items():
        sentence = re.sub(rf"\b{short}\b", city, sentence, flags=re.I)
    sentence = re.sub(r"\b[A-Z]{3}\b", lambda match: place(match.group()), sentence)
    sentence = re.sub(r"(\b[A-Z]\w+ [A-Z]\w+) \(\1\)", r"\1", sentence)
    sentence = re.sub(r" \(([^)]*)\)", r", \1,", sentence).replace(",.", ".")
    sentence = sentence[0].upper() + sentence[1:]
    return sentence if sentence[-1] in ".!?" else sentence + "."
