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
from tau2eval_common.errors import Tau2EvalError, abort_with

FAKE_SERVICE = Path(__file__).with_name("fake_service.py")


class FakeScorer(scorer_pb2_grpc.RunServiceServicer, scorer_pb2_grpc.ScenarioServiceServicer):
    """Keeps plans, records and verdicts in memory."""

    def __init__(self) -> None:
        self.known = [f"demo__{number}" for number in range(10)]
        self.plans: dict[str, scorer_pb2.RunPlan] = {}
        self.verdicts: dict[str, scorer_pb2.Verdict] = {}
        self.records: list[tuple[record_pb2.RecordHeader, record_pb2.RecordFooter]] = []
        self.finished: list[str] = []
        self.artifacts = {"demo__1": [("demo__1/metrics.json", [b'{"a"', b": 1}"])]}
        self.refuse_records = False

    async def ListScenarios(self, request, context):
        return scorer_pb2.ListScenariosResponse(
            scenarios=[
                scorer_pb2.ScenarioInfo(name=name, domain="demo", tau2_id=name[6:])
                for name in self.known
            ]
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
        )
        return scorer_pb2.SubmitConversationResponse(verdict=verdict)

    async def GetRun(self, request, context):
        return scorer_pb2.GetRunResponse(
            plan=self.plans[request.run_id], verdicts=self.verdicts.values()
        )

    async def FinishRun(self, request, context):
        self.finished.append(request.run_id)
        return scorer_pb2.FinishRunResponse(summary_text="all of it\n")

    async def GetArtifacts(self, request, context):
        for path, chunks in self.artifacts.get(request.scenario, []):
            for number, chunk in enumerate(chunks, start=1):
                yield scorer_pb2.GetArtifactsResponse(
                    path=path, chunk=chunk, last=number == len(chunks)
                )

    def judge(
        self, run_id: str, scenario: str, attempt_id: str, reason: int, detail: str = ""
    ) -> scorer_pb2.Verdict:
        """Keeps and returns the verdict that a stop reason means."""
        word = record_pb2.StopReason.Name(reason).removeprefix("STOP_REASON_").lower()
        verdict = scorer_pb2.Verdict(
            run_id=run_id,
            scenario=scenario,
            attempt_id=attempt_id,
            stop_reason=reason,
            duration_seconds=12.5,
            explanation=detail,
        )
        if word in ("agent_exit", "transfer"):
            verdict.outcome = scorer_pb2.OUTCOME_PASSED
            verdict.success_breakdown.passed[:] = ["DB_STATE_MATCH", "CLEAN_EXIT"]
            verdict.success_breakdown.excluded[:] = ["ACTION_MATCH"]
            verdict.fully_judged = True
        elif word in ("timeout", "agent_stalled", "agent_error"):
            verdict.outcome = scorer_pb2.OUTCOME_FAILED
            verdict.success_breakdown.failed[:] = ["CLEAN_EXIT"]
        else:
            verdict.outcome = scorer_pb2.OUTCOME_NOT_RUN
            verdict.not_run_kind = word
        self.verdicts[attempt_id] = verdict
        return verdict


class FakeBridge(bridge_pb2_grpc.BridgeServiceServicer):
    """Holds calls as `behaviour` says for each scenario: see `RunScenario`."""

    def __init__(self, scorer: FakeScorer) -> None:
        self.scorer = scorer
        self.behaviour: dict[str, str] = {}
        self.requests: list[bridge_pb2.RunScenarioRequest] = []
        self.tries: Counter[str] = Counter()
        self.active = 0
        self.most_active = 0
        self.on_the_line = asyncio.Event()

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
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            async for event in self._call(request, context, how):
                yield bridge_pb2.RunScenarioResponse(event=event)
        finally:
            self.active -= 1

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
        reason = record_pb2.StopReason.Value(f"STOP_REASON_{how.upper()}") if how.isupper() else 1
        yield bridge_pb2.ScenarioEvent(
            time_seconds=12.5, stopped=bridge_pb2.Stopped(stop_reason=reason)
        )
        verdict = self._judge(request, reason)
        yield bridge_pb2.ScenarioEvent(finished=bridge_pb2.Finished(verdict=verdict))

    def _judge(self, request, reason: int) -> scorer_pb2.Verdict:
        return self.scorer.judge(request.run_id, request.scenario, request.attempt_id, reason)


class FakeChat(gateway_pb2_grpc.ChatServiceServicer):
    """Knows two scripted models, answers any other, or fails as `fault` says."""

    def __init__(self) -> None:
        self.requests: list[gateway_pb2.ChatCompletionRequest] = []
        self.fault: Tau2EvalError | None = None

    async def ListModels(self, request, context):
        return gateway_pb2.ListModelsResponse(model_ids=["scripted/gold", "scripted/caller"])

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
