"""A bridge and a scorer that behave as a test says, over real gRPC on free ports."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tau2eval.bridge.v1 import bridge_pb2, bridge_pb2_grpc
from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval.scorer.v1 import record_pb2, scorer_pb2, scorer_pb2_grpc
from tau2eval.voice.v1 import voice_pb2
from tau2eval_cli.services import ServiceSpec
from tau2eval_common.errors import (
    FailedPrecondition,
    NotFound,
    Tau2EvalError,
    abort_with,
)

FAKE_SERVICE = Path(__file__).with_name("fake_service.py")


class FakeScorer(scorer_pb2_grpc.RunServiceServicer, scorer_pb2_grpc.ScenarioServiceServicer):
    """Keeps plans, records, verdicts and claims in memory."""

    def __init__(self) -> None:
        self.known = [f"demo__{number}" for number in range(10)]
        self.signals: dict[str, list[str]] = {}
        self.plans: dict[str, scorer_pb2.RunPlan] = {}
        self.verdicts: dict[str, scorer_pb2.Verdict] = {}
        self.records: list[tuple[record_pb2.RecordHeader, record_pb2.RecordFooter]] = []
        self.finished: list[str] = []
        self.closed: set[str] = set()
        self.resumes: list[scorer_pb2.ResumeRunRequest] = []
        self.claims: dict[tuple[str, int], tuple[str, str, float]] = {}
        self.claimed: list[scorer_pb2.ClaimTrialRequest] = []
        self.released: list[scorer_pb2.ReleaseTrialRequest] = []
        self.scored: list[scorer_pb2.ScoreRunRequest] = []
        self.score_problem = ""
        self.comparison = {"worse": False, "verdict": "better"}
        self.summary: dict[str, Any] = {}
        self.artifacts = {"demo__1": [("demo__1/metrics.json", [b'{"a"', b": 1}"])]}
        self.asked_artifacts: list[tuple[str, int]] = []
        self.refuse_records = False

    async def ListScenarios(self, request, context):
        return scorer_pb2.ListScenariosResponse(
            scenarios=[
                scorer_pb2.ScenarioInfo(name=name, domain="demo", tau2_id=name[6:])
                for name in self.known
            ]
        )

    async def GetScenario(self, request, context):
        return scorer_pb2.GetScenarioResponse(
            success_signals=self.signals.get(request.name, ["DB_STATE_MATCH"])
        )

    async def CreateRun(self, request, context):
        self.plans[request.plan.run_id] = request.plan
        return scorer_pb2.CreateRunResponse(plan=request.plan, created_at="2026-01-01T00:00:00Z")

    async def SubmitConversation(self, request_iterator, context):
        if self.refuse_records:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "out of disk")
        parts = [request.part async for request in request_iterator]
        assert parts[0].WhichOneof("part") == "header"
        assert parts[-1].WhichOneof("part") == "footer"
        header, footer = parts[0].header, parts[-1].footer
        if header.attempt_id in self.verdicts:
            return scorer_pb2.SubmitConversationResponse(verdict=self.verdicts[header.attempt_id])
        self.records.append((header, footer))
        verdict = self.judge(
            header.run_id,
            header.scenario,
            header.attempt_id,
            footer.stop_reason,
            footer.stop_detail,
            header.trial,
        )
        return scorer_pb2.SubmitConversationResponse(verdict=verdict)

    async def GetRun(self, request, context):
        plan = await self._plan(request.run_id, context)
        return scorer_pb2.GetRunResponse(
            plan=plan,
            verdicts=[verdict for verdict in self.attempts(plan.run_id) if verdict.counts],
            summary_json=json.dumps(self.summary),
        )

    async def ListRuns(self, request, context):
        return scorer_pb2.ListRunsResponse(
            runs=[
                scorer_pb2.RunInfo(run_id=run_id, created_at="2026-01-01", planned=4, passed=1)
                for run_id in self.plans
            ]
        )

    async def ListAttempts(self, request, context):
        await self._plan(request.run_id, context)
        return scorer_pb2.ListAttemptsResponse(attempts=self.attempts(request.run_id))

    async def ClaimTrial(self, request, context):
        self.claimed.append(request)
        if request.run_id in self.closed:
            await abort_with(context, FailedPrecondition("finished", reason="RUN_FINISHED"))
        place = (request.scenario, request.trial)
        counting = self.counting(request.run_id, *place)
        if counting is not None and counting.outcome != scorer_pb2.OUTCOME_NOT_RUN:
            return scorer_pb2.ClaimTrialResponse(state=scorer_pb2.CLAIM_STATE_SCORED)
        now = asyncio.get_running_loop().time()
        attempt, holder, ends = self.claims.get(place, ("", "", 0.0))
        if attempt and attempt != request.attempt_id and ends > now:
            return scorer_pb2.ClaimTrialResponse(
                state=scorer_pb2.CLAIM_STATE_TAKEN,
                holder=holder,
                expires_in_seconds=ends - now,
                attempt_id=attempt,
            )
        self.claims[place] = (request.attempt_id, request.holder, now + request.lease_seconds)
        return scorer_pb2.ClaimTrialResponse(state=scorer_pb2.CLAIM_STATE_GRANTED)

    async def ReleaseTrial(self, request, context):
        self.released.append(request)
        place = (request.scenario, request.trial)
        if self.claims.get(place, ("",))[0] == request.attempt_id:
            del self.claims[place]
        return scorer_pb2.ReleaseTrialResponse()

    async def ResumeRun(self, request, context):
        plan = await self._plan(request.run_id, context)
        before = json.loads(plan.settings_json)
        after = json.loads(request.settings_json) if request.settings_json else before
        changes = [
            scorer_pb2.SettingChange(
                name=name,
                before_json=json.dumps(before.get(name)),
                after_json=json.dumps(after.get(name)),
            )
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
        if not request.preview:
            self.resumes.append(request)
            if changes and not request.allow_mixed:
                await abort_with(context, FailedPrecondition("x", reason="SETTINGS_CHANGED"))
            self.closed.discard(request.run_id)
        return scorer_pb2.ResumeRunResponse(
            plan=plan,
            items=[
                self._item(plan, name, trial)
                for name in plan.scenarios
                for trial in range(plan.trials)
            ],
            changes=changes,
        )

    async def ScoreRun(self, request, context):
        plan = await self._plan(request.run_id, context)
        self.scored.append(request)
        names = list(request.scenarios or plan.scenarios)
        chosen = [
            verdict
            for verdict in self.attempts(request.run_id)
            if verdict.scenario in names
            and (not request.only_unjudged or verdict.not_run_kind.startswith("judge_"))
        ]
        for number, verdict in enumerate(chosen, start=1):
            before = verdict.outcome
            if verdict.not_run_kind.startswith("judge_") and not self.score_problem:
                verdict.outcome, verdict.not_run_kind = scorer_pb2.OUTCOME_PASSED, ""
                verdict.scoring = 2
                self.settle(verdict)
            yield scorer_pb2.ScoreRunResponse(
                verdict=verdict,
                outcome_before=before,
                total=len(chosen),
                done=number,
                problem=self.score_problem,
            )

    async def CompareRuns(self, request, context):
        await self._plan(request.run_id_a, context)
        await self._plan(request.run_id_b, context)
        return scorer_pb2.CompareRunsResponse(
            comparison_json=json.dumps(self.comparison), comparison_text="a table\n"
        )

    async def RenderReport(self, request, context):
        await self._plan(request.run_id, context)
        return scorer_pb2.RenderReportResponse(path="report.html", pages=3)

    async def FinishRun(self, request, context):
        self.finished.append(request.run_id)
        self.closed.add(request.run_id)
        return scorer_pb2.FinishRunResponse(
            summary_text="all of it\n", summary_json=json.dumps(self.summary)
        )

    async def GetArtifacts(self, request, context):
        self.asked_artifacts.append((request.scenario, request.trial))
        for path, chunks in self.artifacts.get(request.scenario, []):
            for number, chunk in enumerate(chunks, start=1):
                yield scorer_pb2.GetArtifactsResponse(
                    path=path, chunk=chunk, last=number == len(chunks)
                )

    def judge(
        self,
        run_id: str,
        scenario: str,
        attempt_id: str,
        reason: int,
        detail: str = "",
        trial: int = 0,
        kind: str = "",
    ) -> scorer_pb2.Verdict:
        """Keeps and returns the verdict that a stop reason means."""
        word = record_pb2.StopReason.Name(reason).removeprefix("STOP_REASON_").lower()
        verdict = scorer_pb2.Verdict(
            run_id=run_id,
            scenario=scenario,
            trial=trial,
            attempt_id=attempt_id,
            stop_reason=reason,
            duration_seconds=12.5,
            explanation=detail,
            scoring=1,
        )
        if kind or word not in (
            "agent_exit",
            "transfer",
            "timeout",
            "agent_stalled",
            "agent_error",
        ):
            verdict.outcome = scorer_pb2.OUTCOME_NOT_RUN
            verdict.not_run_kind = kind or word
        elif word in ("agent_exit", "transfer"):
            verdict.outcome = scorer_pb2.OUTCOME_PASSED
            verdict.success_breakdown.passed[:] = ["DB_STATE_MATCH", "CLEAN_EXIT"]
            verdict.success_breakdown.excluded[:] = ["ACTION_MATCH"]
            verdict.fully_judged = True
        else:
            verdict.outcome = scorer_pb2.OUTCOME_FAILED
            verdict.success_breakdown.failed[:] = ["CLEAN_EXIT"]
        self.verdicts[attempt_id] = verdict
        self.settle(verdict)
        if self.claims.get((scenario, trial), ("",))[0] == attempt_id:
            del self.claims[(scenario, trial)]
        return verdict

    def settle(self, verdict: scorer_pb2.Verdict) -> None:
        """Lets the first score count, else the newest attempt."""
        here = [
            item
            for item in self.attempts(verdict.run_id)
            if (item.scenario, item.trial) == (verdict.scenario, verdict.trial)
        ]
        scored = [item for item in here if item.outcome != scorer_pb2.OUTCOME_NOT_RUN]
        for item in here:
            item.counts = item is (scored[0] if scored else here[-1])

    def attempts(self, run_id: str) -> list[scorer_pb2.Verdict]:
        """Returns the attempts of a run, oldest first."""
        return [verdict for verdict in self.verdicts.values() if verdict.run_id == run_id]

    def counting(self, run_id: str, scenario: str, trial: int) -> scorer_pb2.Verdict | None:
        """Returns the verdict that counts for a trial."""
        for verdict in self.attempts(run_id):
            if (verdict.scenario, verdict.trial, verdict.counts) == (scenario, trial, True):
                return verdict
        return None

    def plan(self, run_id: str, *names: str, trials: int = 1, judge: str = "", **settings) -> None:
        """Makes a run that had begun before."""
        plan = scorer_pb2.RunPlan(
            run_id=run_id, scenarios=names, trials=trials, settings_json=json.dumps(settings)
        )
        if judge:
            plan.judge.model = judge
        self.plans[run_id] = plan

    def _item(self, plan, name: str, trial: int) -> scorer_pb2.ResumeItem:
        counting = self.counting(plan.run_id, name, trial)
        action, reason = scorer_pb2.RESUME_ACTION_RUN, "not held yet"
        if counting is not None:
            reason = counting.not_run_kind or "passed"
            if counting.outcome != scorer_pb2.OUTCOME_NOT_RUN:
                action = scorer_pb2.RESUME_ACTION_KEEP
            elif counting.not_run_kind.startswith("judge_"):
                has_judge = bool(plan.judge.model)
                action = (
                    scorer_pb2.RESUME_ACTION_JUDGE
                    if has_judge
                    else scorer_pb2.RESUME_ACTION_JUDGE_OFF
                )
        claim = self.claims.get((name, trial))
        now = asyncio.get_running_loop().time()
        holder = claim[1] if claim and claim[2] > now else ""
        return scorer_pb2.ResumeItem(
            scenario=name, trial=trial, action=action, reason=reason, holder=holder
        )

    async def _plan(self, run_id: str, context) -> scorer_pb2.RunPlan:
        if run_id not in self.plans:
            await abort_with(
                context, NotFound(f"there is no run {run_id!r}; x", reason="NO_SUCH_RUN")
            )
        return self.plans[run_id]


class FakeBridge(bridge_pb2_grpc.BridgeServiceServicer):
    """Holds calls as `behaviour` says for each scenario: see `RunScenario`."""

    def __init__(self, scorer: FakeScorer) -> None:
        self.scorer = scorer
        self.behaviour: dict[str, str] = {}
        self.requests: list[bridge_pb2.RunScenarioRequest] = []
        self.tries: Counter[str] = Counter()
        self.held: Counter[tuple[str, int]] = Counter()
        self.doubled: list[tuple[str, int]] = []
        self.active = 0
        self.most_active = 0
        self.on_the_line = asyncio.Event()
        self.release = asyncio.Event()

    async def RunScenario(self, request, context):
        how = self.behaviour.get(request.scenario, "passes")
        self.tries[request.scenario] += 1
        self.requests.append(request)
        if how == "busy twice" and self.tries[request.scenario] <= 2:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "8 of 8 calls")
        if how == "always busy":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "8 of 8 calls")
        if how == "begins to drain" and self.tries[request.scenario] == 1:
            await context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")
        if how == "drains":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "draining")
        if how == "refuses":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such voice")
        place = (request.scenario, request.trial)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        self.held[place] += 1
        if self.held[place] > 1:
            self.doubled.append(place)
        try:
            async for event in self._call(request, context, how):
                yield bridge_pb2.RunScenarioResponse(event=event)
        finally:
            self.active -= 1
            self.held[place] -= 1

    async def _call(self, request, context, how):
        yield bridge_pb2.ScenarioEvent(
            started=bridge_pb2.Started(attempt_id=request.attempt_id, max_duration_seconds=900)
        )
        yield bridge_pb2.ScenarioEvent(
            time_seconds=2.0,
            turn=record_pb2.Turn(
                role=voice_pb2.ROLE_AGENT, text="How can I help?", end_seconds=2.0
            ),
        )
        await asyncio.sleep(0.02)
        if how == "dies":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "socket closed")
        if how == "ends early":
            return
        if how in ("hangs", "hangs and loses the record"):
            self.on_the_line.set()
            try:
                await asyncio.Event().wait()
            finally:
                if how == "hangs":
                    self._judge(request, record_pb2.STOP_REASON_CANCELLED)
        if how == "goes silent":
            await asyncio.Event().wait()
        if how == "waits for the release":
            self.on_the_line.set()
            await self.release.wait()
        reason = record_pb2.StopReason.Value(f"STOP_REASON_{how.upper()}") if how.isupper() else 1
        yield bridge_pb2.ScenarioEvent(
            time_seconds=12.5, stopped=bridge_pb2.Stopped(stop_reason=reason)
        )
        verdict = self._judge(request, reason)
        yield bridge_pb2.ScenarioEvent(finished=bridge_pb2.Finished(verdict=verdict))

    def _judge(self, request, reason: int) -> scorer_pb2.Verdict:
        return self.scorer.judge(
            request.run_id, request.scenario, request.attempt_id, reason, trial=request.trial
        )


class FakeChat(gateway_pb2_grpc.ChatServiceServicer):
    """Knows some scripted models, answers any other, or fails as `fault` says."""

    def __init__(self) -> None:
        self.requests: list[gateway_pb2.ChatCompletionRequest] = []
        self.fault: Tau2EvalError | None = None

    async def ListModels(self, request, context):
        return gateway_pb2.ListModelsResponse(
            model_ids=[
                *("scripted/gold", "scripted/caller", "scripted/judge", "scripted/checker-strict")
            ]
        )

    async def ChatCompletion(self, request, context):
        self.requests.append(request)
        if self.fault is not None:
            await abort_with(context, self.fault)
        return gateway_pb2.ChatCompletionResponse(body_json=b"{}")


class Line:
    """The two fakes and where they listen."""

    def __init__(self, bridge: FakeBridge, scorer: FakeScorer, address: str) -> None:
        self.bridge = bridge
        self.scorer = scorer
        self.address = address

    async def cli(
        self,
        *arguments: str,
        interrupt: signal.Signals | None = None,
        times: int = 1,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> tuple[int, str, str]:
        """Runs the command; sends signals once a call hangs on the line."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tau2eval_cli", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=env,
        )
        try:
            async with asyncio.timeout(60):
                if interrupt is not None:
                    await self.bridge.on_the_line.wait()
                    for _ in range(times):
                        process.send_signal(interrupt)
                        await asyncio.sleep(0.2)
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    def targets(self) -> list[str]:
        """Flags that name the fakes."""
        return ["--bridge-address", self.address, "--scorer-address", self.address]


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    scorer = FakeScorer()
    bridge = FakeBridge(scorer)
    server = grpc.aio.server()
    scorer_pb2_grpc.add_RunServiceServicer_to_server(scorer, server)
    scorer_pb2_grpc.add_ScenarioServiceServicer_to_server(scorer, server)
    bridge_pb2_grpc.add_BridgeServiceServicer_to_server(bridge, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield Line(bridge, scorer, f"127.0.0.1:{port}")
    await server.stop(0)


@pytest.fixture
async def chat() -> AsyncIterator[tuple[FakeChat, str]]:
    """A gateway and where it listens."""
    servicer = FakeChat()
    server = grpc.aio.server()
    gateway_pb2_grpc.add_ChatServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, f"127.0.0.1:{port}"
    await server.stop(0)


class Fakes:
    """Fake services for a supervisor, and what they noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, spec: ServiceSpec) -> list[str]:
        """Returns the command line of a fake service."""
        return [sys.executable, str(FAKE_SERVICE), spec.name, spec.prefix, str(self.folder)]

    def environment(self, name: str, start: int = 0) -> dict[str, str]:
        """Returns the environment that a fake service saw."""
        return json.loads((self.folder / f"{name}.{start}.json").read_text())

    def ends(self) -> list[str]:
        """Returns the names of the fake services in the order in which they ended in order."""
        file = self.folder / "ends.txt"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def fakes(tmp_path: Path) -> Fakes:
    folder = tmp_path / "fakes"
    folder.mkdir()
    return Fakes(folder)


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Any]:
    """Waits until a condition holds; the test fails when it does not within 30 s."""

    async def wait(condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.02)

    return wait
