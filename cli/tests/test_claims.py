"""No trial is held twice at a time, and none is lost, however claims go."""

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli.claims import GRANTED, SCORED, TAKEN, Leases
from tau2eval_cli.holding import Patience
from tau2eval_cli.plan import RunOptions
from tau2eval_cli.runner import Runner, RunPlace
from tau2eval_cli.scorer_client import RunClosed, ScorerUnusable
from tau2eval_cli.trials import Trial, TrialQueue, Work, in_order
from tau2eval_common.client import open_channel

FAST = Patience(
    reach=0.2,
    settle=0.02,
    others=5.0,
    look=0.002,
    first_pause=0.001,
    longest_pause=0.002,
    leases=Leases(length=0.2, renewal=0.02, retry=0.005),
)


class Quiet:
    """A progress that tells nobody."""

    def __getattr__(self, name):
        return lambda *_: None


class Store:
    """What two runners share: verdicts and claims, each answer a little late."""

    def __init__(self, run_id: str, delays) -> None:
        self.run_id = run_id
        self.verdicts: dict[Trial, list[scorer_pb2.Verdict]] = {}
        self.claims: dict[Trial, tuple[str, float]] = {}
        self.open = True
        self.held: dict[Trial, int] = {}
        self.doubled: list[Trial] = []
        self._delays = itertools.cycle(delays)

    async def late(self) -> None:
        await asyncio.sleep(next(self._delays))

    def counting(self, trial: Trial) -> scorer_pb2.Verdict | None:
        here = self.verdicts.get(trial, [])
        scored = [item for item in here if item.outcome != scorer_pb2.OUTCOME_NOT_RUN]
        return scored[0] if scored else here[-1] if here else None

    def add(self, trial: Trial, attempt_id: str, kind: str = "") -> scorer_pb2.Verdict:
        verdict = scorer_pb2.Verdict(
            run_id=self.run_id,
            scenario=trial.scenario,
            trial=trial.number,
            attempt_id=attempt_id,
            not_run_kind=kind,
            outcome=scorer_pb2.OUTCOME_NOT_RUN if kind else scorer_pb2.OUTCOME_PASSED,
        )
        self.verdicts.setdefault(trial, []).append(verdict)
        if self.claims.get(trial, ("",))[0] == attempt_id:
            del self.claims[trial]
        return verdict


class Client:
    """The scorer's client of one runner, without a network."""

    address = "here"

    def __init__(self, store: Store, faults) -> None:
        self._store = store
        self._faults = iter(faults)

    async def claim(self, run_id, trial, attempt_id, holder, lease_seconds):
        store = self._store
        await store.late()
        if next(self._faults, False):
            raise ScorerUnusable("away")
        if not store.open:
            raise RunClosed("finished")
        counting = store.counting(trial)
        if counting is not None and counting.outcome == scorer_pb2.OUTCOME_PASSED:
            return scorer_pb2.ClaimTrialResponse(state=SCORED)
        now = asyncio.get_running_loop().time()
        owner, ends = store.claims.get(trial, ("", 0.0))
        if owner and owner != attempt_id and ends > now:
            return scorer_pb2.ClaimTrialResponse(
                state=TAKEN, holder="other", expires_in_seconds=ends - now
            )
        store.claims[trial] = (attempt_id, now + lease_seconds)
        return scorer_pb2.ClaimTrialResponse(state=GRANTED)

    async def release(self, run_id, trial, attempt_id):
        await self._store.late()
        if self._store.claims.get(trial, ("",))[0] == attempt_id:
            del self._store.claims[trial]

    async def run(self, run_id):
        await self._store.late()
        found = [self._store.counting(trial) for trial in self._store.verdicts]
        return scorer_pb2.GetRunResponse(verdicts=[item for item in found if item])

    async def attempts(self, run_id):
        return [item for here in self._store.verdicts.values() for item in here]

    async def resume(self, run_id, settings_json="", *, allow_mixed=False, preview=False):
        store = self._store
        now = asyncio.get_running_loop().time()
        if not preview:
            store.open = True
        return scorer_pb2.ResumeRunResponse(
            items=[
                scorer_pb2.ResumeItem(scenario=trial.scenario, trial=trial.number, holder="x")
                for trial, (_, ends) in store.claims.items()
                if ends > now
            ]
        )

    async def finish_run(self, run_id):
        self._store.open = False
        return scorer_pb2.FinishRunResponse()


def make_runner(store: Store, names: list[str], trials: int, parallel: int, faults, ends) -> Runner:
    """A runner whose calls take a moment and end as `ends` says."""
    plan = scorer_pb2.RunPlan(run_id=store.run_id, scenarios=names, trials=trials)
    place = RunPlace(
        plan=plan,
        folder=Path("nowhere"),
        work=[Work(trial) for trial in in_order(names, trials)],
        settings={},
    )
    runner = Runner(
        place,
        RunOptions(parallel=parallel, trials=trials),
        open_channel("127.0.0.1:1"),
        Client(store, faults),
        Quiet(),
        FAST,
    )
    endings = iter(ends)

    async def hold(call):
        trial = call.attempt.trial
        call.asked = call.begun = True
        store.held[trial] = store.held.get(trial, 0) + 1
        if store.held[trial] > 1:
            store.doubled.append(trial)
        try:
            await asyncio.sleep(0.004)
            return store.add(trial, call.attempt.attempt_id, next(endings, ""))
        finally:
            store.held[trial] -= 1

    runner._holder = SimpleNamespace(hold=hold)
    return runner


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    scenarios=st.integers(1, 4),
    trials=st.integers(1, 3),
    parallel=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    delays=st.lists(st.sampled_from([0.0, 0.001, 0.003]), min_size=1, max_size=6),
    faults=st.lists(st.booleans(), max_size=4),
    ends=st.lists(st.sampled_from(["", "", "gateway_error", "cancelled"]), max_size=6),
    stale=st.booleans(),
)
def test_several_runners_of_one_run(
    scenarios, trials, parallel, delays, faults, ends, stale
) -> None:
    names = [f"s{number}" for number in range(scenarios)]

    async def go() -> None:
        store = Store("eval_1", delays)
        places = in_order(names, trials)
        if stale:
            # A runner that was killed left its claim behind.
            store.claims[places[0]] = ("dead", asyncio.get_running_loop().time() + 0.05)
        runners = [make_runner(store, names, trials, number, faults, ends) for number in parallel]
        results = await asyncio.wait_for(asyncio.gather(*(item.run() for item in runners)), 30)
        assert not store.doubled
        scores = {
            trial: sum(item.outcome == scorer_pb2.OUTCOME_PASSED for item in here)
            for trial, here in store.verdicts.items()
        }
        assert set(scores) == set(places)
        assert all(count <= 1 for count in scores.values()), "nothing is scored twice"
        for result in results:
            # Every runner knows how every trial ended, and nobody is left waiting.
            assert {item.trial for item in result.trials} == set(places)
            assert not result.others
        assert not any(claim for claim in store.claims.values() if claim[0] != "dead")
        assert not store.open

    asyncio.run(go())


@given(
    answers=st.lists(
        st.lists(st.sampled_from(["taken", "granted", "scored"]), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_answers_of_the_scorer(answers) -> None:
    """Whatever it says, a trial is with one worker at a time and comes to an end."""

    async def go() -> None:
        stop = asyncio.Event()
        works = {Trial(f"s{number}"): list(said) for number, said in enumerate(answers)}
        queue = TrialQueue([Work(trial) for trial in works], stop)
        at_work: set[Trial] = set()
        ended: list[Trial] = []

        async def worker() -> None:
            while (work := await queue.next()) is not None:
                assert work.trial not in at_work
                at_work.add(work.trial)
                await asyncio.sleep(0)
                said = works[work.trial].pop(0) if works[work.trial] else "granted"
                at_work.discard(work.trial)
                if said == "taken":
                    queue.defer(work, 0.001)
                else:
                    ended.append(work.trial)

        await asyncio.wait_for(asyncio.gather(*(worker() for _ in range(3))), 30)
        assert sorted(ended) == sorted(works)

    asyncio.run(go())


async def test_the_queue_ends_at_once_when_it_is_stopped() -> None:
    stop = asyncio.Event()
    queue = TrialQueue([], stop)
    queue.defer(Work(Trial("a")), 60)
    waiting = asyncio.ensure_future(queue.next())
    await asyncio.sleep(0)
    stop.set()
    assert await asyncio.wait_for(waiting, 30) is None


def test_all_scenarios_come_once_before_any_comes_again() -> None:
    assert [(trial.scenario, trial.number) for trial in in_order(["b", "a"], 2)] == [
        ("b", 0),
        ("a", 0),
        ("b", 1),
        ("a", 1),
    ]
