"""One stream on its way through: passed on as it is, and watched for a true end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from tau2eval_gateway.call import CallRecord
from tau2eval_gateway.errors import GatewayError, UpstreamError, provider_error, timeout_error
from tau2eval_gateway.requests import CallMetadata
from tau2eval_gateway.sse import DONE, SseEvent, read_json
from tau2eval_gateway.upstreams.base import Upstream, UpstreamCall, UpstreamStream
from tau2eval_gateway.watchdog import Watchdog


class ChatStream:
    """Iterates over the events of an answer, without [DONE]: lists of what came at once.

    It ends cleanly only when the upstream's stream was whole: with [DONE], or with a
    finish_reason for every choice. Everything else raises, after the events before it.

    Args:
        call: What is asked.
        upstream: Whom.
        record: Gets the facts and writes the ledger row.
        first_byte_seconds: Bound on the first event.
        idle_seconds: Bound between two events.
        clean: Redacts the message of an error.

    Attributes:
        metadata: Set when the end has been seen; the events given last are then the last ones.
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
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + call.total_seconds
        self._watchdog = Watchdog()
        self._events: UpstreamStream | None = None
        self._ready: list[SseEvent] = []
        self._fault: GatewayError | None = None
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._ended = False
        self.metadata: CallMetadata | None = None

    async def open(self) -> None:
        """Asks the upstream and waits for its first events.

        Raises:
            GatewayError: It refused, failed, or was too slow.
        """
        try:
            with self._bound("first_byte", self._first_byte_seconds):
                self._events = await self._upstream.stream(self._call)
                batch = await anext(self._events, None)
            if batch is not None:
                self._record.first_byte()
            self._take(batch)
            if self._fault is not None and all(event.empty for event in self._ready):
                # A stream that begins with an error is an error with a status of its own.
                raise self._fault
        except BaseException as error:
            await self._abandon(error)
            raise

    def early_metadata(self) -> CallMetadata:
        """Returns what is known before the stream's end; the cost is not."""
        return self._record.metadata()

    def __aiter__(self) -> ChatStream:
        return self

    async def __anext__(self) -> list[SseEvent]:
        if self._ready:
            events, self._ready = self._ready, []
            return events
        if self._ended:
            raise StopAsyncIteration
        try:
            return await self._next()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            await self._abandon(error)
            raise

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
        self._ready = []
        self._watchdog.close()
        self._record.cancel()
        events, self._events = self._events, None
        if events is not None:
            await events.aclose()

    async def _next(self) -> list[SseEvent]:
        while True:
            if self._fault is not None:
                raise self._fault
            assert self._events is not None
            with self._bound("idle", self._idle_seconds):
                batch = await anext(self._events, None)
            self._take(batch)
            if self._ready:
                events, self._ready = self._ready, []
                return events
            if self._ended:
                raise StopAsyncIteration

    def _take(self, batch: Sequence[SseEvent] | None) -> None:
        """Sorts events into what goes to the caller and what comes after it: end or fault."""
        if batch is None:
            self._end()
            return
        for at, event in enumerate(batch):
            data = (event.data or b"").strip()
            if data == DONE:
                self._ready = list(batch[:at])
                self._end()
                return
            if not data:
                continue
            try:
                self._watch(data)
            except GatewayError as fault:
                self._ready = list(batch[:at])
                self._fault = fault
                return
        self._ready = list(batch)

    def _end(self) -> None:
        wanted = self._call.request.body.get("n")
        wanted = wanted if isinstance(wanted, int) else 1
        # A [DONE] alone does not make an answer whole: every choice must have ended.
        if self._seen <= self._finished and len(self._finished) >= wanted:
            self._ended = True
            self.metadata = self._record.succeed()
        else:
            self._fault = UpstreamError(
                "the upstream's stream broke off before its end",
                error_code="upstream_truncated",
                provider=self._record.provider,
            )

    def _watch(self, data: bytes) -> None:
        """Reads an event's data for usage, end and errors.

        Raises:
            GatewayError: It is an error, or is no chunk.
        """
        try:
            chunk = read_json(data)
        except ValueError:
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
            if not isinstance(choice, dict):
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

    async def _abandon(self, error: BaseException) -> None:
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
        now = self._loop.time()
        shown = seconds
        if self._deadline - now < seconds:
            phase, seconds, shown = "total", self._deadline - now, self._call.total_seconds
        return _Bound(self._watchdog.until(now + seconds), phase, shown, self._record)

    def _malformed(self) -> GatewayError:
        return UpstreamError(
            "the upstream's stream holds a chunk that cannot be read",
            error_code="upstream_invalid_response",
            provider=self._record.provider,
        )


class _Bound:
    """A wait whose time-out says which phase was too slow."""

    __slots__ = ("_phase", "_record", "_seconds", "_watchdog")

    def __init__(self, watchdog: Watchdog, phase: str, seconds: float, record: CallRecord) -> None:
        self._watchdog = watchdog
        self._phase = phase
        self._seconds = seconds
        self._record = record

    def __enter__(self) -> None:
        self._watchdog.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._watchdog.__exit__(kind, error, trace)
        except TimeoutError:
            raise timeout_error(self._phase, self._seconds, self._record.provider) from None
