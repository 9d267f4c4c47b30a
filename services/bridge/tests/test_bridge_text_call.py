"""The engine of text: virtual time that nobody waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from bridge_fakes import ListSink, Response, ScriptedPort, activity, error, event, leave

from tau2eval.bridge.v1 import bridge_pb2
from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge.conversation import Limits
from tau2eval_bridge.recorder import Recorder
from tau2eval_bridge.text_call import TextConversation

Reply = Callable[[str], list[Response]]


def text(words: str) -> Response:
    return Response(text=voice_pb2.Text(text=words))


class TextPort(ScriptedPort):
    """Answers the cue and each text by a function."""

    def __init__(self, reply: Reply, summary: bool = True) -> None:
        super().__init__(summary=summary)
        self.reply = reply

    def send(self, request: voice_pb2.ConverseRequest, due: float | None = None) -> None:
        super().send(request, due)
        if request.WhichOneof("message") in ("cue", "text"):
            self.put(*self.reply(request.text.text))


async def hold(
    agent: Reply, user: Reply, unanswered: float = 0.05, **limits: float
) -> tuple[record_pb2.RecordFooter, str]:
    events: list[bridge_pb2.ScenarioEvent] = []
    call = TextConversation(
        TextPort(agent),
        TextPort(user),
        Limits(
            **{"max_duration_seconds": 900, "stall_seconds": 30, **limits},
            finish_timeout_seconds=0.05,
        ),
        Recorder(ListSink(), 24000),
        events.append,
        settle_seconds=0.001,
        grace_seconds=0.05,
        unanswered_seconds=unanswered,
    )
    stop = await call.finish(await call.run())
    footer = call.footer(stop, 2)
    return footer, record_pb2.StopReason.Name(footer.stop_reason)[12:]


def say(words: str) -> Reply:
    return lambda _: [activity("STARTED"), text(words), activity("STOPPED")]


async def test_words_take_their_time() -> None:
    replies = iter([[text("one two three four five")], [text("bye"), leave()]])
    footer, reason = await hold(lambda _: next(replies), say("ten words " * 5))
    assert reason == "AGENT_EXIT"
    spans = [(t.start_seconds, t.end_seconds) for t in footer.turns]
    assert spans == [
        (pytest.approx(0.5), pytest.approx(2.5)),  # 5 words at 150 a minute
        (pytest.approx(3.0), pytest.approx(7.0)),
        (pytest.approx(7.5), pytest.approx(7.9)),
    ]
    assert footer.duration_seconds == pytest.approx(7.9)
    assert footer.turns[1].heard == ("ten words " * 5)
    assert not any(t.HasField("response_latency_seconds") for t in footer.turns)
    assert footer.sides[0].summary.db_hash == "abc"


async def test_fifteen_minutes_pass_in_seconds() -> None:
    begin = time.monotonic()
    footer, reason = await hold(say("never hang up " * 10), say("please go on " * 10))
    assert reason == "TIMEOUT"
    assert footer.duration_seconds == 900
    assert footer.turns[-1].end_seconds <= 900
    assert time.monotonic() - begin < 60  # A bound of the machine, not of the rule: 900 is far.


async def test_words_around_a_tool_call_travel_together() -> None:
    delivered: list[str] = []
    first = [
        activity("STARTED"),
        text("One moment."),
        activity("STOPPED"),
        activity("STARTED", "tool"),
        activity("STOPPED", "tool"),
        text("It is done."),
    ]
    replies = iter([first, [leave("TRANSFER")]])

    def user(words: str) -> list[Response]:
        delivered.append(words)
        return [text("thanks")]

    footer, reason = await hold(lambda _: next(replies), user)
    assert reason == "TRANSFER"
    assert delivered == ["One moment. It is done."]
    assert [t.text for t in footer.turns] == ["One moment.", "It is done.", "thanks"]


async def test_a_silent_agent_stalls_in_virtual_time() -> None:
    footer, reason = await hold(lambda _: [activity("STARTED"), activity("STOPPED")], say("x"))
    assert reason == "AGENT_STALLED"
    assert footer.duration_seconds == 30


async def test_a_bot_whose_process_is_held_up_is_waited_for() -> None:
    loop = asyncio.get_running_loop()
    ports: list[TextPort] = []

    class LatePort(TextPort):
        def send(self, request: voice_pb2.ConverseRequest, due: float | None = None) -> None:
            if request.WhichOneof("message") == "text":
                loop.call_later(0.3, lambda: self.put(text("sorry, bye"), leave()))
            else:
                super().send(request, due)

    ports += [LatePort(say("hello")), TextPort(say("please help"))]
    call = TextConversation(
        *ports,
        Limits(max_duration_seconds=900, stall_seconds=30, finish_timeout_seconds=0.05),
        Recorder(ListSink(), 24000),
        lambda event: None,
        settle_seconds=0.001,
        grace_seconds=0.05,
        unanswered_seconds=30,
    )
    stop = await call.run()
    assert record_pb2.StopReason.Name(stop.reason) == "STOP_REASON_AGENT_EXIT"


async def test_a_bot_that_worked_and_said_nothing_is_not_waited_for_longer() -> None:
    silent = [activity("STARTED"), activity("STOPPED")]
    _, reason = await hold(lambda _: silent, say("x"), unanswered=3600)
    assert reason == "AGENT_STALLED"


async def test_a_silent_caller_stalls() -> None:
    footer, reason = await hold(say("hello"), lambda _: [])
    assert reason == "USER_STALLED"
    assert footer.duration_seconds == pytest.approx(0.9 + 30)


async def test_a_stall_beyond_the_limit_is_a_timeout() -> None:
    footer, reason = await hold(say("hello"), lambda _: [], max_duration_seconds=20)
    assert (reason, footer.duration_seconds) == ("TIMEOUT", 20)


async def test_a_busy_side_is_waited_for_until_its_job_is_given_up() -> None:
    begin = time.monotonic()
    _, reason = await hold(lambda _: [activity("STARTED")], say("x"), activity_limit_seconds=0.3)
    assert reason == "AGENT_STALLED"
    assert time.monotonic() - begin >= 0.3


async def test_words_end_at_the_limit() -> None:
    footer, reason = await hold(say("word " * 100), say("x"), max_duration_seconds=10)
    assert reason == "TIMEOUT"
    assert [(t.interrupted, t.end_seconds) for t in footer.turns] == [(True, 10)]


async def test_errors_and_losses() -> None:
    _, reason = await hold(lambda _: [error("MODEL_REQUEST")], say("x"))
    assert reason == "AGENT_ERROR"
    _, reason = await hold(say("hi"), lambda _: [error("GATEWAY")])
    assert reason == "GATEWAY_ERROR"
    audio = Response(audio=voice_pb2.Audio(pcm=b"\0\0", sample_rate_hz=16000))
    _, reason = await hold(lambda _: [audio], say("x"))
    assert reason == "AGENT_LOST"


async def test_speech_events_make_no_second_turn() -> None:
    said = voice_pb2.UtteranceSaid(utterance_id="1", text="hello")
    replies = [
        event(speech_started=voice_pb2.SpeechStarted(utterance_id="1")),
        text("hello"),
        event(utterance_said=said),
        event(speech_stopped=voice_pb2.SpeechStopped(utterance_id="1")),
        leave(),
    ]
    footer, _ = await hold(lambda _: replies, say("x"))
    assert [t.text for t in footer.turns] == ["hello"]
