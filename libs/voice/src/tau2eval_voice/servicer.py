"""VoiceBotService over gRPC: one Converse stream is one session."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from tau2eval.voice.v1 import voice_pb2, voice_pb2_grpc
from tau2eval_common.errors import DeadlineExceeded, InvalidInput, Tau2EvalError
from tau2eval_common.sessions import SessionLimit
from tau2eval_voice.bot import VoiceBot
from tau2eval_voice.session import Session

logger = logging.getLogger(__name__)

SERVICE_NAME = "tau2eval.voice.v1.VoiceBotService"


class VoiceBotServicer(voice_pb2_grpc.VoiceBotServiceServicer):
    """Reads Setup, builds a session, and carries messages both ways until it is over."""

    def __init__(self, bot: VoiceBot, name: str) -> None:
        self._bot = bot
        self._limit = SessionLimit(bot.settings.max_sessions, name)
        self._session_ids: set[str] = set()
        # Sessions are released in tasks of their own, which a cancelled call does not cancel.
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def active_sessions(self) -> int:
        """Sessions held now."""
        return self._limit.active

    async def Converse(
        self,
        request_iterator: AsyncIterator[voice_pb2.ConverseRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[voice_pb2.ConverseResponse]:
        """Holds one conversation, see the contract."""
        setup = await self._read_setup(request_iterator)
        with contextlib.ExitStack() as failing:
            failing.enter_context(self._limit.hold())
            failing.enter_context(self._hold_id(setup.session_id))
            session, ready = await self._build(setup)
            held = failing.pop_all()
        live = _LiveSession(session, held)
        reader = asyncio.create_task(self._read(request_iterator, session), name="voice-reader")

        # A generator that was left at a yield is closed late; the call itself ends in time.
        def on_call_done(_: Any) -> None:
            self._release(live, reader)

        context.add_done_callback(on_call_done)  # type: ignore[arg-type] # Typed as invariant.
        try:
            yield voice_pb2.ConverseResponse(ready=ready)
            async for response in session.outbox:
                yield response
        finally:
            await asyncio.shield(self._release(live, reader))

    async def aclose(self) -> None:
        """Waits until all sessions are released."""
        while self._releases:
            await asyncio.wait(self._releases)

    async def _read_setup(
        self, requests: AsyncIterator[voice_pb2.ConverseRequest]
    ) -> voice_pb2.Setup:
        seconds = self._bot.settings.setup_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                first = await anext(aiter(requests), None)
        except TimeoutError as error:
            raise DeadlineExceeded(f"no Setup within {seconds:.0f} s") from error
        if first is None or first.WhichOneof("message") != "setup":
            got = "nothing" if first is None else first.WhichOneof("message") or "an empty message"
            raise InvalidInput(f"the first message must be Setup; got {got}", reason="NO_SETUP")
        return first.setup

    async def _build(self, setup: voice_pb2.Setup) -> tuple[Session, voice_pb2.Ready]:
        seconds = self._bot.settings.setup_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._bot.session(setup)
        except TimeoutError as error:
            raise DeadlineExceeded(f"the session was not ready within {seconds:.0f} s") from error

    @contextlib.contextmanager
    def _hold_id(self, session_id: str) -> Any:
        if session_id in self._session_ids:
            raise InvalidInput(
                f"Setup.session_id {session_id!r} is in use by another session of this process",
                reason="SESSION_ID_IN_USE",
            )
        self._session_ids.add(session_id)
        try:
            yield
        finally:
            self._session_ids.discard(session_id)

    async def _read(
        self, requests: AsyncIterator[voice_pb2.ConverseRequest], session: Session
    ) -> None:
        """Hands what arrives to the session; what goes wrong ends the stream with an error."""
        outbox = session.outbox
        idle = self._bot.settings.idle_timeout_seconds
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(idle) as limit:
                async for request in requests:
                    if request.WhichOneof("message") == "finish":
                        limit.reschedule(None)
                        await session.finish()
                        return
                    await session.handle(request)
                    limit.reschedule(loop.time() + idle)
            outbox.fail(InvalidInput("the stream was closed without Finish", reason="NO_FINISH"))
        except TimeoutError:
            outbox.fail(DeadlineExceeded(f"nothing arrived for {idle:.0f} s"))
        except Tau2EvalError as error:
            outbox.fail(error)
        except Exception as error:
            logger.exception("a session failed")
            outbox.error(
                voice_pb2.ERROR_KIND_INTERNAL,
                f"unexpected {type(error).__name__} in the bot; its log has the details",
                code="internal",
            )
            outbox.fail(error)

    def _release(self, live: _LiveSession, reader: asyncio.Task[None]) -> asyncio.Task[None]:
        if live.release is None:
            live.release = asyncio.create_task(self._end(live, reader), name="voice-release")
            self._releases.add(live.release)
            live.release.add_done_callback(self._releases.discard)
        return live.release

    async def _end(self, live: _LiveSession, reader: asyncio.Task[None]) -> None:
        try:
            reader.cancel()
            await asyncio.wait({reader})
            await live.session.close()
        except Exception:
            logger.exception("a session could not be released in order")
        finally:
            live.held.close()


class _LiveSession:
    """A session that runs, with what is held for it."""

    def __init__(self, session: Session, held: contextlib.ExitStack) -> None:
        self.session = session
        self.held = held
        self.release: asyncio.Task[None] | None = None


class BotService:
    """A bot as `tau2eval_common.server.run_service` runs it."""

    def __init__(self, bot: VoiceBot, name: str) -> None:
        self.name = name
        self._bot = bot
        self.servicer: VoiceBotServicer = VoiceBotServicer(bot, name)

    async def start(self) -> None:
        """Loads what must be there before the first call."""
        await self._bot.start()

    def register(self, server: grpc.aio.Server) -> Sequence[str]:
        """Adds the servicer."""
        voice_pb2_grpc.add_VoiceBotServiceServicer_to_server(self.servicer, server)
        return (SERVICE_NAME,)

    def addresses(self) -> dict[str, str]:
        """There are no further addresses."""
        return {}

    async def stop(self) -> None:
        """Releases everything, after the last call has ended."""
        await self.servicer.aclose()
        await self._bot.stop()
