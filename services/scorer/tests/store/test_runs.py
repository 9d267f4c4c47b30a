"""Runs, attempts, scorings and claims, on SQLite and PostgreSQL."""

import asyncio
import contextlib

import pytest

from tau2eval_common.errors import AlreadyExists, FailedPrecondition, InvalidInput, NotFound
from tau2eval_scorer.judge import JudgeSettings
from tau2eval_scorer.store import AttemptKey, Plan, RunLocks, RunStore, Scoring
from tau2eval_scorer.store.database import async_url


def scoring(outcome, kind=""):
    kind = kind or ("agent_lost" if outcome == "not_run" else "")
    return Scoring(outcome, {"outcome": outcome, "not_run_kind": kind}, '{"m": "\\u0000"}')


def key(attempt_id, scenario="s", trial=0):
    return AttemptKey("r", scenario, trial, attempt_id)


@contextlib.asynccontextmanager
async def opened(url, count=1):
    stores = [RunStore(async_url(url)) for _ in range(count)]
    for store in stores:
        await store.open()
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


async def test_which_attempt_counts(database_url):
    async with opened(database_url) as (store,):
        await store.create_run(Plan("r", ("s",), 1, {}))
        expected = [
            ("not_run", "a0"),
            ("not_run", "a1"),  # The newest not_run, until there is a score.
            ("failed", "a2"),
            ("not_run", "a2"),  # Never replaced by one that was not run,
            ("passed", "a2"),  # nor by a later score.
        ]
        for at, (outcome, counting) in enumerate(expected):
            added = await store.add_attempt(key(f"a{at}"), scoring(outcome))
            assert added.scoring.number == 1
            again = await store.add_attempt(key(f"a{at}"), scoring("passed"))
            assert (again.outcome, again.scoring.number) == (outcome, 1)
            assert (await store.counting("r", "s", 0)).key.attempt_id == counting
        assert [a.key.attempt_id for a in await store.verdicts("r")] == ["a2"]
        newest = max(a.sequence for a in await store.verdicts("r"))
        assert [a.key.attempt_id for a in await store.changed_verdicts("r", 0)] == ["a2"]
        assert await store.changed_verdicts("r", newest) == []
        await store.finish_run("r")
        with pytest.raises(FailedPrecondition):
            await store.add_attempt(key("late"), scoring("passed"))
        finished = await store.run("r")
        assert await store.finish_run("r") == finished
        with pytest.raises(NotFound):
            await store.add_attempt(AttemptKey("none", "s", 0, "a"), scoring("passed"))


async def test_scoring_again_and_what_counts_then(database_url):
    async with opened(database_url) as (store,):
        await store.create_run(Plan("r", ("s",), 1, {}))

        async def counting():
            return (await store.counting("r", "s", 0)).key.attempt_id

        await store.add_attempt(key("judge-failed"), scoring("not_run", "judge_error"))
        await store.add_attempt(key("lost"), scoring("not_run"))
        assert await counting() == "lost"
        seen = (await store.counting("r", "s", 0)).sequence
        # An older attempt comes to a score: it counts, and a watcher is told.
        again = await store.add_scoring(key("judge-failed"), scoring("failed"))
        assert (again.scoring.number, again.outcome, again.counts) == (2, "failed", True)
        assert await counting() == "judge-failed"
        (told,) = await store.changed_verdicts("r", seen)
        assert told == again
        # Once scored it stays, whatever else comes to a score.
        await store.add_scoring(key("lost"), scoring("passed"))
        assert await counting() == "judge-failed"
        await store.add_scoring(key("judge-failed"), scoring("passed"))
        assert await counting() == "judge-failed"
        # Without a score it makes room for one that has one.
        await store.add_scoring(key("judge-failed"), scoring("not_run", "judge_off"))
        assert await counting() == "lost"
        history = await store.scorings(again)
        assert [(s.number, s.outcome) for s in history] == [
            (1, "not_run"),
            (2, "failed"),
            (3, "passed"),
            (4, "not_run"),
        ]
        assert {a.placed for a in await store.attempts("r")} == {False}
        for attempt in await store.unplaced("r"):
            await store.mark_placed(attempt)
        assert await store.runs_unplaced() == []
        with pytest.raises(NotFound):
            await store.add_scoring(key("none"), scoring("passed"))


async def test_what_was_seen_placed_is_not_marked_when_it_changed_since(database_url):
    async with opened(database_url) as (store,):
        await store.create_run(Plan("r", ("s",), 1, {}))
        before = await store.add_attempt(key("a"), scoring("passed"))
        await store.add_scoring(key("a"), scoring("failed"))
        await store.mark_placed(before)
        assert [a.key.attempt_id for a in await store.unplaced("r")] == ["a"]
        assert await store.runs_unplaced() == ["r"]


async def test_one_attempt_counts_also_when_many_come_at_once(database_url):
    async with opened(database_url, 3) as stores:
        await stores[0].create_run(Plan("r", ("s",), 1, {}))
        results = await asyncio.gather(
            *(stores[at % 3].add_attempt(key(f"a{at // 2}"), scoring("passed")) for at in range(24))
        )
        assert len(await stores[0].attempts("r")) == 12
        assert len({a.row for a in results}) == 12
        assert len(await stores[1].verdicts("r")) == 1
        # Scored by many at once: each scoring has a number of its own.
        await asyncio.gather(
            *(stores[at % 3].add_scoring(key("a0"), scoring("failed")) for at in range(9))
        )
        history = await stores[2].scorings(results[0])
        assert [s.number for s in history] == list(range(1, 11))


async def test_a_plan_is_created_once_also_by_many(database_url):
    async with opened(database_url, 3) as stores:
        plan = Plan("r", ("s", "t"), 400, {"a": "ä\u0000"}, JudgeSettings(model="m", votes=3))
        created = await asyncio.gather(*(store.create_run(plan) for store in stores * 2))
        assert all(run == created[0] for run in created)
        assert created[0].plan == plan
        for other in (
            Plan("r", ("s", "t"), 400, {"a": "b"}, plan.judge),
            Plan("r", ("s", "t"), 400, plan.settings, JudgeSettings(model="other", votes=3)),
            Plan("r", ("s", "t"), 400, plan.settings),
        ):
            with pytest.raises(AlreadyExists):
                await stores[0].create_run(other)


async def test_a_trial_is_claimed_by_one_attempt_of_many(database_url):
    async with opened(database_url, 3) as stores:
        await stores[0].create_run(Plan("r", ("s", "t"), 2, {}))
        for round_ in range(4):
            place = ("s", "t")[round_ % 2], round_ // 2
            answers = await asyncio.gather(
                *(
                    stores[at % 3].claim(key(f"a{at}", *place), f"runner {at}", 60)
                    for at in range(20)
                )
            )
            granted = [at for at, answer in enumerate(answers) if answer.state == "granted"]
            assert len(granted) == 1
            for answer in answers:
                if answer.state != "granted":
                    assert answer.state == "taken"
                    assert answer.claim.attempt_id == f"a{granted[0]}"
                    assert answer.claim.holder == f"runner {granted[0]}"
                    assert 0 < answer.claim.expires_in <= 60
        assert len(await stores[0].claims("r")) == 4


async def test_a_claim_is_renewed_released_and_ends(database_url):
    async with opened(database_url, 2) as (store, other):
        await store.create_run(Plan("r", ("s",), 1, {}))

        async def state(attempt_id, lease=60.0, holder="h\u0000\n" * 200):
            return (await other.claim(key(attempt_id), holder, lease)).state

        assert await state("a") == "granted"
        assert await state("a") == "granted"
        assert await state("b") == "taken"
        await store.release(key("b"))  # Not its own.
        assert await state("b") == "taken"
        await store.release(key("a"))
        await store.release(key("a"))
        assert await state("b", 0.001) == "granted"
        while await store.claims("r"):
            await asyncio.sleep(0.01)
        # It has ended by itself, so another one may have it, and the old one not.
        assert await state("c") == "granted"
        assert await state("b") == "taken"
        # A record is taken, claim or not; only the holder's ends the claim.
        await store.add_attempt(key("b"), scoring("not_run"))
        assert await state("d") == "taken"
        await store.add_attempt(key("c"), scoring("not_run"))
        assert await store.claims("r") == {}
        assert await state("d") == "granted"
        await store.add_attempt(key("e"), scoring("failed"))
        assert await state("d") == await state("f") == "scored"

        with pytest.raises(InvalidInput):
            await store.claim(key("a", "t"), "", 60)
        with pytest.raises(InvalidInput):
            await store.claim(key("a", "s", 1), "", 60)
        with pytest.raises(NotFound):
            await store.claim(AttemptKey("none", "s", 0, "a"), "", 60)
        await store.finish_run("r")
        with pytest.raises(FailedPrecondition):
            await store.claim(key("a"), "", 60)


async def test_a_resumed_run_is_open_and_says_with_which_settings(database_url):
    async with opened(database_url) as (store,):
        await store.create_run(Plan("r", ("s",), 1, {"a": 1}))
        await store.finish_run("r")
        await store.resume_run("r", {"a": 1}, [])
        change = {"name": "a", "before": 1, "after": [2]}
        run = await store.resume_run("r", {"a": [2]}, [change])
        assert run.finished_at == ""
        assert [(resume.settings, resume.changes) for resume in run.resumes] == [
            ({"a": 1}, ()),
            ({"a": [2]}, (change,)),
        ]
        assert run == await store.run("r")
        # A record of an attempt from before comes late, and is taken.
        await store.add_attempt(key("late"), scoring("passed"))
        with pytest.raises(NotFound):
            await store.resume_run("none", {}, [])


async def test_one_holds_the_files_of_a_run_among_all_scorers(database_url):
    async with opened(database_url, 3) as stores:
        locks = [RunLocks(store.database) for store in stores]
        inside, most = 0, 0

        async def use(lock):
            nonlocal inside, most
            async with lock.hold("r"):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.002)
                inside -= 1

        await asyncio.gather(*(use(locks[at % 3]) for at in range(18)))
        assert most == 1
        # Other runs go on meanwhile, and a lock that is held too long is not waited for for ever.
        async with locks[0].hold("r"):
            async with locks[1].hold("other"):
                pass
            from tau2eval_common.errors import Unavailable

            with pytest.raises(Unavailable, match="another scorer"):
                async with RunLocks(stores[1].database, wait_seconds=0.05).hold("r"):
                    pass
        async with locks[2].hold("r"):
            pass
        for lock in locks:
            await lock.close()
