"""scorer.v1 over gRPC: thin servicers around the core."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import grpc

from tau2eval.scorer.v1 import record_pb2, scorer_pb2, scorer_pb2_grpc
from tau2eval_common.errors import Unavailable
from tau2eval_scorer import messages
from tau2eval_scorer.core import ScorerCore
from tau2eval_scorer.http import ReportServer
from tau2eval_scorer.judge import JudgeSettings

CHUNK_BYTES = 256 * 1024

Context = grpc.aio.ServicerContext[Any, Any]


class ScenarioServicer(scorer_pb2_grpc.ScenarioServiceServicer):
    """ScenarioService."""

    def __init__(self, core: ScorerCore) -> None:
        self._core = core

    async def ListScenarios(
        self, request: scorer_pb2.ListScenariosRequest, context: Context
    ) -> scorer_pb2.ListScenariosResponse:
        """Lists the scenarios."""
        catalog = self._core.catalog
        response = scorer_pb2.ListScenariosResponse()
        for name in catalog.names(request.domain):
            domain, tau2_id = catalog.domain_of(name)
            response.scenarios.add(name=name, domain=domain, tau2_id=tau2_id)
        return response

    async def GetScenario(
        self, request: scorer_pb2.GetScenarioRequest, context: Context
    ) -> scorer_pb2.GetScenarioResponse:
        """Returns everything about one scenario."""
        return messages.scenario_response(await self._core.scenario(request.name))


class RunServicer(scorer_pb2_grpc.RunServiceServicer):
    """RunService."""

    def __init__(self, core: ScorerCore) -> None:
        self._core = core

    async def CreateRun(
        self, request: scorer_pb2.CreateRunRequest, context: Context
    ) -> scorer_pb2.CreateRunResponse:
        """Creates a run, or returns the one that is there with the same plan."""
        run = await self._core.create_run(messages.plan_from(request.plan))
        return scorer_pb2.CreateRunResponse(
            plan=messages.plan_to(run.plan), created_at=run.created_at
        )

    async def SubmitConversation(
        self,
        request_iterator: AsyncIterator[scorer_pb2.SubmitConversationRequest],
        context: Context,
    ) -> scorer_pb2.SubmitConversationResponse:
        """Takes a record and answers with its verdict."""
        run, attempt = await self._core.submit(_parts(request_iterator))
        path = self._core.artifacts_path(run, attempt)
        return scorer_pb2.SubmitConversationResponse(verdict=messages.verdict(attempt, path))

    async def GetRun(
        self, request: scorer_pb2.GetRunRequest, context: Context
    ) -> scorer_pb2.GetRunResponse:
        """Returns a run with its verdicts and summary."""
        run, attempts, summary = await self._core.run(request.run_id)
        return scorer_pb2.GetRunResponse(
            plan=messages.plan_to(run.plan),
            created_at=run.created_at,
            finished_at=run.finished_at,
            # WatchRun sends each by itself, so there their details fit.
            verdicts=messages.verdicts(
                [(attempt, self._core.artifacts_path(run, attempt)) for attempt in attempts]
            ),
            summary_json=messages.summary_json(summary),
        )

    async def ListRuns(
        self, request: scorer_pb2.ListRunsRequest, context: Context
    ) -> scorer_pb2.ListRunsResponse:
        """Lists the runs, newest first."""
        return scorer_pb2.ListRunsResponse(
            runs=[
                scorer_pb2.RunInfo(
                    run_id=run.plan.run_id,
                    created_at=run.created_at,
                    finished_at=run.finished_at,
                    planned=len(run.plan.scenarios) * run.plan.trials,
                    passed=counts.get("passed", 0),
                    failed=counts.get("failed", 0),
                    not_run=counts.get("not_run", 0),
                )
                for run, counts in await self._core.runs()
            ]
        )

    async def WatchRun(
        self, request: scorer_pb2.WatchRunRequest, context: Context
    ) -> AsyncIterator[scorer_pb2.WatchRunResponse]:
        """Sends verdicts as they come, until the run is finished."""
        async for run, attempt in self._core.watch(request.run_id):
            path = self._core.artifacts_path(run, attempt)
            yield scorer_pb2.WatchRunResponse(verdict=messages.verdict(attempt, path))

    async def FinishRun(
        self, request: scorer_pb2.FinishRunRequest, context: Context
    ) -> scorer_pb2.FinishRunResponse:
        """Closes a run and returns its summary."""
        run, summary, text = await self._core.finish(request.run_id)
        return scorer_pb2.FinishRunResponse(
            finished_at=run.finished_at,
            summary_json=messages.summary_json(summary),
            summary_text=messages.summary_text(text),
        )

    async def CompareRuns(
        self, request: scorer_pb2.CompareRunsRequest, context: Context
    ) -> scorer_pb2.CompareRunsResponse:
        """Pairs two runs."""
        (side_a, side_b), comparison = await self._core.compare(
            request.run_id_a, request.run_id_b, request.bootstrap_samples
        )
        return messages.compare(side_a, side_b, comparison)

    async def ClaimTrial(
        self, request: scorer_pb2.ClaimTrialRequest, context: Context
    ) -> scorer_pb2.ClaimTrialResponse:
        """Takes a trial for an attempt, or renews its lease."""
        answer = await self._core.claim(
            messages.claim_key(request), request.holder, request.lease_seconds
        )
        return messages.claim_response(answer)

    async def ReleaseTrial(
        self, request: scorer_pb2.ReleaseTrialRequest, context: Context
    ) -> scorer_pb2.ReleaseTrialResponse:
        """Gives a claim back."""
        await self._core.release(messages.claim_key(request))
        return scorer_pb2.ReleaseTrialResponse()

    async def ResumeRun(
        self, request: scorer_pb2.ResumeRunRequest, context: Context
    ) -> scorer_pb2.ResumeRunResponse:
        """Opens a run again and says what is left to do."""
        settings = messages.settings_from(request.settings_json) if request.settings_json else None
        run, items, changes = await self._core.resume(
            request.run_id, settings, request.allow_mixed, request.preview
        )
        return messages.resume_response(run, items, changes)

    async def ScoreRun(
        self, request: scorer_pb2.ScoreRunRequest, context: Context
    ) -> AsyncIterator[scorer_pb2.ScoreRunResponse]:
        """Scores stored conversations again."""
        judge = JudgeSettings.from_message(request.judge) if request.HasField("judge") else None
        results = self._core.score(
            request.run_id, judge, tuple(request.scenarios), request.only_unjudged
        )
        async with aclosing(results):
            async for result in results:
                path = self._core.artifacts_path(result.run, result.attempt)
                yield messages.score_response(result, path)

    async def ListAttempts(
        self, request: scorer_pb2.ListAttemptsRequest, context: Context
    ) -> scorer_pb2.ListAttemptsResponse:
        """Lists every attempt of a run."""
        run, attempts = await self._core.attempts(request.run_id)
        return scorer_pb2.ListAttemptsResponse(
            attempts=messages.verdicts(
                [(attempt, self._core.artifacts_path(run, attempt)) for attempt in attempts]
            )
        )

    async def RenderReport(
        self, request: scorer_pb2.RenderReportRequest, context: Context
    ) -> scorer_pb2.RenderReportResponse:
        """Writes the run's pages among its artifacts."""
        path, pages = await self._core.reports.write(request.run_id)
        return scorer_pb2.RenderReportResponse(path=path, pages=pages)

    async def GetArtifacts(
        self, request: scorer_pb2.GetArtifactsRequest, context: Context
    ) -> AsyncIterator[scorer_pb2.GetArtifactsResponse]:
        """Sends files in chunks."""
        files = await self._core.files.files(
            request.run_id, request.scenario, request.trial, request.attempt_id
        )
        try:
            for file in files:
                previous: bytes | None = None
                async for chunk in self._core.read_file(file, CHUNK_BYTES):
                    if previous is not None:
                        yield scorer_pb2.GetArtifactsResponse(path=file.path, chunk=previous)
                    previous = chunk
                yield scorer_pb2.GetArtifactsResponse(
                    path=file.path, chunk=previous or b"", last=True
                )
        except FileNotFoundError:
            raise Unavailable(
                "the artifacts changed while they were read; ask again", reason="CHANGED"
            ) from None


class ScorerService:
    """The scorer as `tau2eval_common.server.Service`."""

    name = "scorer"

    def __init__(self, core: ScorerCore) -> None:
        self._core = core
        self._pages = ReportServer(core.reports, core.settings.host, core.settings.http_port)

    async def start(self) -> None:
        """Checks the fixtures, opens the store, and begins to serve the pages."""
        await self._core.start()
        try:
            await self._pages.start()
        except BaseException:
            await self._core.stop()
            raise

    def register(self, server: grpc.aio.Server) -> Sequence[str]:
        """Adds the servicers."""
        scorer_pb2_grpc.add_ScenarioServiceServicer_to_server(ScenarioServicer(self._core), server)
        scorer_pb2_grpc.add_RunServiceServicer_to_server(RunServicer(self._core), server)
        services = scorer_pb2.DESCRIPTOR.services_by_name
        return [services[name].full_name for name in ("ScenarioService", "RunService")]

    def addresses(self) -> dict[str, str]:
        """Returns where the pages are served."""
        return {"http": self._pages.address}

    def drain(self) -> None:
        """Ends the calls that could go on for long."""
        self._core.drain()

    async def stop(self) -> None:
        """Ends the pages and closes the store."""
        await self._pages.stop()
        await self._core.stop()


async def _parts(
    requests: AsyncIterator[scorer_pb2.SubmitConversationRequest],
) -> AsyncIterator[record_pb2.RecordPart]:
    async for request in requests:
        yield request.part
