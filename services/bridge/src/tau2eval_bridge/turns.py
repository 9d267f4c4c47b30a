"""Utterances of one side: the bot's words, with start and end as they were audible on the line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2

ADOPT_SECONDS = 1.0
"""Audio at most this long before SpeechStarted belongs to that utterance."""

MIN_ORPHAN_SECONDS = 0.2
"""Audio that no utterance claims and that is shorter than this is no turn."""

_EPS = 1e-6


@dataclass
class _Utterance:
    utterance_id: str
    opened: float
    said: voice_pb2.UtteranceSaid | None = None
    barrier: float | None = None
    stopped: float | None = None
    audible_start: float | None = None
    audible_end: float | None = None

    def hear(self, start: float, end: float) -> None:
        if self.audible_start is None:
            self.audible_start = start
        self.audible_end = end


@dataclass
class SideTurns:
    """Follows the utterances of one side.

    Audio and events of a bot travel in one stream, so what was queued on the line before
    SpeechStopped belongs to that utterance or an earlier one. An utterance is closed when the line
    has played up to there: this is its `barrier`.

    Attributes:
        role: The side.
        turns: Closed utterances in order. Text that comes after the close still goes in.
    """

    role: voice_pb2.Role.ValueType
    on_turn: Callable[[record_pb2.Turn], None] | None = None
    turns: list[record_pb2.Turn] = field(default_factory=list)
    _open: deque[_Utterance] = field(default_factory=deque)
    _orphan: _Utterance | None = None
    _closed: dict[str, record_pb2.Turn | None] = field(default_factory=dict)
    last_audible: float | None = None

    def event(self, event: voice_pb2.Event, now: float, queued_until: float) -> None:
        """Takes an event of the bot.

        Args:
            event: Any event; those that are not about speech are ignored.
            now: Bridge clock, seconds.
            queued_until: Media time up to which the bot's audio is queued, seconds.
        """
        kind = event.WhichOneof("event")
        if kind == "speech_started":
            self._start(event.speech_started.utterance_id, now, queued_until)
        elif kind == "utterance_said":
            self._say(event.utterance_said, now, queued_until)
        elif kind == "speech_stopped":
            self._stop(event.speech_stopped.utterance_id, now, queued_until)

    def audible(self, start: float, end: float) -> None:
        """Takes a piece of audio that could be heard, in order (seconds)."""
        self.last_audible = end
        for utterance in self._open:
            if utterance.barrier is None or start < utterance.barrier - _EPS:
                utterance.hear(start, end)
                return
        orphan = self._orphan
        if orphan is not None and start - (orphan.audible_end or 0.0) > ADOPT_SECONDS:
            self._flush_orphan()
        if self._orphan is None:
            self._orphan = _Utterance("", start)
        self._orphan.hear(start, end)

    def advance(self, cursor: float) -> None:
        """Closes utterances that the line has played to their end.

        Args:
            cursor: Media time up to which audio was taken from the line, seconds.
        """
        while self._open:
            barrier = self._open[0].barrier
            if barrier is None or barrier > cursor + _EPS:
                break
            self._close(self._open.popleft())
        orphan = self._orphan
        if orphan is None or self._open:
            return
        if cursor - (orphan.audible_end or 0.0) > ADOPT_SECONDS:
            self._flush_orphan()

    def finish(self, now: float) -> None:
        """Closes everything; an utterance without its end was cut off."""
        while self._open:
            utterance = self._open.popleft()
            if utterance.said is None:
                utterance.said = voice_pb2.UtteranceSaid(
                    utterance_id=utterance.utterance_id, interrupted=True
                )
            self._close(utterance, now)
        self._flush_orphan()

    @property
    def speaking(self) -> bool:
        """True between SpeechStarted and the end of that utterance."""
        return bool(self._open)

    def _start(self, utterance_id: str, now: float, queued_until: float) -> None:
        for earlier in self._open:
            if earlier.barrier is None:
                earlier.barrier = queued_until
        utterance = _Utterance(utterance_id, now)
        orphan = self._orphan
        if orphan is not None and orphan.audible_end is not None:
            if now - orphan.audible_end <= ADOPT_SECONDS and not self._open:
                utterance.audible_start = orphan.audible_start
                utterance.audible_end = orphan.audible_end
                self._orphan = None
            else:
                self._flush_orphan()
        self._open.append(utterance)

    def _say(self, said: voice_pb2.UtteranceSaid, now: float, queued_until: float) -> None:
        utterance = self._find(said.utterance_id)
        if utterance is not None:
            utterance.said = said
        elif said.utterance_id in self._closed:
            turn = self._closed[said.utterance_id]
            if turn is not None:
                _fill(turn, said)
        else:
            # A bot that does not tell when it speaks: what is queued is this utterance.
            self._start(said.utterance_id, now, queued_until)
            self._open[-1].said = said
            self._open[-1].barrier = queued_until

    def _stop(self, utterance_id: str, now: float, queued_until: float) -> None:
        utterance = self._find(utterance_id)
        if utterance is not None and utterance.stopped is None:
            utterance.stopped = now
            if utterance.barrier is None:
                utterance.barrier = queued_until

    def _find(self, utterance_id: str) -> _Utterance | None:
        for utterance in self._open:
            if utterance.utterance_id == utterance_id:
                return utterance
        return None

    def _flush_orphan(self) -> None:
        orphan, self._orphan = self._orphan, None
        if orphan is None or orphan.audible_start is None or orphan.audible_end is None:
            return
        if orphan.audible_end - orphan.audible_start >= MIN_ORPHAN_SECONDS:
            self._close(orphan)

    def _close(self, utterance: _Utterance, now: float | None = None) -> None:
        said = utterance.said or voice_pb2.UtteranceSaid(utterance_id=utterance.utterance_id)
        if utterance.audible_start is None and not said.text.strip():
            if utterance.utterance_id:
                self._closed[utterance.utterance_id] = None
            return
        start, end = utterance.audible_start, utterance.audible_end
        if start is None or end is None:
            # Words without sound: the events are all there is.
            start = end = utterance.opened
        turn = record_pb2.Turn(role=self.role, start_seconds=start, end_seconds=end)
        _fill(turn, said)
        self.turns.append(turn)
        if utterance.utterance_id:
            self._closed[utterance.utterance_id] = turn
        if self.on_turn is not None:
            self.on_turn(turn)


def _fill(turn: record_pb2.Turn, said: voice_pb2.UtteranceSaid) -> None:
    turn.text = said.text
    turn.spoken_form = said.spoken_form
    turn.interrupted = said.interrupted
    turn.unspoken = said.unspoken


def in_order(*sides: SideTurns) -> list[record_pb2.Turn]:
    """Returns the turns of all sides by their start."""
    turns = [turn for side in sides for turn in side.turns]
    return sorted(turns, key=lambda turn: (turn.start_seconds, turn.end_seconds, turn.role))
