"""The gateway without a transport: finds the upstream, bounds the call, keeps the ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tau2eval_gateway.call import Around, CallRecord, Spend, call_metadata
from tau2eval_gateway.content_log import ContentLog
from tau2eval_gateway.errors import GatewayError, TooMany, UpstreamError, timeout_error
from tau2eval_gateway.flows.base import Reply, Spent, sum_costs
from tau2eval_gateway.flows.ids import CREW_PREFIX, CrewPlan, Plan, read_model_id
from tau2eval_gateway.flows.pipeline import Asked, Pipeline
from tau2eval_gateway.ledger import Ledger
from tau2eval_gateway.redaction import Redactor
from tau2eval_gateway.requests import CallContext, ChatRequest, ChatResult, refused
from tau2eval_gateway.reservation import Reservation, Reservations
from tau2eval_gateway.retries import first_answer
from tau2eval_gateway.routes import Route, Router
from tau2eval_gateway.stream import ChatStream
from tau2eval_gateway.upstreams.base import Upstream, UpstreamCall
from tau2eval_gateway.upstreams.direct import OpenAICompatibleUpstream

logger = logging.getLogger(__name__)

_LIST_SECONDS = 2.0
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Time-outs in seconds, and how often a call is tried again; see `GatewaySettings`."""

    connect: float
    first_byte: float
    idle: float
    total: float
    retries: int


class GatewayCore:
    """Serves chat completions. Every transport uses this and nothing below it.

    Args:
        router: The model list.
        direct: For upstreams that speak OpenAI's protocol at a given address.
        lite: For all others.
        ledger: Gets one row for every upstream call.
        redactor: Cleans the messages of providers.
        bounds: Time-outs.
        max_calls: Calls in progress at once.
        reservations: Keeps the daily cap.
        content: Writes what is said to the log; None: it is not to be there.
    """

    def __init__(
        self,
        router: Router,
        direct: OpenAICompatibleUpstream,
        lite: Upstream,
        ledger: Ledger,
        redactor: Redactor,
        bounds: Bounds,
        max_calls: int,
        reservations: Reservations,
        content: ContentLog | None = None,
    ) -> None:
        self._router = router
        self._direct = direct
        self._lite = lite
        self._ledger = ledger
        self._redactor = redactor
        self._bounds = bounds
        self._max_calls = max_calls
        self._reservations = reservations
        self._content = content
        self._calls = 0
        self._pipeline: Pipeline | None = None
        self._crews: Mapping[str, CrewPlan] = {}

    @property
    def ledger(self) -> Ledger:
        """The spend ledger."""
        return self._ledger

    @property
    def reservations(self) -> Reservations:
        """The daily cap."""
        return self._reservations

    def use_flows(self, pipeline: Pipeline, crews: Mapping[str, CrewPlan]) -> None:
        """Serves marina/ and marina: ids from now on."""
        self._pipeline = pipeline
        self._crews = crews

    async def complete(self, request: ChatRequest, context: CallContext, key_id: str) -> ChatResult:
        """Asks a model, through the control flows of its id, for a whole answer.

        Cancelling this cancels the upstream's call; the ledger gets its row in every case.

        Raises:
            GatewayError: Nothing came of it; see `tau2eval_gateway.errors`.
        """
        if request.stream:
            raise refused(
                "a stream was asked for where whole answers are given; send stream: false or use "
                "the streaming call",
                param="stream",
            )
        plan = self._plan(request)
        if plan is None:
            asked = await self.ask(request, context, key_id)
            return ChatResult(body=asked.reply.raw, metadata=asked.metadata)
        pipeline = self._flows()
        reply, flow_context, headers = await pipeline.complete(plan, request, context, key_id)
        cost = sum_costs(flow_context.spent)
        return ChatResult(
            body=reply.raw,
            metadata=call_metadata(context, reply.upstream_model, cost, headers),
        )

    async def ask(self, request: ChatRequest, context: CallContext, key_id: str) -> Asked:
        """Asks the model of a plain id, again or elsewhere where that is safe; see `complete`."""
        return await self._answer(
            request, context, lambda route, inside: self._ask(route, request, inside, key_id)
        )

    async def _answer(
        self,
        request: ChatRequest,
        context: CallContext,
        attempt: Callable[[Route, CallContext], Awaitable[_Answer]],
    ) -> _Answer:
        total = self._bounds.total
        if context.deadline_seconds is not None:
            total = min(total, context.deadline_seconds)
        return await first_answer(
            self._router.find_all(request.model),
            lambda route, left: attempt(
                route, context if left == total else replace(context, deadline_seconds=left)
            ),
            retries=self._bounds.retries,
            total_seconds=total,
        )

    async def _ask(
        self, route: Route, request: ChatRequest, context: CallContext, key_id: str
    ) -> Asked:
        """Makes one upstream call."""
        call, upstream = self._prepare(route, request, context)
        record = await self._begin(call, upstream, context, key_id)
        try:
            async with asyncio.timeout(call.total_seconds):
                answer = await upstream.complete(call)
        except TimeoutError:
            error: GatewayError = timeout_error("total", call.total_seconds, route.provider)
            record.fail(error)
            raise error from None
        except GatewayError as cause:
            error = self._clean(cause, request)
            record.fail(error)
            raise error from None
        except asyncio.CancelledError:
            record.cancel()
            raise
        except Exception as cause:
            error = _unexpected(cause, route)
            record.fail(error)
            raise error from None
        record.take_answer(answer.body)
        metadata = record.succeed()
        usage = answer.body.get("usage")
        return Asked(
            Reply(answer.raw, answer.body, metadata.upstream_model),
            Spent(metadata.cost_usd, usage if isinstance(usage, dict) else {}),
            metadata,
        )

    async def stream(self, request: ChatRequest, context: CallContext, key_id: str) -> ChatStream:
        """Opens a stream and returns when its first event is there.

        The caller must close what it gets (`async with`), which also writes the ledger row.

        Raises:
            GatewayError: Nothing came of it; see `tau2eval_gateway.errors`.
        """
        plan = self._plan(request)
        around = None
        if plan is not None:
            pipeline = self._flows()
            request, flow_context, headers = await pipeline.prepare_stream(
                plan, request, context, key_id
            )
            around = Around(headers, flow_context.spent)
            context = replace(context, arm=plan.arm)
        return await self._answer(
            request,
            context,
            lambda route, inside: self._open(route, request, inside, key_id, around),
        )

    async def _open(
        self,
        route: Route,
        request: ChatRequest,
        context: CallContext,
        key_id: str,
        around: Around | None,
    ) -> ChatStream:
        call, upstream = self._prepare(route, request, context)
        record = await self._begin(call, upstream, context, key_id, around)
        stream = ChatStream(
            call,
            upstream,
            record,
            first_byte_seconds=self._bounds.first_byte,
            idle_seconds=self._bounds.idle,
            clean=lambda error: self._clean(error, request),
        )
        await stream.open()
        return stream

    async def list_models(self) -> list[str]:
        """Returns the model ids that can be asked for by name, scripted ones included."""
        names = {*self._router.names(), *(f"{CREW_PREFIX}{name}" for name in self._crews)}
        for deployment in self._router.own_patterns():
            route = Route(deployment, deployment.model)
            for model in await self._direct.list_models(route, _LIST_SECONDS):
                try:
                    found = self._router.find(model)
                except GatewayError:
                    continue
                if found.deployment is deployment and found.upstream_model == model:
                    names.add(model)
        return sorted(names)

    def _plan(self, request: ChatRequest) -> Plan | None:
        """Reads the model id; every model in it must be there before anything is spent."""
        plan = read_model_id(request.model, self._crews)
        if plan is not None:
            for model in (plan.agent_model, *plan.checkers):
                self._router.check(model)
        return plan

    def _flows(self) -> Pipeline:
        if self._pipeline is None:
            raise refused(
                "control flows are off in this gateway; ask for the plain model id",
                code="control_flow_unavailable",
                param="model",
            )
        return self._pipeline

    def _prepare(
        self, route: Route, request: ChatRequest, context: CallContext
    ) -> tuple[UpstreamCall, Upstream]:
        total = self._bounds.total
        if route.deployment.timeout_seconds is not None:
            total = min(total, route.deployment.timeout_seconds)
        if context.deadline_seconds is not None:
            total = min(total, context.deadline_seconds)
        if total <= 0:
            raise timeout_error("total", 0.0, route.provider)
        call = UpstreamCall(
            route=route,
            request=request,
            connect_seconds=min(self._bounds.connect, total),
            total_seconds=total,
            headers=context.upstream_headers() if route.deployment.own else {},
        )
        upstream: Upstream = self._direct if route.deployment.direct else self._lite
        return call, upstream

    async def _begin(
        self,
        call: UpstreamCall,
        upstream: Upstream,
        context: CallContext,
        key_id: str,
        around: Around | None = None,
    ) -> CallRecord:
        if self._calls >= self._max_calls:
            raise TooMany(
                f"the gateway holds {self._calls} calls, which is its limit; try again later or "
                "raise TAU2EVAL_GATEWAY_MAX_SESSIONS",
                error_code="too_many_calls",
                retry_after="1",
            )
        self._calls += 1
        reservation: Reservation | None = None
        if self._reservations.active:
            try:
                reservation = await self._reservations.reserve(call, upstream)
            except BaseException:
                self._end()
                raise
        ended: Callable[[], None] = self._end
        spend = Spend(self._ledger, self._reservations.estimates, reservation)
        return CallRecord(call, upstream, context, key_id, spend, ended, around, self._content)

    def _end(self) -> None:
        self._calls -= 1

    def _clean(self, error: GatewayError, request: ChatRequest) -> GatewayError:
        error.message = self._redactor.clean(error.message, request.body)
        error.args = (error.message,)
        if error.details:
            error.details = self._redactor.clean_all(error.details, request.body)
        if "provider_status" in error.metadata:
            # The provider's words too; ours need no look.
            error.replace_words(lambda text: self._redactor.clean(text, request.body))
        return error


def _unexpected(cause: Exception, route: Route) -> GatewayError:
    # The text of an unknown exception may hold anything; its kind and place go to the log.
    logger.error(
        "unexpected %s in a call to %s", type(cause).__name__, route.provider, exc_info=False
    )
    return UpstreamError(
        f"the upstream call failed with an unexpected {type(cause).__name__}",
        error_code="upstream_error",
        http_status=500,
        provider=route.provider,
    )
