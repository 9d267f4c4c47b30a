"""A scorer that is killed anywhere, and the one that is started after it."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import uuid
from pathlib import Path

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval_scorer import spool
from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.core import ScorerCore
from tau2eval_scorer.judge import JudgeSettings
from tau2eval_scorer.run_files import place_of
from tau2eval_scorer.settings import ScorerSettings
from tau2eval_scorer.storage import ObjectArtifacts
from tau2eval_scorer.store import AttemptKey, Plan

WRITES = "tau2_airline__11"
SAYS = "tau2_airline__1"
JUDGE = JudgeSettings(model="fake/judge")
LIMIT = 400
"""Steps after which something is wrong with the test."""


class Killed(BaseException):
    """The process is gone."""


class Killer:
    """Kills at a step, and lets nothing happen after it."""

    def __init__(self, at):
        self.at, self.steps, self.dead = at, 0, False

    def step(self):
        self.steps += 1
        if self.dead or self.steps == self.at:
            self.dead = True
            raise Killed


class FragileCore(ScorerCore):
    """A scorer with a step before and after all that it does in threads and in the store."""

    def __init__(self, killer, settings, chat):
        self.killer = killer
        super().__init__(settings, Catalog(), chat)
        writing = self.store.database.writing

        @contextlib.asynccontextmanager
        async def fragile():
            killer.step()
            async with writing() as connection:
                yield connection
                killer.step()
            killer.step()

        self.store.database.writing = fragile

    async def in_thread(self, function, *arguments):
        self.killer.step()
        result = await super().in_thread(function, *arguments)
        self.killer.step()
        return result

    async def bury(self):
        """Ends what a killed process would not have."""
        with contextlib.suppress(BaseException):
            await self._submissions.stop()
        await self.locks.close()
        await self.store.close()
        self._threads.shutdown(wait=True)


def fragile(monkeypatch, killer):
    """Puts a step before and after each change of the disk or of the object store."""

    def wrap(owner, name):
        original = getattr(owner, name)

        def stepped(*arguments, **options):
            killer.step()
            result = original(*arguments, **options)
            killer.step()
            return result

        monkeypatch.setattr(owner, name, stepped)

    wrap(os, "replace")
    wrap(shutil, "rmtree")
    wrap(Path, "write_bytes")
    wrap(ObjectArtifacts, "_try")


async def stream(parts):
    for part in parts:
        yield part


@pytest.fixture(params=["folder", "objects"])
def artifacts_url(request):
    return "" if request.param == "folder" else f"memory://{uuid.uuid4().hex}"


async def check(core, run_id="run-1"):
    """Everything that the store says is so among the artifacts."""
    run = await core.store.run(run_id)
    attempts = await core.store.attempts(run_id)
    for attempt in attempts:
        assert attempt.placed
        place = place_of(run, attempt)
        files = {}
        for file in core.artifacts.attempt_files(place):
            with core.artifacts.open_file(file) as opened:
                files[file.path.removeprefix(f"{place.path}/")] = opened.read()
        assert {"record.pb", "conversation_log.wav", "db_diff.json"} <= set(files)
        assert json.loads(files["metrics.json"]) == json.loads(attempt.metrics_json)
        for scoring in (await core.store.scorings(attempt))[:-1]:
            kept = json.loads(files[f"scorings/{scoring.number}/metrics.json"])
            assert kept == json.loads(scoring.metrics_json)
        if attempt.scoring.judge_json:
            judged = json.loads(files["judge_result.json"])
            assert judged == json.loads(attempt.scoring.judge_json)
    _, _, summary = await core.run(run_id)
    stored = core.artifacts.run_file(run_id, "all_metrics.json")
    if attempts:
        with core.artifacts.open_file(stored) as opened:
            assert json.loads(opened.read()) == json.loads(json.dumps(summary))
    return attempts


async def with_kills(settings, chat, monkeypatch, act, after, stride=1):
    """Kills `act(core)` at every step in turn, and calls `after(core)` on a new scorer."""
    for at in range(1, LIMIT, stride):
        killer = Killer(at)
        own = settings(at)
        async with contextlib.AsyncExitStack() as stack:
            patched = stack.enter_context(monkeypatch.context())
            core = FragileCore(killer, own, chat)
            killer.at = -1
            await core.start()
            await after.prepare(core)
            killer.at, killer.steps = at, 0
            fragile(patched, killer)
            killed = False
            try:
                await act(core)
            except Killed:
                killed = True
            except BaseException:
                assert killer.dead
                killed = True
            killer.dead, killer.at = True, 0
            killed = killed or killer.steps >= at
            await core.bury()
        core = ScorerCore(own, Catalog(), chat)
        await core.start()
        try:
            await after(core)
        finally:
            await core.stop()
        if not killed:
            assert at > 10
            return at
    raise AssertionError("it never ended")


async def test_killed_while_a_record_is_taken(
    database_url, artifacts_url, builder, chat, tmp_path, monkeypatch
):
    # An object store has a step for each object, and most are alike.
    stride = 3 if artifacts_url else 1
    lost = await builder.gold(WRITES, attempt_id="lost")
    lost.stop_reason = record_pb2.STOP_REASON_USER_LOST
    whole = await builder.gold(WRITES, attempt_id="whole")

    def settings(at):
        return ScorerSettings(
            artifacts_dir=tmp_path / "runs",
            artifacts_url=artifacts_url and f"{artifacts_url}/{at}",
            database_url=database_url,
        )

    class After:
        run = 0

        async def prepare(self, core):
            self.run += 1
            self.id = lost.run_id = whole.run_id = f"run-{self.run}"
            await core.create_run(Plan(self.id, (WRITES,), 1, {}))
            await core.submit(stream(lost.parts()))

        async def __call__(self, core):
            await check(core, self.id)
            _, attempt = await core.submit(stream(whole.parts()))
            attempts = await check(core, self.id)
            assert [(a.key.attempt_id, a.counts) for a in attempts] == [
                ("lost", False),
                ("whole", True),
            ]
            assert (attempt.outcome, attempt.scoring.number) == ("passed", 1)
            if not artifacts_url:
                folder = tmp_path / "runs" / self.id
                found = [path.parent.name for path in folder.rglob("record.pb")]
                assert sorted(found) == ["lost", WRITES]

    after = After()
    await with_kills(
        settings, chat, monkeypatch, lambda core: core.submit(stream(whole.parts())), after, stride
    )
    spool.remove_stale(tmp_path / "runs", older_than_seconds=-1)
    assert not list((tmp_path / "runs" / spool.INCOMING).iterdir())


async def test_killed_while_a_conversation_is_scored_again(
    artifacts_url, builder, chat, tmp_path, monkeypatch
):
    whole = await builder.gold(SAYS, attempt_id="whole")
    lost = await builder.gold(SAYS, attempt_id="lost")
    lost.stop_reason = record_pb2.STOP_REASON_USER_LOST

    def settings(at):
        return ScorerSettings(
            artifacts_dir=tmp_path / "runs",
            artifacts_url=artifacts_url and f"{artifacts_url}/{at}",
        )

    async def again(core, run_id, only_unjudged):
        return [r async for r in core.score(run_id, None, (), only_unjudged)]

    class After:
        run = 0

        async def prepare(self, core):
            self.run += 1
            self.id = lost.run_id = whole.run_id = f"run-{self.run}"
            await core.create_run(Plan(self.id, (SAYS,), 1, {}, JUDGE))
            chat.broken = True
            await core.submit(stream(whole.parts()))
            await core.submit(stream(lost.parts()))
            chat.broken = False

        async def __call__(self, core):
            before = await check(core, self.id)
            done = [a for a in before if a.scoring.number > 1]
            results = await again(core, self.id, True)
            # What was stored is not done again; what was not, is.
            assert len(results) == 1 - len(done)
            attempts = await check(core, self.id)
            assert [(a.key.attempt_id, a.outcome, a.counts) for a in attempts] == [
                ("whole", "passed", True),
                ("lost", "not_run", False),
            ]
            assert attempts[0].scoring.number == 2

    after = After()
    stride = 4 if artifacts_url else 1
    await with_kills(
        settings, chat, monkeypatch, lambda core: again(core, after.id, True), after, stride
    )


async def test_a_sender_that_goes_away_while_it_is_judged_finds_the_verdict_later(
    open_core, builder, chat
):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (SAYS, WRITES), 1, {}, JUDGE))
        record = await builder.gold(SAYS)
        chat.go.clear()
        gone = asyncio.ensure_future(core.submit(stream(record.parts())))
        await asyncio.wait_for(chat.waiting.wait(), 60)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        # It is sent again while the judge still thinks: nobody is asked a second time, and other
        # records of the same run go on meanwhile.
        second = asyncio.ensure_future(core.submit(stream(record.parts())))
        _, other = await core.submit(stream((await builder.gold(WRITES)).parts()))
        assert other.outcome == "passed"
        assert not second.done()
        chat.go.set()
        _, attempt = await second
        assert attempt.outcome == "passed"
        assert len(chat.asked) == 1
        assert len(await check(core)) == 2
        incoming = core.settings.artifacts_dir / spool.INCOMING
        assert not list(incoming.iterdir())


async def test_an_end_while_it_is_judged_leaves_nothing_half_done(open_core, builder, chat):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (SAYS,), 1, {}, JUDGE))
        record = await builder.gold(SAYS)
        chat.go.clear()
        sending = asyncio.ensure_future(core.submit(stream(record.parts())))
        await asyncio.wait_for(chat.waiting.wait(), 60)
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert not list((core.settings.artifacts_dir / spool.INCOMING).iterdir())
    chat.go.set()
    async with open_core() as core:
        assert await core.store.attempts("run-1") == []
        _, attempt = await core.submit(stream(record.parts()))
        assert attempt.outcome == "passed"


class FakeGateway(gateway_pb2_grpc.ChatServiceServicer):
    """A gateway whose judge answers when it is told to."""

    def __init__(self, chat):
        self.chat = chat

    async def ChatCompletion(self, request, context):
        reply = await self.chat.complete(
            json.loads(request.body_json), request.context, context.time_remaining()
        )
        body = {
            "choices": [{"message": {"content": reply.text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        }
        return gateway_pb2.ChatCompletionResponse(body_json=json.dumps(body).encode())


@pytest.fixture
async def gateway(chat):
    """Address of the fake gateway."""
    server = grpc.aio.server()
    gateway_pb2_grpc.add_ChatServiceServicer_to_server(FakeGateway(chat), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_process_told_to_end_while_judging_ends_after_the_verdict(
    scorer, builder, chat, gateway
):
    record = await builder.gold(SAYS)
    async with scorer(TAU2EVAL_SCORER_GATEWAY_ADDRESS=gateway) as s:
        await s.create(scenarios=[SAYS], judge=scorer_pb2.JudgeConfig(model="fake/judge"))
        chat.go.clear()
        sending = asyncio.ensure_future(s.submit(record.parts()))
        await asyncio.wait_for(chat.waiting.wait(), 60)
        s.process.send_signal(signal.SIGTERM)
        chat.go.set()
        verdict = await sending
        assert verdict.outcome == scorer_pb2.OUTCOME_PASSED
        assert await asyncio.wait_for(s.process.wait(), 60) == 0
    async with scorer() as s:
        assert list((await s.get()).verdicts) == [verdict]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_process_ended_at_once_while_judging_takes_the_record_again(
    scorer, builder, chat, gateway, number
):
    record = await builder.gold(SAYS)
    async with scorer(TAU2EVAL_SCORER_GATEWAY_ADDRESS=gateway) as s:
        await s.create(scenarios=[SAYS], judge=scorer_pb2.JudgeConfig(model="fake/judge"))
        chat.go.clear()
        sending = asyncio.ensure_future(s.submit(record.parts()))
        await asyncio.wait_for(chat.waiting.wait(), 60)
        s.process.send_signal(signal.SIGTERM)
        while await still_serving(s):
            await asyncio.sleep(0.01)
        s.process.send_signal(number)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await sending
        # The bridge sends again for these.
        assert ended.value.code() in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.CANCELLED,
        )
        await asyncio.wait_for(s.process.wait(), 60)
    chat.go.set()
    async with scorer(TAU2EVAL_SCORER_GATEWAY_ADDRESS=gateway) as s:
        verdict = await s.submit(record.parts())
        assert verdict.outcome == scorer_pb2.OUTCOME_PASSED
        assert list((await s.get()).verdicts) == [verdict]


async def still_serving(s):
    try:
        await s.runs.ListRuns(scorer_pb2.ListRunsRequest(), timeout=5)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_a_process_killed_while_records_come_stores_each_once(scorer, builder):
    names = [f"tau2_airline__{at}" for at in (7, 11, 14, 20, 23, 24)]
    records = [await builder.gold(name) for name in names]
    async with scorer() as s:
        await s.create(scenarios=names)
    for killed_after in (1, 3, None):
        async with scorer() as s:
            sending = [asyncio.ensure_future(s.submit(record.parts())) for record in records]
            if killed_after is None:
                verdicts = await asyncio.gather(*sending)
            else:
                folder = s.folder / "run-1"
                while len(list(folder.glob("*/metrics.json"))) < killed_after:
                    await asyncio.sleep(0.002)
                await s.kill()
                await asyncio.gather(*sending, return_exceptions=True)
            if killed_after is None:
                listed = await s.runs.ListAttempts(
                    scorer_pb2.ListAttemptsRequest(run_id="run-1"), timeout=30
                )
                assert sorted(a.scenario for a in listed.attempts) == sorted(names)
                assert {v.outcome for v in verdicts} == {scorer_pb2.OUTCOME_PASSED}
    for name in names:
        stored = json.loads((s.folder / "run-1" / name / "metrics.json").read_text())
        assert stored["scenario_name"] == name
    assert len(list((s.folder / "run-1").rglob("record.pb"))) == len(names)


async def test_what_was_claimed_by_nobody_stays_free(open_core):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (WRITES,), 1, {}))
        key = AttemptKey("run-1", WRITES, 0, "a")
        assert (await core.claim(key, "me", 600)).state == "granted"
    # Claims outlive the scorer.
    async with open_core() as core:
        other = AttemptKey("run-1", WRITES, 0, "b")
        assert (await core.claim(other, "you", 600)).state == "taken"
        await core.release(key)
        assert (await core.claim(other, "you", 600)).state == "granted"
