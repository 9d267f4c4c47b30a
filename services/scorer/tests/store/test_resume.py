"""Resuming runs: what is left to do, changed settings, late records."""

import asyncio
import json

import pytest

from tau2eval.scorer.v1 import record_pb2
from tau2eval_common.errors import FailedPrecondition, NotFound
from tau2eval_scorer.judge import JudgeSettings
from tau2eval_scorer.resume import changed_settings, resume_items
from tau2eval_scorer.store import Attempt, AttemptKey, Claim, Plan, Scoring

WRITES = "tau2_airline__11"
SAYS = "tau2_airline__1"
JUDGE = JudgeSettings(model="fake/judge")


async def stream(parts):
    for part in parts:
        yield part


def attempt(scenario, trial, attempt_id, outcome, kind="", counts=True):
    verdict = {"outcome": outcome, "not_run_kind": kind}
    key = AttemptKey("r", scenario, trial, attempt_id)
    return Attempt(key, 1, 1, Scoring(outcome, verdict, "{}", number=1), counts, "", True)


@pytest.mark.parametrize("judge", [JUDGE, JudgeSettings()])
def test_what_is_left_to_do(judge):
    plan = Plan("r", ("a", "b", "c", "d"), 2, {}, judge)
    attempts = [
        attempt("a", 0, "1", "passed"),
        attempt("a", 1, "1", "not_run", "cancelled", counts=False),
        attempt("a", 1, "2", "failed"),
        attempt("b", 0, "1", "not_run", "agent_lost"),
        attempt("b", 1, "1", "not_run", "judge_error"),
        attempt("c", 0, "1", "not_run", "judge_off"),
        # A call that is whole comes before a new one, also when a later attempt was lost.
        attempt("c", 1, "1", "not_run", "judge_error", counts=False),
        attempt("c", 1, "2", "not_run", "user_lost"),
    ]
    claims = {("d", 1): Claim("d", 1, "x", "host:7", 10.0)}
    items = resume_items(plan, attempts, claims)
    waits = "judge" if judge.enabled else "judge_off"
    assert [(item.scenario, item.trial, item.action) for item in items] == [
        ("a", 0, "keep"),
        ("a", 1, "keep"),
        ("b", 0, "run"),
        ("b", 1, waits),
        ("c", 0, waits),
        ("c", 1, waits),
        ("d", 0, "run"),
        ("d", 1, "run"),
    ]
    assert [item.holder for item in items] == [""] * 7 + ["host:7"]
    assert "host:7 holds it now" in items[-1].reason
    assert items[2].reason == "not run: agent_lost"


def test_changed_settings_by_dotted_names():
    before = {"a": 1, "b": {"c": [1], "d": {"e": None}}, "same": {"x": 1}, "n": 1}
    after = {"a": 2, "b": {"c": [1, 2], "d": {"e": None}, "f": "x"}, "same": {"x": 1}, "n": True}
    assert changed_settings(before, after) == [
        {"name": "a", "before": 1, "after": 2},
        {"name": "b.c", "before": [1], "after": [1, 2]},
        {"name": "b.f", "before": None, "after": "x"},
        {"name": "n", "before": 1, "after": True},
    ]
    assert changed_settings(before, before) == []


async def test_a_finished_run_goes_on(open_core, builder):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (WRITES, "tau2_airline__14"), 1, {"limit": {"s": 9}}))
        record = await builder.gold(WRITES)
        record.stop_reason = record_pb2.STOP_REASON_CANCELLED
        await core.submit(stream(record.parts()))
        late = await builder.gold("tau2_airline__14", attempt_id="late")
        await core.finish("run-1")
        with pytest.raises(FailedPrecondition) as refused:
            await core.submit(stream(late.parts()))
        assert refused.value.reason == "RUN_FINISHED"

        changed = {"limit": {"s": 10}, "api_key": "x"}
        with pytest.raises(FailedPrecondition, match=r"limit\.s was 9, is 10") as refused:
            await core.resume("run-1", changed, allow_mixed=False, preview=False)
        assert refused.value.reason == "SETTINGS_CHANGED"
        # A preview shows the same and changes nothing.
        run, items, changes = await core.resume("run-1", changed, False, preview=True)
        assert run.finished_at
        assert [item.action for item in items] == ["run", "run"]
        assert [change["name"] for change in changes] == ["api_key", "limit.s"]
        assert (await core.store.run("run-1")).finished_at
        assert not (await core.store.run("run-1")).resumes

        run, items, changes = await core.resume("run-1", None, False, False)
        assert (run.finished_at, changes) == ("", [])
        run, _, _ = await core.resume("run-1", {"limit": {"s": 10}}, True, False)
        _, late_attempt = await core.submit(stream(late.parts()))
        assert late_attempt.counts
        # The interrupted attempt is set aside by the one that is held again, never deleted.
        record.stop_reason, record.attempt_id = record_pb2.STOP_REASON_AGENT_EXIT, "attempt-2"
        await core.submit(stream(record.parts()))
        _, summary, text = await core.finish("run-1")
        folder = core.settings.artifacts_dir / "run-1"
        assert (folder / f"attempts/{WRITES}/trial_0/attempt-1/record.pb").is_file()
        assert json.loads((folder / WRITES / "metrics.json").read_text())["attempt_id"] == (
            "attempt-2"
        )
        assert summary["counts"]["passed"] == 2
        assert summary["mixed_settings"] is True
        assert [
            (change["name"], change["before"], change["after"])
            for resume in summary["resumes"]
            for change in resume["changes"]
        ] == [("limit.s", 9, 10)]
        assert "limit.s" in text
        _, items, _ = await core.resume("run-1", None, False, True)
        assert [item.action for item in items] == ["keep", "keep"]
        with pytest.raises(NotFound):
            await core.resume("none", None, False, True)


async def test_a_watcher_of_a_resumed_run_sees_what_changes(open_core, builder, chat):
    async with open_core() as core:
        await core.create_run(Plan("run-1", (SAYS,), 1, {}, JUDGE))
        chat.broken = True
        await core.submit(stream((await builder.gold(SAYS)).parts()))
        seen = []

        async def watch():
            async for _, found in core.watch("run-1"):
                seen.append((found.outcome, found.scoring.number))

        watching = asyncio.ensure_future(watch())
        while not seen:
            await asyncio.sleep(0.01)
        chat.broken = False
        assert [r.attempt.outcome async for r in core.score("run-1", None, (), True)] == ["passed"]
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        await core.finish("run-1")
        await asyncio.wait_for(watching, 60)
        assert seen == [("not_run", 1), ("passed", 2)]
