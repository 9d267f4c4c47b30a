"""The bridge's calls of the scorer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from tau2eval.scorer.v1 import scorer_pb2, scorer_pb2_grpc
from tau2eval_bridge.spool import SpoolError, read_spool
from tau2eval_common.errors import (
    DeadlineExceeded,
    NotFound,
    Unavailable,
    UpstreamFailed,
    describe_rpc_error,
)

logger = logging.getLogger(__name__)

# A record is taken once by its attempt_id, so another try does no harm. grpc.aio reports INTERNAL
# instead of the true status when the server ends the stream while the client still writes.
_RETRIED = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
_MAX_BACKOFF_SECONDS = 10.0


class SubmitFailed(Exception):
    """A record did not reach the scorer; it is still in its spool file."""


@dataclass(frozen=True)
class ScorerClient:
    """Calls of the scorer, with deadlines.

    Attributes:
        channel: Channel to the scorer.
        scenario_timeout: Limit of GetScenario in seconds.
        submit_timeout: Limit of one try of SubmitConversation in seconds.
        submit_retries: Further tries after a failure that may pass.
        submit_backoff: Wait in seconds before the first further try.
    """

    channel: grpc.aio.Channel
    scenario_timeout: float = 20.0
    submit_timeout: float = 300.0
    submit_retries: int = 8
    submit_backoff: float = 0.5

    async def get_scenario(self, name: str) -> scorer_pb2.GetScenarioResponse:
        """Returns a scenario.

        Raises:
            NotFound: There is none of this name.
            Unavailable: The scorer cannot be reached.
            DeadlineExceeded: It does not answer.
            UpstreamFailed: It fails.
        """
        stub = scorer_pb2_grpc.ScenarioServiceStub(self.channel)
        try:
            return await stub.GetScenario(
                scorer_pb2.GetScenarioRequest(name=name),
                timeout=self.scenario_timeout,
                wait_for_ready=True,
            )
        except grpc.aio.AioRpcError as error:
            line = f"scorer: {describe_rpc_error(error)}"
            if error.code() == grpc.StatusCode.NOT_FOUND:
                raise NotFound(line, reason="SCENARIO_NOT_FOUND") from error
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                raise Unavailable(line, reason="SCORER_UNAVAILABLE") from error
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise DeadlineExceeded(line, reason="SCORER_TIMEOUT") from error
            raise UpstreamFailed(line, reason="SCORER_FAILED") from error

    async def submit(self, path: Path) -> scorer_pb2.Verdict:
        """Sends a spooled record and returns its verdict.

        Raises:
            SubmitFailed: After the last try, or when another try is of no use.
        """
        stub = scorer_pb2_grpc.RunServiceStub(self.channel)
        wait = self.submit_backoff
        for attempt in range(self.submit_retries + 1):
            faults: list[Exception] = []
            try:
                response = await stub.SubmitConversation(
                    _parts(path, faults), timeout=self.submit_timeout
                )
                if faults:
                    raise SubmitFailed(str(faults[0]))
                return response.verdict
            except grpc.aio.AioRpcError as error:
                if faults:
                    raise SubmitFailed(str(faults[0])) from error
                line = describe_rpc_error(error)
                if error.code() not in _RETRIED or attempt == self.submit_retries:
                    raise SubmitFailed(line) from error
                logger.warning("submitting %s failed, will try again: %s", path.name, line)
            await asyncio.sleep(wait)
            wait = min(wait * 2, _MAX_BACKOFF_SECONDS)
        raise AssertionError("unreachable")


async def _parts(
    path: Path, faults: list[Exception]
) -> AsyncIterator[scorer_pb2.SubmitConversationRequest]:
    """Yields the spooled parts. A fault goes into `faults`: raised, it would cancel the caller."""
    parts = read_spool(path)
    while True:
        try:
            # Reading blocks for the disk; other calls keep their clock.
            part = await asyncio.to_thread(next, parts, None)
        except (OSError, SpoolError) as error:
            faults.append(error)
            return
        if part is None:
            return
        yield scorer_pb2.SubmitConversationRequest(part=part)
