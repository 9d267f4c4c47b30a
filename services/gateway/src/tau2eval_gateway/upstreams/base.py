"""The protocol of upstream clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tau2eval_gateway.requests import ChatRequest
from tau2eval_gateway.routes import Route
from tau2eval_gateway.sse import SseEvent
from tau2eval_gateway.usage import Usage


@dataclass(frozen=True, slots=True)
class UpstreamCall:
    """One request to one upstream.

    Attributes:
        route: Where to.
        request: What the caller sent.
        headers: x-tau2eval-* headers; empty unless the upstream is our own.
        connect_seconds: To open a connection.
        total_seconds: For the whole call; the core enforces it too.
    """

    route: Route
    request: ChatRequest
    connect_seconds: float
    total_seconds: float
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """A whole answer.

    Attributes:
        raw: The chat.completion object as JSON.
        body: `raw`, parsed.
    """

    raw: bytes
    body: dict[str, Any]


class UpstreamStream(Protocol):
    """Events of a stream that has begun, in lists of what came at once; never an empty list.

    The iterator ends where the upstream's stream ends; whether it was whole is for the core to
    judge, from the events. [DONE] is among them where the upstream sends it.
    """

    def __aiter__(self) -> UpstreamStream:
        """Returns itself."""

    async def __anext__(self) -> list[SseEvent]:
        """Returns the next events.

        Raises:
            GatewayError: The upstream failed.
            StopAsyncIteration: The upstream's stream has ended.
        """

    async def aclose(self) -> None:
        """Ends the upstream call if it still goes on. May be called again."""


class Upstream(Protocol):
    """A way to reach providers. Cancelling a call ends the upstream's request."""

    async def complete(self, call: UpstreamCall) -> UpstreamAnswer:
        """Asks for a whole answer.

        Raises:
            GatewayError: The upstream refused, failed, or answered what is no answer.
        """

    async def stream(self, call: UpstreamCall) -> UpstreamStream:
        """Opens a stream: returns when the upstream has accepted the request.

        Raises:
            GatewayError: As `complete`.
        """

    def price(self, call: UpstreamCall, usage: Usage) -> float | None:
        """Returns the cost of a call in dollars by a price table; None when unknown."""

    async def aclose(self) -> None:
        """Closes connections."""
