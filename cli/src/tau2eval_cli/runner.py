"""Holds the trials of a run, several at a time, and loses none of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc

from tau2eval.bridge.v1 import bridge_pb2
from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval_cli import words
from tau2eval_cli.artifacts import download
from tau2eval_cli.calls import CallBroken
from tau2eval_cli.claims import SCORED, TAKEN, Claims, Lease
from tau2eval_cli.gates import NO_GATES, Gates
from tau2eval_cli.holding import Call, CallHolder, Patience
from tau2eval_cli.plan import RunOptions
from tau2eval_cli.records import Attempt, Loss, counting_verdict, store_loss, verdict_after
from tau2eval_cli.results import RunResult, TrialResult, parse_object
from tau2eval_cli.scorer_client import ScorerClient, ScorerUnusable
from tau2eval_cli.trials import Trial, TrialQueue, Work

_SETTLE_PAUSES = (0.25, 0.25, 0.5, 1.0)


class Progress(Protocol):
    """Is told how a run goes."""

    def waiting(self, label: str, why: str) -> None:
        """A trial cannot begin yet."""

    def event(self, label: str, event: bridge_pb2.ScenarioEvent) -> None:
        """Something happened in a call."""

    def left(self, label: str) -> None:
        """A trial is left alone for now."""

    def done(self, result: TrialResult) -> None:
        """A trial has its result."""

    def notice(self, text: str) -> None:
        """Something that a person should know."""


class KeptRecords(Protocol):
    """Records of calls that the bridge kept because the scorer did not take them."""

    async def submit(self, trial: Trial) -> int:
        """Submits those of a trial again and returns how many were taken."""


@dataclass(frozen=True)
class RunPlace:
    """A run that is there to be worked on.

    Attributes:
        plan: As the scorer has it.
        folder: Its artifacts on this machine.
        work: What is left to do, in order.
        kept: Verdicts that stand.
        mixed_settings_json: Settings with which it is opened again if need be; empty for the
            plan's.
        resumed: Whether it had begun before.
        local: Whether the scorer itself writes into `folder`.
        gates: What the result is held to.
        records: Records that the bridge kept; None when they cannot be reached from here.
    """

    plan: scorer_pb2.RunPlan
    folder: Path
    work: Sequence[Work]
    kept: Sequence[scorer_pb2.Verdict] = ()
    mixed_settings_json: str = ""
    resumed: bool = False
    local: bool = True
    gates: Gates = NO_GATES
    records: KeptRecords | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Runner:
    """Works on one run over a bridge and a scorer that are there.

    Attributes:
        interrupted: Whether `interrupt` was called.
    """

    def __init__(
        self,
        place: RunPlace,
        options: RunOptions,
        bridge: grpc.aio.Channel,
        scorer: ScorerClient,
        progress: Progress,
        patience: Patience | None = None,
        complete: asyncio.Event | None = None,
    ) -> None:
        self.interrupted = False
        self._place = place
        self._run_id = place.plan.run_id
        self._several = place.plan.trials > 1
        self._options = options
        self._scorer = scorer
        self._progress = progress
        self._patience = patience or Patience()
        self._stop = asyncio.Event()
        self._queue = TrialQueue(place.work, self._stop)
        self._claims = Claims(scorer, self._run_id, self._patience.leases, self._reopen)
        self._holder = CallHolder(
            options,
            bridge,
            self._patience,
            complete,
            lambda attempt, why: progress.waiting(self._label(attempt.trial), why),
            lambda attempt, event: progress.event(self._label(attempt.trial), event),
        )
        self._results = {
            Trial.of(verdict): TrialResult(verdict, several=self._several, kept=True)
            for verdict in place.kept
        }
        self._problems: list[str] = []
        self._losses: list[Loss] = []
        self._running: set[Trial] = set()
        self._others: list[Trial] = []
        self._judging: dict[str, asyncio.Lock] = {}

    def interrupt(self) -> None:
        """Ends the calls in order and begins no other."""
        self.interrupted = True
        self._stop.set()

    async def run(self) -> RunResult:
        """Holds what is left, finishes the run, and returns its result.

        Raises:
            ScorerUnusable: When the scorer goes away for good.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._options.parallel, max(1, len(self._place.work)))):
                group.create_task(self._worker())
        await self._store_late()
        await self._fetch_kept()
        summary = await self._finish()
        return self.result(summary)

    def result(self, summary: Mapping[str, Any] | None = None) -> RunResult:
        """Returns what is known by now."""
        plan = self._place.plan
        order = [Trial(name, number) for name in plan.scenarios for number in range(plan.trials)]
        return RunResult(
            run_id=self._run_id,
            output_dir=self._place.folder,
            trials=[self._results[trial] for trial in order if trial in self._results],
            planned=plan.trials,
            judge_model=plan.judge.model,
            not_started=[
                trial
                for trial in order
                if trial not in self._results
                and trial not in self._running
                and trial not in self._others
            ],
            cut_off=[trial for trial in order if trial in self._running],
            others=[trial for trial in order if trial in self._others],
            interrupted=self.interrupted,
            resumed=self._place.resumed,
            summary=summary or {},
            problems=list(self._problems),
            gates=self._place.gates,
        )

    async def _worker(self) -> None:
        while (work := await self._queue.next()) is not None:
            result = await self._trial(work)
            if result is not None:
                self._results[result.trial] = result
                self._progress.done(result)

    async def _trial(self, work: Work) -> TrialResult | None:
        """Returns the result of a trial; None when it was not begun, or is looked at later."""
        if not work.judge:
            return await self._claimed(work)
        # The scorer judges a scenario's conversations together: one worker for each is enough.
        async with self._judging.setdefault(work.trial.scenario, asyncio.Lock()):
            return await self._claimed(work)

    async def _claimed(self, work: Work) -> TrialResult | None:
        attempt = self._attempt(work.trial)
        answer = await self._claim(attempt)
        if answer is None:
            return None
        if answer.state == SCORED:
            return await self._kept_result(work.trial)
        if answer.state == TAKEN:
            await self._leave(work, answer)
            return None
        async with self._claims.holding(work.trial, attempt.attempt_id) as lease:
            if (news := await self._news(work)) is not None:
                return news
            self._running.add(work.trial)
            try:
                result = await (self._judge(work) if work.judge else self._call(attempt, lease))
            finally:
                self._running.discard(work.trial)
        if result is None and lease.lost.is_set():
            self._progress.left(self._label(work.trial))
            self._queue.defer(work, self._patience.look)
        return result

    async def _claim(self, attempt: Attempt) -> scorer_pb2.ClaimTrialResponse | None:
        """Asks for a trial; None when the scorer is gone for good, and with it the run."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience.reach
        pause = self._patience.first_pause
        while not self._stop.is_set():
            try:
                return await self._claims.take(attempt.trial, attempt.attempt_id)
            except ScorerUnusable as error:
                if loop.time() >= deadline:
                    if not self._stop.is_set():
                        self._problem(
                            f"{error.message}; the run ends here. `tau2-eval run --resume "
                            f"{self._run_id}` goes on with it"
                        )
                    self._stop.set()
                    return None
                self._progress.waiting(self._label(attempt.trial), error.message)
            await self._pause(pause)
            pause = min(2 * pause, self._patience.longest_pause)
        return None

    async def _leave(self, work: Work, answer: scorer_pb2.ClaimTrialResponse) -> None:
        """Leaves a trial to the runner that holds it, to be looked at later."""
        now = asyncio.get_running_loop().time()
        label = self._label(work.trial)
        if work.taken_since is None:
            work.taken_since = now
            work.seen = await self._counting_attempt(work.trial)
        if now - work.taken_since > self._patience.others:
            self._others.append(work.trial)
            self._problem(f"{label} is left to {answer.holder}, which still holds it")
            return
        # The end of the lease is told once: renewals would make a line of each look.
        self._progress.waiting(
            label, f"held by {answer.holder or 'another runner'}; its result or its end is awaited"
        )
        self._queue.defer(work, min(answer.expires_in_seconds + 0.1, self._patience.look))

    async def _news(self, work: Work) -> TrialResult | None:
        """Returns what another runner made of a trial that it has given back.

        What was cancelled there is not done: that runner was interrupted or killed.
        """
        records = self._place.records
        if records is not None and self._place.resumed and await records.submit(work.trial):
            result = await self._kept_result(work.trial)
            if result is not None and result.scored:
                return result
        if work.taken_since is None or await self._counting_attempt(work.trial) == work.seen:
            return None
        result = await self._kept_result(work.trial)
        cancelled = result is not None and result.verdict.not_run_kind == "cancelled"
        return None if cancelled else result

    async def _counting_attempt(self, trial: Trial) -> str:
        try:
            verdict = await counting_verdict(self._scorer, self._run_id, trial)
        except ScorerUnusable:
            return ""
        return verdict.attempt_id if verdict is not None else ""

    async def _kept_result(self, trial: Trial) -> TrialResult | None:
        try:
            verdict = await counting_verdict(self._scorer, self._run_id, trial)
        except ScorerUnusable as error:
            self._problem(f"the verdict of {self._label(trial)} could not be had: {error.message}")
            return None
        if verdict is None:
            return None
        result = TrialResult(verdict, several=self._several, kept=True)
        await self._fetch(result)
        return result

    async def _call(self, attempt: Attempt, lease: Lease) -> TrialResult | None:
        """Holds a call; None when it was not begun before an interrupt, or its claim is lost."""
        call = Call(attempt)
        outcome = await self._until_stopped(self._holder.hold(call), lease.lost)
        if isinstance(outcome, scorer_pb2.Verdict):
            result = TrialResult(outcome, several=self._several)
        elif isinstance(outcome, CallBroken):
            result = await self._lost(
                Loss(attempt, record_pb2.STOP_REASON_HARNESS_ERROR, str(outcome))
            )
        elif isinstance(outcome, asyncio.CancelledError):
            if lease.lost.is_set() or not (call.begun or call.asked):
                return None
            cancelled = await self._cancelled(call)
            if cancelled is None:
                return None
            result = cancelled
        else:
            raise outcome
        if result.stored:
            await self._fetch(result)
        return result

    async def _judge(self, work: Work) -> TrialResult | None:
        """Has a whole call judged again that lacks nothing else."""
        request = scorer_pb2.ScoreRunRequest(
            run_id=self._run_id, scenarios=[work.trial.scenario], only_unjudged=True
        )
        self._progress.waiting(self._label(work.trial), "is being judged again")

        async def judge() -> None:
            async for response in self._scorer.score(request, self._patience.judge):
                if response.problem:
                    label = self._label(Trial.of(response.verdict))
                    self._problem(f"{label} was not judged: {response.problem}")

        outcome = await self._until_stopped(judge())
        if isinstance(outcome, asyncio.CancelledError):
            return None
        if isinstance(outcome, ScorerUnusable):
            self._problem(f"{self._label(work.trial)} was not judged: {outcome.message}")
        elif isinstance(outcome, BaseException):
            raise outcome
        return await self._kept_result(work.trial)

    async def _until_stopped(self, doing: Any, lost: asyncio.Event | None = None) -> Any:
        """Returns a coroutine's result or its exception; an interrupt cancels it."""
        task = asyncio.ensure_future(doing)
        ends = [asyncio.create_task(event.wait()) for event in (self._stop, lost) if event]
        try:
            await asyncio.wait({task, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
            return (await asyncio.gather(task, return_exceptions=True))[0]
        finally:
            for end in ends:
                end.cancel()
            task.cancel()

    async def _cancelled(self, call: Call) -> TrialResult | None:
        """Waits for the bridge's record of a cancelled call; makes one if none comes.

        Returns:
            None when it turns out that the call had not begun.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience.settle
        tries = 0
        while loop.time() < deadline:
            verdict = await verdict_after(self._scorer, call.attempt)
            if verdict is not None:
                return TrialResult(verdict, several=self._several)
            await asyncio.sleep(_SETTLE_PAUSES[min(tries, len(_SETTLE_PAUSES) - 1)])
            tries += 1
        if not call.begun:
            return None
        return await self._lost(
            Loss(call.attempt, record_pb2.STOP_REASON_CANCELLED, "the run was interrupted")
        )

    async def _lost(self, loss: Loss) -> TrialResult:
        try:
            verdict = await store_loss(self._scorer, loss)
        except ScorerUnusable as error:
            self._losses.append(loss)
            self._progress.notice(
                f"{self._label(loss.attempt.trial)} is not in the run's store yet: {error.message}"
            )
            return TrialResult(loss.verdict(), stored=False, several=self._several)
        return TrialResult(verdict, several=self._several)

    async def _store_late(self) -> None:
        """Stores at the end what the scorer did not take before, and looks for late records."""
        for loss in self._losses:
            trial = loss.attempt.trial
            try:
                verdict = await store_loss(self._scorer, loss)
            except ScorerUnusable as error:
                self._problem(f"{self._label(trial)} is not in the run's store: {error.message}")
                continue
            self._results[trial] = TrialResult(verdict, several=self._several)
        for trial, result in list(self._results.items()):
            if result.verdict.not_run_kind != "harness_error" or result.kept:
                continue
            if self._place.records is not None:
                await self._place.records.submit(trial)
            # The bridge's own record of a call that was given up here may have come meanwhile.
            late = await self._kept_result(trial)
            if late is not None and late.scored:
                self._results[trial] = TrialResult(late.verdict, several=self._several)
                self._progress.notice(f"{self._label(trial)} was scored after all: {late.outcome}")

    async def _finish(self) -> Mapping[str, Any]:
        """Closes the run, unless other runners are still at it, and returns its summary."""
        try:
            if await self._others_at_work():
                self._progress.notice("another runner is still at work on this run and closes it")
                summary_json = (await self._scorer.run(self._run_id)).summary_json
            else:
                summary_json = (await self._scorer.finish_run(self._run_id)).summary_json
        except ScorerUnusable as error:
            self._problem(error.message)
            return {}
        if not self._place.local:
            await self._download(None)
        return parse_object(summary_json)

    async def _others_at_work(self) -> bool:
        preview = await self._scorer.resume(self._run_id, preview=True)
        return any(item.holder for item in preview.items)

    async def _reopen(self) -> None:
        """Opens the run again that another runner closed, thinking that it was done."""
        settings = self._place.mixed_settings_json
        await self._scorer.resume(self._run_id, settings, allow_mixed=bool(settings))

    async def _fetch(self, result: TrialResult) -> None:
        if not self._place.local:
            await self._download(result.trial)

    async def _fetch_kept(self) -> None:
        """Copies the artifacts of verdicts that stand and are not on this machine yet."""
        if self._place.local or self.interrupted:
            return
        for verdict in self._place.kept:
            path = verdict.artifacts_path
            if path and not (self._place.folder / path / "metrics.json").exists():
                await self._download(Trial.of(verdict))

    async def _download(self, trial: Trial | None) -> None:
        try:
            await download(self._scorer, self._run_id, trial, self._place.folder)
        except (ScorerUnusable, OSError) as error:
            what = self._label(trial) if trial is not None else "the run"
            self._problem(f"artifacts of {what} were not fetched: {error}")

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    def _attempt(self, trial: Trial) -> Attempt:
        return Attempt(
            run_id=self._run_id,
            trial=trial,
            attempt_id=uuid.uuid4().hex,
            modality=words.modality(self._options.modality),
            min_agent_turns=self._options.min_agent_turns,
            settings=dict(self._place.settings),
        )

    def _label(self, trial: Trial) -> str:
        return trial.label(self._several)

    def _problem(self, text: str) -> None:
        self._problems.append(text)
        self._progress.notice(text)
