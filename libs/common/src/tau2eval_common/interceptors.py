"""Server interceptor: domain errors become statuses, unknown ones hide behind INTERNAL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from tau2eval_common.errors import Tau2EvalError, abort_with

logger = logging.getLogger(__name__)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Maps what a servicer raises to a status; see `tau2eval_common.errors`."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wraps the handler of a call."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = handler_call_details.method
        if handler.unary_unary:
            return handler._replace(unary_unary=_unary(handler.unary_unary, method))
        if handler.stream_unary:
            return handler._replace(stream_unary=_unary(handler.stream_unary, method))
        if handler.unary_stream:
            return handler._replace(unary_stream=_stream(handler.unary_stream, method))
        return handler._replace(stream_stream=_stream(handler.stream_stream, method))


def _unary(behavior: Any, method: str) -> Any:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behavior(request, context)
        except Exception as error:
            await _fail(error, context, method)

    return call


def _stream(behavior: Any, method: str) -> Any:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            # Handlers come in two styles: generators, and coroutines that call context.write.
            responses = behavior(request, context)
            if not hasattr(responses, "__aiter__"):
                await responses
                return
            async for response in responses:
                yield response
        except Exception as error:
            await _fail(error, context, method)

    return call


async def _fail(error: Exception, context: grpc.aio.ServicerContext[Any, Any], method: str) -> None:
    if isinstance(error, Tau2EvalError):
        await abort_with(context, error)
    if isinstance(error, (grpc.aio.AbortError, asyncio.CancelledError)):
        raise error
    logger.exception("unexpected error in %s", method)
    await context.abort(
        grpc.StatusCode.INTERNAL,
        f"unexpected {type(error).__name__} in {method}; the service's log has the details",
    )
