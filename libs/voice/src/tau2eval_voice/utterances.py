"""What a bot says: the words as written, and how many of them were played."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_WORD = re.compile(r"\S+")


@dataclass(slots=True)
class Segment:
    """A part of an utterance that is synthesised at once.

    Attributes:
        text: The words, as the model wrote them.
        spoken_form: The words as they were given to the synthesizer.
        seconds: Length of its audio so far, in seconds.
    """

    text: str
    spoken_form: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Utterance:
    """The words of one model response.

    Attributes:
        utterance_id: Unique in the session.
        written: What the model has written so far.
        segments: What the synthesizer made of it, in order.
        played_seconds: How much of its audio was sent.
        audible: True from its first audio on.
        closed: True when playing ended or was cut off.
        message: Its message in the context, once it is there.
    """

    utterance_id: str
    written: str = ""
    segments: list[Segment] = field(default_factory=list)
    played_seconds: float = 0.0
    audible: bool = False
    closed: bool = False
    message: dict[str, Any] | None = None

    def played(self) -> Played:
        """Returns what was played up to now.

        Only whole words count. Within a segment time is taken to be spread over the words by
        their length in characters, which is true to about a word.
        """
        remaining = self.played_seconds
        cursor = 0
        spoken: list[str] = []
        for segment in self.segments:
            if remaining <= 0:
                break
            whole = remaining >= segment.seconds - 1e-6
            fraction = 1.0 if whole or segment.seconds <= 0 else remaining / segment.seconds
            words = words_within(segment.text, fraction)
            spoken.append(words_within(segment.spoken_form, fraction))
            cursor = _advance(self.written, cursor, words)
            remaining -= segment.seconds
            if not whole:
                break
        return Played(
            text=self.written[:cursor].strip(),
            spoken_form=" ".join(part for part in spoken if part),
            unspoken=self.written[cursor:].strip(),
        )

    def all_spoken_form(self) -> str:
        """Returns the spoken form of all segments."""
        return " ".join(part for segment in self.segments if (part := segment.spoken_form.strip()))


@dataclass(frozen=True, slots=True)
class Played:
    """What was played of an utterance, in both forms, and what was not."""

    text: str
    spoken_form: str
    unspoken: str


def words_within(text: str, fraction: float) -> str:
    """Returns the leading words of which the whole lies within a fraction of the text."""
    if fraction >= 1.0:
        return text
    limit = fraction * len(text)
    end = 0
    for match in _WORD.finditer(text):
        if match.end() > limit:
            break
        end = match.end()
    return text[:end]


def _advance(written: str, cursor: int, words: str) -> int:
    """Returns the position in `written` behind `words`, which come next from `cursor` on.

    White space may differ, because the aggregation of sentences trims it.
    """
    for word in _WORD.findall(words):
        found = written.find(word, cursor)
        if found < 0:
            return cursor
        cursor = found + len(word)
    return cursor
