"""Scoring stored conversations again."""

import asyncio
import json

import pytest

from tau2eval.scorer.v1 import record_pb2
from tau2eval_common.errors import InvalidInput, NotFound, Unavailable
from tau2eval_scorer import rescoring
from tau2eval_scorer.judge import JudgeSettings
from tau2eval_scorer.store import AttemptKey, Plan

WRITES = "tau2_airline__11"
SAYS = "tau2_airline__1"
JUDGE = JudgeSettings(model="fake/judge")


async def stream(parts):
    for part in parts:
        yield part


async def again(core, judge=None, scenarios=(), only_unjudged=False):
    return [result async for result in core.score("run-1", judge, scenarios, only_unjudged)]


def told(results):
    return [
        (r.attempt.key.scenario, r.attempt.key.attempt_id, r.before, r.attempt.outcome, r.problem)
        for r in results
    ]


def file(core, path):
    return json.loads((core.settings.artifacts_dir / "run-1" / path).read_text())


async def test_a_judgement_that_failed_is_made_good_without_a_call(open_core, builder, chat):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (WRITES, SAYS), 1, {}, JUDGE))
        chat.broken = True
        await core.submit(stream((await builder.gold(WRITES)).parts()))
        _, failed = await core.submit(stream((await builder.gold(SAYS)).parts()))
        assert failed.verdict["not_run_kind"] == "judge_error"
        await core.finish("run-1")
        chat.broken, asked = False, len(chat.asked)
        results = await again(core, only_unjudged=True)
        assert told(results) == [(SAYS, "attempt-1", "not_run", "passed", "")]
        assert (results[0].total, results[0].done) == (1, 1)
        assert len(chat.asked) == asked + 1
        metrics = file(core, f"{SAYS}/metrics.json")
        assert (metrics["outcome"], metrics["scoring"]) == ("passed", 2)
        assert metrics == json.loads((await core.store.attempt(failed.key)).metrics_json)
        assert file(core, f"{SAYS}/judge_result.json")["status"] == "judged"
        assert file(core, f"{SAYS}/scorings/1/metrics.json")["not_run_kind"] == "judge_error"
        assert file(core, f"{SAYS}/scorings/1/judge_result.json")["status"] == "error"
        assert file(core, "all_metrics.json")["counts"]["passed"] == 2
        assert await again(core, only_unjudged=True) == []
        assert (await core.store.run("run-1")).finished_at


async def test_a_judgement_that_stands_is_kept_and_another_judge_is_asked(open_core, builder, chat):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (SAYS, WRITES), 1, {}, JUDGE))
        for name in (SAYS, WRITES):
            await core.submit(stream((await builder.gold(name)).parts()))
        asked = len(chat.asked)
        chat.passes = False  # Whoever asks again hears something else.
        results = await again(core)
        assert told(results) == [
            (SAYS, "attempt-1", "passed", "passed", ""),
            (WRITES, "attempt-1", "passed", "passed", ""),
        ]
        assert [r.done for r in results] == [1, 2]
        assert len(chat.asked) == asked
        other = JudgeSettings(model="fake/other")
        assert told(await again(core, other, (SAYS,))) == [
            (SAYS, "attempt-1", "passed", "failed", "")
        ]
        assert len(chat.asked) == asked + 1
        assert file(core, f"{SAYS}/judge_result.json")["model"] == "fake/other"
        assert file(core, f"{SAYS}/scorings/2/judge_result.json")["model"] == "fake/judge"
        # The plan's judge again: its own judgement stands still.
        assert told(await again(core, None, (SAYS,)))[0][3] == "passed"
        assert len(chat.asked) == asked + 1
        # Off by request: nothing is passed or failed where something had to be said.
        assert told(await again(core, JudgeSettings()))[0][3] == "not_run"
        assert (await core.store.counting("run-1", SAYS, 0)).verdict["not_run_kind"] == "judge_off"
        scorings = await core.store.scorings(await core.store.counting("run-1", SAYS, 0))
        assert [s.outcome for s in scorings] == ["passed", "passed", "failed", "passed", "not_run"]
        for number, scoring in enumerate(scorings[:-1], start=1):
            kept = file(core, f"{SAYS}/scorings/{number}/metrics.json")
            assert kept == json.loads(scoring.metrics_json)
            assert kept["scoring"] == number
        with pytest.raises(InvalidInput):
            await again(core, None, ("tau2_airline__2",))
        with pytest.raises(NotFound):
            await anext(core.score("none", None, (), False))


async def test_a_judge_that_fails_takes_no_score_away(open_core, builder, chat):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (SAYS,), 1, {}, JUDGE))
        _, before = await core.submit(stream((await builder.gold(SAYS)).parts()))
        chat.broken = True
        (result,) = await again(core, JudgeSettings(model="fake/other"))
        assert result.attempt.outcome == "passed"
        assert "judge_error" in result.problem
        assert await core.store.attempt(before.key) == before
        assert not (core.settings.artifacts_dir / "run-1" / SAYS / "scorings").exists()


async def test_a_run_without_a_judge_keeps_the_scores_that_another_gave(open_core, builder, chat):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (SAYS, WRITES), 1, {}))
        for name in (SAYS, WRITES):
            await core.submit(stream((await builder.gold(name)).parts()))
        assert [r.attempt.outcome for r in await again(core, JUDGE)] == ["passed", "passed"]
        says, writes = await again(core)
        assert (says.before, says.attempt.outcome, says.attempt.scoring.number) == (
            "passed",
            "passed",
            2,
        )
        assert "judge_off" in says.problem
        assert (writes.problem, writes.attempt.scoring.number) == ("", 3)
        assert file(core, f"{SAYS}/metrics.json")["outcome"] == "passed"
        assert file(core, "all_metrics.json")["counts"]["passed"] == 2


async def test_a_record_that_cannot_be_read_is_told_and_its_verdict_stands(
    open_core, builder, tmp_path
):
    async with open_core() as core:
        names = (WRITES, "tau2_airline__14", "tau2_airline__20")
        await core.create_run(Plan("run-1", names, 1, {}))
        for name in names:
            await core.submit(stream((await builder.gold(name)).parts()))
        folder = tmp_path / "runs" / "run-1"
        stored = folder / WRITES / "record.pb"
        stored.write_bytes(stored.read_bytes()[:-5])
        other = (folder / "tau2_airline__20" / "record.pb").read_bytes()
        (folder / "tau2_airline__14" / "record.pb").write_bytes(other)
        (folder / "tau2_airline__20" / "record.pb").unlink()
        results = await again(core)
        assert [r.attempt.outcome for r in results] == ["passed"] * 3
        assert [r.attempt.scoring.number for r in results] == [1] * 3
        assert "stored record" in results[0].problem
        assert "another attempt" in results[1].problem
        assert "cannot be scored again" in results[2].problem


async def test_an_older_attempt_comes_to_count_and_a_score_stays(open_core, builder, chat):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (SAYS,), 2, {}, JUDGE))
        chat.broken = True
        for trial in (0, 1):
            record = await builder.gold(SAYS, trial=trial, attempt_id="whole")
            await core.submit(stream(record.parts()))
            record.attempt_id, record.stop_reason = "lost", record_pb2.STOP_REASON_USER_LOST
            await core.submit(stream(record.parts()))
        chat.broken = False
        record = await builder.gold(SAYS, trial=1, attempt_id="third")
        await core.submit(stream(record.parts()))
        assert (await core.store.counting("run-1", SAYS, 0)).key.attempt_id == "lost"
        assert (await core.store.counting("run-1", SAYS, 1)).key.attempt_id == "third"
        # Where there is a score nobody is asked again.
        results = await again(core, only_unjudged=True)
        assert told(results) == [(SAYS, "whole", "not_run", "passed", "")]
        assert results[0].attempt.counts
        assert file(core, f"{SAYS}/trial_0/metrics.json")["attempt_id"] == "whole"
        assert file(core, f"attempts/{SAYS}/trial_0/lost/metrics.json")["attempt_id"] == "lost"
        # All of them: the score that counts stays, whatever others come to have one.
        results = await again(core)
        assert [(r.attempt.key.trial, r.attempt.key.attempt_id) for r in results] == [
            (0, "whole"),
            (1, "whole"),
            (1, "third"),
        ]
        assert (await core.store.counting("run-1", SAYS, 1)).key.attempt_id == "third"
        assert file(core, f"{SAYS}/trial_1/metrics.json")["attempt_id"] == "third"
        whole = file(core, f"attempts/{SAYS}/trial_1/whole/metrics.json")
        assert (whole["outcome"], whole["scoring"]) == ("passed", 2)


async def test_several_are_judged_at_once_and_told_in_order(open_core, builder, chat):
    names = tuple(f"tau2_airline__{at}" for at in (0, 1, 2, 3, 5, 6))
    async with open_core() as core:
        await core.create_run(Plan("run-1", names, 1, {}))
        for name in names:
            await core.submit(stream((await builder.gold(name)).parts()))
        chat.go.clear()
        scoring = asyncio.ensure_future(again(core, JUDGE))
        while len(chat.asked) < rescoring.PARALLEL:
            await asyncio.sleep(0.01)
        # A record is taken meanwhile: nothing is held while a judge thinks.
        await core.create_run(Plan("run-2", (WRITES,), 1, {}))
        record = await builder.gold(WRITES, run_id="run-2")
        await core.submit(stream(record.parts()))
        late = await builder.gold(names[0], attempt_id="late")
        await core.submit(stream(late.parts()))
        assert len(chat.asked) == rescoring.PARALLEL
        chat.go.set()
        results = await scoring
        assert [r.attempt.key.scenario for r in results] == list(names)
        assert [r.done for r in results] == [1, 2, 3, 4, 5, 6]


async def test_who_stops_half_way_keeps_what_is_done(open_core, builder, chat):
    names = (SAYS, "tau2_airline__0", "tau2_airline__2")
    async with open_core() as core:
        await core.create_run(Plan("run-1", names, 1, {}))
        for name in names:
            await core.submit(stream((await builder.gold(name)).parts()))
        results = core.score("run-1", JUDGE, (), False)
        assert (await anext(results)).attempt.outcome == "passed"
        await results.aclose()
        assert file(core, f"{SAYS}/metrics.json")["outcome"] == "passed"
        counts = file(core, "all_metrics.json")["counts"]
        assert counts["passed"] == sum(a.scored for a in await core.store.verdicts("run-1"))
        assert await core.store.runs_unplaced() == []
        # An ending process stops between two conversations.
        results = core.score("run-1", JUDGE, (), False)
        await anext(results)
        core.drain()
        with pytest.raises(Unavailable, match="1 of 3"):
            await anext(results)


async def test_an_attempts_own_files_can_be_had(open_core, builder):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (WRITES,), 1, {}))
        record = await builder.gold(WRITES)
        await core.submit(stream(record.parts()))
        record.attempt_id = "attempt-2"
        await core.submit(stream(record.parts()))
        for attempt_id, path in (
            ("", WRITES),
            ("attempt-1", WRITES),
            ("attempt-2", f"attempts/{WRITES}/trial_0/attempt-2"),
        ):
            files = await core.files.files("run-1", WRITES, 0, attempt_id)
            assert f"{path}/metrics.json" in [file.path for file in files]
            assert all(file.path.startswith(f"{path}/") for file in files)
        with pytest.raises(NotFound):
            await core.files.files("run-1", WRITES, 0, "../attempt-1")
        with pytest.raises(NotFound):
            await core.files.files("run-1", "..", 0)
        assert await core.store.attempt(AttemptKey("run-1", WRITES, 0, "attempt-3")) is None
