"""The engine of a call in text: the same record, in virtual time that nobody waits for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge.conversation import Conversation, Side
from tau2eval_bridge.stop import Stop

_MIN_SPEECH_SECONDS = 0.2


@dataclass
class _Reply:
    """What a side has said and the other has not been given yet."""

    texts: list[str] = field(default_factory=list)
    start: float = 0.0
    newest: float = 0.0


@dataclass
class TextConversation(Conversation):
    """Passes whole replies from one bot to the other.

    Each utterance takes its words at `words_per_minute` of virtual time, after a fixed pause for
    thought. A reply is handed on when its bot has nothing in flight and has been quiet for
    `settle_seconds` (wall clock), so that the words around a tool call travel together. A side
    that owes a turn, has nothing in flight and sends nothing for `grace_seconds` (wall clock) has
    stalled: virtual time jumps to the stall limit. One that has shown no sign of work since the
    words reached it may just be held up (a busy machine, a pause of its process), so it gets
    `unanswered_seconds`. Nobody can be interrupted.
    """

    words_per_minute: float = 150.0
    thinking_seconds: float = 0.5
    settle_seconds: float = 0.03
    grace_seconds: float = 2.0
    unanswered_seconds: float = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._replies = {voice_pb2.ROLE_AGENT: _Reply(), voice_pb2.ROLE_USER: _Reply()}
        self._sequence = {voice_pb2.ROLE_AGENT: 0, voice_pb2.ROLE_USER: 0}
        self._ended = 0.0
        self._quiet_since = 0.0
        self._delivered = 0.0

    def clock(self) -> float:
        """Returns the wall clock: jobs in flight run on it."""
        return asyncio.get_running_loop().time()

    async def run(self) -> Stop:
        """Holds the call until something ends it."""
        self._quiet_since = self._delivered = self.clock()
        self.agent.port.send(voice_pb2.ConverseRequest(cue=voice_pb2.Cue()))
        while True:
            if any(side.port.inbox for side in self.sides):
                self._quiet_since = self.clock()
            self.drain()
            stop = self._check()
            if stop is not None:
                return stop
            await self._wait(self._next_step())

    def _text(self, side: Side, text: voice_pb2.Text) -> None:
        if not text.text.strip():
            return
        # Words said after the exit or beyond the limit are not part of the call.
        if self._exit is not None or self.now >= self.limits.max_duration_seconds:
            return
        reply = self._replies[side.role]
        thinking = 0.0 if reply.texts else self.thinking_seconds
        start = self.now + thinking
        words = len(text.text.split())
        end = start + max(words * 60.0 / self.words_per_minute, _MIN_SPEECH_SECONDS)
        limit = self.limits.max_duration_seconds
        cut = end > limit
        self.now = min(end, limit)
        if start >= limit:
            return
        if not reply.texts:
            reply.start = start
        reply.texts.append(text.text)
        reply.newest = self.clock()
        turn = record_pb2.Turn(
            role=side.role,
            text=text.text,
            spoken_form=text.text,
            heard="" if cut else text.text,
            start_seconds=start,
            end_seconds=self.now,
            interrupted=cut,
        )
        side.turns.turns.append(turn)
        self._turn_ended(turn)

    def _speech_event(self, side: Side, event: voice_pb2.Event) -> None:
        """Turns come from Text; speech events of a bot stay in the record."""

    def _check(self) -> Stop | None:
        stop = self.noticed()
        if stop is not None:
            return stop
        if self._exit is not None:
            return self._exit
        if self.now >= self.limits.max_duration_seconds:
            return self.at_limit(audible=False)
        now = self.clock()
        for side in self.sides:
            reply = self._replies[side.role]
            if (
                reply.texts
                and not side.activities.busy(now)
                and now - max(reply.newest, side.activities.last_end) >= self.settle_seconds
            ):
                self._deliver(side, reply)
        waiting = any(reply.texts for reply in self._replies.values())
        if waiting or self.busy() or now - self._last_sign() < self._grace():
            return None
        self.now += self.limits.stall_seconds
        if self.now >= self.limits.max_duration_seconds:
            self.now = self.limits.max_duration_seconds
            return self.at_limit(audible=False)
        silence = f"sent nothing, with nothing in flight, for {self.limits.stall_seconds:g} s"
        if self.watch.owes == voice_pb2.ROLE_AGENT:
            return Stop(
                record_pb2.STOP_REASON_AGENT_STALLED, f"the agent owed a turn and {silence}"
            )
        return Stop(
            record_pb2.STOP_REASON_USER_STALLED, f"the simulated caller owed a turn and {silence}"
        )

    def _deliver(self, side: Side, reply: _Reply) -> None:
        self._quiet_since = self._delivered = self.clock()
        self.other(side).port.send(
            voice_pb2.ConverseRequest(
                text=voice_pb2.Text(
                    sequence=self._sequence[side.role],
                    text=" ".join(reply.texts),
                    media_time_seconds=reply.start,
                )
            )
        )
        self._sequence[side.role] += 1
        self._replies[side.role] = _Reply()

    def _grace(self) -> float:
        """Returns how long (wall clock) the side that owes a turn may send nothing."""
        owing = self.agent if self.watch.owes == voice_pb2.ROLE_AGENT else self.user
        worked = owing.activities.last_end > self._delivered
        return self.grace_seconds if worked else max(self.grace_seconds, self.unanswered_seconds)

    def _last_sign(self) -> float:
        return max(self._quiet_since, *(side.activities.last_end for side in self.sides))

    def _next_step(self) -> float:
        """Returns after how many seconds something is to be done without a message."""
        now = self.clock()
        settle = [
            max(reply.newest, side.activities.last_end) + self.settle_seconds - now
            for side in self.sides
            if (reply := self._replies[side.role]).texts and not side.activities.busy(now)
        ]
        if settle:
            return max(min(settle), 0.001)
        if self.busy():
            return 1.0
        return max(self._last_sign() + self._grace() - now, 0.001)

    async def _wait(self, seconds: float) -> None:
        waits = [asyncio.ensure_future(side.port.changed.wait()) for side in self.sides]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _latency(self, turn: record_pb2.Turn) -> float | None:
        return None

    def _set_latencies(self, turns: list[record_pb2.Turn]) -> None:
        """Virtual time measures nothing: latencies stay unset."""
