"""What becomes known of one upstream call, and its one row in the ledger."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tau2eval_gateway.content_log import ContentLog
from tau2eval_gateway.errors import GatewayError, Retry, UpstreamError, UpstreamTimeout
from tau2eval_gateway.estimates import CostEstimates
from tau2eval_gateway.flows.base import Spent, sum_costs
from tau2eval_gateway.flows.ids import PLAIN_ARM
from tau2eval_gateway.ledger import Ledger
from tau2eval_gateway.ledger_schema import LedgerRow
from tau2eval_gateway.requests import CallContext, CallMetadata, format_cost
from tau2eval_gateway.reservation import Reservation
from tau2eval_gateway.upstreams.base import Upstream, UpstreamCall
from tau2eval_gateway.usage import Usage, complete_usage, merge, read_usage, written_bytes

logger = logging.getLogger(__name__)

CANCELLED_STATUS = 499
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


@dataclass(frozen=True, slots=True)
class Around:
    """What control flows did before a stream began: their headers, and their own calls."""

    headers: Mapping[str, str]
    spent: Sequence[Spent]


def _may_have_worked(error: GatewayError) -> bool:
    """Whether the provider may have read the request, and bill it, although nothing came back."""
    return (
        isinstance(error, (UpstreamError, UpstreamTimeout))
        and error.retry is Retry.NO
        and "provider_status" not in error.metadata
    )


@dataclass(frozen=True, slots=True)
class Spend:
    """Where a call's row goes, and what it holds under the cap.

    Attributes:
        ledger: Gets the row.
        estimates: Learn from it, and tell what an unknown cost counts for.
        reservation: The place that the row takes over; None: no cap.
    """

    ledger: Ledger
    estimates: CostEstimates
    reservation: Reservation | None = None


class CallRecord:
    """Gathers the facts of a call and writes them down once, however it ends.

    Args:
        call: The call.
        upstream: Knows prices.
        context: Who asked.
        key_id: With which key.
        spend: Takes the row.
        ended: Called once, with the row.
        around: Control flows around a stream; None: none.
        content: Writes what is said to the log; None: it is not to be there.
    """

    def __init__(
        self,
        call: UpstreamCall,
        upstream: Upstream,
        context: CallContext,
        key_id: str,
        spend: Spend,
        ended: Callable[[], None],
        around: Around | None = None,
        content: ContentLog | None = None,
    ) -> None:
        self._call = call
        self._upstream = upstream
        self._context = context
        self._key_id = key_id
        self._spend = spend
        self._ended = ended
        self._around = around
        self._content = content
        if content is not None:
            content.asked(context.request_id, call.request)
        self._time = spend.reservation.time if spend.reservation else datetime.now(UTC)
        self._started = time.monotonic()
        self._first_byte: float | None = None
        self._served = ""
        self._usage: Usage | None = None
        self._written = 0
        self._answered = False
        self.finished = False

    @property
    def upstream_model(self) -> str:
        """The model id that the upstream was asked for."""
        return self._call.route.upstream_model

    @property
    def provider(self) -> str:
        """Who serves it."""
        return self._call.route.provider

    def first_byte(self) -> None:
        """Notes that the upstream has sent something."""
        if self._first_byte is None:
            self._first_byte = time.monotonic() - self._started
        self._answered = True

    def take_answer(self, body: Mapping[str, Any]) -> None:
        """Reads a chat.completion object."""
        self._answered = True
        self._take_common(body)
        if self._content is not None:
            self._content.answered(self._context.request_id, body)
        for choice in body.get("choices") or ():
            message = choice.get("message") if isinstance(choice, Mapping) else None
            if isinstance(message, Mapping):
                self._written += written_bytes(message)

    def take_chunk(self, chunk: Mapping[str, Any]) -> None:
        """Reads a chat.completion.chunk object."""
        self._take_common(chunk)
        if self._content is not None:
            self._content.answered(self._context.request_id, chunk)
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") if isinstance(choice, Mapping) else None
            if isinstance(delta, Mapping):
                self._written += written_bytes(delta)

    def succeed(self) -> CallMetadata:
        """Writes the row of a whole answer and returns what is ours in it."""
        usage, cost = self._settle(whole=True)
        self._write("ok", 200, usage, cost)
        return self.metadata(cost)

    def fail(self, error: GatewayError) -> None:
        """Writes the row of a call that failed."""
        if self.finished:
            return
        usage, cost = self._settle(whole=False, asked=_may_have_worked(error))
        # A code is the provider's text: one that is no code may repeat the prompt or a key.
        code = error.error_code if _CODE.fullmatch(error.error_code) else "upstream_error"
        self._write(code, error.http_status, usage, cost)
        logger.warning(
            "call %s to %s failed: %s (HTTP %d)",
            self._context.request_id,
            self.provider,
            code,
            error.http_status,
        )

    def cancel(self) -> None:
        """Writes the row of a call whose caller went away; does nothing after another end."""
        if self.finished:
            return
        usage, cost = self._settle(whole=False)
        self._write("cancelled", CANCELLED_STATUS, usage, cost)

    def metadata(self, cost: float | None = None) -> CallMetadata:
        """Returns what is ours in the answer, as far as it is known."""
        around = self._around
        if around is None:
            return call_metadata(self._context, self.upstream_model, cost, {})
        total = None if cost is None else sum_costs([*around.spent, Spent(cost)])
        return call_metadata(self._context, self.upstream_model, total, around.headers)

    def _take_common(self, body: Mapping[str, Any]) -> None:
        if isinstance(model := body.get("model"), str) and model:
            self._served = model
        if (usage := read_usage(body.get("usage"))) is not None:
            self._usage = merge(self._usage, usage)

    def _settle(self, *, whole: bool, asked: bool = True) -> tuple[Usage, float | None]:
        """Returns tokens and dollars as the call's end finds them.

        Args:
            whole: The answer came to its end.
            asked: The provider may have read the request, and may bill it.
        """
        if not (self._answered or asked):
            return Usage(), None
        usage = complete_usage(self._usage, self._call.request.body, self._written, whole)
        if usage.cost_usd is not None:
            return usage, usage.cost_usd
        return usage, self._upstream.price(self._call, usage)

    def _write(self, status: str, http_status: int, usage: Usage, cost: float | None) -> None:
        if self.finished:
            return
        self.finished = True
        self._ended()
        context = self._context
        reservation = self._spend.reservation
        self._spend.ledger.record(
            LedgerRow(
                call_id=reservation.call_id if reservation else os.urandom(16).hex(),
                time=self._time,
                request_id=context.request_id,
                key_id=self._key_id,
                model=self._call.request.model,
                model_served=self._served or self.upstream_model,
                provider=self.provider,
                role=context.role,
                run_id=context.run_id,
                scenario=context.scenario,
                trial=context.trial,
                arm=context.arm or PLAIN_ARM,
                session_id=context.session_id,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                cached_tokens=usage.cached_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                reasoning_tokens=usage.reasoning_tokens,
                estimated=usage.estimated,
                cost_usd=cost,
                latency_seconds=time.monotonic() - self._started,
                first_byte_seconds=self._first_byte,
                status=status,
                http_status=http_status,
                streamed=self._call.request.stream,
                counted_usd=self._counted(status, usage, cost),
            )
        )

    def _counted(self, status: str, usage: Usage, cost: float | None) -> float:
        """Returns what the call counts for towards the cap, in dollars."""
        estimates = self._spend.estimates
        model = self._call.request.model
        if cost is not None:
            if status == "ok" and not usage.estimated:
                estimates.observe(model, cost, usage.completion_tokens)
            return cost
        if status != "ok" and not (usage.prompt_tokens or usage.completion_tokens):
            # Refused, or never sent: nothing to bill.
            return 0.0
        return estimates.unknown(model)


def call_metadata(
    context: CallContext, upstream_model: str, cost: float | None, headers: Mapping[str, str]
) -> CallMetadata:
    """Returns what is ours in an answer.

    Args:
        context: Who asked.
        upstream_model: Id that the upstream was asked for.
        cost: Of all calls of the request, in dollars; None when unknown.
        headers: x-marina-* headers of control flows.
    """
    ours = {"x-marina-upstream-model": upstream_model}
    if cost is not None:
        ours["x-marina-cost-usd"] = format_cost(cost)
    if context.session_id:
        ours["x-marina-session"] = context.session_id
    return CallMetadata(
        request_id=context.request_id,
        upstream_model=upstream_model,
        cost_usd=cost,
        headers={**ours, **headers},
    )
