"""A gateway and a bridge for the tests: scripted model replies, and a client of a bot."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval.voice.v1 import voice_pb2, voice_pb2_grpc
from tau2eval_common.interceptors import ErrorInterceptor
from tau2eval_voice.bot import VoiceBot
from tau2eval_voice.bot_settings import BotSettings
from tau2eval_voice.servicer import BotService
from tau2eval_voice.tools import NoTools, ToolReply, ToolState


@dataclasses.dataclass
class Reply:
    """One scripted model reply."""

    text: str | list[str] = ""
    calls: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    error: tuple[grpc.StatusCode, str, str] | None = None  # Code, domain, OpenAI code.
    error_after_chunks: bool = False
    metadata: bool = True
    raw: bytes | None = None
    wait: asyncio.Event | None = None  # Set by the test to let the reply begin.
    cost_usd: float | None = 0.001


class FakeGateway(gateway_pb2_grpc.ChatServiceServicer):
    """Answers calls from a script, one reply a call; the last reply repeats if `repeat`."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.repeat = False
        self.bodies: list[dict[str, Any]] = []
        self.contexts: list[gateway_pb2.CallContext] = []
        self.cancelled = 0
        self.choose: Callable[[gateway_pb2.CallContext, dict[str, Any]], Reply] | None = None

    def _next(self, context: gateway_pb2.CallContext, body: dict[str, Any]) -> Reply:
        if self.choose is not None:
            return self.choose(context, body)
        if self.repeat and len(self.script) == 1:
            return self.script[0]
        return self.script.pop(0) if self.script else Reply(text="")

    async def StreamChatCompletion(self, request, context):
        body = json.loads(request.body_json)
        self.bodies.append(body)
        self.contexts.append(request.context)
        reply = self._next(request.context, body)
        try:
            if reply.wait is not None:
                await reply.wait.wait()
            if reply.error and not reply.error_after_chunks:
                await self._fail(context, reply.error)
            if reply.raw is not None:
                yield gateway_pb2.StreamChatCompletionResponse(chunk_json=reply.raw)
            for chunk in self._chunks(reply):
                yield gateway_pb2.StreamChatCompletionResponse(
                    chunk_json=json.dumps(chunk).encode()
                )
            if reply.error:
                await self._fail(context, reply.error)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if reply.metadata:
            metadata = gateway_pb2.CallMetadata(request_id="r", upstream_model="m")
            if reply.cost_usd is not None:
                metadata.cost_usd = reply.cost_usd
            yield gateway_pb2.StreamChatCompletionResponse(metadata=metadata)

    @staticmethod
    def _chunks(reply: Reply) -> list[dict[str, Any]]:
        def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
            return {
                "id": "c",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
                **more,
            }

        texts = [reply.text] if isinstance(reply.text, str) else reply.text
        chunks = [chunk({"role": "assistant", "content": ""})]
        chunks += [chunk({"content": text}) for text in texts if text]
        if reply.calls:
            # All calls begin in one chunk, and the arguments come in two parts.
            chunks.append(
                chunk(
                    {
                        "tool_calls": [
                            {
                                "index": index,
                                "id": call_id,
                                "type": "function",
                                "function": {"name": name, "arguments": arguments[:3]},
                            }
                            for index, (call_id, name, arguments) in enumerate(reply.calls)
                        ]
                    }
                )
            )
            chunks.append(
                chunk(
                    {
                        "tool_calls": [
                            {"index": index, "function": {"arguments": arguments[3:]}}
                            for index, (_, _, arguments) in enumerate(reply.calls)
                        ]
                    }
                )
            )
        usage = {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 3},
        }
        chunks.append({**chunk({}), "choices": [], "usage": usage})
        return chunks

    @staticmethod
    async def _fail(context: Any, error: tuple[grpc.StatusCode, str, str]) -> None:
        code, domain, openai_code = error
        status = status_pb2.Status(code=code.value[0], message=f"{openai_code} happened")
        if domain:
            info = error_details_pb2.ErrorInfo(
                reason=openai_code.upper(),
                domain=domain,
                metadata={"code": openai_code, "http_status": "400", "provider": "p"},
            )
            detail = any_pb2.Any()
            detail.Pack(info)
            status.details.append(detail)
        rich = rpc_status.to_status(status)
        context.set_trailing_metadata(rich.trailing_metadata)
        await context.abort(rich.code, rich.details)


class CounterTools:
    """Tools with a state: a counter that is the database."""

    declarations = [
        {
            "type": "function",
            "function": {"name": name, "description": name, "parameters": {"type": "object"}},
        }
        for name in ("add", "end_conversation", "transfer_to_human_agents", "broken", "slow")
    ]

    def __init__(self, setup: voice_pb2.Setup) -> None:
        self.session_id = setup.session_id
        self.count = 0
        self.actions: list[dict[str, Any]] = []
        self.release = asyncio.Event()
        self.slow_started = asyncio.Event()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        if name == "broken":
            raise RuntimeError("a fault of the tool")
        if name == "slow":
            self.slow_started.set()
            await self.release.wait()
        if name == "end_conversation":
            return ToolReply({"status": "ok"}, exit_reason=voice_pb2.EXIT_REASON_AGENT_EXIT)
        self.count += int(arguments.get("n", 1))
        action = {"action_type": name, "name": name, "arguments": dict(arguments), "side": "agent"}
        self.actions.append(action)
        if name == "transfer_to_human_agents":
            return ToolReply(
                {"status": "ok"}, action=action, exit_reason=voice_pb2.EXIT_REASON_TRANSFER
            )
        return ToolReply({"count": self.count}, action=action)

    def state(self) -> ToolState:
        changed = voice_pb2.ChangedRecord(table="t", key="k", record_json=str(self.count))
        return ToolState(f"hash-{self.count}", [changed], self.actions)


class BotClient:
    """The bridge's side of one Converse stream."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._requests: asyncio.Queue[voice_pb2.ConverseRequest | None] = asyncio.Queue()
        self.responses: list[voice_pb2.ConverseResponse] = []
        self.error: grpc.aio.AioRpcError | None = None
        self._changed = asyncio.Event()
        self.call = voice_pb2_grpc.VoiceBotServiceStub(channel).Converse(self._outgoing())
        self._reader = asyncio.create_task(self._read())
        self._audio_sequence = 0
        self.media_seconds = 0.0

    async def _outgoing(self) -> AsyncIterator[voice_pb2.ConverseRequest]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def _read(self) -> None:
        try:
            async for response in self.call:
                self.responses.append(response)
                self._changed.set()
        except grpc.aio.AioRpcError as error:
            self.error = error
        except asyncio.CancelledError:
            pass
        # gRPC leaves the iterator of requests waiting otherwise.
        self.half_close()
        self._changed.set()

    def send(self, **member: Any) -> None:
        self._requests.put_nowait(voice_pb2.ConverseRequest(**member))

    def half_close(self) -> None:
        self._requests.put_nowait(None)

    def text(self, text: str, media_time_seconds: float = 0.0) -> None:
        self.send(text=voice_pb2.Text(text=text, media_time_seconds=media_time_seconds))

    def audio(self, pcm: bytes, rate: int = 16_000) -> None:
        self.send(
            audio=voice_pb2.Audio(
                sequence=self._audio_sequence,
                media_time_seconds=self.media_seconds,
                pcm=pcm,
                sample_rate_hz=rate,
            )
        )
        self._audio_sequence += 1
        self.media_seconds += len(pcm) / 2 / rate

    async def speak(self, pcm: bytes, seconds: float | None = None) -> None:
        """Sends audio in real time, then silence up to `seconds` in all."""
        total = max(len(pcm) / 32_000, seconds or 0.0)
        started = time.monotonic()
        for index in range(round(total / 0.02)):
            frame = pcm[index * 640 : (index + 1) * 640]
            self.audio(frame + bytes(640 - len(frame)))
            delay = started + (index + 1) * 0.02 - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)

    @contextlib.asynccontextmanager
    async def silence(self) -> AsyncIterator[None]:
        """Keeps the line open with silence while the body runs."""
        task = asyncio.create_task(self.speak(b"", 600))
        try:
            yield
        finally:
            task.cancel()

    def events(self, kind: str) -> list[Any]:
        return [
            getattr(response.event, kind)
            for response in self.responses
            if response.WhichOneof("message") == "event"
            and response.event.WhichOneof("event") == kind
        ]

    def kinds(self) -> list[str]:
        """The order of what came: event kinds, "audio" (once a run), "text", "ready", "summary"."""
        found: list[str] = []
        for response in self.responses:
            kind = response.WhichOneof("message")
            kind = response.event.WhichOneof("event") if kind == "event" else kind
            if kind != "audio" or not found or found[-1] != "audio":
                found.append(kind)
        return found

    async def wait_for(self, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Waits until a condition holds over what was received."""
        async with asyncio.timeout(seconds):
            while not (value := condition()):
                if self._reader.done():
                    raise AssertionError(f"stream ended: {self.error}, {self.kinds()}")
                self._changed.clear()
                await self._changed.wait()
            return value

    async def ready(self) -> voice_pb2.Ready:
        await self.wait_for(lambda: self.responses, 60)
        return self.responses[0].ready

    async def ended(self, seconds: float = 20.0) -> None:
        await asyncio.wait_for(self._reader, seconds)

    async def finish(self) -> voice_pb2.Summary:
        self.send(finish=voice_pb2.Finish(reason="test"))
        await self.ended()
        assert self.error is None
        assert self.responses[-1].WhichOneof("message") == "summary"
        return self.responses[-1].summary

    async def cancel(self) -> None:
        self.call.cancel()
        await asyncio.wait({self._reader}, timeout=5)


class TestSettings(BotSettings):
    """Settings that the environment cannot touch."""

    __test__ = False
    model_config = {**BotSettings.model_config, "env_prefix": "TAU2EVAL_NO_SUCH_BOT_"}


class Bot:
    """A bot that runs in this process behind a real gRPC server."""

    def __init__(self, gateway_address: str, **settings: Any) -> None:
        defaults = {"speech_preload": False, "niceness": 0, "gateway_address": gateway_address}
        self.tools: list[CounterTools] = []
        self.settings = TestSettings(**{**defaults, **settings})
        self.with_tools = True
        self.bot = VoiceBot(
            self.settings, role=voice_pb2.ROLE_AGENT, make_tools=self._make_tools, version="9.9"
        )
        self.service = BotService(self.bot, "test-bot")
        self.clients: list[BotClient] = []

    def _make_tools(self, setup: voice_pb2.Setup) -> Any:
        if not self.with_tools:
            return NoTools()
        self.tools.append(CounterTools(setup))
        return self.tools[-1]

    async def start(self) -> None:
        await self.service.start()
        self._server = grpc.aio.server(interceptors=[ErrorInterceptor()])
        self.service.register(self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def stop(self) -> None:
        for client in self.clients:
            await client.cancel()
        await self.channel.close()
        await self._server.stop(1)
        await self.service.stop()

    def connect(self) -> BotClient:
        client = BotClient(self.channel)
        self.clients.append(client)
        return client

    def converse(self, **changes: Any) -> BotClient:
        """Opens a stream and sends a Setup."""
        client = self.connect()
        client.send(setup=make_setup(f"s{len(self.clients)}", **changes))
        return client


def make_setup(session_id: str = "s", **changes: Any) -> voice_pb2.Setup:
    values: dict[str, Any] = {
        "session_id": session_id,
        "run_id": "run",
        "scenario": "scenario",
        "trial": 1,
        "role": voice_pb2.ROLE_AGENT,
        "prompt": "The prompt.",
        "model": voice_pb2.ModelConfig(model="scripted/test"),
        "audio_format": voice_pb2.AudioFormat(sample_rate_hz=16_000),
        "modality": voice_pb2.MODALITY_TEXT,
    }
    return voice_pb2.Setup(**{**values, **changes})


@pytest.fixture
def reply() -> type[Reply]:
    return Reply


@pytest.fixture
def setup_message() -> Callable[..., voice_pb2.Setup]:
    return make_setup


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    fake = FakeGateway()
    server = grpc.aio.server()
    gateway_pb2_grpc.add_ChatServiceServicer_to_server(fake, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    fake.address = f"127.0.0.1:{port}"
    yield fake
    await server.stop(0)


@pytest.fixture
async def make_bot(gateway: FakeGateway) -> AsyncIterator[Callable[..., Any]]:
    bots: list[Bot] = []

    async def make(**settings: Any) -> Bot:
        bot = Bot(gateway.address, **settings)
        await bot.start()
        bots.append(bot)
        return bot

    yield make
    for bot in bots:
        await bot.stop()
