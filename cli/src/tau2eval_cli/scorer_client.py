"""What the command asks of the scorer: plans, claims, verdicts, scores, pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, TypeVar

import grpc

from tau2eval.scorer.v1 import record_pb2, scorer_pb2, scorer_pb2_grpc
from tau2eval_cli.errors import NotValid, WrongUse
from tau2eval_cli.trials import Trial
from tau2eval_common.client import open_channel
from tau2eval_common.errors import error_info

CALL_SECONDS = 30.0
CLAIM_SECONDS = 10.0
FINISH_SECONDS = 180.0
SLOW_SECONDS = 600.0
"""Of a comparison or a report: both go through all conversations."""

T = TypeVar("T")


class ScorerUnusable(NotValid):
    """The scorer refused or could not be reached."""


class RunClosed(ScorerUnusable):
    """The run is finished; it has to be resumed first."""


class NoSuchRun(WrongUse):
    """The scorer does not know the run."""


class ScorerClient:
    """The scorer at one address; a context manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self.stub = scorer_pb2_grpc.RunServiceStub(self._channel)
        self._scenarios = scorer_pb2_grpc.ScenarioServiceStub(self._channel)

    async def __aenter__(self) -> ScorerClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def scenario_names(self) -> list[str]:
        """Returns the scenarios that the scorer knows.

        Raises:
            ScorerUnusable: When it cannot be asked.
        """
        response = await self._ask(
            "list its scenarios",
            self._scenarios.ListScenarios(
                scorer_pb2.ListScenariosRequest(), timeout=CALL_SECONDS, wait_for_ready=True
            ),
        )
        return [scenario.name for scenario in response.scenarios]

    async def success_signals(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Returns the signals that gate each scenario.

        Raises:
            ScorerUnusable: When it cannot be asked.
        """
        responses = await asyncio.gather(
            *(
                self._ask(
                    f"describe {name}",
                    self._scenarios.GetScenario(
                        scorer_pb2.GetScenarioRequest(name=name), timeout=CALL_SECONDS
                    ),
                )
                for name in names
            )
        )
        return {
            name: list(response.success_signals)
            for name, response in zip(names, responses, strict=True)
        }

    async def create_run(self, plan: scorer_pb2.RunPlan) -> None:
        """Registers the plan of a run.

        Raises:
            ScorerUnusable: When it is refused, or the scorer cannot be reached.
        """
        await self._ask(
            "create the run",
            self.stub.CreateRun(
                scorer_pb2.CreateRunRequest(plan=plan), timeout=CALL_SECONDS, wait_for_ready=True
            ),
        )

    async def find_run(self, run_id: str) -> scorer_pb2.GetRunResponse | None:
        """Returns a run with its verdicts and its summary, or None when there is none.

        Raises:
            ScorerUnusable: When the scorer cannot be asked.
        """
        try:
            return await self.run(run_id)
        except NoSuchRun:
            return None

    async def run(self, run_id: str) -> scorer_pb2.GetRunResponse:
        """Returns a run with its verdicts and its summary.

        Raises:
            NoSuchRun: When there is none.
            ScorerUnusable: When the scorer cannot be asked.
        """
        request = scorer_pb2.GetRunRequest(run_id=run_id)
        return await self._ask(
            "tell about the run",
            self.stub.GetRun(request, timeout=FINISH_SECONDS, wait_for_ready=True),
        )

    async def runs(self) -> list[scorer_pb2.RunInfo]:
        """Returns all runs, newest first.

        Raises:
            ScorerUnusable: When the scorer cannot be asked.
        """
        request = scorer_pb2.ListRunsRequest()
        response = await self._ask(
            "list the runs", self.stub.ListRuns(request, timeout=CALL_SECONDS, wait_for_ready=True)
        )
        return list(response.runs)

    async def attempts(self, run_id: str) -> list[scorer_pb2.Verdict]:
        """Returns every attempt of a run.

        Raises:
            NoSuchRun: When there is no such run.
            ScorerUnusable: When the scorer cannot be asked.
        """
        request = scorer_pb2.ListAttemptsRequest(run_id=run_id)
        response = await self._ask(
            "list the attempts", self.stub.ListAttempts(request, timeout=FINISH_SECONDS)
        )
        return list(response.attempts)

    async def claim(
        self, run_id: str, trial: Trial, attempt_id: str, holder: str, lease_seconds: float
    ) -> scorer_pb2.ClaimTrialResponse:
        """Takes a trial for an attempt, or renews its lease.

        Raises:
            RunClosed: When the run is finished.
            ScorerUnusable: When the scorer cannot be asked.
        """
        request = scorer_pb2.ClaimTrialRequest(
            run_id=run_id,
            scenario=trial.scenario,
            trial=trial.number,
            attempt_id=attempt_id,
            holder=holder,
            lease_seconds=lease_seconds,
        )
        return await self._ask(
            f"give out {trial.label(True)}", self.stub.ClaimTrial(request, timeout=CLAIM_SECONDS)
        )

    async def release(self, run_id: str, trial: Trial, attempt_id: str) -> None:
        """Gives a claim back.

        Raises:
            ScorerUnusable: When the scorer cannot be asked; the claim then ends by itself.
        """
        request = scorer_pb2.ReleaseTrialRequest(
            run_id=run_id, scenario=trial.scenario, trial=trial.number, attempt_id=attempt_id
        )
        await self._ask(
            f"take {trial.label(True)} back", self.stub.ReleaseTrial(request, timeout=CLAIM_SECONDS)
        )

    async def resume(
        self,
        run_id: str,
        settings_json: str = "",
        *,
        allow_mixed: bool = False,
        preview: bool = False,
    ) -> scorer_pb2.ResumeRunResponse:
        """Opens a run again, or with `preview` only says what that would do.

        Raises:
            NoSuchRun: When there is none.
            ScorerUnusable: When it is refused, or the scorer cannot be asked.
        """
        request = scorer_pb2.ResumeRunRequest(
            run_id=run_id, settings_json=settings_json, allow_mixed=allow_mixed, preview=preview
        )
        return await self._ask(
            "resume the run",
            self.stub.ResumeRun(request, timeout=FINISH_SECONDS, wait_for_ready=True),
        )

    async def score(
        self, request: scorer_pb2.ScoreRunRequest, silence_seconds: float
    ) -> AsyncIterator[scorer_pb2.ScoreRunResponse]:
        """Scores stored conversations again and yields each.

        Args:
            request: Which, and by which judge.
            silence_seconds: Longest wait for the next one.

        Raises:
            NoSuchRun: When there is no such run.
            ScorerUnusable: When it is refused, or the scorer is lost or silent.
        """
        call: Any = self.stub.ScoreRun(request, wait_for_ready=True)
        try:
            while True:
                try:
                    async with asyncio.timeout(silence_seconds):
                        response = await self._ask("score the run again", call.read())
                except TimeoutError:
                    raise ScorerUnusable(
                        f"the scorer at {self.address} scored nothing for {silence_seconds:g} s; "
                        "what is done is kept"
                    ) from None
                if response is grpc.aio.EOF:
                    return
                yield response
        finally:
            call.cancel()

    async def submit(self, parts: Sequence[record_pb2.RecordPart]) -> scorer_pb2.Verdict:
        """Sends a record that is held in memory and returns its verdict.

        Raises:
            RunClosed: When the run is finished.
            ScorerUnusable: When it is refused, or the scorer cannot be reached.
        """

        async def requests() -> AsyncIterator[scorer_pb2.SubmitConversationRequest]:
            for part in parts:
                yield scorer_pb2.SubmitConversationRequest(part=part)

        response = await self._ask(
            "take the record", self.stub.SubmitConversation(requests(), timeout=CALL_SECONDS)
        )
        return response.verdict

    async def finish_run(self, run_id: str) -> scorer_pb2.FinishRunResponse:
        """Closes the run.

        Raises:
            ScorerUnusable: When that cannot be done.
        """
        request = scorer_pb2.FinishRunRequest(run_id=run_id)
        return await self._ask(
            "finish the run", self.stub.FinishRun(request, timeout=FINISH_SECONDS)
        )

    async def compare(
        self, run_id_a: str, run_id_b: str, samples: int
    ) -> scorer_pb2.CompareRunsResponse:
        """Compares two runs.

        Raises:
            NoSuchRun: When one of them is not there.
            ScorerUnusable: When it is refused, or the scorer cannot be asked.
        """
        request = scorer_pb2.CompareRunsRequest(
            run_id_a=run_id_a, run_id_b=run_id_b, bootstrap_samples=samples
        )
        return await self._ask(
            "compare the runs",
            self.stub.CompareRuns(request, timeout=SLOW_SECONDS, wait_for_ready=True),
        )

    async def render(self, run_id: str) -> scorer_pb2.RenderReportResponse:
        """Writes the pages of a run.

        Raises:
            NoSuchRun: When there is none.
            ScorerUnusable: When it is refused, or the scorer cannot be asked.
        """
        request = scorer_pb2.RenderReportRequest(run_id=run_id)
        return await self._ask(
            "write the report",
            self.stub.RenderReport(request, timeout=SLOW_SECONDS, wait_for_ready=True),
        )

    async def _ask(self, what: str, call: Awaitable[T]) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise self._fault(what, error) from error

    def _fault(self, what: str, error: grpc.aio.AioRpcError) -> NotValid | WrongUse:
        info = error_info(error)
        reason = info.reason if info is not None else ""
        text = f"the scorer at {self.address} did not {what}: {error.code().name}: "
        text += error.details() or ""
        if reason == "NO_SUCH_RUN":
            return NoSuchRun(
                f"{(error.details() or '').split(';')[0]}; `tau2-eval runs` lists those that are "
                "there, and --output-dir names another folder of runs"
            )
        if reason == "RUN_FINISHED":
            return RunClosed(text)
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            return Refused(f"{what}: {error.details()}")
        return ScorerUnusable(text)


class Refused(WrongUse, ScorerUnusable):
    """The scorer was asked for something that cannot be."""
