"""What calls of both modalities share: two bots, their events, limits, the end, the footer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tau2eval.bridge.v1 import bridge_pb2
from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge import stop as stops
from tau2eval_bridge.clock import LatenessLog
from tau2eval_bridge.heard import assign_heard
from tau2eval_bridge.latency import response_latency, set_latencies
from tau2eval_bridge.line import LineFault
from tau2eval_bridge.recorder import Recorder, timed
from tau2eval_bridge.stall import Activities, StallWatch
from tau2eval_bridge.stop import Stop
from tau2eval_bridge.turns import SideTurns, in_order

logger = logging.getLogger(__name__)

MAX_EXIT_SECONDS = 30.0
"""Bound of the words that are still played after an Exit."""

_END_OF_STREAM_SECONDS = 1.0

_CLIENT_EVENTS = frozenset(
    {
        "tool_call",
        "tool_result",
        "action_recorded",
        "transcript_heard",
        "interrupted",
        "usage",
        "error",
        "exit",
    }
)


class BotPort(Protocol):
    """A bot, as `BotSession` provides it and as tests fake it."""

    inbox: deque[voice_pb2.ConverseResponse]
    changed: asyncio.Event
    failure: str | None
    lateness: LatenessLog

    def send(self, request: voice_pb2.ConverseRequest, due: float | None = None) -> None:
        """Queues a message, without waiting."""


@dataclass(frozen=True)
class Limits:
    """Limits of one call, in seconds of media time unless said otherwise.

    Attributes:
        max_duration_seconds: Ceiling of the call.
        stall_seconds: Silence of a side that owes a turn and has nothing in flight.
        activity_limit_seconds: After this a job in flight no longer excuses silence.
        exit_tail_seconds: Time after the last words before an exit.
        finish_timeout_seconds: Wall-clock limit of the bots' Summary.
    """

    max_duration_seconds: float
    stall_seconds: float = 30.0
    activity_limit_seconds: float = 180.0
    exit_tail_seconds: float = 0.3
    finish_timeout_seconds: float = 10.0


@dataclass
class Side:
    """One bot and what is known of it."""

    role: voice_pb2.Role.ValueType
    port: BotPort
    turns: SideTurns
    activities: Activities
    summary: voice_pb2.Summary | None = None

    @property
    def name(self) -> str:
        """How people call this side."""
        return "agent" if self.role == voice_pb2.ROLE_AGENT else "user"


EmitEvent = Callable[[bridge_pb2.ScenarioEvent], None]


@dataclass
class Conversation:
    """Base of the two engines. `run` holds the call, `finish` asks the bots for their summaries.

    Attributes:
        now: Media time in seconds.
        notes: Things a person should know that did not end the call.
    """

    agent_port: BotPort
    user_port: BotPort
    limits: Limits
    recorder: Recorder
    emit: EmitEvent
    now: float = 0.0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.agent = self._side(voice_pb2.ROLE_AGENT, self.agent_port)
        self.user = self._side(voice_pb2.ROLE_USER, self.user_port)
        self.sides = (self.agent, self.user)
        self.watch = StallWatch(self.limits.stall_seconds)
        self._noticed: list[Stop] = []
        self._before_exit: list[Stop] = []
        self._transcripts: list[record_pb2.TimedEvent] = []
        self._cancelled = False
        self._exit: Stop | None = None
        self._stopped = False

    def _side(self, role: voice_pb2.Role.ValueType, port: BotPort) -> Side:
        turns = SideTurns(role, on_turn=self._turn_ended)
        return Side(role, port, turns, Activities(self.limits.activity_limit_seconds))

    async def run(self) -> Stop:
        """Holds the call until something ends it."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ends the call at the next occasion, as cancelled."""
        self._cancelled = True
        self.agent.port.changed.set()

    def other(self, side: Side) -> Side:
        """Returns the other side."""
        return self.user if side is self.agent else self.agent

    # What the bots say.

    def drain(self) -> None:
        """Takes everything that came in, and notices lost bots."""
        for side in self.sides:
            side.port.changed.clear()
            while side.port.inbox:
                self._message(side, side.port.inbox.popleft())
            left_in_order = self._exit is not None and side.summary is not None
            if side.port.failure is not None and not left_in_order:
                self._noticed.append(
                    stops.lost(side.role, f"the {side.name}'s bot was lost: {side.port.failure}")
                )

    def _message(self, side: Side, message: voice_pb2.ConverseResponse) -> None:
        kind = message.WhichOneof("message")
        if kind == "event":
            self._event(side, message.event)
        elif kind == "summary":
            side.summary = message.summary
        elif kind in ("audio", "text") and not self._stopped:
            try:
                if kind == "audio":
                    self._audio(side, message.audio)
                else:
                    self._text(side, message.text)
            except LineFault as fault:
                self._noticed.append(
                    stops.lost(side.role, f"the {side.name}'s bot broke the contract: {fault}")
                )

    def _audio(self, side: Side, audio: voice_pb2.Audio) -> None:
        raise LineFault("it sent audio in a call of text")

    def _text(self, side: Side, text: voice_pb2.Text) -> None:
        raise LineFault("it sent text in a call of voice")

    def _event(self, side: Side, event: voice_pb2.Event) -> None:
        kind = event.WhichOneof("event")
        if kind is None:
            return
        entry = timed(self.now, side.role, event)
        self.recorder.event(entry)
        if kind in _CLIENT_EVENTS:
            self.emit(bridge_pb2.ScenarioEvent(time_seconds=self.now, bot_event=entry))
        if kind == "activity":
            side.activities.event(event.activity, self.clock())
        elif kind == "transcript_heard":
            self._transcripts.append(entry)
        elif kind == "error" and not self._stopped:
            stop = stops.of_error(side.role, event.error)
            if stop is not None:
                self._noticed.append(stop)
        elif kind == "exit" and not self._stopped:
            self._exit_event(side, event.exit)
        else:
            self._speech_event(side, event)

    def _speech_event(self, side: Side, event: voice_pb2.Event) -> None:
        side.turns.event(event, self.now, self.now)

    def _exit_event(self, side: Side, event: voice_pb2.Exit) -> None:
        if side is self.user:
            self.note("the simulated caller's bot sent an Exit, which was ignored")
        elif self._exit is None:
            self._exit = stops.of_exit(event.reason)
            # What was noticed before the exit came first, whatever tick both are looked at.
            self._before_exit, self._noticed = self._noticed, []
            self._on_exit()

    def _on_exit(self) -> None:
        """Called when the agent ended the call."""

    def note(self, text: str) -> None:
        """Keeps a remark for the record's stop detail."""
        logger.warning("%s", text)
        if text not in self.notes and len(self.notes) < 10:
            self.notes.append(text)

    def clock(self) -> float:
        """Returns the time on which activities are measured, in seconds."""
        return self.now

    def busy(self) -> bool:
        """Returns whether either bot has something in flight."""
        return any(side.activities.busy(self.clock()) for side in self.sides)

    def at_limit(self, *, audible: bool) -> Stop:
        """Returns why a call stops that has reached its limit."""
        limit = f"the call reached its limit of {self.limits.max_duration_seconds:g} s"
        overdue = self.watch.caller_overdue(self.now, agent=self.agent.activities)
        if overdue and not audible:
            return Stop(
                record_pb2.STOP_REASON_USER_STALLED,
                f"{limit} while the simulated caller had owed a turn for over "
                f"{self.limits.stall_seconds:g} s",
            )
        return Stop(record_pb2.STOP_REASON_TIMEOUT, limit)

    def _turn_ended(self, turn: record_pb2.Turn) -> None:
        # Words that made no sound were not heard: who owed a turn owes it still.
        if not self._stopped and turn.end_seconds > turn.start_seconds:
            self.watch.turn_ended(turn.role, self.now)
        shown = record_pb2.Turn()
        shown.CopyFrom(turn)
        if turn.role == voice_pb2.ROLE_AGENT:
            latency = self._latency(turn)
            if latency is not None:
                shown.response_latency_seconds = latency
        self.emit(bridge_pb2.ScenarioEvent(time_seconds=self.now, turn=shown))

    def _latency(self, turn: record_pb2.Turn) -> float | None:
        return response_latency(turn, in_order(self.agent.turns, self.user.turns))

    def noticed(self) -> Stop | None:
        """Returns the reason to stop among what was noticed since the last time.

        After the agent's exit only the loss of the agent counts: the call is over by its own
        decision, and what else happens while its last words are played changes nothing.
        """
        if self._cancelled:
            self._noticed.append(
                Stop(record_pb2.STOP_REASON_CANCELLED, "the client cancelled the call")
            )
        found, self._noticed = self._noticed, []
        if self._exit is not None:
            before, self._before_exit = self._before_exit, []
            found = before + [s for s in found if s.reason in _STRONGER_THAN_EXIT]
        return stops.choose(found)

    # The end.

    async def finish(self, stop: Stop) -> Stop:
        """Sends Finish, takes the summaries, closes all turns, and returns the final stop.

        Never raises for what a bot does.
        """
        self._stopped = True
        reason = record_pb2.StopReason.Name(stop.reason).removeprefix("STOP_REASON_").lower()
        for side in self.sides:
            side.port.send(voice_pb2.ConverseRequest(finish=voice_pb2.Finish(reason=reason)))
        await asyncio.gather(*(self._await_summary(side) for side in self.sides))
        for side in self.sides:
            side.turns.finish(self.now)
        if self.agent.summary is None:
            why = self.agent.port.failure
            limit = self.limits.finish_timeout_seconds
            stop = stops.without_summary(stop, why or f"none came within {limit:g} s")
        return stop

    async def _await_summary(self, side: Side) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.finish_timeout_seconds
        while True:
            side.port.changed.clear()
            while side.port.inbox:
                self._message(side, side.port.inbox.popleft())
            if side.port.failure is not None:
                return
            if side.summary is not None:
                # What still comes before the end of the stream belongs to the record.
                deadline = min(deadline, loop.time() + _END_OF_STREAM_SECONDS)
            try:
                async with asyncio.timeout_at(deadline):
                    await side.port.changed.wait()
            except TimeoutError:
                return

    def footer(self, stop: Stop, min_agent_turns: int) -> record_pb2.RecordFooter:
        """Returns the record's last part; call it after `finish`, and add `sides[].ready`."""
        turns = in_order(self.agent.turns, self.user.turns)
        assign_heard(turns, self._transcripts)
        self._set_latencies(turns)
        footer = record_pb2.RecordFooter(
            stop_reason=stop.reason,
            stop_detail="; ".join([stop.detail, *self.notes]),
            duration_seconds=self.now,
            turns=turns,
            line_quality=LatenessLog.line_quality(
                self.agent.port.lateness, self.user.port.lateness
            ),
            min_agent_turns=min_agent_turns,
        )
        for side in self.sides:
            entry = footer.sides.add(role=side.role)
            if side.summary is not None:
                entry.summary.CopyFrom(side.summary)
        return footer

    def _set_latencies(self, turns: list[record_pb2.Turn]) -> None:
        set_latencies(turns)


_STRONGER_THAN_EXIT = frozenset(
    {record_pb2.STOP_REASON_AGENT_LOST, record_pb2.STOP_REASON_HARNESS_ERROR}
)
