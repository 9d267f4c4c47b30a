"""Fakes for the bridge: tone-speaking bots and a scorer as real gRPC servers, scripted ports.

Run as a program it is a bot process of its own: `bridge_fakes.py KIND`, which prints its port.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from tau2eval.scorer.v1 import record_pb2, scorer_pb2, scorer_pb2_grpc
from tau2eval.voice.v1 import voice_pb2, voice_pb2_grpc
from tau2eval_bridge.clock import LatenessLog

Event = voice_pb2.Event
Response = voice_pb2.ConverseResponse


def tone(hz: float, seconds: float, rate: int, amplitude: int = 8000) -> np.ndarray:
    """A tone whose first and last samples are audible."""
    t = np.arange(round(seconds * rate)) / rate
    return np.round(amplitude * np.cos(2 * np.pi * hz * t)).astype(np.int16)


def noise(seconds: float, rate: int, seed: int = 0, cutoff: float = 3000.0) -> np.ndarray:
    """Band-limited noise, which correlates with nothing but itself."""
    rng = np.random.default_rng(seed)
    spectrum = np.fft.rfft(rng.normal(size=round(seconds * rate)))
    spectrum[np.fft.rfftfreq(round(seconds * rate), 1 / rate) > cutoff] = 0
    wave = np.fft.irfft(spectrum, round(seconds * rate))
    return np.round(wave / np.abs(wave).max() * 12000).astype(np.int16)


def audio(samples: np.ndarray, rate: int, at: float, sequence: int = 0) -> Response:
    return Response(
        audio=voice_pb2.Audio(
            sequence=sequence,
            media_time_seconds=at,
            pcm=samples.astype("<i2").tobytes(),
            sample_rate_hz=rate,
        )
    )


def event(at: float = 0.0, **kind: Any) -> Response:
    return Response(event=Event(media_time_seconds=at, **kind))


def activity(state: str, stage: str = "llm") -> Response:
    value = voice_pb2.ActivityState.Value(f"ACTIVITY_STATE_{state}")
    return event(activity=voice_pb2.Activity(state=value, stage=stage))


def error(kind: str, fatal: bool = True) -> Response:
    value = voice_pb2.ErrorKind.Value(f"ERROR_KIND_{kind}")
    return event(error=voice_pb2.BotError(kind=value, message="as scripted", fatal=fatal))


def leave(reason: str = "AGENT_EXIT") -> Response:
    return event(exit=voice_pb2.Exit(reason=voice_pb2.ExitReason.Value(f"EXIT_REASON_{reason}")))


class FakeSession:
    """One Converse stream on the bot's side, for a behaviour to talk through."""

    def __init__(self, setup: voice_pb2.Setup) -> None:
        self.setup = setup
        self.out: asyncio.Queue[Response | None] = asyncio.Queue()
        self.media_time = 0.0
        self.ticks = 0
        self.heard: list[np.ndarray] = []
        self.heard_times: list[float] = []
        self.texts: asyncio.Queue[str] = asyncio.Queue()
        self.cued = asyncio.Event()
        self.finished = asyncio.Event()
        self.finish_reason = ""
        self._tick = asyncio.Condition()
        self._utterances = 0

    @property
    def role(self) -> str:
        return "agent" if self.setup.role == voice_pb2.ROLE_AGENT else "user"

    async def take(self, request: voice_pb2.ConverseRequest) -> None:
        kind = request.WhichOneof("message")
        if kind == "audio":
            self.media_time = request.audio.media_time_seconds
            self.heard.append(np.frombuffer(request.audio.pcm, "<i2"))
            self.heard_times.append(request.audio.media_time_seconds)
            async with self._tick:
                self.ticks += 1
                self._tick.notify_all()
        elif kind == "text":
            self.texts.put_nowait(request.text.text)
        elif kind == "cue":
            self.cued.set()
        elif kind == "finish":
            self.finish_reason = request.finish.reason
            self.finished.set()

    def send(self, response: Response) -> None:
        if response.WhichOneof("message") == "event":
            response.event.media_time_seconds = self.media_time
        self.out.put_nowait(response)

    async def next_tick(self) -> None:
        seen = self.ticks
        async with self._tick:
            await self._tick.wait_for(lambda: self.ticks > seen)

    async def say(self, samples: np.ndarray, rate: int, text: str = "words") -> None:
        """Speaks in chunks of 20 ms locked to the input."""
        self._utterances += 1
        name = f"{self.role}-{self._utterances}"
        self.send(event(speech_started=voice_pb2.SpeechStarted(utterance_id=name)))
        at = self.media_time + 0.04  # A lead of one frame beyond the answer's own.
        step = rate // 50
        for number in range(len(samples) // step):
            await self.next_tick()
            chunk = samples[number * step : (number + 1) * step]
            self.send(audio(chunk, rate, at + number * 0.02))
        await self.next_tick()
        said = voice_pb2.UtteranceSaid(utterance_id=name, text=text, spoken_form=text)
        self.send(event(utterance_said=said))
        self.send(event(speech_stopped=voice_pb2.SpeechStopped(utterance_id=name)))

    async def listen(self, quiet_seconds: float = 0.1) -> None:
        """Waits until the other side has spoken and is silent again."""
        start, spoken, quiet = len(self.heard), False, 0
        while True:
            await self.next_tick()
            for frame in self.heard[start:]:
                loud = np.abs(frame).max(initial=0) > 500
                spoken, quiet = spoken or loud, 0 if loud else quiet + 1
            start = len(self.heard)
            if spoken and quiet >= quiet_seconds * 50:
                return


Behaviour = Callable[[FakeSession], Awaitable[None]]


async def polite_agent(session: FakeSession) -> None:
    """Greets, answers once with a tool call, and leaves after its last words."""
    await session.cued.wait()
    await session.say(tone(440, 0.3, 24000), 24000, "hello")
    await session.listen()
    call = voice_pb2.ToolCall(call_id="1", name="calculate", arguments_json="{}")
    session.send(event(tool_call=call))
    session.send(event(tool_result=voice_pb2.ToolResult(call_id="1", name="calculate")))
    await session.say(tone(440, 0.3, 24000), 24000, "goodbye")
    session.send(leave())


async def polite_user(session: FakeSession) -> None:
    """Answers whatever it hears."""
    while True:
        await session.listen()
        heard = voice_pb2.TranscriptHeard(text="it heard", audio_seconds=0.3, latency_seconds=0.1)
        session.send(event(transcript_heard=heard))
        await session.say(tone(700, 0.3, 16000), 16000, "please help")


async def chatty_agent(session: FakeSession) -> None:
    """Never hangs up."""
    await session.cued.wait()
    while True:
        await session.say(tone(440, 0.3, 24000), 24000, "and then")
        await session.listen()


async def silent(session: FakeSession) -> None:
    """Says nothing."""
    await session.finished.wait()


async def no_summary(session: FakeSession) -> None:
    """Leaves and breaks before its summary."""
    await session.cued.wait()
    await session.say(tone(440, 0.1, 24000), 24000, "bye")
    session.send(leave())
    await session.finished.wait()
    raise RuntimeError("dies before the summary")


async def polite_text_agent(session: FakeSession) -> None:
    await session.cued.wait()
    for number in range(3):
        session.send(activity("STARTED"))
        if number:
            session.send(Response(text=voice_pb2.Text(text="One moment.")))
            session.send(activity("STARTED", "tool"))
            session.send(activity("STOPPED", "tool"))
        session.send(Response(text=voice_pb2.Text(text=f"agent says {number}")))
        session.send(activity("STOPPED"))
        if number < 2:
            await session.texts.get()
    session.send(leave("TRANSFER"))


async def polite_text_user(session: FakeSession) -> None:
    while True:
        heard = await session.texts.get()
        session.send(activity("STARTED"))
        session.send(Response(text=voice_pb2.Text(text=f"user heard {heard}")))
        session.send(activity("STOPPED"))


BEHAVIOURS: dict[str, Behaviour] = {
    "polite_agent": polite_agent,
    "polite_user": polite_user,
    "chatty_agent": chatty_agent,
    "silent": silent,
    "no_summary": no_summary,
}


class FakeBot(voice_pb2_grpc.VoiceBotServiceServicer):
    """A bot whose conversation is a behaviour."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.sessions: list[FakeSession] = []
        self.refuse: tuple[grpc.StatusCode, str] | None = None
        self.never_ready = False

    async def Converse(
        self, requests: AsyncIterator[voice_pb2.ConverseRequest], context: Any
    ) -> AsyncIterator[Response]:
        first = await anext(aiter(requests))
        if self.refuse is not None:
            await context.abort(*self.refuse)
        session = FakeSession(first.setup)
        self.sessions.append(session)
        if self.never_ready:
            await asyncio.sleep(3600)
        yield Response(
            ready=voice_pb2.Ready(
                version="fake 1",
                model=voice_pb2.ModelConfig(
                    model="fake/model", parameters_json='{"api_key": "s3cret", "seed": 1}'
                ),
                speech=voice_pb2.SpeechConfig(synthesizer="tone"),
                tool_names=first.setup.tool_names,
            )
        )

        async def read() -> None:
            async for request in requests:
                await session.take(request)

        async def act() -> None:
            doing = asyncio.ensure_future(self.behaviour(session))
            ending = asyncio.ensure_future(session.finished.wait())
            await asyncio.wait({doing, ending}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done() and doing.exception() is None:
                await session.finished.wait()
            elif self.behaviour is no_summary:
                await doing
            doing.cancel()
            session.send(
                Response(summary=voice_pb2.Summary(db_hash="abc", context_history_json="[]"))
            )

        reading = asyncio.ensure_future(read())
        acting = asyncio.ensure_future(act())
        acting.add_done_callback(lambda _: session.out.put_nowait(None))
        try:
            while True:
                response = await session.out.get()
                if response is None:
                    break
                yield response
            if acting.done():
                await acting
        finally:
            reading.cancel()
            acting.cancel()


class FakeScorer(scorer_pb2_grpc.ScenarioServiceServicer, scorer_pb2_grpc.RunServiceServicer):
    """Knows one kind of scenario, and keeps the records that it is sent."""

    def __init__(self) -> None:
        self.records: list[list[record_pb2.RecordPart]] = []
        self.fail_first = 0
        self.tries = 0
        self.max_duration = 30

    async def GetScenario(self, request: Any, context: Any) -> Any:
        if request.name.startswith("missing"):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no scenario {request.name}")
        return scorer_pb2.GetScenarioResponse(
            info=scorer_pb2.ScenarioInfo(name=request.name),
            agent_prompt="be an agent",
            user_prompt="be a caller",
            agent_tool_domain="fake_domain",
            agent_tool_names=["CalculateTool"],
            agent_db_path="fake/db.json",
            max_duration_seconds=self.max_duration,
        )

    async def SubmitConversation(self, requests: Any, context: Any) -> Any:
        self.tries += 1
        if self.tries <= self.fail_first:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        parts = [request.part async for request in requests]
        self.records.append(parts)
        header = parts[0].header
        return scorer_pb2.SubmitConversationResponse(
            verdict=scorer_pb2.Verdict(
                run_id=header.run_id,
                scenario=header.scenario,
                trial=header.trial,
                attempt_id=header.attempt_id,
                outcome=scorer_pb2.OUTCOME_PASSED,
                stop_reason=parts[-1].footer.stop_reason,
            )
        )


@asynccontextmanager
async def serve_fake(servicer: Any, port: int = 0) -> AsyncIterator[str]:
    """Serves a fake on 127.0.0.1 and gives its address."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    if isinstance(servicer, FakeBot):
        voice_pb2_grpc.add_VoiceBotServiceServicer_to_server(servicer, server)
    else:
        scorer_pb2_grpc.add_ScenarioServiceServicer_to_server(servicer, server)
        scorer_pb2_grpc.add_RunServiceServicer_to_server(servicer, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        await server.stop(0)


def stereo(parts: list[record_pb2.RecordPart]) -> np.ndarray:
    """The recording of a record: shape (samples, 2), left the caller."""
    data = b"".join(part.audio for part in parts if part.WhichOneof("part") == "audio")
    return np.frombuffer(data, "<i2").reshape(-1, 2)


@dataclass
class ListSink:
    """Keeps the parts of a record in memory."""

    parts: list[record_pb2.RecordPart] = field(default_factory=list)

    def write(self, part: record_pb2.RecordPart) -> None:
        self.parts.append(part)


class ScriptedPort:
    """A bot without a transport: for each tick what it sends when that tick's audio arrives."""

    def __init__(
        self, script: dict[int, list[Response]] | None = None, summary: bool = True
    ) -> None:
        self.inbox: deque[Response] = deque()
        self.changed = asyncio.Event()
        self.failure: str | None = None
        self.lateness = LatenessLog()
        self.script = script or {}
        self.frames: list[voice_pb2.Audio] = []
        self.texts: list[str] = []
        self.kinds: list[str] = []
        self.fail_at: int | None = None
        self._summary = summary

    def send(self, request: voice_pb2.ConverseRequest, due: float | None = None) -> None:
        kind = request.WhichOneof("message") or ""
        self.kinds.append(kind)
        if kind == "audio":
            tick = len(self.frames)
            self.frames.append(request.audio)
            self.put(*self.script.get(tick, []))
            if self.fail_at is not None and tick >= self.fail_at:
                self.failure = "scripted loss"
        elif kind == "text":
            self.texts.append(request.text.text)
        elif kind == "finish":
            if self._summary and self.failure is None:
                self.put(Response(summary=voice_pb2.Summary(db_hash="abc")))
            self.failure = self.failure or "it ended the stream"
            self.changed.set()

    def put(self, *responses: Response) -> None:
        self.inbox.extend(responses)
        self.changed.set()

    def heard(self) -> np.ndarray:
        return np.concatenate([np.frombuffer(frame.pcm, "<i2") for frame in self.frames])


def utterance(
    name: str, samples: np.ndarray, rate: int, tick: int, text: str = "words", **said: Any
) -> dict[int, list[Response]]:
    """A script: one utterance whose first sample is at `tick`, sent one tick ahead."""
    script: dict[int, list[Response]] = {}
    step = rate // 50
    count = -(-len(samples) // step)
    for number in range(count):
        chunk = samples[number * step : (number + 1) * step]
        script.setdefault(tick + number - 1, []).append(
            audio(chunk, rate, (tick + number) / 50, number)
        )
    first = script[tick - 1]
    first.insert(0, event(speech_started=voice_pb2.SpeechStarted(utterance_id=name)))
    script.setdefault(tick + count, []).extend(
        [
            event(
                utterance_said=voice_pb2.UtteranceSaid(
                    utterance_id=name, text=text, spoken_form=text, **said
                )
            ),
            event(speech_stopped=voice_pb2.SpeechStopped(utterance_id=name)),
        ]
    )
    return script


def merge(*scripts: dict[int, list[Response]]) -> dict[int, list[Response]]:
    merged: dict[int, list[Response]] = {}
    for script in scripts:
        for tick, responses in script.items():
            merged.setdefault(tick, []).extend(responses)
    return merged


async def _main(kind: str) -> None:
    async with serve_fake(FakeBot(BEHAVIOURS[kind])) as address:
        print(address, flush=True)
        await asyncio.sleep(300)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
