"""The gateway without a transport: finds the upstream, bounds the call, keeps the ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from tau2eval_gateway.call import CallRecord
from tau2eval_gateway.errors import GatewayError, TooMany, UpstreamError, timeout_error
from tau2eval_gateway.ledger import Ledger
from tau2eval_gateway.redaction import Redactor
from tau2eval_gateway.requests import CallContext, ChatRequest, ChatResult, refused
from tau2eval_gateway.routes import Route, Router
from tau2eval_gateway.stream import ChatStream
from tau2eval_gateway.upstreams.base import Upstream, UpstreamCall
from tau2eval_gateway.upstreams.direct import OpenAICompatibleUpstream

logger = logging.getLogger(__name__)

_LIST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Time-outs in seconds; see `GatewaySettings` for their meaning."""

    connect: float
    first_byte: float
    idle: float
    total: float


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
    ) -> None:
        self._router = router
        self._direct = direct
        self._lite = lite
        self._ledger = ledger
        self._redactor = redactor
        self._bounds = bounds
        self._max_calls = max_calls
        self._calls = 0

    @property
    def ledger(self) -> Ledger:
        """The spend ledger."""
        return self._ledger

    async def complete(self, request: ChatRequest, context: CallContext, key_id: str) -> ChatResult:
        """Asks a model for a whole answer.

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
        route = self._router.find(request.model)
        call, upstream = self._prepare(route, request, context)
        record = self._begin(call, upstream, context, key_id)
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
        return ChatResult(body=answer.raw, metadata=record.succeed())

    async def stream(self, request: ChatRequest, context: CallContext, key_id: str) -> ChatStream:
        """Opens a stream and returns when its first event is there.

        The caller must close what it gets (`async with`), which also writes the ledger row.

        Raises:
            GatewayError: Nothing came of it; see `tau2eval_gateway.errors`.
        """
        route = self._router.find(request.model)
        call, upstream = self._prepare(route, request, context)
        record = self._begin(call, upstream, context, key_id)
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
        names = set(self._router.names())
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

    def _begin(
        self, call: UpstreamCall, upstream: Upstream, context: CallContext, key_id: str
    ) -> CallRecord:
        if self._calls >= self._max_calls:
            raise TooMany(
                f"the gateway holds {self._calls} calls, which is its limit; try again later or "
                "raise TAU2EVAL_GATEWAY_MAX_SESSIONS",
                error_code="too_many_calls",
                retry_after="1",
            )
        self._calls += 1
        ended: Callable[[], None] = self._end
        return CallRecord(call, upstream, context, key_id, self._ledger, ended)

    def _end(self) -> None:
        self._calls -= 1

    def _clean(self, error: GatewayError, request: ChatRequest) -> GatewayError:
        error.message = self._redactor.clean(error.message, request.body)
        error.args = (error.message,)
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
