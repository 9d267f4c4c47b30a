"""What the command asks of the scorer: a run's plan, its verdicts, its artifacts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import IO, Any

import grpc

from tau2eval.scorer.v1 import record_pb2, scorer_pb2, scorer_pb2_grpc
from tau2eval.voice.v1 import voice_pb2
from tau2eval_cli.errors import NotValid
from tau2eval_common.client import open_channel

RECORD_FORMAT_VERSION = 1

_CALL_SECONDS = 30.0
_FINISH_SECONDS = 120.0
_ARTIFACTS_SECONDS = 300.0


class ScorerUnusable(NotValid):
    """The scorer refused or could not be reached."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at one scenario.

    Attributes:
        run_id: Id of the run.
        scenario: Name of the scenario.
        attempt_id: Unique for the attempt.
        modality: Of the call.
        min_agent_turns: The run's minimum.
        settings: The run's settings.
    """

    run_id: str
    scenario: str
    attempt_id: str
    modality: voice_pb2.Modality.ValueType
    min_agent_turns: int
    settings: dict[str, Any]


class ScorerClient:
    """The scorer at one address; a context manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self._runs = scorer_pb2_grpc.RunServiceStub(self._channel)
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
        try:
            response = await self._scenarios.ListScenarios(
                scorer_pb2.ListScenariosRequest(), timeout=_CALL_SECONDS, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            raise self._unusable("list its scenarios", error) from error
        return [scenario.name for scenario in response.scenarios]

    async def create_run(
        self, run_id: str, scenarios: Sequence[str], settings: dict[str, Any]
    ) -> None:
        """Registers the plan of a run.

        Raises:
            ScorerUnusable: When it is refused, or the scorer cannot be reached.
        """
        plan = scorer_pb2.RunPlan(
            run_id=run_id,
            scenarios=scenarios,
            trials=1,
            settings_json=json.dumps(settings, sort_keys=True),
        )
        try:
            await self._runs.CreateRun(
                scorer_pb2.CreateRunRequest(plan=plan), timeout=_CALL_SECONDS, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            raise self._unusable("create the run", error) from error

    async def verdict_of(self, attempt: Attempt) -> scorer_pb2.Verdict | None:
        """Returns the verdict on an attempt, if the scorer has it and can be reached."""
        try:
            response = await self._runs.GetRun(
                scorer_pb2.GetRunRequest(run_id=attempt.run_id), timeout=_CALL_SECONDS
            )
        except grpc.aio.AioRpcError:
            return None
        ids = (attempt.attempt_id, _placeholder_id(attempt))
        for verdict in response.verdicts:
            if verdict.scenario == attempt.scenario and verdict.attempt_id in ids:
                return verdict
        return None

    async def submit_not_run(
        self, attempt: Attempt, reason: record_pb2.StopReason.ValueType, detail: str
    ) -> scorer_pb2.Verdict:
        """Records an attempt that was never held to its end, so that the run's store is whole.

        It has an id of its own, so that the bridge's record of the same attempt, which may still
        come, is not taken for a repetition; the scorer lets a score replace it. Returned is the
        verdict that counts.

        Raises:
            ScorerUnusable: When the record cannot be sent.
        """
        header = record_pb2.RecordHeader(
            format_version=RECORD_FORMAT_VERSION,
            run_id=attempt.run_id,
            scenario=attempt.scenario,
            attempt_id=_placeholder_id(attempt),
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            settings_json=json.dumps(attempt.settings, sort_keys=True),
            versions_json=json.dumps({"tau2eval-cli": version("tau2eval-cli")}),
            modality=attempt.modality,
        )
        footer = record_pb2.RecordFooter(
            stop_reason=reason, stop_detail=detail, min_agent_turns=attempt.min_agent_turns
        )

        async def parts() -> AsyncIterator[scorer_pb2.SubmitConversationRequest]:
            for part in (
                record_pb2.RecordPart(header=header),
                record_pb2.RecordPart(footer=footer),
            ):
                yield scorer_pb2.SubmitConversationRequest(part=part)

        try:
            response = await self._runs.SubmitConversation(parts(), timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise self._unusable("take the record", error) from error
        return await self.verdict_of(attempt) or response.verdict

    async def finish_run(self, run_id: str) -> scorer_pb2.FinishRunResponse:
        """Closes the run.

        Raises:
            ScorerUnusable: When that cannot be done.
        """
        try:
            return await self._runs.FinishRun(
                scorer_pb2.FinishRunRequest(run_id=run_id), timeout=_FINISH_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            raise self._unusable("finish the run", error) from error

    async def download(self, run_id: str, scenario: str, folder: Path) -> int:
        """Writes artifacts into a folder on this machine and returns the number of files.

        Args:
            run_id: Id of the run.
            scenario: The scenario whose artifacts are wanted; empty for the run's own files.
            folder: The run's folder here.

        Raises:
            ScorerUnusable: When they cannot be had, or a path would leave the folder.
            OSError: When they cannot be written.
        """
        request = scorer_pb2.GetArtifactsRequest(run_id=run_id, scenario=scenario)
        files = 0
        file: IO[bytes] | None = None
        try:
            async for response in self._runs.GetArtifacts(request, timeout=_ARTIFACTS_SECONDS):
                if file is None:
                    file = _open_below(folder, response.path)
                    files += 1
                file.write(response.chunk)
                if response.last:
                    file.close()
                    file = None
        except grpc.aio.AioRpcError as error:
            raise self._unusable("send the artifacts", error) from error
        finally:
            if file is not None:
                file.close()
        return files

    def _unusable(self, what: str, error: grpc.aio.AioRpcError) -> ScorerUnusable:
        return ScorerUnusable(
            f"the scorer at {self.address} did not {what}: {error.code().name}: {error.details()}"
        )


def _open_below(folder: Path, path: str) -> IO[bytes]:
    parts = PurePosixPath(path).parts
    if not parts or any(part in ("..", "/") or "\\" in part for part in parts):
        raise ScorerUnusable(
            f"the scorer sent an artifact with the path {path!r}, which is refused"
        )
    target = folder.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.open("wb")


def _placeholder_id(attempt: Attempt) -> str:
    return f"{attempt.attempt_id}-lost"
