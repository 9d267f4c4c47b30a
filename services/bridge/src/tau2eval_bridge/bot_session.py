"""One Converse stream to a bot: its opening, its messages in, its frames out, its loss."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable

import grpc

from tau2eval.voice.v1 import voice_pb2, voice_pb2_grpc
from tau2eval_bridge.clock import TICKS_PER_SECOND, LatenessLog
from tau2eval_common.errors import (
    CapacityExhausted,
    FailedPrecondition,
    Tau2EvalError,
    describe_rpc_error,
)

logger = logging.getLogger(__name__)

MAX_UNSENT_FRAMES = 5 * TICKS_PER_SECOND
"""A bot that leaves more audio than this untaken no longer listens: it is lost."""

MAX_INBOX = 50_000
"""Messages of a bot that wait for the clock; one that sends more in a tick is out of order."""

_RETRY_SECONDS = 1.0
_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)

_Call = grpc.aio.StreamStreamCall[voice_pb2.ConverseRequest, voice_pb2.ConverseResponse]


class BotUnreachable(Exception):
    """A bot could not be reached, or broke before it was ready."""


class BotSession:
    """A bot as the conversation sees it. Sending never waits; what comes in lies in `inbox`.

    Attributes:
        role: The side that the bot plays.
        address: Its gRPC target.
        inbox: Messages that came in, oldest first; the conversation takes them out.
        changed: Set whenever a message came in or the stream ended.
        failure: Why the stream is at its end; None while it is open.
        lateness: How late audio frames left.
    """

    def __init__(
        self, role: voice_pb2.Role.ValueType, address: str, channel: grpc.aio.Channel
    ) -> None:
        self.role = role
        self.address = address
        self.inbox: deque[voice_pb2.ConverseResponse] = deque()
        self.changed = asyncio.Event()
        self.failure: str | None = None
        self.lateness = LatenessLog()
        self._stub = voice_pb2_grpc.VoiceBotServiceStub(channel)
        self._call: _Call | None = None
        self._outbox: deque[tuple[voice_pb2.ConverseRequest, float | None]] = deque()
        self._outgoing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        """How people call this side."""
        return "agent" if self.role == voice_pb2.ROLE_AGENT else "user"

    async def open(
        self, setup: voice_pb2.Setup, ready_timeout: float, call_timeout: float
    ) -> voice_pb2.Ready:
        """Opens the stream and waits for Ready. A bot that is not there yet is waited for.

        Args:
            setup: The first message.
            ready_timeout: Limit in seconds.
            call_timeout: Deadline of the whole stream in seconds.

        Raises:
            CapacityExhausted: The bot has no free session.
            FailedPrecondition: The bot refuses the setup.
            BotUnreachable: The bot cannot be reached, is not ready in time, or broke.
        """
        deadline = time.monotonic() + ready_timeout
        while True:
            try:
                async with asyncio.timeout(max(deadline - time.monotonic(), 0.001)):
                    return await self._open_once(setup, call_timeout)
            except TimeoutError as error:
                await self.close()
                raise BotUnreachable(
                    f"the {self.name}'s bot at {self.address} was not ready within "
                    f"{ready_timeout:g} s"
                ) from error
            except grpc.aio.AioRpcError as error:
                await self.close()
                failure = self._classify(error)
                # Nothing was started, so a bot that is just restarting gets another try.
                again = (
                    error.code() == grpc.StatusCode.UNAVAILABLE
                    and time.monotonic() + _RETRY_SECONDS < deadline
                )
                if not again:
                    raise failure from error
                await asyncio.sleep(_RETRY_SECONDS)
            except BaseException:
                await self.close()
                raise

    async def _open_once(self, setup: voice_pb2.Setup, call_timeout: float) -> voice_pb2.Ready:
        call = self._stub.Converse(timeout=call_timeout, wait_for_ready=True)
        self._call = call
        # A refused write says less than the status, which the read brings.
        with contextlib.suppress(asyncio.InvalidStateError):
            await call.write(voice_pb2.ConverseRequest(setup=setup))
        first = await call.read()
        if not isinstance(first, voice_pb2.ConverseResponse):
            code, details = await call.code(), await call.details()
            raise grpc.aio.AioRpcError(
                code if code != grpc.StatusCode.OK else grpc.StatusCode.INTERNAL,
                await call.initial_metadata(),
                await call.trailing_metadata(),
                details or "the stream ended before Ready",
            )
        if first.WhichOneof("message") != "ready":
            raise FailedPrecondition(
                f"the {self.name}'s bot at {self.address} answered Setup with "
                f"{first.WhichOneof('message')}, not with Ready",
                reason="BOT_PROTOCOL",
            )
        self._tasks = [
            asyncio.create_task(self._read(call), name=f"read {self.name}"),
            asyncio.create_task(self._write(call), name=f"write {self.name}"),
        ]
        return first.ready

    def _classify(self, error: grpc.aio.AioRpcError) -> Tau2EvalError | BotUnreachable:
        line = f"the {self.name}'s bot at {self.address}: {describe_rpc_error(error)}"
        if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return CapacityExhausted(
                line, reason="BOT_SESSIONS_EXHAUSTED", metadata={"bot": self.name}
            )
        if error.code() in _REFUSALS:
            return FailedPrecondition(
                f"setup refused by {line}",
                reason="BOT_REFUSED_SETUP",
                metadata={"bot": self.name, "code": error.code().name},
            )
        return BotUnreachable(line)

    def send(self, request: voice_pb2.ConverseRequest, due: float | None = None) -> None:
        """Queues a message.

        Args:
            request: The message.
            due: When it was to leave, on the monotonic clock; None where that has no meaning.
        """
        if self.failure is not None:
            return
        if len(self._outbox) > MAX_UNSENT_FRAMES:
            self._fail("it no longer takes the audio that it is sent")
            return
        self._outbox.append((request, due))
        self._outgoing.set()

    async def close(self) -> None:
        """Ends the stream, whatever its state."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def _read(self, call: _Call) -> None:
        try:
            while True:
                message = await call.read()
                if not isinstance(message, voice_pb2.ConverseResponse):
                    code, details = await call.code(), await call.details()
                    if code == grpc.StatusCode.OK:
                        self._fail("it ended the stream")
                    else:
                        self._fail(f"the stream broke: {code.name}: {details}")
                    return
                if len(self.inbox) >= MAX_INBOX:
                    self._fail("it sends more than a call can take")
                    return
                self.inbox.append(message)
                self.changed.set()
        except grpc.aio.AioRpcError as error:
            self._fail(f"the stream broke: {describe_rpc_error(error)}")
        except asyncio.CancelledError:
            # The call was cancelled from here, or this task was; either way it is over.
            self._fail("the stream was closed")

    async def _write(self, call: _Call) -> None:
        try:
            while True:
                while self._outbox:
                    request, due = self._outbox.popleft()
                    await call.write(request)
                    if due is not None:
                        self.lateness.add(time.monotonic() - due)
                self._outgoing.clear()
                await self._outgoing.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The reader learns the status.
            return

    def _fail(self, why: str) -> None:
        if self.failure is None:
            self.failure = why
            logger.debug("%s at %s: %s", self.name, self.address, why)
        self.changed.set()


OpenChannel = Callable[[str], grpc.aio.Channel]
"""How channels are opened; `tau2eval_common.client.open_channel` in production."""
