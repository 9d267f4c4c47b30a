"""RunScenario over real gRPC, in real time, with fake bots and a fake scorer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import bridge_fakes
import grpc
import numpy as np
import pytest
from bridge_fakes import (
    FakeBot,
    FakeScorer,
    FakeSession,
    audio,
    chatty_agent,
    error,
    leave,
    no_summary,
    noise,
    polite_agent,
    polite_text_agent,
    polite_text_user,
    polite_user,
    serve_fake,
    silent,
    stereo,
)

from tau2eval.bridge.v1 import bridge_pb2, bridge_pb2_grpc
from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge import resubmit
from tau2eval_bridge.service import BridgeServicer
from tau2eval_bridge.settings import BridgeSettings
from tau2eval_bridge.spool import Spool
from tau2eval_common.client import open_channel
from tau2eval_common.errors import error_info
from tau2eval_common.interceptors import ErrorInterceptor


class World:
    """A bridge, its bots and its scorer, each on a port of its own."""

    def __init__(self, folder: Path, agent: FakeBot, user: FakeBot) -> None:
        self.agent, self.user, self.scorer = agent, user, FakeScorer()
        self.folder = folder
        self.settings: dict[str, Any] = {
            "spool_dir": str(folder),
            "finish_timeout_seconds": 3,
            "ready_timeout_seconds": 10,
            "submit_backoff_seconds": 0.01,
        }
        self.servicer: BridgeServicer
        self.stub: bridge_pb2_grpc.BridgeServiceStub

    @asynccontextmanager
    async def up(self, **settings: Any) -> AsyncIterator[World]:
        async with (
            serve_fake(self.agent) as agent,
            serve_fake(self.user) as user,
            serve_fake(self.scorer) as scorer,
        ):
            self.settings = {
                "agent_address": agent,
                "user_address": user,
                "scorer_address": scorer,
                **self.settings,
                **settings,
            }
            self.servicer = BridgeServicer(BridgeSettings(**self.settings))
            server = grpc.aio.server(interceptors=[ErrorInterceptor()])
            bridge_pb2_grpc.add_BridgeServiceServicer_to_server(self.servicer, server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            try:
                async with open_channel(f"127.0.0.1:{port}") as channel:
                    self.stub = bridge_pb2_grpc.BridgeServiceStub(channel)
                    yield self
            finally:
                await self.servicer.stop()
                await server.stop(0)

    def start(self, **request: Any) -> Any:
        fields = {"run_id": "run", "scenario": "fake__1", "attempt_id": "attempt", **request}
        # Wait: gRPC may remember an earlier test's server on this port as gone.
        return self.stub.RunScenario(
            bridge_pb2.RunScenarioRequest(**fields), timeout=60, wait_for_ready=True
        )

    async def run(self, **request: Any) -> list[bridge_pb2.ScenarioEvent]:
        return [response.event async for response in self.start(**request)]

    @property
    def record(self) -> list[record_pb2.RecordPart]:
        assert len(self.scorer.records) == 1
        return self.scorer.records[0]

    @property
    def footer(self) -> record_pb2.RecordFooter:
        return self.record[-1].footer

    @property
    def reason(self) -> str:
        return record_pb2.StopReason.Name(self.footer.stop_reason)[12:]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, FakeBot(polite_agent), FakeBot(polite_user))


def kinds(events: list[bridge_pb2.ScenarioEvent]) -> list[str]:
    return [event.WhichOneof("event") or "" for event in events]


async def test_a_call_from_end_to_end(world: World) -> None:
    async with world.up():
        events = await world.run(min_agent_turns=2, agent_model={"model": "m"})
    shown = kinds(events)
    assert shown[0] == "started"
    assert shown[-2:] == ["stopped", "finished"]
    assert events[0].started.max_duration_seconds == 30
    assert events[-1].finished.verdict.outcome == scorer_pb2.OUTCOME_PASSED
    assert events[-1].finished.verdict.attempt_id == "attempt"
    bot_events = [
        e.bot_event.event.WhichOneof("event")
        for e in events
        if e.WhichOneof("event") == "bot_event"
    ]
    assert bot_events[0:3] == ["transcript_heard", "tool_call", "tool_result"]
    assert "exit" in bot_events

    header = world.record[0].header
    assert header.format_version == 1
    assert (header.agent_prompt, header.user_prompt) == ("be an agent", "be a caller")
    assert header.started_at.endswith("Z")
    settings = json.loads(header.settings_json)
    assert settings["agent"]["model"]["model"] == "fake/model"
    assert settings["agent"]["model"]["parameters"] == {"api_key": "[removed]", "seed": 1}
    assert settings["agent"]["speech"]["synthesizer"] == "tone"
    assert json.loads(header.versions_json)["user_bot"] == "fake 1"

    setup_agent, setup_user = world.agent.sessions[0].setup, world.user.sessions[0].setup
    assert list(setup_agent.tool_names) == ["CalculateTool"]
    assert setup_agent.initialization.db_path == "fake/db.json"
    assert setup_agent.role == voice_pb2.ROLE_AGENT
    assert setup_user.prompt == "be a caller"
    assert not setup_user.tool_names
    assert not setup_user.tool_domain
    assert setup_agent.session_id != setup_user.session_id
    assert world.agent.sessions[0].finish_reason == "agent_exit"

    footer = world.footer
    assert world.reason == "AGENT_EXIT"
    assert footer.min_agent_turns == 2
    # The caller may already answer the goodbye when the call ends.
    turns = footer.turns[:3]
    assert [t.text for t in turns] == ["hello", "please help", "goodbye"]
    assert footer.turns[0].heard == "it heard"
    assert 0 < footer.turns[2].response_latency_seconds < 5
    assert {s.summary.db_hash for s in footer.sides} == {"abc"}
    assert footer.line_quality.frames > 50
    sound = stereo(world.record)
    assert len(sound) == round(footer.duration_seconds * 50) * 480
    for turn in turns:
        channel = 1 if turn.role == voice_pb2.ROLE_AGENT else 0
        piece = sound[round(turn.start_seconds * 24000) : round(turn.end_seconds * 24000)]
        spectrum = np.abs(np.fft.rfft(piece[:, channel]))
        peak = np.fft.rfftfreq(len(piece), 1 / 24000)[spectrum.argmax()]
        assert peak == pytest.approx(440 if channel else 700, abs=5)
        assert not piece[:, 1 - channel].any()
    sizes = [len(p.audio) for p in world.record if p.WhichOneof("part") == "audio"]
    assert max(sizes) <= 256 * 1024
    assert not list(world.folder.iterdir())


async def test_sound_arrives_whole_when_rates_change(world: World) -> None:
    """16 and 24 kHz by turns, over the real line: still the same sound."""
    wave = noise(0.5, 48000, cutoff=2500)

    async def changing(session: FakeSession) -> None:
        await session.cued.wait()
        # Ahead of its time, so that no pause of a busy machine comes in between.
        start = session.media_time + 0.5
        for number in range(25):
            rate = (48000, 16000, 24000)[number % 3]
            chunk = wave[number * 960 : (number + 1) * 960 : 48000 // rate]
            session.send(audio(chunk, rate, start + number * 0.02))
        session.send(leave())

    world.agent.behaviour = changing
    async with world.up():
        await world.run()
    heard = np.concatenate(world.user.sessions[0].heard).astype(float)
    times = world.user.sessions[0].heard_times
    assert times == [n / 50 for n in range(len(times))]
    expected = wave[::3].astype(float)
    correlation = np.correlate(heard, expected, "valid")
    at = int(correlation.argmax())
    piece = heard[at : at + len(expected)]
    assert piece @ expected / np.linalg.norm(piece) / np.linalg.norm(expected) > 0.97


async def test_several_calls_at_once(world: World) -> None:
    async with world.up():
        results = await asyncio.gather(*(world.run(attempt_id=f"a{n}", trial=n) for n in range(3)))
    assert all(kinds(events)[-1] == "finished" for events in results)
    assert {parts[0].header.trial for parts in world.scorer.records} == {0, 1, 2}


async def test_a_cancelled_call_is_recorded(world: World) -> None:
    world.agent.behaviour = chatty_agent
    async with world.up():
        call = world.start()
        async for response in call:
            if response.event.WhichOneof("event") == "turn":
                break
        call.cancel()
        await wait_for(lambda: bool(world.scorer.records))
    assert world.reason == "CANCELLED"
    assert world.footer.sides[0].summary.db_hash == "abc"
    assert not list(world.folder.iterdir())


async def wait_for(condition: Any, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


@contextmanager
def no_leftover(process: asyncio.subprocess.Process) -> Iterator[None]:
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()


@pytest.mark.parametrize("side", ["agent", "user"])
async def test_a_bot_that_goes_with_everything_else_is_not_blamed(world: World, side: str) -> None:
    """As when a command is killed: its services end in any order, within milliseconds."""
    kind = "chatty_agent" if side == "agent" else "polite_user"
    process = await asyncio.create_subprocess_exec(
        sys.executable, bridge_fakes.__file__, kind, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    world.agent.behaviour = chatty_agent
    with no_leftover(process):
        address = (await process.stdout.readline()).decode().strip()
        async with world.up():
            call = world.start(**{f"{side}_address": address})
            async for response in call:
                if response.event.WhichOneof("event") == "turn":
                    break
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
            await asyncio.sleep(0.1)
            call.cancel()
            await wait_for(lambda: bool(world.scorer.records))
    assert world.reason == "CANCELLED"
    assert "ended from outside" in world.footer.stop_detail


@pytest.mark.parametrize(("side", "reason"), [("agent", "AGENT_LOST"), ("user", "USER_LOST")])
async def test_a_killed_bot_costs_this_call_alone(world: World, side: str, reason: str) -> None:
    kind = "chatty_agent" if side == "agent" else "polite_user"
    process = await asyncio.create_subprocess_exec(
        sys.executable, bridge_fakes.__file__, kind, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    world.agent.behaviour = chatty_agent
    with no_leftover(process):
        address = (await process.stdout.readline()).decode().strip()
        async with world.up():
            killed_at = 0.0
            async for response in world.start(**{f"{side}_address": address}):
                event = response.event
                if event.WhichOneof("event") == "turn" and not killed_at:
                    os.kill(process.pid, signal.SIGKILL)
                    killed_at = event.time_seconds
            assert event.WhichOneof("event") == "finished"
        await process.wait()
    assert world.reason == reason
    assert world.footer.duration_seconds - killed_at < 2
    other = 1 if side == "agent" else 0
    assert world.footer.sides[other].summary.db_hash == "abc"
    assert not world.footer.sides[1 - other].HasField("summary")
    assert world.footer.sides[1 - other].ready.version == "fake 1"


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [(no_summary, "AGENT_LOST"), (silent, "AGENT_STALLED")],
)
async def test_bad_agents(world: World, behaviour: Any, reason: str) -> None:
    world.agent.behaviour = behaviour
    async with world.up(stall_seconds=0.5, finish_timeout_seconds=0.5):
        events = await world.run()
    assert kinds(events)[-1] == "finished"
    assert world.reason == reason


async def test_an_agent_that_ends_its_stream_is_lost(world: World) -> None:
    async def quits(session: FakeSession) -> None:
        await session.cued.wait()
        session.send(bridge_fakes.event(interrupted=voice_pb2.Interrupted()))
        session.out.put_nowait(None)
        await session.finished.wait()

    world.agent.behaviour = quits
    async with world.up():
        await world.run()
    assert world.reason == "AGENT_LOST"


async def test_a_fatal_error_still_brings_a_summary(world: World) -> None:
    async def fails(session: FakeSession) -> None:
        await session.cued.wait()
        session.send(error("GATEWAY"))

    world.agent.behaviour = fails
    async with world.up():
        await world.run()
    assert world.reason == "GATEWAY_ERROR"
    assert world.footer.sides[0].summary.db_hash == "abc"


async def test_timeout_of_the_request(world: World) -> None:
    world.agent.behaviour = chatty_agent
    async with world.up():
        await world.run(max_duration_seconds=1)
    assert world.reason == "TIMEOUT"
    assert world.footer.duration_seconds == 1


async def fails_with(world: World, **request: Any) -> tuple[grpc.StatusCode, str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await world.run(**request)
    info = error_info(raised.value)
    return raised.value.code(), raised.value.details() or "", info.reason if info else ""


@pytest.mark.parametrize("full", ["agent", "user"])
async def test_a_full_bot_starts_nothing(world: World, full: str) -> None:
    bot = world.agent if full == "agent" else world.user
    bot.refuse = (grpc.StatusCode.RESOURCE_EXHAUSTED, "no free session")
    async with world.up():
        code, details, reason = await fails_with(world)
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "no free session" in details
        assert reason == "BOT_SESSIONS_EXHAUSTED"
    assert not world.scorer.records
    assert not list(world.folder.iterdir())


async def test_a_full_bridge_starts_nothing(world: World) -> None:
    world.agent.behaviour = chatty_agent
    async with world.up(max_sessions=1):
        first = world.start(max_duration_seconds=2)
        await first.read()
        code, _, reason = await fails_with(world)
        assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SESSIONS_EXHAUSTED")
        assert len(world.agent.sessions) == 1
        while await first.read() is not grpc.aio.EOF:
            pass
        assert len(world.scorer.records) == 1


async def test_a_refused_setup_is_passed_on(world: World) -> None:
    world.agent.refuse = (grpc.StatusCode.INVALID_ARGUMENT, "no model of this name")
    async with world.up():
        code, details, reason = await fails_with(world)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "no model of this name" in details
    assert "agent" in details
    assert reason == "BOT_REFUSED_SETUP"
    assert not world.scorer.records


@pytest.mark.parametrize(
    ("request_fields", "code"),
    [
        ({"run_id": ""}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"trial": -1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"recording_sample_rate_hz": 11025}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"scenario": "missing__1"}, grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_bad_requests(
    world: World, request_fields: dict[str, Any], code: grpc.StatusCode
) -> None:
    async with world.up():
        found, _, _ = await fails_with(world, **request_fields)
    assert found == code
    assert not world.agent.sessions


@pytest.mark.parametrize(("side", "reason"), [("agent", "AGENT_LOST"), ("user", "USER_LOST")])
async def test_an_unreachable_bot_is_a_lost_one(world: World, side: str, reason: str) -> None:
    async with world.up(ready_timeout_seconds=0.5):
        events = await world.run(**{f"{side}_address": "127.0.0.1:9"})
    assert kinds(events) == ["started", "stopped", "finished"]
    assert world.reason == reason
    assert world.footer.duration_seconds == 0
    assert not stereo(world.record).size
    assert world.record[0].header.scenario == "fake__1"


async def test_a_bot_that_is_never_ready_is_a_lost_one(world: World) -> None:
    world.user.never_ready = True
    async with world.up(ready_timeout_seconds=0.5):
        await world.run()
    assert world.reason == "USER_LOST"
    assert "not ready" in world.footer.stop_detail


async def test_cancelled_before_the_bots_are_ready(world: World) -> None:
    world.user.never_ready = True
    async with world.up():
        call = world.start()
        await wait_for(lambda: bool(world.user.sessions))
        call.cancel()
        await wait_for(lambda: bool(world.scorer.records))
    assert world.reason == "CANCELLED"
    assert world.footer.duration_seconds == 0


async def test_a_busy_scorer_gets_the_same_record_again(world: World) -> None:
    world.scorer.fail_first = 2
    async with world.up():
        events = await world.run()
    assert world.scorer.tries == 3
    assert world.reason == "AGENT_EXIT"
    assert events[-1].finished.verdict.outcome == scorer_pb2.OUTCOME_PASSED
    assert not list(world.folder.iterdir())


async def test_a_record_that_nobody_takes_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.scorer.fail_first = 2
    async with world.up(submit_retries=1):
        events = await world.run()
        verdict = events[-1].finished.verdict
        assert verdict.outcome == scorer_pb2.OUTCOME_NOT_RUN
        assert verdict.not_run_kind == "harness_error"
        (kept,) = world.folder.iterdir()
        assert str(kept) in verdict.explanation
        assert not world.scorer.records
        monkeypatch.setenv("TAU2EVAL_BRIDGE_SCORER_ADDRESS", world.settings["scorer_address"])
        assert await asyncio.to_thread(resubmit.main, [str(kept)]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "passed"
    assert world.reason == "AGENT_EXIT"
    assert not list(world.folder.iterdir())


async def test_a_record_without_its_end_is_closed_and_submitted(
    world: World, tmp_path: Path
) -> None:
    spool = Spool(tmp_path / "x.record")
    header = record_pb2.RecordHeader(format_version=1, recording_sample_rate_hz=24000)
    spool.write(record_pb2.RecordPart(header=header))
    spool.write(record_pb2.RecordPart(audio=bytes(4 * 24000)))
    spool.close()
    async with world.up():
        await resubmit.resubmit(spool.path, BridgeSettings(**world.settings))
    assert world.reason == "HARNESS_ERROR"
    assert world.footer.duration_seconds == 1
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240


def test_resubmit_tells_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resubmit.main([]) == 2
    assert resubmit.main([str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


async def test_a_fault_of_the_bridge_keeps_the_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tau2eval_bridge.voice_call import VoiceConversation

    exchange = VoiceConversation._exchange

    def breaks(self: VoiceConversation, due: float) -> None:
        if self.now > 0.5:
            raise RuntimeError("a bug")
        exchange(self, due)

    monkeypatch.setattr(VoiceConversation, "_exchange", breaks)
    async with world.up():
        events = await world.run()
    assert kinds(events)[-1] == "finished"
    assert world.reason == "HARNESS_ERROR"
    assert "a bug" in world.footer.stop_detail
    assert len(stereo(world.record)) > 24000 * 0.4
    assert world.footer.sides[0].summary.db_hash == "abc"


async def test_a_full_disk_is_not_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Spool._write
    written = 0

    def full(self: Spool, data: bytes) -> None:
        nonlocal written
        written += len(data)
        if written > 2000:
            raise OSError("no space left")
        write(self, data)

    monkeypatch.setattr(Spool, "_write", full)
    async with world.up():
        events = await world.run()
    verdict = events[-1].finished.verdict
    assert verdict.not_run_kind == "harness_error"
    assert "no space left" in verdict.explanation
    assert not world.scorer.records


async def test_stopping_the_service_records_what_goes_on(world: World) -> None:
    world.agent.behaviour = chatty_agent
    async with world.up():
        call = world.start()
        await call.read()
        await world.servicer.stop()
        assert world.reason == "CANCELLED"
        last = ""
        while (response := await call.read()) is not grpc.aio.EOF:
            last = response.event.WhichOneof("event")
        assert last == "finished"


async def test_text_modality(world: World) -> None:
    world.agent.behaviour = polite_text_agent
    world.user.behaviour = polite_text_user
    async with world.up():
        events = await world.run(modality=voice_pb2.MODALITY_TEXT)
    assert kinds(events)[-1] == "finished"
    assert world.reason == "TRANSFER"
    assert world.record[0].header.modality == voice_pb2.MODALITY_TEXT
    assert [t.text for t in world.footer.turns] == [
        "agent says 0",
        "user heard agent says 0",
        "One moment.",
        "agent says 1",
        "user heard One moment. agent says 1",
        "One moment.",
        "agent says 2",
    ]
    assert world.footer.duration_seconds > 5
    assert not stereo(world.record).size
