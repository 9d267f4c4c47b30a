"""Two scorers on one store and one folder."""

import asyncio
import json

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval_scorer.judge import JudgeSettings
from tau2eval_scorer.store import AttemptKey, Plan

WRITES = "tau2_airline__11"
SAYS = "tau2_airline__1"


async def stream(parts):
    for part in parts:
        yield part


def attempt_in(path):
    return json.loads((path / "metrics.json").read_text())["attempt_id"]


async def test_records_of_one_trial_at_both(open_core, database_url, builder, tmp_path):
    async with (
        open_core(database_url=database_url) as one,
        open_core(database_url=database_url) as two,
    ):
        for number in range(4):
            run_id = f"run-{number}"
            plan = Plan(run_id, (WRITES,), 2, {})
            await asyncio.gather(one.create_run(plan), two.create_run(plan))
            records = []
            for at in range(3):
                record = await builder.gold(WRITES, run_id=run_id, attempt_id=f"a{at}")
                if at == 2:
                    record.stop_reason = record_pb2.STOP_REASON_USER_LOST
                records.append(record)
            # Each attempt is sent to both.
            results = await asyncio.gather(
                *(core.submit(stream(record.parts())) for record in records for core in (one, two))
            )
            assert len({attempt.row for _, attempt in results}) == 3
            attempts = await two.store.attempts(run_id)
            assert len(attempts) == 3
            (counting,) = [attempt for attempt in attempts if attempt.counts]
            assert counting.outcome == "passed"
            folder = tmp_path / "runs" / run_id
            assert attempt_in(folder / WRITES / "trial_0") == counting.key.attempt_id
            for attempt in attempts:
                if not attempt.counts:
                    aside = folder / "attempts" / WRITES / "trial_0" / attempt.key.attempt_id
                    assert attempt_in(aside) == attempt.key.attempt_id
            assert len(list(folder.rglob("record.pb"))) == 3
            summary = json.loads((folder / "all_metrics.json").read_text())
            assert summary["counts"]["passed"] == 1
            assert summary == json.loads(json.dumps((await one.run(run_id))[2]))
            (_, first, _), (_, second, _) = await asyncio.gather(
                one.finish(run_id), two.finish(run_id)
            )
            assert first["finished_at"] == second["finished_at"]


async def test_both_score_again_at_once(open_core, database_url, builder, tmp_path):
    async with (
        open_core(database_url=database_url) as one,
        open_core(database_url=database_url) as two,
    ):
        judge = JudgeSettings(model="fake/judge")
        await one.create_run(Plan("run-1", (SAYS, WRITES), 1, {}, judge))
        for name in (SAYS, WRITES):
            await two.submit(stream((await builder.gold(name)).parts()))

        async def again(core):
            return [r async for r in core.score("run-1", None, (), False)]

        results = await asyncio.gather(again(one), again(two), again(one))
        assert [r.problem for found in results for r in found] == [""] * 6
        for name in (SAYS, WRITES):
            attempt = await one.store.counting("run-1", name, 0)
            assert attempt.scoring.number == 4
            folder = tmp_path / "runs" / "run-1" / name
            assert json.loads((folder / "metrics.json").read_text())["scoring"] == 4
            assert sorted(path.name for path in (folder / "scorings").iterdir()) == ["1", "2", "3"]
            assert attempt.placed


async def test_a_watcher_at_one_sees_what_comes_to_the_other(open_core, builder):
    async with open_core() as one, open_core() as two:
        await one.create_run(Plan("run-1", (WRITES,), 1, {}))
        watching = one.watch("run-1")
        first = asyncio.ensure_future(anext(watching))
        await two.submit(stream((await builder.gold(WRITES)).parts()))
        _, attempt = await asyncio.wait_for(first, 60)
        assert attempt.key.attempt_id == "attempt-1"
        await two.finish("run-1")
        assert await asyncio.wait_for(anext(watching, None), 60) is None


async def test_two_processes(scorer, builder, database_url):
    names = [f"tau2_airline__{at}" for at in (7, 11, 14, 20)]
    async with scorer(DATABASE_URL=database_url) as one, scorer(DATABASE_URL=database_url) as two:
        await asyncio.gather(*(s.create(scenarios=names) for s in (one, two)))
        keys = [AttemptKey("run-1", name, 0, f"{at}") for at in range(6) for name in names]
        answers = await asyncio.gather(
            *(
                (one, two)[at % 2].runs.ClaimTrial(
                    scorer_pb2.ClaimTrialRequest(
                        run_id=key.run_id,
                        scenario=key.scenario,
                        attempt_id=key.attempt_id,
                        holder="x",
                        lease_seconds=60,
                    ),
                    timeout=30,
                )
                for at, key in enumerate(keys)
            )
        )
        granted = [answer.state for answer in answers].count(scorer_pb2.CLAIM_STATE_GRANTED)
        assert granted == len(names)
        records = [await builder.gold(name) for name in names]
        verdicts = await asyncio.gather(
            *(s.submit(record.parts()) for record in records for s in (one, two))
        )
        assert {verdict.outcome for verdict in verdicts} == {scorer_pb2.OUTCOME_PASSED}
        first, second = await asyncio.gather(one.finish(), two.finish())
        assert first.finished_at == second.finished_at
        assert list((await one.get()).verdicts) == list((await two.get()).verdicts)
        assert len((await one.get()).verdicts) == len(names)
        assert len(list((one.folder / "run-1").rglob("record.pb"))) == len(names)
        summary = json.loads((one.folder / "run-1" / "all_metrics.json").read_text())
        assert summary["counts"]["passed"] == len(names)
