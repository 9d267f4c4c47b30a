"""The engine of a call in voice: one clock, two lines, one recording."""

from __future__ import annotations

from dataclasses import dataclass, field

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge.clock import Pacer, RealTimePacer, tick_time
from tau2eval_bridge.conversation import MAX_EXIT_SECONDS, Conversation, Side
from tau2eval_bridge.line import Line
from tau2eval_bridge.stop import Stop

_AUDIBLE_HOLD_SECONDS = 0.1


@dataclass
class VoiceConversation(Conversation):
    """Holds a call in real time, or in the time of the pacer that it is given.

    Tick n takes the audio of media time n * 20 ms from both lines, sends it to the other bot, and
    records it. Whatever a bot sent since the last tick is taken in before.
    """

    input_rate: int = 16_000
    recording_rate: int = 24_000
    pacer: Pacer = field(default_factory=RealTimePacer)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.agent_line = Line(self.input_rate, self.recording_rate)
        self.user_line = Line(self.input_rate, self.recording_rate)
        self._exit_at = 0.0
        self._tick = 0

    async def run(self) -> Stop:
        """Holds the call until something ends it."""
        self.pacer.start()
        self.agent.port.send(voice_pb2.ConverseRequest(cue=voice_pb2.Cue()))
        try:
            while True:
                due = await self.pacer.wait_for(self._tick)
                self.now = tick_time(self._tick)
                self.drain()
                stop = self._check()
                if stop is not None:
                    return stop
                self._exchange(due)
                self._tick += 1
        finally:
            self.recorder.end_audio(
                self.user_line.drain_recording(), self.agent_line.drain_recording()
            )

    def _line(self, side: Side) -> Line:
        return self.agent_line if side is self.agent else self.user_line

    def _audio(self, side: Side, audio: voice_pb2.Audio) -> None:
        self._line(side).push(audio.pcm, audio.sample_rate_hz, audio.media_time_seconds)

    def _speech_event(self, side: Side, event: voice_pb2.Event) -> None:
        side.turns.event(event, self.now, self._line(side).queued_until_seconds)

    def _on_exit(self) -> None:
        played = min(self.agent_line.queued_until_seconds, self.now + MAX_EXIT_SECONDS)
        self._exit_at = played + self.limits.exit_tail_seconds

    def _check(self) -> Stop | None:
        stop = self.noticed()
        if stop is not None:
            return stop
        if self._exit is not None:
            return self._exit if self.now >= self._exit_at else None
        if self.now >= self.limits.max_duration_seconds:
            return self.at_limit(audible=self._audible())
        stalled = self.watch.check(self.now, active=self._audible() or self.busy())
        if stalled is None:
            return None
        silence = f"said nothing for {self.limits.stall_seconds:g} s, with nothing in flight"
        if stalled == voice_pb2.ROLE_AGENT:
            return Stop(
                record_pb2.STOP_REASON_AGENT_STALLED, f"the agent owed a turn and {silence}"
            )
        return Stop(
            record_pb2.STOP_REASON_USER_STALLED, f"the simulated caller owed a turn and {silence}"
        )

    def _audible(self) -> bool:
        since = self.now - _AUDIBLE_HOLD_SECONDS
        return any(
            side.turns.last_audible is not None and side.turns.last_audible > since
            for side in self.sides
        )

    def _exchange(self, due: float) -> None:
        agent, user = self.agent_line.pull(), self.user_line.pull()
        for side, frame in ((self.agent, user), (self.user, agent)):
            side.port.send(
                voice_pb2.ConverseRequest(
                    audio=voice_pb2.Audio(
                        sequence=self._tick,
                        media_time_seconds=tick_time(self._tick),
                        pcm=frame.listener.astype("<i2", copy=False).tobytes(),
                        sample_rate_hz=self.input_rate,
                    )
                ),
                due,
            )
        self.recorder.audio(user.recording, agent.recording)
        # The tick's audio will be over at its end: times of turns that close with it are that.
        self.now = tick_time(self._tick + 1)
        for side, frame in ((self.agent, agent), (self.user, user)):
            for piece in frame.audible:
                side.turns.audible(piece.start, piece.end)
            side.turns.advance(self.now)
