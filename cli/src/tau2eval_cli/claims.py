"""Claims on trials, so that two runners of one run never hold the same one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli.holders import describe_holder, is_dead
from tau2eval_cli.scorer_client import RunClosed, ScorerClient, ScorerUnusable
from tau2eval_cli.trials import Trial

GRANTED = scorer_pb2.CLAIM_STATE_GRANTED
TAKEN = scorer_pb2.CLAIM_STATE_TAKEN
SCORED = scorer_pb2.CLAIM_STATE_SCORED


@dataclass(frozen=True)
class Leases:
    """Times of claims in seconds.

    Attributes:
        length: After which a claim ends unless it is renewed.
        renewal: Between two renewals.
        retry: Before another try after a renewal that failed.
    """

    length: float = 30.0
    renewal: float = 10.0
    retry: float = 1.0


@dataclass
class Lease:
    """A claim that is being kept.

    Attributes:
        lost: Set when another runner has it now.
    """

    lost: asyncio.Event = field(default_factory=asyncio.Event)


class Claims:
    """The claims of one runner.

    Args:
        scorer: Keeps them.
        run_id: The run.
        leases: Times.
        reopen: Opens the run again when another runner has closed it.
    """

    def __init__(
        self,
        scorer: ScorerClient,
        run_id: str,
        leases: Leases,
        reopen: Callable[[], Awaitable[None]],
    ) -> None:
        self._scorer = scorer
        self._run_id = run_id
        self._leases = leases
        self._reopen = reopen
        self._holder = describe_holder()

    async def take(self, trial: Trial, attempt_id: str) -> scorer_pb2.ClaimTrialResponse:
        """Asks for a trial; opens the run again when another runner closed it meanwhile.

        A claim of a process of this machine that is gone is ended at once, not with its lease.

        Raises:
            ScorerUnusable: When the scorer cannot be asked.
        """
        try:
            answer = await self._ask(trial, attempt_id)
        except RunClosed:
            await self._reopen()
            answer = await self._ask(trial, attempt_id)
        if answer.state == TAKEN and answer.attempt_id and is_dead(answer.holder):
            await self._scorer.release(self._run_id, trial, answer.attempt_id)
            answer = await self._ask(trial, attempt_id)
        return answer

    @asynccontextmanager
    async def holding(self, trial: Trial, attempt_id: str) -> AsyncIterator[Lease]:
        """Keeps a claim that was granted, and gives it back at the end."""
        lease = Lease()
        renewing = asyncio.create_task(self._renew(trial, attempt_id, lease))
        try:
            yield lease
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            # Another one's claim is none of ours to give back; the scorer goes by the attempt.
            with contextlib.suppress(ScorerUnusable):
                await self._scorer.release(self._run_id, trial, attempt_id)

    async def _ask(self, trial: Trial, attempt_id: str) -> scorer_pb2.ClaimTrialResponse:
        return await self._scorer.claim(
            self._run_id, trial, attempt_id, self._holder, self._leases.length
        )

    async def _renew(self, trial: Trial, attempt_id: str, lease: Lease) -> None:
        pause = self._leases.renewal
        while True:
            await asyncio.sleep(pause)
            try:
                response = await self.take(trial, attempt_id)
            except ScorerUnusable:
                # It may come back before the lease ends.
                pause = self._leases.retry
                continue
            pause = self._leases.renewal
            if response.state == TAKEN:
                lease.lost.set()
                return
            if response.state == SCORED:
                return  # By our own record, most likely; a call that goes on does no harm.
