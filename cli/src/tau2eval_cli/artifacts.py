"""Copies artifacts from a scorer elsewhere into a folder on this machine."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import IO, Any

import grpc

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli.scorer_client import ScorerClient, ScorerUnusable
from tau2eval_cli.trials import Trial

ARTIFACTS_SECONDS = 300.0
MAX_READ_BYTES = 64 * 1024 * 1024
_CHANGED_TRIES = 3


async def download(
    scorer: ScorerClient, run_id: str, trial: Trial | None, folder: Path
) -> list[Path]:
    """Writes artifacts into a folder and returns the files.

    Args:
        scorer: Has them.
        run_id: Id of the run.
        trial: Of which the attempt that counts is wanted; None for the run's own files.
        folder: The run's folder here.

    Raises:
        ScorerUnusable: When they cannot be had, or a path would leave the folder.
        OSError: When they cannot be written.
    """
    request = scorer_pb2.GetArtifactsRequest(run_id=run_id)
    if trial is not None:
        request.scenario, request.trial = trial.scenario, trial.number
    for left in reversed(range(_CHANGED_TRIES)):
        try:
            return await _receive(scorer, request, folder)
        except grpc.aio.AioRpcError as error:
            # They change while a run goes on; then the whole is asked for again.
            if error.code() is not grpc.StatusCode.UNAVAILABLE or not left:
                raise ScorerUnusable(
                    f"the scorer at {scorer.address} did not send the artifacts: "
                    f"{error.code().name}: {error.details()}"
                ) from error
    raise AssertionError("unreachable")


async def read_artifacts(
    scorer: ScorerClient, run_id: str, trial: Trial, names: Collection[str]
) -> dict[str, bytes]:
    """Returns files of the attempt that counts, by their names below its folder.

    Args:
        scorer: Has them.
        run_id: Id of the run.
        trial: Scenario and number.
        names: Which; those that are not there are left out.

    Raises:
        ScorerUnusable: When they cannot be had, or are larger than `MAX_READ_BYTES`.
    """
    request = scorer_pb2.GetArtifactsRequest(
        run_id=run_id, scenario=trial.scenario, trial=trial.number
    )
    files: dict[str, bytearray] = {}
    call: Any = scorer.stub.GetArtifacts(request, timeout=ARTIFACTS_SECONDS)
    try:
        async for response in call:
            name = next((n for n in names if f"/{response.path}".endswith(f"/{n}")), None)
            if name is None or "scorings" in PurePosixPath(response.path).parts:
                continue
            files.setdefault(name, bytearray()).extend(response.chunk)
            if sum(map(len, files.values())) > MAX_READ_BYTES:
                raise ScorerUnusable(f"the files of {trial.label(True)} are larger than expected")
    except grpc.aio.AioRpcError as error:
        raise ScorerUnusable(
            f"the scorer at {scorer.address} did not send the artifacts: "
            f"{error.code().name}: {error.details()}"
        ) from error
    finally:
        call.cancel()
    return {name: bytes(data) for name, data in files.items()}


async def _receive(
    scorer: ScorerClient, request: scorer_pb2.GetArtifactsRequest, folder: Path
) -> list[Path]:
    files: list[Path] = []
    file: IO[bytes] | None = None
    call: Any = scorer.stub.GetArtifacts(request, timeout=ARTIFACTS_SECONDS)
    try:
        async for response in call:
            if file is None:
                target = _below(folder, response.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                file = target.open("wb")
                files.append(target)
            file.write(response.chunk)
            if response.last:
                file.close()
                file = None
    finally:
        call.cancel()
        if file is not None:
            file.close()
    return files


def _below(folder: Path, path: str) -> Path:
    parts = PurePosixPath(path).parts
    if not parts or any(part in ("..", "/") or "\\" in part for part in parts):
        raise ScorerUnusable(
            f"the scorer sent an artifact with the path {path!r}, which is refused"
        )
    return folder.joinpath(*parts)
