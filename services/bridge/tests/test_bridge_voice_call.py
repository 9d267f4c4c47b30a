"""The engine of voice in virtual time, with scripted bots."""

from __future__ import annotations

import numpy as np
import pytest
from bridge_fakes import (
    ListSink,
    Response,
    ScriptedPort,
    activity,
    audio,
    error,
    event,
    leave,
    merge,
    noise,
    stereo,
    tone,
    utterance,
)

from tau2eval.bridge.v1 import bridge_pb2
from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge.clock import VirtualPacer
from tau2eval_bridge.conversation import Limits
from tau2eval_bridge.recorder import Recorder
from tau2eval_bridge.voice_call import VoiceConversation

FRAME = 0.02


class Held:
    """A call that was held in virtual time."""

    def __init__(
        self, agent: ScriptedPort, user: ScriptedPort, max_seconds: float = 40, stall: float = 5
    ) -> None:
        self.agent, self.user = agent, user
        self.sink = ListSink()
        self.events: list[bridge_pb2.ScenarioEvent] = []
        self.call = VoiceConversation(
            agent,
            user,
            Limits(
                max_duration_seconds=max_seconds, stall_seconds=stall, finish_timeout_seconds=0.05
            ),
            Recorder(self.sink, 24000),
            self.events.append,
            pacer=VirtualPacer(),
        )

    async def hold(self) -> Held:
        stop = await self.call.finish(await self.call.run())
        self.footer = self.call.footer(stop, 2)
        self.call.recorder.footer(self.footer)
        self.reason = record_pb2.StopReason.Name(self.footer.stop_reason)[12:]
        self.sound = stereo(self.sink.parts)
        assert self.sound.shape == (round(self.footer.duration_seconds * 50) * 480, 2)
        return self


async def hold(agent: ScriptedPort, user: ScriptedPort, **limits: float) -> Held:
    return await Held(agent, user, **limits).hold()


def agent_then_exit(tick: int = 10, reason: str = "AGENT_EXIT") -> dict[int, list[Response]]:
    script = utterance("bye", tone(440, 0.5, 24000), 24000, tick, "goodbye")
    return merge(script, {max(script): [leave(reason)]})


async def test_turns_latencies_and_channels() -> None:
    """Positions are exact to the sample although the bots' rates differ from the line's."""
    agent = ScriptedPort(
        merge(
            utterance("a1", tone(440, 0.5, 24000), 24000, 10, "hello"),
            utterance("a2", tone(440, 0.5, 24000), 24000, 130, "sure", interrupted=True),
            {200: [leave()]},
        )
    )
    user = ScriptedPort(utterance("u1", tone(700, 0.7, 16000), 16000, 60, "help"))
    held = await hold(agent, user)
    assert held.reason == "AGENT_EXIT"
    turns = held.footer.turns
    assert [(t.role, t.text, t.interrupted) for t in turns] == [
        (voice_pb2.ROLE_AGENT, "hello", False),
        (voice_pb2.ROLE_USER, "help", False),
        (voice_pb2.ROLE_AGENT, "sure", True),
    ]
    # The tones' last samples are audible only to within a quarter of a wave.
    for turn, start, end in zip(turns, (0.2, 1.2, 2.6), (0.7, 1.9, 3.1), strict=True):
        assert turn.start_seconds == pytest.approx(start, abs=1e-9)
        assert turn.end_seconds == pytest.approx(end, abs=0.0002)
    assert turns[2].response_latency_seconds == pytest.approx(0.7, abs=0.0002)
    assert not turns[0].HasField("response_latency_seconds")
    left, right = held.sound[:, 0], held.sound[:, 1]
    assert (right[4800 : 4800 + 12000] == tone(440, 0.5, 24000)).all()
    assert not right[17000:62000].any()
    assert not left[:28000].any()
    assert left[28800:45600].any()
    shown = [e.turn for e in held.events if e.WhichOneof("event") == "turn"]
    assert [t.text for t in shown] == ["hello", "help", "sure"]
    assert shown[2].response_latency_seconds == turns[2].response_latency_seconds


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 48000])
async def test_each_hears_the_other_sample_true(rate: int) -> None:
    import soxr

    wave = noise(0.6, rate)
    agent = ScriptedPort(merge(utterance("a", wave, rate, 20), {80: [leave()]}))
    held = await hold(agent, ScriptedPort())
    heard = held.user.heard().astype(float)
    expected = soxr.resample(wave.astype("f4"), rate, 16000, quality="VHQ").astype(float)
    correlation = np.correlate(heard, expected, "valid")
    at = int(correlation.argmax())
    piece = heard[at : at + len(expected)]
    assert piece @ expected / np.linalg.norm(piece) / np.linalg.norm(expected) > 0.995
    assert abs(at / 16000 - 0.4) < FRAME
    assert not held.agent.heard().any()


async def test_frames_are_gapless_and_carry_media_time() -> None:
    held = await hold(ScriptedPort(agent_then_exit()), ScriptedPort())
    for port in (held.agent, held.user):
        assert [f.sequence for f in port.frames] == list(range(len(port.frames)))
        assert all(f.media_time_seconds == n / 50 for n, f in enumerate(port.frames))
        assert {len(f.pcm) for f in port.frames} == {640}
    assert held.agent.kinds[0] == "cue"
    assert "cue" not in held.user.kinds
    assert held.agent.kinds[-1] == held.user.kinds[-1] == "finish"


async def test_exit_plays_out_what_is_queued_and_a_short_tail() -> None:
    chunks = [audio(tone(440, 1.0, 24000), 24000, 0.2)]
    held = await hold(ScriptedPort({5: [*chunks, leave("TRANSFER")]}), ScriptedPort())
    assert held.reason == "TRANSFER"
    assert held.footer.duration_seconds == pytest.approx(1.2 + 0.3, abs=FRAME)
    assert (held.sound[4800:28800, 1] == tone(440, 1.0, 24000)).all()


async def test_goodbye_that_the_exit_cut_off_is_a_turn() -> None:
    started = event(speech_started=voice_pb2.SpeechStarted(utterance_id="x"))
    agent = ScriptedPort({5: [started, audio(tone(440, 0.4, 24000), 24000, 0.2), leave()]})
    agent_send = agent.send

    def send(request: voice_pb2.ConverseRequest, due: float | None = None) -> None:
        if request.WhichOneof("message") == "finish":
            said = voice_pb2.UtteranceSaid(utterance_id="x", text="good", unspoken="bye")
            agent.put(event(utterance_said=said))
        agent_send(request, due)

    agent.send = send  # type: ignore[method-assign]
    held = await hold(agent, ScriptedPort())
    assert [(t.text, t.unspoken) for t in held.footer.turns] == [("good", "bye")]


async def test_the_callers_exit_is_ignored_with_a_note() -> None:
    held = await hold(ScriptedPort(agent_then_exit(50)), ScriptedPort({5: [leave()]}))
    assert held.reason == "AGENT_EXIT"
    assert held.footer.duration_seconds > 1
    assert "caller's bot sent an Exit" in held.footer.stop_detail


async def test_timeout() -> None:
    held = await hold(ScriptedPort(), ScriptedPort(), max_seconds=3, stall=30)
    assert held.reason == "TIMEOUT"
    assert held.footer.duration_seconds == 3


async def test_a_limit_reached_while_the_callers_model_hangs_is_the_callers_fault() -> None:
    def agent() -> ScriptedPort:
        return ScriptedPort(utterance("a", tone(440, 0.5, 24000), 24000, 10))

    hung = ScriptedPort({60: [activity("STARTED")]})
    held = await hold(agent(), hung, max_seconds=20, stall=5)
    assert held.reason == "USER_STALLED"
    assert held.footer.duration_seconds == 20
    assert "limit of 20 s" in held.footer.stop_detail
    # Not for long yet: the caller may just be thinking.
    held = await hold(agent(), ScriptedPort({60: [activity("STARTED")]}), max_seconds=4, stall=5)
    assert held.reason == "TIMEOUT"
    # The agent is at work, so the caller waits for it.
    working = utterance("a", tone(440, 0.5, 24000), 24000, 10)
    working[70] = [activity("STARTED", "tool")]
    held = await hold(ScriptedPort(working), ScriptedPort(), max_seconds=20, stall=5)
    assert held.reason == "TIMEOUT"


async def test_a_silent_agent_stalls() -> None:
    held = await hold(ScriptedPort(), ScriptedPort())
    assert held.reason == "AGENT_STALLED"
    assert held.footer.duration_seconds == pytest.approx(5, abs=FRAME)


async def test_a_silent_caller_stalls() -> None:
    agent = ScriptedPort(utterance("a", tone(440, 0.5, 24000), 24000, 10))
    held = await hold(agent, ScriptedPort())
    assert held.reason == "USER_STALLED"
    assert held.footer.duration_seconds == pytest.approx(0.7 + 5, abs=0.1)


def silent_words(tick: int) -> dict[int, list[Response]]:
    said = voice_pb2.UtteranceSaid(utterance_id="dots", text="...")
    return {
        tick: [
            event(speech_started=voice_pb2.SpeechStarted(utterance_id="dots")),
            event(utterance_said=said),
            event(speech_stopped=voice_pb2.SpeechStopped(utterance_id="dots")),
        ]
    }


async def test_words_without_sound_pay_no_debt() -> None:
    # The caller said nothing that could be heard: its fault, not the agent's silence.
    agent = ScriptedPort(utterance("a", tone(440, 0.5, 24000), 24000, 10))
    held = await hold(agent, ScriptedPort(silent_words(60)))
    assert held.reason == "USER_STALLED"
    held = await hold(ScriptedPort(silent_words(10)), ScriptedPort())
    assert held.reason == "AGENT_STALLED"


@pytest.mark.parametrize("kind", ["MODEL_REQUEST", "GATEWAY", "SPEECH"])
@pytest.mark.parametrize("later", [0, 1])
async def test_a_fatal_error_before_the_exit_holds(kind: str, later: int) -> None:
    script = merge({50: [error(kind)]}, {50 + later: [leave()]})
    held = await hold(ScriptedPort(script), ScriptedPort())
    expected = {
        "MODEL_REQUEST": "AGENT_ERROR", "GATEWAY": "GATEWAY_ERROR", "SPEECH": "SPEECH_ERROR"
    }  # fmt: skip
    assert held.reason == expected[kind]


async def test_a_busy_agent_does_not_stall() -> None:
    agent = ScriptedPort({0: [activity("STARTED")], 600: [activity("STOPPED")]})
    held = await hold(agent, ScriptedPort())
    assert held.reason == "AGENT_STALLED"
    assert held.footer.duration_seconds == pytest.approx(12 + 5, abs=2 * FRAME)


async def test_a_bot_that_falls_silent_in_mid_word_stalls() -> None:
    script = utterance("a", tone(440, 0.5, 24000), 24000, 10)
    del script[max(script)]
    held = await hold(ScriptedPort(script), ScriptedPort())
    assert held.reason == "AGENT_STALLED"


async def test_continuous_silence_is_not_speech() -> None:
    quiet = {n: [audio(np.zeros(480, np.int16), 24000, (n + 1) / 50)] for n in range(2000)}
    held = await hold(ScriptedPort(quiet), ScriptedPort())
    assert held.reason == "AGENT_STALLED"


@pytest.mark.parametrize(
    ("side", "kind", "reason"),
    [
        ("agent", "MODEL_REQUEST", "AGENT_ERROR"),
        ("user", "MODEL_REQUEST", "GATEWAY_ERROR"),
        ("agent", "GATEWAY", "GATEWAY_ERROR"),
        ("agent", "SPEECH", "SPEECH_ERROR"),
        ("user", "INTERNAL", "USER_LOST"),
    ],
)
async def test_fatal_errors_end_the_call_at_once(side: str, kind: str, reason: str) -> None:
    scripts: dict[str, dict[int, list[Response]]] = {"agent": {}, "user": {}}
    scripts[side] = {20: [error(kind)]}
    held = await hold(ScriptedPort(scripts["agent"]), ScriptedPort(scripts["user"]))
    assert held.reason == reason
    assert held.footer.duration_seconds < 1
    assert "as scripted" in held.footer.stop_detail


async def test_errors_that_are_not_fatal_are_events_only() -> None:
    agent = ScriptedPort(merge({5: [error("GATEWAY", fatal=False)]}, agent_then_exit()))
    held = await hold(agent, ScriptedPort())
    assert held.reason == "AGENT_EXIT"
    kinds = [
        e.bot_event.event.WhichOneof("event")
        for e in held.events
        if e.WhichOneof("event") == "bot_event"
    ]
    assert kinds == ["error", "exit"]


@pytest.mark.parametrize(("side", "reason"), [("agent", "AGENT_LOST"), ("user", "USER_LOST")])
async def test_a_lost_bot_ends_the_call_within_two_seconds(side: str, reason: str) -> None:
    agent, user = ScriptedPort(), ScriptedPort()
    (agent if side == "agent" else user).fail_at = 30
    held = await hold(agent, user)
    assert held.reason == reason
    assert held.footer.duration_seconds < 2.6
    assert "scripted loss" in held.footer.stop_detail
    summaries = {s.role: s.HasField("summary") for s in held.footer.sides}
    assert summaries[voice_pb2.ROLE_AGENT] == (side == "user")
    assert summaries[voice_pb2.ROLE_USER] == (side == "agent")


async def test_an_agent_without_summary_after_its_exit_is_lost() -> None:
    held = await hold(ScriptedPort(agent_then_exit(), summary=False), ScriptedPort())
    assert held.reason == "AGENT_LOST"
    assert "after agent_exit" in held.footer.stop_detail


async def test_a_caller_without_summary_costs_nothing() -> None:
    held = await hold(ScriptedPort(agent_then_exit()), ScriptedPort(summary=False))
    assert held.reason == "AGENT_EXIT"


async def test_a_caller_lost_after_the_exit_costs_nothing() -> None:
    user = ScriptedPort()
    script = agent_then_exit()
    user.fail_at = max(script) + 2
    held = await hold(ScriptedPort(script), user)
    assert held.reason == "AGENT_EXIT"


async def test_an_agent_lost_while_its_last_words_are_played() -> None:
    script = {5: [audio(tone(440, 1.0, 24000), 24000, 0.2), leave()]}
    agent = ScriptedPort(script)
    agent.fail_at = 20
    held = await hold(agent, ScriptedPort())
    assert held.reason == "AGENT_LOST"


@pytest.mark.parametrize(
    "bad",
    [
        audio(np.ones(100, np.int16), 17, 0.1),
        audio(np.ones(100, np.int16), 16000, float("inf")),
        Response(text=voice_pb2.Text(text="hello")),
    ],
)
async def test_a_bot_that_breaks_the_contract_is_lost(bad: Response) -> None:
    held = await hold(ScriptedPort(), ScriptedPort({10: [bad]}))
    assert held.reason == "USER_LOST"
    assert "broke the contract" in held.footer.stop_detail


async def test_cancelled() -> None:
    agent = ScriptedPort()
    held = Held(agent, ScriptedPort())
    send = agent.send

    def cancelling(request: voice_pb2.ConverseRequest, due: float | None = None) -> None:
        if len(agent.frames) == 50:
            held.call.cancel()
        send(request, due)

    agent.send = cancelling  # type: ignore[method-assign]
    await held.hold()
    assert held.reason == "CANCELLED"
    assert held.footer.duration_seconds == pytest.approx(1.0, abs=2 * FRAME)
    assert held.footer.sides[0].HasField("summary")


async def test_events_are_on_the_bridge_clock() -> None:
    agent = ScriptedPort(merge({49: [activity("STARTED"), activity("STOPPED")]}, {90: [leave()]}))
    held = await hold(agent, ScriptedPort())
    times = [
        (p.event.event.WhichOneof("event"), p.event.time_seconds)
        for p in held.sink.parts
        if p.WhichOneof("part") == "event"
    ]
    assert times == [
        ("activity", pytest.approx(1.0)),
        ("activity", pytest.approx(1.0)),
        ("exit", pytest.approx(1.82)),
    ]


async def test_both_talking_at_once() -> None:
    agent = ScriptedPort(
        merge(
            utterance("a1", tone(440, 2.0, 24000), 24000, 10, "long story"),
            utterance("a2", tone(440, 0.5, 24000), 24000, 150, "so"),
            {200: [leave()]},
        )
    )
    user = ScriptedPort(utterance("u", tone(700, 0.5, 16000), 16000, 40, "uh"))
    held = await hold(agent, user)
    assert [t.text for t in held.footer.turns] == ["long story", "uh", "so"]
    assert not any(t.HasField("response_latency_seconds") for t in held.footer.turns)
    overlap = held.sound[20000:30000]
    assert overlap[:, 0].any()
    assert overlap[:, 1].any()
