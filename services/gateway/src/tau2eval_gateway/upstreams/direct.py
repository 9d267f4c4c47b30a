"""Upstreams that speak OpenAI's protocol at a known address: bytes go through unchanged."""

from __future__ import annotations

import asyncio
import ipaddress
import weakref
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from tau2eval_gateway.errors import (
    GatewayError,
    Retry,
    UpstreamError,
    provider_error,
    timeout_error,
)
from tau2eval_gateway.redaction import Redactor
from tau2eval_gateway.requests import body_for_model
from tau2eval_gateway.routes import Environment, Route
from tau2eval_gateway.sse import EventTooLargeError, SseEvent, SseSplitter, read_json
from tau2eval_gateway.upstreams.base import UpstreamAnswer, UpstreamCall
from tau2eval_gateway.usage import Usage

_MAX_ERROR_BYTES = 64 * 1024
_ERROR_BODY_SECONDS = 5.0
_DRAIN_SECONDS = 0.2
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class OpenAICompatibleUpstream:
    """Calls over aiohttp. Must be made inside a running event loop.

    Args:
        environment: For os.environ/NAME values.
        redactor: Learns the keys that are used.
    """

    def __init__(self, environment: Environment, redactor: Redactor) -> None:
        self._environment = environment
        self._redactor = redactor
        self._line: ContextVar[_Line] = ContextVar("line")
        # Proxies of the environment are for the outside world, not for our own machines.
        self._inside = _session(self._line, trust_env=False)
        self._outside = _session(self._line, trust_env=True)
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def complete(self, call: UpstreamCall) -> UpstreamAnswer:
        """Asks for a whole answer; see `Upstream`."""
        try:
            response = await self._post(call)
            try:
                raw = await _whole_body(call, response)
            finally:
                # Drops the line unless the answer was read to its end.
                response.close()
        except _FAULTS as error:
            raise _fault(call, error) from None
        try:
            body = read_json(raw)
        except ValueError:
            raise _no_answer(call, "is not JSON") from None
        if not isinstance(body, dict):
            raise _no_answer(call, "is no JSON object")
        if body.get("error") and not body.get("choices"):
            raise provider_error(200, body, provider=call.route.provider)
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices:
            raise _no_answer(call, "has no choices")
        return UpstreamAnswer(raw=raw, body=body)

    async def stream(self, call: UpstreamCall) -> _Stream:
        """Opens a stream; see `Upstream`."""
        try:
            response = await self._post(call)
            if response.content_type == "application/json":
                payload = await _bounded_body(response)
                response.close()
                refusal = provider_error(200, payload, provider=call.route.provider)
                if refusal.message and b'"error"' in payload:
                    raise refusal
                raise _no_answer(call, "is no event stream")
        except _FAULTS as error:
            raise _fault(call, error) from None
        return _Stream(call, response)

    def price(self, call: UpstreamCall, usage: Usage) -> float | None:
        """Returns the cost by the prices of the model list, in dollars; None without them."""
        prices = call.route.deployment.prices
        return prices.cost(usage) if prices is not None else None

    async def list_models(self, route: Route, seconds: float) -> list[str]:
        """Returns the ids that the upstream lists; none when it cannot be asked in time."""
        with suppress(aiohttp.ClientError, GatewayError, TimeoutError, OSError, ValueError):
            url = f"{self._environment.resolve(route.deployment.api_base)}/models"
            async with asyncio.timeout(seconds), self._session(url).get(url) as response:
                if response.status == 200:
                    listed = orjson.loads(await response.read())
                    return _ids(listed)
        return []

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._inside.close()
        await self._outside.close()

    async def _post(self, call: UpstreamCall) -> aiohttp.ClientResponse:
        deployment = call.route.deployment
        base = self._environment.resolve(deployment.api_base)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        for name, value in deployment.extra_headers.items():
            headers[name] = self._environment.resolve(value)
        key = self._environment.resolve(deployment.api_key)
        if key:
            self._redactor.add(key)
            headers["Authorization"] = f"Bearer {key}"
        headers.update(call.headers)
        line = _Line()
        self._line.set(line)
        try:
            response = await self._session(base).post(
                f"{base.rstrip('/')}/chat/completions",
                data=body_for_model(call.request, call.route.upstream_model),
                headers=headers,
                allow_redirects=False,
                # The core bounds the other phases.
                timeout=aiohttp.ClientTimeout(total=None, connect=call.connect_seconds),
            )
        except _FAULTS as error:
            raise _fault(call, error, line) from None
        if response.status == 200:
            return response
        payload = await _bounded_body(response)
        response.close()
        raise provider_error(
            response.status if response.status >= 400 else 502,
            payload,
            provider=call.route.provider,
            retry_after=response.headers.get("Retry-After"),
        )

    def _session(self, url: str) -> aiohttp.ClientSession:
        session = self._sessions.get(url)
        if session is None:
            session = self._inside if _is_inside(url) else self._outside
            self._sessions[url] = session
        return session


@dataclass(slots=True)
class _Line:
    """What becomes known of the connection of one call."""

    kept: bool = False
    """It had served another call before."""


class _Stream:
    """The events of one response."""

    def __init__(self, call: UpstreamCall, response: aiohttp.ClientResponse) -> None:
        self._call = call
        self._response = response
        self._splitter = SseSplitter()
        self._done = False
        self._ended = False

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> list[SseEvent]:
        while not self._ended:
            try:
                piece = await self._response.content.readany()
            except _FAULTS as error:
                raise _fault(self._call, error) from None
            if not piece:
                self._ended = True
                rest = self._splitter.rest()
                if rest is None or _half(rest):
                    break
                return [rest]
            try:
                events = self._splitter.feed(piece)
            except EventTooLargeError:
                raise _no_answer(self._call, "holds an event that is too large") from None
            if events:
                self._done = self._done or any(event.done for event in events)
                return events
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if self._done and not self._response.content.at_eof():
            # The end of the body comes right behind [DONE]; with it the connection can be kept.
            with suppress(TimeoutError, aiohttp.ClientError, OSError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    if not await self._response.content.readany():
                        self._ended = True
        if self._ended or self._response.content.at_eof():
            self._response.release()
        else:
            # A response that is not read to its end keeps the upstream at work: drop the line.
            self._response.close()


def _half(event: SseEvent) -> bool:
    """Whether this is half a JSON text, which is what a stream that breaks off leaves."""
    if event.empty or event.done:
        return False
    try:
        read_json(event.data or b"")
    except ValueError:
        return True
    return False


def _ids(listed: Any) -> list[str]:
    data = listed.get("data") if isinstance(listed, dict) else None
    found = [item.get("id") for item in data or () if isinstance(item, dict)]
    return [name for name in found if isinstance(name, str)]


def _is_inside(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def _session(line: ContextVar[_Line], *, trust_env: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=_Connector(line, limit=0, keepalive_timeout=10),
        trust_env=trust_env,
        auto_decompress=True,
        read_bufsize=256 * 1024,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


class _Connector(aiohttp.TCPConnector):
    """Gives out kept connections only while they are silent.

    What comes in between two calls would be read as the answer to the next one, whose caller is
    another one; aiohttp looks at that when a connection is given back, and not later.

    Args:
        line: Where the call that asks for a connection learns whether it got a kept one. A trace
            of aiohttp tells it too, at a fifth of what a whole call costs.
        options: Of aiohttp's connector.
    """

    def __init__(self, line: ContextVar[_Line], **options: Any) -> None:
        super().__init__(**options)
        self._line = line
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Any:
        """Returns a connection, as aiohttp's own method does."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None:
                return connection
            if protocol not in self._known:
                self._known.add(protocol)
                return connection
            if not protocol.should_close:
                if (line := self._line.get(None)) is not None:
                    line.kept = True
                return connection
            connection.close()


async def _whole_body(call: UpstreamCall, response: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := await response.content.readany():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise _no_answer(call, f"is larger than {MAX_ANSWER_BYTES} bytes")
    return b"".join(pieces)


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    pieces = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(_ERROR_BODY_SECONDS):
            while len(pieces) < _MAX_ERROR_BYTES:
                piece = await response.content.read(_MAX_ERROR_BYTES - len(pieces))
                if not piece:
                    break
                pieces += piece
    return bytes(pieces)


def _no_answer(call: UpstreamCall, what: str) -> GatewayError:
    return UpstreamError(
        f"the upstream's answer {what}",
        error_code="upstream_invalid_response",
        provider=call.route.provider,
    )


_FAULTS = (aiohttp.ClientError, ConnectionError)


def _fault(call: UpstreamCall, error: Exception, line: _Line | None = None) -> GatewayError:
    """Returns the gateway's error for what aiohttp raises.

    Args:
        call: The call.
        error: One of `_FAULTS`.
        line: Given as long as no answer has begun.
    """
    provider = call.route.provider
    if isinstance(error, aiohttp.ServerTimeoutError):
        slow = timeout_error("connect", call.connect_seconds, provider)
        slow.retry = Retry.LATER
        return slow
    if isinstance(error, aiohttp.ClientPayloadError):
        return _broken("broke off in the middle of its answer", error, provider)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _broken("cannot be connected to", error, provider, Retry.LATER)
    # A server closes an idle connection at any time, also just when the next request is on
    # its way; then it has not read it. On a new connection nobody can say what it has read.
    retry = Retry.AT_ONCE if line is not None and line.kept and _gone(error) else Retry.NO
    return _broken("closed the connection", error, provider, retry)


def _gone(error: Exception) -> bool:
    """Whether the peer has closed without a byte of an answer."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)
    return isinstance(error, OSError) and not isinstance(error, aiohttp.ClientResponseError)


def _broken(what: str, error: Exception, provider: str, retry: Retry = Retry.NO) -> UpstreamError:
    # The error's own text can hold addresses and headers; its kind says enough.
    detail: Any = type(error).__name__
    return UpstreamError(
        f"the upstream {what} ({detail})",
        error_code="upstream_connection_error",
        provider=provider,
        retry=retry,
    )
