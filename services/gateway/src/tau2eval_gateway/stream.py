"""One stream on its way through: passed on as it is, and watched for a true end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import orjson

from tau2eval_gateway.call import CallRecord
from tau2eval_gateway.errors import GatewayError, UpstreamError, provider_error, timeout_error
from tau2eval_gateway.requests import CallMetadata
from tau2eval_gateway.sse import DONE, SseEvent
from tau2eval_gateway.upstreams.base import Upstream, UpstreamCall, UpstreamStream


class ChatStream:
    """Iterates over the events of an answer, without [DONE].

    It ends cleanly only when the upstream's stream was whole: with [DONE], or with a
    finish_reason for every choice. Everything else raises. After a clean end `metadata` is set.

    Args:
        call: What is asked.
        upstream: Whom.
        record: Gets the facts and writes the ledger row.
        first_byte_seconds: Bound on the first event.
        idle_seconds: Bound between two events.
        clean: Redacts the message of an error.
    """

    def __init__(
        self,
        call: UpstreamCall,
        upstream: Upstream,
        record: CallRecord,
        *,
        first_byte_seconds: float,
        idle_seconds: float,
        clean: Callable[[GatewayError], GatewayError],
    ) -> None:
        self._call = call
        self._upstream = upstream
        self._record = record
        self._first_byte_seconds = first_byte_seconds
        self._idle_seconds = idle_seconds
        self._clean = clean
        self._deadline = asyncio.get_running_loop().time() + call.total_seconds
        self._events: UpstreamStream | None = None
        self._first: SseEvent | None = None
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._ended = False
        self.metadata: CallMetadata | None = None

    async def open(self) -> None:
        """Asks the upstream and waits for its first event.

        Raises:
            GatewayError: It refused, failed, or was too slow.
        """
        try:
            async with self._bound("first_byte", self._first_byte_seconds):
                self._events = await self._upstream.stream(self._call)
                self._first = await anext(self._events, None)
            if self._first is None:
                raise self._truncated()
            self._record.first_byte()
            # A stream that begins with an error is an error with a status of its own.
            self._watch(self._first)
        except BaseException as error:
            await self._abandon(error)
            raise

    def early_metadata(self) -> CallMetadata:
        """Returns what is known before the stream's end; the cost is not."""
        return self._record.metadata()

    def __aiter__(self) -> ChatStream:
        return self

    async def __anext__(self) -> SseEvent:
        if self._ended:
            raise StopAsyncIteration
        try:
            event = await self._next()
        except StopAsyncIteration:
            await self._finish()
            raise
        except BaseException as error:
            await self._abandon(error)
            raise
        return event

    async def __aenter__(self) -> ChatStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the upstream's call; a stream that was not read to its end counts as cancelled."""
        self._ended = True
        self._record.cancel()
        events, self._events = self._events, None
        if events is not None:
            await events.aclose()

    async def _next(self) -> SseEvent:
        if self._first is not None:
            event, self._first = self._first, None
            if event.data is not None and event.data.strip() == DONE:
                raise self._truncated()
            return event
        assert self._events is not None
        async with self._bound("idle", self._idle_seconds):
            following = await anext(self._events, None)
        done = following is not None and (following.data or b"").strip() == DONE
        if following is None or done:
            # A [DONE] alone does not make an answer whole: every choice must have ended.
            if self._whole():
                raise StopAsyncIteration
            raise self._truncated()
        self._watch(following)
        return following

    def _whole(self) -> bool:
        wanted = self._call.request.body.get("n")
        wanted = wanted if isinstance(wanted, int) else 1
        return self._seen <= self._finished and len(self._finished) >= wanted

    def _watch(self, event: SseEvent) -> None:
        """Reads an event for usage, end and errors.

        Raises:
            GatewayError: It is an error, or is no chunk.
        """
        data = event.data
        if data is None or not data.strip() or data.strip() == DONE:
            return
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise self._malformed() from None
        if not isinstance(chunk, dict):
            raise self._malformed()
        if chunk.get("error"):
            raise provider_error(200, chunk, provider=self._record.provider)
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            if choices is not None:
                raise self._malformed()
            choices = []
        for choice in choices:
            if not isinstance(choice, Mapping):
                raise self._malformed()
            self._watch_choice(choice)
        self._record.take_chunk(chunk)

    def _watch_choice(self, choice: Mapping[str, Any]) -> None:
        index = choice.get("index", 0)
        if not isinstance(index, int):
            raise self._malformed()
        self._seen.add(index)
        if choice.get("finish_reason"):
            self._finished.add(index)

    async def _finish(self) -> None:
        self._ended = True
        self.metadata = self._record.succeed()
        await self.aclose()

    async def _abandon(self, error: BaseException) -> None:
        self._ended = True
        if isinstance(error, GatewayError):
            self._record.fail(self._clean(error))
        elif isinstance(error, Exception):
            self._record.fail(
                UpstreamError(
                    f"unexpected {type(error).__name__}",
                    error_code="upstream_error",
                    http_status=500,
                    provider=self._record.provider,
                )
            )
        await self.aclose()

    def _bound(self, phase: str, seconds: float) -> _Bound:
        left = self._deadline - asyncio.get_running_loop().time()
        if left < seconds:
            return _Bound("total", left, self._call.total_seconds, self._record.provider)
        return _Bound(phase, seconds, seconds, self._record.provider)

    def _truncated(self) -> GatewayError:
        return UpstreamError(
            "the upstream's stream broke off before its end",
            error_code="upstream_truncated",
            provider=self._record.provider,
        )

    def _malformed(self) -> GatewayError:
        return UpstreamError(
            "the upstream's stream holds a chunk that cannot be read",
            error_code="upstream_invalid_response",
            provider=self._record.provider,
        )


class _Bound:
    """`asyncio.timeout` whose error says which phase was too slow."""

    def __init__(self, phase: str, seconds: float, shown: float, provider: str) -> None:
        self._error = timeout_error(phase, shown, provider)
        self._timeout = asyncio.timeout(max(0.0, seconds))

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise self._error from None
