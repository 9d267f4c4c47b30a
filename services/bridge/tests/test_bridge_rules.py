"""Turns, latency, words heard, stalls, stop reasons, clock, spool, header: the rules alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc
import pytest
from bridge_fakes import Event
from hypothesis import given
from hypothesis import strategies as st

from tau2eval.bridge.v1 import bridge_pb2
from tau2eval.scorer.v1 import record_pb2, scorer_pb2, scorer_pb2_grpc
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge import stop as stops
from tau2eval_bridge.client_feed import ClientFeed
from tau2eval_bridge.clock import LatenessLog, RealTimePacer, VirtualPacer
from tau2eval_bridge.header import without_credentials
from tau2eval_bridge.heard import assign_heard, split_words
from tau2eval_bridge.latency import response_latency, set_latencies
from tau2eval_bridge.scorer_client import ScorerClient, SubmitFailed
from tau2eval_bridge.spool import MAGIC, Spool, SpoolError, read_spool
from tau2eval_bridge.stall import Activities, StallWatch
from tau2eval_bridge.turns import SideTurns

AGENT, USER = voice_pb2.ROLE_AGENT, voice_pb2.ROLE_USER


def started(name: str) -> Event:
    return Event(speech_started=voice_pb2.SpeechStarted(utterance_id=name))


def stopped(name: str) -> Event:
    return Event(speech_stopped=voice_pb2.SpeechStopped(utterance_id=name))


def said(name: str, text: str, **more: object) -> Event:
    return Event(utterance_said=voice_pb2.UtteranceSaid(utterance_id=name, text=text, **more))


def turn(role: int, start: float, end: float, text: str = "") -> record_pb2.Turn:
    return record_pb2.Turn(role=role, start_seconds=start, end_seconds=end, text=text)


def spans(side: SideTurns) -> list[tuple[str, float, float]]:
    return [(t.text, t.start_seconds, t.end_seconds) for t in side.turns]


# Turns.


def test_a_turn_has_the_audible_ends() -> None:
    side = SideTurns(AGENT)
    side.event(started("a"), 1.0, 1.0)
    side.audible(1.07, 1.08)
    side.audible(1.5, 1.93)
    side.event(said("a", "hello", spoken_form="HELLO"), 2.3, 2.02)
    side.event(stopped("a"), 2.3, 2.02)
    side.advance(2.3)
    assert spans(side) == [("hello", 1.07, 1.93)]
    assert side.turns[0].spoken_form == "HELLO"


def test_a_turn_closes_when_its_queue_was_played() -> None:
    side = SideTurns(AGENT)
    side.event(started("a"), 1.0, 1.0)
    side.event(said("a", "one"), 1.1, 1.6)
    side.event(stopped("a"), 1.1, 1.6)
    side.event(started("b"), 1.2, 1.6)
    side.audible(1.1, 1.6)
    side.advance(1.58)
    assert not side.turns
    side.audible(1.6, 1.9)
    side.advance(1.6)
    side.event(said("b", "two"), 1.9, 1.9)
    side.event(stopped("b"), 1.9, 1.9)
    side.advance(2.0)
    assert spans(side) == [("one", 1.1, 1.6), ("two", 1.6, 1.9)]


def test_audio_just_before_its_start_event_belongs_to_it() -> None:
    side = SideTurns(AGENT)
    side.audible(1.0, 1.1)
    side.event(started("a"), 1.1, 1.1)
    side.audible(1.1, 1.5)
    side.event(said("a", "x"), 1.6, 1.5)
    side.event(stopped("a"), 1.6, 1.5)
    side.advance(1.6)
    assert spans(side) == [("x", 1.0, 1.5)]


def test_cut_off_by_the_end() -> None:
    side = SideTurns(AGENT)
    side.event(started("a"), 1.0, 1.0)
    side.audible(1.0, 1.4)
    side.event(said("a", "good", interrupted=True, unspoken="bye"), 1.5, 1.5)
    side.finish(1.5)
    assert spans(side) == [("good", 1.0, 1.4)]
    assert side.turns[0].interrupted
    assert side.turns[0].unspoken == "bye"


def test_a_bot_killed_in_mid_word_leaves_its_turn() -> None:
    side = SideTurns(USER)
    side.event(started("a"), 1.0, 1.0)
    side.audible(1.0, 1.4)
    side.finish(1.5)
    assert spans(side) == [("", 1.0, 1.4)]
    assert side.turns[0].interrupted


def test_empty_utterances_are_no_turns() -> None:
    side = SideTurns(AGENT)
    side.event(started("a"), 1.0, 1.0)
    side.event(said("a", "", unspoken="never heard"), 1.1, 1.0)
    side.event(stopped("a"), 1.1, 1.0)
    side.advance(2.0)
    side.event(started("b"), 3.0, 3.0)
    side.finish(4.0)
    assert not side.turns


def test_sound_without_events_is_a_turn_without_words() -> None:
    side = SideTurns(AGENT)
    side.audible(1.0, 1.02)
    side.audible(1.02, 1.5)
    side.advance(2.0)
    assert not side.turns
    side.advance(2.6)
    assert spans(side) == [("", 1.0, 1.5)]
    side.audible(5.0, 5.1)  # Too short for a word.
    side.finish(9.0)
    assert len(side.turns) == 1


def test_words_after_the_stop_still_go_in() -> None:
    side = SideTurns(AGENT)
    side.event(started("a"), 1.0, 1.0)
    side.audible(1.0, 1.4)
    side.event(stopped("a"), 1.5, 1.4)
    side.advance(1.6)
    side.event(said("a", "late"), 1.7, 1.7)
    assert spans(side) == [("late", 1.0, 1.4)]


@given(
    st.lists(
        st.tuples(st.floats(0.02, 2), st.booleans(), st.booleans(), st.text(max_size=3)),
        max_size=12,
    )
)
def test_turns_are_monotone_and_cover_all_that_was_audible(
    utterances: list[tuple[float, bool, bool, str]],
) -> None:
    side = SideTurns(AGENT)
    now = heard = 0.0
    for number, (length, with_start, with_stop, text) in enumerate(utterances):
        name = str(number)
        if with_start:
            side.event(started(name), now, now)
        side.audible(now, now + length)
        heard += length
        now += length
        if with_start:
            side.event(said(name, text), now, now)
        if with_start and with_stop:
            side.event(stopped(name), now, now)
        side.advance(now)
    side.finish(now)
    ends = [t.end_seconds for t in side.turns]
    assert ends == sorted(ends)
    for before, after in zip(side.turns, side.turns[1:], strict=False):
        assert before.end_seconds <= after.start_seconds + 1e-9
    covered = sum(t.end_seconds - t.start_seconds for t in side.turns)
    # Only orphans shorter than a word may be left out.
    assert covered >= heard - 0.2 * len(utterances) - 1e-6


# Latency.


def test_latency_is_from_last_to_first_audible_sample() -> None:
    turns = [turn(AGENT, 0.5, 1.0), turn(USER, 2.0, 3.125), turn(AGENT, 4.5, 6.0)]
    set_latencies(turns)
    assert not turns[0].HasField("response_latency_seconds")
    assert turns[2].response_latency_seconds == pytest.approx(1.375)


@pytest.mark.parametrize(
    "turns",
    [
        [turn(AGENT, 1, 2)],  # Nothing had been asked.
        [turn(USER, 0, 3), turn(AGENT, 2, 5)],  # The agent barged in.
        [turn(USER, 0, 1), turn(AGENT, 1.5, 2), turn(AGENT, 3, 4)],  # Answered already.
        [turn(AGENT, 0, 4), turn(USER, 1, 2), turn(AGENT, 5, 6)],  # Was talking.
    ],
)
def test_no_latency_where_there_was_no_wait(turns: list[record_pb2.Turn]) -> None:
    assert response_latency(turns[-1], turns) is None


def test_latency_counts_from_the_last_of_several_utterances() -> None:
    turns = [turn(USER, 0, 1), turn(USER, 1.5, 2.5), turn(AGENT, 3, 4)]
    assert response_latency(turns[2], turns) == pytest.approx(0.5)


# Words heard.


def heard_event(role: int, text: str, at: float, seconds: float, late: float = 0.0) -> object:
    return record_pb2.TimedEvent(
        role=role,
        event=Event(
            media_time_seconds=at,
            transcript_heard=voice_pb2.TranscriptHeard(
                text=text, audio_seconds=seconds, latency_seconds=late
            ),
        ),
    )


def test_transcripts_go_to_the_turns_they_overlap() -> None:
    turns = [
        turn(AGENT, 0.0, 1.0, "hello there"),
        turn(USER, 2.0, 3.0, "I need help"),
        turn(AGENT, 4.0, 5.0, "of course"),
        turn(AGENT, 5.5, 6.5, "what is your name"),
    ]
    assign_heard(
        turns,
        [
            heard_event(USER, "hallo there", 2.4, 1.8, 0.6),
            heard_event(AGENT, "I need", 3.2, 1.0, 0.2),
            heard_event(AGENT, "help", 3.9, 0.5, 0.6),
            heard_event(USER, "off course what is your name", 8.0, 3.4, 0.7),
            heard_event(USER, "  ", 8.0, 3.4, 0.7),
        ],
    )
    assert [t.heard for t in turns] == [
        "hallo there",
        "I need help",
        "off course",
        "what is your name",
    ]


def test_a_transcript_that_overlaps_nothing_goes_to_the_turn_before() -> None:
    turns = [turn(AGENT, 0, 1, "hello"), turn(AGENT, 20, 21, "still there")]
    assign_heard(turns, [heard_event(USER, "hello", 3.0, 0.5)])
    assign_heard(turns, [heard_event(USER, "nothing", 15.0, 0.5)])
    assert [t.heard for t in turns] == ["hello", ""]


@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.text("abcd ", max_size=8)))
def test_division_loses_no_word(words: list[str], said_texts: list[str]) -> None:
    parts = split_words(" ".join(words), said_texts)
    assert len(parts) == len(said_texts)
    if said_texts:
        assert " ".join(parts).split() == words


# Stalls.


def test_the_agent_owes_the_first_turn() -> None:
    watch = StallWatch(30)
    assert watch.check(29.9, active=False) is None
    assert watch.check(30.0, active=False) == AGENT


def test_debts_pass_to_the_other_side() -> None:
    watch = StallWatch(30)
    watch.turn_ended(AGENT, 10)
    assert watch.check(39, active=False) is None
    assert watch.check(40, active=False) == USER
    watch.turn_ended(USER, 41)
    assert watch.check(71, active=False) == AGENT


def test_nobody_stalls_while_something_goes_on() -> None:
    watch = StallWatch(30)
    for second in range(100):
        assert watch.check(second, active=True) is None
    assert watch.check(128.9, active=False) is None
    assert watch.check(129.1, active=False) == AGENT


def test_a_job_whose_end_was_lost_is_forgotten() -> None:
    jobs = Activities(limit_seconds=180)
    jobs.event(voice_pb2.Activity(state=voice_pb2.ACTIVITY_STATE_STARTED, stage="llm"), 5)
    assert jobs.busy(185)
    assert not jobs.busy(185.1)
    assert jobs.last_end == 185


def test_jobs_of_a_stage_are_counted() -> None:
    jobs = Activities(limit_seconds=180)
    start = voice_pb2.Activity(state=voice_pb2.ACTIVITY_STATE_STARTED, stage="tool")
    stop = voice_pb2.Activity(state=voice_pb2.ACTIVITY_STATE_STOPPED, stage="tool")
    for activity in (start, start, stop):
        jobs.event(activity, 1)
    assert jobs.busy(2)
    jobs.event(stop, 3)
    jobs.event(stop, 4)  # One end too many harms nothing.
    assert not jobs.busy(4)
    jobs.event(start, 5)
    assert jobs.busy(5)


# Stop reasons.


@pytest.mark.parametrize(
    ("role", "kind", "reason"),
    [
        (AGENT, "MODEL_REQUEST", "AGENT_ERROR"),
        (USER, "MODEL_REQUEST", "GATEWAY_ERROR"),
        (AGENT, "GATEWAY", "GATEWAY_ERROR"),
        (USER, "GATEWAY", "GATEWAY_ERROR"),
        (AGENT, "SPEECH", "SPEECH_ERROR"),
        (USER, "SPEECH", "SPEECH_ERROR"),
        (AGENT, "INTERNAL", "AGENT_LOST"),
        (USER, "INTERNAL", "USER_LOST"),
        (AGENT, "UNSPECIFIED", "AGENT_LOST"),
    ],
)
def test_errors_become_stop_reasons(role: int, kind: str, reason: str) -> None:
    bot_error = voice_pb2.BotError(
        kind=voice_pb2.ErrorKind.Value(f"ERROR_KIND_{kind}"), message="why", fatal=True
    )
    stop = stops.of_error(role, bot_error)
    assert stop is not None
    assert record_pb2.StopReason.Name(stop.reason) == f"STOP_REASON_{reason}"
    assert "why" in stop.detail
    bot_error.fatal = False
    assert stops.of_error(role, bot_error) is None


def test_every_reason_has_its_place() -> None:
    reasons = [value for value in record_pb2.StopReason.values() if value]
    for reason in reasons:
        assert stops.choose([stops.Stop(reason, "")]) == stops.Stop(reason, "")
    timeout = stops.Stop(record_pb2.STOP_REASON_TIMEOUT, "")
    for reason in reasons:
        assert stops.choose([timeout, stops.Stop(reason, "")]).reason == reason
    assert stops.choose([]) is None


def test_only_scores_need_a_summary() -> None:
    for reason in record_pb2.StopReason.values():
        if not reason:
            continue
        after = stops.without_summary(stops.Stop(reason, "x"), "gone").reason
        if reason in stops.NOT_RUN_KINDS:
            assert after == reason
        else:
            assert after == record_pb2.STOP_REASON_AGENT_LOST


# Clock.


async def test_the_real_clock_does_not_drift() -> None:
    pacer = RealTimePacer()
    pacer.start()
    begin = pacer.now()
    dues = [await pacer.wait_for(tick) for tick in range(10)]
    assert all(abs(due - dues[0] - n / 50) < 1e-9 for n, due in enumerate(dues))
    assert pacer.now() >= begin + 0.18


async def test_after_a_long_pause_time_is_not_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pacer = RealTimePacer()
    pacer.start()
    pacer._start -= 5.0  # As if the process had slept for five seconds.
    await pacer.wait_for(0)
    assert await pacer.wait_for(10) > pacer.now() - 1.0


async def test_virtual_time_lets_others_run() -> None:
    pacer = VirtualPacer()
    seen = []

    async def other() -> None:
        seen.append(True)

    task = asyncio.create_task(other())
    assert await pacer.wait_for(50) == pacer.now() == 1.0
    assert seen
    await task


def test_line_quality() -> None:
    a, b = LatenessLog(), LatenessLog()
    for n in range(100):
        a.add(n / 1000)
    b.add(-1.0)
    quality = LatenessLog.line_quality(a, b)
    assert quality.frames == 101
    assert quality.frame_lateness_max_ms == pytest.approx(99)
    assert quality.frame_lateness_p50_ms == pytest.approx(49)
    assert LatenessLog.line_quality(LatenessLog()).frames == 0


# Spool, feed, header.


def test_a_spool_gives_back_its_parts(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "new" / "a.record")
    for n in range(50):
        spool.write(record_pb2.RecordPart(audio=bytes([n]) * 1000))
    spool.close()
    parts = list(read_spool(spool.path))
    assert [p.audio[0] for p in parts] == list(range(50))
    data = spool.path.read_bytes()
    spool.path.write_bytes(data[:-10])  # Cut off in the middle of a part.
    assert len(list(read_spool(spool.path))) == 49


async def test_a_spool_that_cannot_be_read_fails_the_submit_and_cancels_nothing(
    tmp_path: Path,
) -> None:
    class Runs(scorer_pb2_grpc.RunServiceServicer):
        async def SubmitConversation(self, request_iterator, context):  # type: ignore[no-untyped-def]
            async for _ in request_iterator:
                pass
            return scorer_pb2.SubmitConversationResponse()

    server = grpc.aio.server()
    scorer_pb2_grpc.add_RunServiceServicer_to_server(Runs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    damaged = tmp_path / "x.record"
    damaged.write_bytes(MAGIC + b"\xff\xff\xff\xff")
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for path in (damaged, tmp_path / "missing.record"):
                with pytest.raises(SubmitFailed, match="record"):
                    await ScorerClient(channel).submit(path)
    finally:
        await server.stop(0)


def test_a_damaged_spool_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"something else")
    with pytest.raises(SpoolError, match="not a conversation record"):
        list(read_spool(path))
    path.write_bytes(MAGIC + b"\xff\xff\xff\xff")
    with pytest.raises(SpoolError, match="damaged"):
        list(read_spool(path))


async def test_a_slow_client_loses_bot_events_first() -> None:
    feed = ClientFeed(10, 5.0, lambda: 0.0)
    Ev = bridge_pb2.ScenarioEvent
    feed.emit(Ev(started=bridge_pb2.Started(attempt_id="x")))
    for n in range(5):
        feed.emit(Ev(turn=turn(AGENT, n, n + 1)))
    for n in range(100):
        feed.emit(Ev(time_seconds=n, bot_event=record_pb2.TimedEvent()))
    for n in range(20):
        feed.emit(Ev(turn=turn(USER, n, n + 1)))
    feed.emit(Ev(stopped=bridge_pb2.Stopped()))
    feed.emit(Ev(finished=bridge_pb2.Finished()))
    feed.close()
    kinds = [e.WhichOneof("event") async for e in feed.events()]
    assert kinds[0] == "started"
    assert kinds[-2:] == ["stopped", "finished"]
    assert len(kinds) == 10
    assert feed.dropped == 118


async def test_heartbeats_in_quiet() -> None:
    feed = ClientFeed(10, 0.01, lambda: 3.0)
    events = feed.events()
    first = await anext(events)
    assert first.WhichOneof("event") == "heartbeat"
    assert first.time_seconds == 3.0
    feed.close()
    assert [e async for e in events] == []


def test_addresses_lose_their_credentials() -> None:
    assert without_credentials("dns:///me:pw@bots:3311") == "dns:///bots:3311"
    assert without_credentials("127.0.0.1:3311") == "127.0.0.1:3311"
    assert json.dumps(without_credentials("me:pw@host:1")) == '"host:1"'
