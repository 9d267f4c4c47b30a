"""Assigns what the other side's recogniser heard to the turns it came from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2

_SLACK_SECONDS = 0.3
_MIN_OVERLAP_SECONDS = 0.05
_LATE_SECONDS = 5.0
_WORD = re.compile(r"[a-z0-9']+")


@dataclass(frozen=True)
class _Mapped:
    """A run of words that are the same in what was said and in what was heard."""

    said: int
    heard: int
    size: int


def assign_heard(turns: Sequence[record_pb2.Turn], events: Sequence[record_pb2.TimedEvent]) -> None:
    """Sets `heard` of all turns from the TranscriptHeard events of the other side.

    A transcript belongs to the turns that its audio overlaps. One over several turns is divided
    where its words fit theirs best. One that overlaps none goes to the turn that ended last before
    it, when that was not long ago.
    """
    parts: dict[int, list[str]] = {}
    for event in events:
        if event.event.WhichOneof("event") != "transcript_heard":
            continue
        heard = event.event.transcript_heard
        text = heard.text.strip()
        if not text:
            continue
        agent_heard = event.role == voice_pb2.ROLE_AGENT
        speaker = voice_pb2.ROLE_USER if agent_heard else voice_pb2.ROLE_AGENT
        end = event.event.media_time_seconds - max(heard.latency_seconds, 0.0)
        start = end - max(heard.audio_seconds, 0.0)
        over = _overlapped(turns, speaker, start, end)
        for i, piece in zip(over, split_words(text, [turns[i].text for i in over]), strict=True):
            if piece:
                parts.setdefault(i, []).append(piece)
    for i, texts in parts.items():
        turns[i].heard = " ".join(texts)


def _overlapped(
    turns: Sequence[record_pb2.Turn], speaker: voice_pb2.Role.ValueType, start: float, end: float
) -> list[int]:
    """Returns the turns of a speaker that a segment (seconds) covers, in order of time."""
    mine = sorted(
        (i for i, turn in enumerate(turns) if turn.role == speaker),
        key=lambda i: turns[i].start_seconds,
    )
    covered = []
    for i in mine:
        shared = min(turns[i].end_seconds, end) - max(turns[i].start_seconds, start)
        length = turns[i].end_seconds - turns[i].start_seconds
        if shared > min(_MIN_OVERLAP_SECONDS, length / 2):
            covered.append(i)
    if covered:
        return covered
    # The times of a recogniser are not exact, and it may report late.
    near = [
        i
        for i in mine
        if turns[i].start_seconds <= end + _SLACK_SECONDS
        and turns[i].end_seconds >= start - _LATE_SECONDS
    ]
    return near[-1:]


def split_words(heard: str, said: Sequence[str]) -> list[str]:
    """Divides words heard among utterances, in order, so that they match what was said best."""
    if len(said) <= 1:
        return [heard] * len(said)
    words = heard.split()
    said_words = [[_key(word) for word in text.split()] for text in said]
    flat = [word for text in said_words for word in text]
    matcher = SequenceMatcher(None, flat, [_key(word) for word in words], autojunk=False)
    # The last block is empty and stands at both ends.
    runs = [_Mapped(block.a, block.b, block.size) for block in matcher.get_matching_blocks()]
    result: list[str] = []
    position = count = 0
    for text in said_words[:-1]:
        count += len(text)
        cut = max(_map(count, runs), position)
        result.append(" ".join(words[position:cut]))
        position = cut
    result.append(" ".join(words[position:]))
    return result


def _map(index: int, runs: Sequence[_Mapped]) -> int:
    """Maps a word boundary of what was said to one of what was heard."""
    said = heard = 0
    for run in runs:
        if index <= run.said:
            # Between two runs: by proportion.
            return heard + round((run.heard - heard) * (index - said) / max(run.said - said, 1))
        if index <= run.said + run.size:
            return run.heard + index - run.said
        said, heard = run.said + run.size, run.heard + run.size
    return heard


def _key(word: str) -> str:
    return "".join(_WORD.findall(word.lower())) or word
