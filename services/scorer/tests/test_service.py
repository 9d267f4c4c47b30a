"""The scorer as a process, over gRPC: verdicts, idempotence, restart, watching, artifacts."""

import asyncio
import json
import wave
from pathlib import Path

import aiohttp
import grpc
import pytest

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval_airline import (
    SEED_DB_HASH,
    ChangedRecord,
    apply_changes,
    get_scenario,
    load_seed,
)
from tau2eval_common.errors import error_info

ROGUE = ("cancel_reservation", {"reservation_id": "EHGLP3"})


async def refused(call, code, reason=None):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is code, caught.value.details()
    if reason:
        assert error_info(caught.value).reason == reason
    return caught.value.details()


def nothing_stored(folder: Path):
    """No attempt's file lies anywhere, spooled ones included."""
    return not [p for p in folder.rglob("*") if p.name in ("record.pb", "metrics.json")]


async def test_gold_passes_and_its_artifacts_are_whole(scorer, builder):
    record = await builder.gold()
    async with scorer() as s:
        await s.create(agent_model="scripted/gold", api_key="hush")
        verdict = await s.submit(record.parts())
        assert verdict.outcome == scorer_pb2.OUTCOME_PASSED, verdict.explanation
        assert list(verdict.success_breakdown.passed) == ["DB_STATE_MATCH", "CLEAN_EXIT"]
        assert list(verdict.success_breakdown.excluded) == ["ACTION_MATCH"]
        assert verdict.fully_judged
        assert verdict.stop_reason == record_pb2.STOP_REASON_AGENT_EXIT
        metrics = json.loads(verdict.metrics_json)
        assert metrics["db_state_match_how"] == "exact"
        assert metrics["is_action_match"] is True
        assert metrics["latency_stats"]["count"] == 1
        assert metrics["latencies"][0]["latency_ms"] == 1250
        assert metrics["latencies"][0]["user_transcript"] == "My reservation is GV1N64."
        usage = metrics["token_usage"]["agent"]
        assert (usage["n_calls"], usage["prompt"], usage["completion"]) == (2, 150, 15)
        assert (usage["cost_usd"], usage["unpriced_calls"]) == (0.25, 1)
        heard = metrics["speech_accuracy"]["agent_heard_user"]
        assert heard["identifiers"] == 1
        assert heard["exact_identifiers"] == 0  # N was heard as "and".
        assert heard["identifier_errors"] == 1
        assert heard["ordinary_wer"] == 0
        assert metrics["speech_accuracy"]["user_heard_agent"]["ordinary_wer"] == 0
        folder = s.folder / "run-1" / "tau2_airline__11"
        assert verdict.artifacts_path == "tau2_airline__11"
        assert json.loads((folder / "metrics.json").read_text()) == metrics
        with wave.open(str(folder / "conversation_log.wav")) as wav:
            assert (wav.getnchannels(), wav.getframerate(), wav.getsampwidth()) == (2, 8000, 2)
            sound = b"".join(part.audio for part in record.parts())
            assert wav.readframes(wav.getnframes()) == sound
        assert SEED_DB_HASH not in (folder / "final_scenario_db_hash.txt").read_text()
        on_disk = {
            path.relative_to(s.folder / "run-1").as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        assert await s.artifacts(scenario="tau2_airline__11") == on_disk
        assert set(on_disk) == {
            f"tau2_airline__11/{name}"
            for name in (
                "metrics.json",
                "record.pb",
                "conversation_log.wav",
                "conversation_log.txt",
                "conversation_log.seglst.json",
                "events.jsonl",
                "db_diff.json",
                "final_agent_response.json",
                "final_scenario_db_hash.txt",
                "bot_logs_agent/llm_context.json",
                "bot_logs_user/llm_context.json",
                "scenario_config/metadata.json",
                "scenario_config/reference_answer.json",
                "scenario_config/agent_prompt.txt",
                "scenario_config/user_prompt.txt",
                "scenario_config/agent_tools.json",
                "scenario_config/user_tools.json",
            )
        }
        finished = await s.finish()
        run_files = await s.artifacts()
        assert set(run_files) == {
            "run_args.json",
            "all_metrics.json",
            "all_summary.txt",
            "all_latencies.csv",
        }
        assert run_files["all_summary.txt"].decode() == finished.summary_text
        assert json.loads(run_files["all_metrics.json"]) == json.loads(finished.summary_json)
        assert b"hush" not in b"".join(run_files.values())
        assert run_files["all_latencies.csv"].decode().splitlines() == [
            "Scenario,User_Transcript,Agent_Transcript,Latency_ms",
            'tau2_airline__11,My reservation is GV1N64.,"Done, goodbye.",1250.0',
        ]
        assert "Overall Success Rate: 100.0 % (1/1)" in finished.summary_text


async def test_payments_in_another_order_pass_and_the_record_says_so(scorer, builder):
    name = "tau2_airline__14"
    record = await builder.gold(name)
    expected = get_scenario(name).expected_scenario_db
    changes = []
    for change in expected.changed_records():
        if change.key == "HATHAT":
            change.record["payment_history"].reverse()
        changes.append(change)
    for stored in record.agent.changed_records:
        if stored.key == "HATHAT":
            stored.record_json = json.dumps(
                next(change.record for change in changes if change.key == "HATHAT")
            )
    record.agent.db_hash = apply_changes(load_seed(), changes).hash()
    assert record.agent.db_hash != expected.hash()
    async with scorer() as s:
        await s.create(scenarios=[name])
        verdict = await s.submit(record.parts())
        assert verdict.outcome == scorer_pb2.OUTCOME_PASSED, verdict.explanation
        metrics = json.loads(verdict.metrics_json)
        assert metrics["db_state_match"] is True
        assert metrics["db_state_match_how"] == "payment_order"
        assert metrics["db_differences_total"] > 0


async def test_failures_and_what_is_not_run(scorer, builder):
    changed, said = "tau2_airline__7", "tau2_airline__1"
    names = ["tau2_airline__11", changed, said, "tau2_airline__14", "tau2_airline__41"]
    async with scorer() as s:
        await s.create(scenarios=names)
        rogue = await builder.gold(changed, calls=[ROGUE])
        verdict = await s.submit(rogue.parts())
        assert verdict.outcome == scorer_pb2.OUTCOME_FAILED
        assert list(verdict.success_breakdown.failed) == ["DB_STATE_MATCH"]
        metrics = json.loads(verdict.metrics_json)
        assert metrics["is_action_match"] is False
        assert "EHGLP3" in [difference["key"] for difference in metrics["db_differences"]]

        unjudged = await builder.gold(said)
        verdict = await s.submit(unjudged.parts())
        assert (verdict.outcome, verdict.not_run_kind) == (
            scorer_pb2.OUTCOME_NOT_RUN,
            "judge_off",
        )
        assert list(verdict.success_breakdown.passed) == ["DB_STATE_MATCH", "CLEAN_EXIT"]
        assert not verdict.fully_judged
        assert not verdict.judge_result_json

        lost = await builder.gold()
        lost.agent = None
        lost.stop_reason = record_pb2.STOP_REASON_AGENT_LOST
        verdict = await s.submit(lost.parts())
        assert (verdict.outcome, verdict.not_run_kind) == (
            scorer_pb2.OUTCOME_NOT_RUN,
            "agent_lost",
        )
        assert not verdict.success_breakdown.passed
        assert not verdict.success_breakdown.failed
        assert json.loads(verdict.metrics_json)["db_state_match"] is None

        silent = await builder.gold("tau2_airline__14")
        silent.agent.db_hash = ""
        verdict = await s.submit(silent.parts())
        assert verdict.outcome == scorer_pb2.OUTCOME_FAILED
        assert "no database hash" in verdict.explanation

        liar = await builder.gold("tau2_airline__41", calls=[ROGUE])
        liar.agent.db_hash = get_scenario("tau2_airline__41").expected_db_hash
        verdict = await s.submit(liar.parts())
        assert (verdict.outcome, verdict.not_run_kind) == (
            scorer_pb2.OUTCOME_NOT_RUN,
            "harness_error",
        )
        summary = json.loads((await s.get()).summary_json)
        assert summary["counts"] == {
            "planned": 5,
            "passed": 0,
            "failed": 2,
            "not_run": 3,
            "missing": 0,
        }
        rate = summary["success_rate"]
        assert (rate["passed"], rate["of"], rate["rate"]) == (0, 2, 0.0)
        assert summary["success_rate_with_agent_faults_failed"]["of"] == 4
        assert summary["not_run_kinds"] == {"agent_lost": 1, "harness_error": 1, "judge_off": 1}
        assert summary["not_fully_judged"] == []


async def test_text_that_is_no_unicode_does_not_spoil_a_run(scorer, builder):
    record = await builder.gold()
    changes = record.agent.changed_records
    change = changes[0]
    change.record_json = json.dumps({**json.loads(change.record_json), "x\ud800": "\ud800"})
    record.agent.db_hash = apply_changes(
        get_scenario(record.scenario).db,
        [
            ChangedRecord(
                item.table,
                item.key,
                json.loads(item.record_json),
                tuple(item.payment_operation_sizes),
            )
            for item in changes
        ],
    ).hash()
    async with scorer() as s:
        await s.create()
        verdict = await s.submit(record.parts())
        assert verdict.outcome == scorer_pb2.OUTCOME_FAILED
        assert "x?" in verdict.explanation
        assert list((await s.get()).verdicts) == [verdict]
        await s.finish()


async def test_too_few_agent_turns_fail_the_composite_and_skip_the_rates(scorer, builder):
    record = await builder.gold()
    record.turns[-1].text = " "
    async with scorer() as s:
        await s.create()
        verdict = await s.submit(record.parts())
        assert verdict.outcome == scorer_pb2.OUTCOME_FAILED
        assert not verdict.success_breakdown.failed
        metrics = json.loads(verdict.metrics_json)
        assert metrics["insufficient_agent_turns"] is True
        assert metrics["is_successful"] is False
        summary = json.loads((await s.get()).summary_json)
        assert summary["success_rate"]["of"] == 1
        assert summary["signals"] == {}


async def test_a_score_counts_for_good_and_not_run_may_be_tried_again(scorer, builder):
    async with scorer() as s:
        await s.create(trials=2)
        record = await builder.gold(trial=1, attempt_id="a1")
        record.stop_reason = record_pb2.STOP_REASON_USER_LOST
        first = await s.submit(record.parts())
        place = s.folder / "run-1" / "tau2_airline__11" / "trial_1"
        assert first.artifacts_path == "tau2_airline__11/trial_1"
        assert json.loads((place / "metrics.json").read_text())["attempt_id"] == "a1"

        record.attempt_id, record.stop_reason = "a2", record_pb2.STOP_REASON_TIMEOUT
        second = await s.submit(record.parts())
        assert second.outcome == scorer_pb2.OUTCOME_FAILED
        assert json.loads((place / "metrics.json").read_text())["attempt_id"] == "a2"
        aside = s.folder / "run-1" / "attempts" / "tau2_airline__11" / "trial_1"
        assert (aside / "a1" / "conversation_log.wav").is_file()

        for attempt, reason in (
            ("a3", record_pb2.STOP_REASON_CANCELLED),
            ("a4", record_pb2.STOP_REASON_AGENT_EXIT),
        ):
            record.attempt_id, record.stop_reason = attempt, reason
            later = await s.submit(record.parts())
            assert later.artifacts_path == f"attempts/tau2_airline__11/trial_1/{attempt}"
            assert (s.folder / "run-1" / later.artifacts_path / "metrics.json").is_file()
        verdicts = (await s.get()).verdicts
        assert [verdict.attempt_id for verdict in verdicts] == ["a2"]
        # The first attempt again: its own verdict, and nothing changes.
        record.attempt_id = "a1"
        again = await s.submit(record.parts())
        assert again.not_run_kind == "user_lost"
        assert again.artifacts_path == "attempts/tau2_airline__11/trial_1/a1"
        assert [verdict.attempt_id for verdict in (await s.get()).verdicts] == ["a2"]


async def test_malformed_records_store_nothing(scorer, builder):
    record = await builder.gold()
    whole = list(record.parts())
    header, footer = whole[0], whole[-1]

    def changed(part, **fields):
        copy = record_pb2.RecordPart()
        copy.CopyFrom(part)
        inner = copy.header if copy.HasField("header") else copy.footer
        for name, value in fields.items():
            setattr(inner, name, value)
        return copy

    bad_turn = changed(footer)
    bad_turn.footer.turns[0].response_latency_seconds = float("nan")
    streams = {
        "empty": [],
        "cut off": whole[:-1],
        "no header": whole[1:],
        "two headers": [header, *whole],
        "after the footer": [*whole, whole[1]],
        "empty part": [header, record_pb2.RecordPart(), footer],
        "newer": [changed(header, format_version=2), footer],
        "no version": [changed(header, format_version=0), footer],
        "half a frame": [header, record_pb2.RecordPart(audio=b"abc"), footer],
        "negative": [header, changed(footer, duration_seconds=-1.0)],
        "nan": [header, bad_turn],
        "no stop reason": [header, changed(footer, stop_reason=0)],
        "unknown stop reason": [header, changed(footer, stop_reason=99)],
        "settings": [changed(header, settings_json="[1]"), footer],
        "nan in settings": [changed(header, settings_json='{"a": NaN}'), footer],
        "traversal": [changed(header, attempt_id="../../x"), footer],
        "not planned": [changed(header, scenario="tau2_airline__12"), footer],
        "trial": [changed(header, trial=1), footer],
        "no modality": [changed(header, modality=0), footer],
    }
    async with scorer() as s:
        await s.create()
        for label, parts in streams.items():
            print(label)
            await refused(s.submit(parts), grpc.StatusCode.INVALID_ARGUMENT)
        unknown = [changed(header, run_id="other"), footer]
        await refused(s.submit(unknown), grpc.StatusCode.NOT_FOUND, "NO_SUCH_RUN")
        assert not (await s.get()).verdicts
        assert nothing_stored(s.folder)
        assert (await s.submit(whole)).outcome == scorer_pb2.OUTCOME_PASSED


async def test_a_client_that_goes_away_stores_nothing(scorer, builder):
    record = await builder.gold()
    async with scorer() as s:
        await s.create()
        call = s.runs.SubmitConversation(timeout=30)
        for part in list(record.parts())[:-1]:
            await call.write(scorer_pb2.SubmitConversationRequest(part=part))
        call.cancel()
        # The scorer still answers, and the same attempt can be sent whole.
        assert (await s.submit(record.parts())).outcome == scorer_pb2.OUTCOME_PASSED
        assert len((await s.get()).verdicts) == 1


async def test_bounds(scorer, builder):
    record = await builder.gold()
    record.audio_seconds = 2
    async with scorer(
        TAU2EVAL_SCORER_MAX_RECORD_BYTES="40000", TAU2EVAL_SCORER_PART_TIMEOUT_SECONDS="0.5"
    ) as s:
        await s.create()
        await refused(
            s.submit(record.parts()), grpc.StatusCode.RESOURCE_EXHAUSTED, "RECORD_TOO_LARGE"
        )
        call = s.runs.SubmitConversation(timeout=30)
        await call.write(scorer_pb2.SubmitConversationRequest(part=next(record.parts())))
        await refused(call, grpc.StatusCode.DEADLINE_EXCEEDED, "RECORD_STALLED")
        assert nothing_stored(s.folder)


async def test_a_killed_scorer_has_lost_nothing(scorer, builder):
    record = await builder.gold()
    async with scorer() as s:
        await s.create()
        verdict = await s.submit(record.parts())
        await s.kill()
    async with scorer() as s:
        run = await s.get()
        assert list(run.verdicts) == [verdict]
        assert await s.submit(record.parts()) == verdict
        assert (s.folder / "run-1" / "tau2_airline__11" / "metrics.json").is_file()


async def test_watching_a_run(scorer, builder):
    async with scorer() as s:
        await s.create(scenarios=["tau2_airline__11", "tau2_airline__14"])
        first = await s.submit((await builder.gold()).parts())
        seen = []

        async def watch():
            async for message in s.runs.WatchRun(
                scorer_pb2.WatchRunRequest(run_id="run-1"), timeout=60
            ):
                seen.append(message.verdict)

        watching = asyncio.ensure_future(watch())
        second = await s.submit((await builder.gold("tau2_airline__14")).parts())
        await s.finish()
        await asyncio.wait_for(watching, 30)
        assert seen == [first, second]
        again = [
            message.verdict
            async for message in s.runs.WatchRun(
                scorer_pb2.WatchRunRequest(run_id="run-1"), timeout=30
            )
        ]
        assert again == [first, second]
        late = await builder.gold("tau2_airline__14", attempt_id="late")
        await refused(s.submit(late.parts()), grpc.StatusCode.FAILED_PRECONDITION, "RUN_FINISHED")
        # What is stored already is answered also after the end.
        assert await s.submit((await builder.gold()).parts()) == first


async def test_eight_records_at_once(scorer, builder):
    names = [f"tau2_airline__{at}" for at in (7, 11, 14, 20, 23, 24, 25, 39)]
    records = [await builder.gold(name) for name in names]
    async with scorer() as s:
        await s.create(scenarios=names)
        verdicts = await asyncio.gather(
            *(s.submit(record.parts()) for record in records),
            # The same attempt twice at once is one attempt.
            s.submit(records[0].parts()),
        )
        assert {verdict.outcome for verdict in verdicts} == {scorer_pb2.OUTCOME_PASSED}
        assert verdicts[0] == verdicts[-1]
        run = await s.get()
        assert sorted(verdict.scenario for verdict in run.verdicts) == sorted(names)
        assert json.loads(run.summary_json)["counts"]["passed"] == 8
        assert not list((s.folder / ".incoming").iterdir())


async def test_runs_are_created_once_and_compared(scorer, builder):
    async with scorer() as s:
        names = ["tau2_airline__11", "tau2_airline__14"]
        first = await s.create("a", names, note="x")
        assert await s.create("a", names, note="x") == first
        await refused(s.create("a", names, note="y"), grpc.StatusCode.ALREADY_EXISTS)
        await refused(s.create("../a", names), grpc.StatusCode.INVALID_ARGUMENT, "BAD_NAME")
        await refused(s.create("c", []), grpc.StatusCode.INVALID_ARGUMENT)
        await refused(s.create("c", [names[0]] * 2), grpc.StatusCode.INVALID_ARGUMENT)
        details = await refused(
            s.create("c", ["tau2_airline__111"]), grpc.StatusCode.INVALID_ARGUMENT
        )
        assert "tau2_airline__11" in details
        await s.create("b", names)
        for run_id, reason in (
            ("a", record_pb2.STOP_REASON_AGENT_EXIT),
            ("b", record_pb2.STOP_REASON_TIMEOUT),
        ):
            record = await builder.gold(run_id=run_id)
            record.stop_reason = reason
            await s.submit(record.parts())
        paired = await s.runs.CompareRuns(
            scorer_pb2.CompareRunsRequest(run_id_a="a", run_id_b="b"), timeout=30
        )
        assert (paired.only_a_passed, paired.not_comparable, len(paired.pairs)) == (1, 1, 2)
        listed = await s.runs.ListRuns(scorer_pb2.ListRunsRequest(), timeout=30)
        assert {(run.run_id, run.planned, run.passed, run.failed) for run in listed.runs} == {
            ("a", 2, 1, 0),
            ("b", 2, 0, 1),
        }
        await refused(s.get("none"), grpc.StatusCode.NOT_FOUND)
        await refused(s.finish("none"), grpc.StatusCode.NOT_FOUND)
        await refused(s.artifacts("a", "tau2_airline__14"), grpc.StatusCode.NOT_FOUND)
        await refused(s.artifacts("a", "../.store"), grpc.StatusCode.NOT_FOUND)


async def test_pages_are_written_and_served(scorer, builder):
    async with scorer() as s:
        await s.create(scenarios=["tau2_airline__11", "tau2_airline__14"])
        await s.submit((await builder.gold()).parts())
        written = await s.runs.RenderReport(
            scorer_pb2.RenderReportRequest(run_id="run-1"), timeout=60
        )
        assert (written.path, written.pages) == ("report.html", 2)
        page = (s.folder / "run-1" / "report.html").read_text()
        assert (await s.artifacts())["report.html"].decode() == page
        own = await s.artifacts(scenario="tau2_airline__11")
        assert "tau2_airline__11/report.html" in own
        base = f"http://{s.addresses['http']}/runs/run-1"
        async with aiohttp.ClientSession(trust_env=False) as client:
            async with client.get(f"{base}/report.html") as response:
                assert (response.status, await response.text()) == (200, page)
            async with client.get(f"{base}/tau2_airline__11/conversation_log.wav") as response:
                assert await response.read() == own["tau2_airline__11/conversation_log.wav"]
            async with client.get(f"{base}/tau2_airline__14/report.html") as response:
                assert response.status == 404
        await refused(
            s.runs.RenderReport(scorer_pb2.RenderReportRequest(run_id="none"), timeout=30),
            grpc.StatusCode.NOT_FOUND,
            "NO_SUCH_RUN",
        )


async def test_claims_resuming_and_scoring_again_over_the_wire(scorer, builder):
    async with scorer() as s:
        names = ["tau2_airline__11", "tau2_airline__1"]
        judge = scorer_pb2.JudgeConfig(model="m/judge", votes=3, threshold=0.5)
        created = await s.create(scenarios=names, judge=judge, limit={"seconds": 9})
        assert created.plan.judge.model == "m/judge"
        assert (created.plan.judge.votes, created.plan.judge.threshold) == (3, 0.5)
        await refused(
            s.create(scenarios=names, limit={"seconds": 9}), grpc.StatusCode.ALREADY_EXISTS
        )
        judge.votes = 2
        await refused(s.create("run-2", judge=judge), grpc.StatusCode.INVALID_ARGUMENT, "BAD_JUDGE")

        async def claim(attempt_id, scenario=names[0], lease=30.0, trial=0):
            return await s.runs.ClaimTrial(
                scorer_pb2.ClaimTrialRequest(
                    run_id="run-1",
                    scenario=scenario,
                    trial=trial,
                    attempt_id=attempt_id,
                    holder="host:1",
                    lease_seconds=lease,
                ),
                timeout=30,
            )

        assert (await claim("a")).state == scorer_pb2.CLAIM_STATE_GRANTED
        taken = await claim("b")
        assert (taken.state, taken.holder) == (scorer_pb2.CLAIM_STATE_TAKEN, "host:1")
        assert 0 < taken.expires_in_seconds <= 30
        await s.runs.ReleaseTrial(
            scorer_pb2.ReleaseTrialRequest(
                run_id="run-1", scenario=names[0], attempt_id="a", trial=0
            ),
            timeout=30,
        )
        assert (await claim("b")).state == scorer_pb2.CLAIM_STATE_GRANTED
        for wrong in ({"lease": 0.0}, {"lease": 601.0}, {"trial": 1}, {"scenario": "none"}):
            await refused(claim("c", **wrong), grpc.StatusCode.INVALID_ARGUMENT)
        await refused(claim("../c"), grpc.StatusCode.INVALID_ARGUMENT, "BAD_NAME")

        async def resume(**fields):
            return await s.runs.ResumeRun(
                scorer_pb2.ResumeRunRequest(run_id="run-1", **fields), timeout=30
            )

        previewed = await resume(preview=True)
        assert [(item.action, item.holder) for item in previewed.items] == [
            (scorer_pb2.RESUME_ACTION_RUN, "host:1"),
            (scorer_pb2.RESUME_ACTION_RUN, ""),
        ]
        await s.submit((await builder.gold()).parts())
        assert (await claim("b")).state == scorer_pb2.CLAIM_STATE_SCORED
        # There is no gateway here, so the judge fails; the call is whole.
        failed = await s.submit((await builder.gold(names[1])).parts())
        assert failed.not_run_kind == "judge_error"
        assert json.loads(failed.judge_result_json)["status"] == "error"
        assert (failed.scoring, failed.counts) == (1, True)
        await s.finish()
        other = {"settings_json": '{"limit": {"seconds": 10}}'}
        details = await refused(
            resume(**other), grpc.StatusCode.FAILED_PRECONDITION, "SETTINGS_CHANGED"
        )
        assert "limit.seconds was 9, is 10" in details
        resumed = await resume(allow_mixed=True, **other)
        assert [item.action for item in resumed.items] == [
            scorer_pb2.RESUME_ACTION_KEEP,
            scorer_pb2.RESUME_ACTION_JUDGE,
        ]
        (change,) = resumed.changes
        assert (change.name, change.before_json, change.after_json) == ("limit.seconds", "9", "10")
        assert not (await s.get()).finished_at

        async def score(**fields):
            request = scorer_pb2.ScoreRunRequest(run_id="run-1", **fields)
            return [response async for response in s.runs.ScoreRun(request, timeout=60)]

        off = await score(judge=scorer_pb2.JudgeConfig())
        assert [(r.verdict.scenario, r.done, r.total, r.problem) for r in off] == [
            (names[0], 1, 2, ""),
            (names[1], 2, 2, ""),
        ]
        assert [r.verdict.scoring for r in off] == [2, 2]
        assert off[0].outcome_before == off[0].verdict.outcome == scorer_pb2.OUTCOME_PASSED
        assert off[1].verdict.not_run_kind == "judge_off"
        assert not off[1].verdict.judge_result_json
        listed = await s.runs.ListAttempts(
            scorer_pb2.ListAttemptsRequest(run_id="run-1"), timeout=30
        )
        assert list(listed.attempts) == [r.verdict for r in off]
        await refused(
            s.runs.ListAttempts(scorer_pb2.ListAttemptsRequest(run_id="none"), timeout=30),
            grpc.StatusCode.NOT_FOUND,
        )
        await refused(score(scenarios=["none"]), grpc.StatusCode.INVALID_ARGUMENT, "NOT_PLANNED")
        assert await s.artifacts(scenario=names[0], attempt_id="attempt-1")


async def test_waiting_calls_end_when_the_scorer_is_told_to(scorer):
    async with scorer() as s:
        await s.create()
        watching = s.runs.WatchRun(scorer_pb2.WatchRunRequest(run_id="run-1"), timeout=250)
        waiting = asyncio.ensure_future(refused(watching.read(), grpc.StatusCode.UNAVAILABLE))
        await s.get()
        s.process.terminate()
        await waiting
        assert await asyncio.wait_for(s.process.wait(), 60) == 0


async def test_scenarios(scorer):
    async with scorer() as s:
        listed = await s.scenarios.ListScenarios(scorer_pb2.ListScenariosRequest(), timeout=30)
        assert len(listed.scenarios) == 50
        assert listed.scenarios[11].name == "tau2_airline__11"
        none = await s.scenarios.ListScenarios(
            scorer_pb2.ListScenariosRequest(domain="tau2_air"), timeout=30
        )
        assert not none.scenarios
        scenario = await s.scenarios.GetScenario(
            scorer_pb2.GetScenarioRequest(name="tau2_airline__39"), timeout=30
        )
        assert scenario.expected_db_hash.startswith("a0787f6a5bb645de")
        assert scenario.seed_db_hash == SEED_DB_HASH
        assert list(scenario.success_signals) == ["DB_STATE_MATCH", "CLEAN_EXIT"]
        assert len(json.loads(scenario.reference_answer_json)["actions"]) == 2
        assert len(scenario.agent_tool_names) == 15
        details = await refused(
            s.scenarios.GetScenario(
                scorer_pb2.GetScenarioRequest(name="tau2_airline__50"), timeout=30
            ),
            grpc.StatusCode.NOT_FOUND,
        )
        assert "did you mean" in details
