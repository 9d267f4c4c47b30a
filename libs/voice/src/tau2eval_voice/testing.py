"""For tests of a bot: a gateway with scripted replies, and the bridge's side of a stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval.voice.v1 import voice_pb2, voice_pb2_grpc

FRAME_SECONDS = 0.02
INPUT_RATE_HZ = 16_000
_FRAME_BYTES = int(INPUT_RATE_HZ * FRAME_SECONDS) * 2

T = TypeVar("T")


@dataclass
class Reply:
    """One scripted model reply.

    Attributes:
        text: Words, in one chunk or several.
        calls: Tool calls as (id, name, arguments).
        error: Status code, ErrorInfo domain (empty: no ErrorInfo) and OpenAI code.
        error_provider: The provider that failed; empty: the gateway itself refuses.
        error_after_chunks: The error comes after the words.
        metadata: False: the stream is cut off before its metadata.
        raw: A chunk to send first, as it is; the body of an answer that is not streamed.
        wait: The reply begins when this is set.
        cost_usd: Price; None: unknown.
        headers: The gateway's headers in the metadata.
    """

    text: str | Sequence[str] = ""
    calls: Sequence[tuple[str, str, str]] = ()
    error: tuple[grpc.StatusCode, str, str] | None = None
    error_provider: str = "provider"
    error_after_chunks: bool = False
    metadata: bool = True
    raw: bytes | None = None
    wait: asyncio.Event | None = None
    cost_usd: float | None = 0.001
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ScriptedGateway(gateway_pb2_grpc.ChatServiceServicer):
    """Answers model calls from a script.

    Attributes:
        script: Replies in order; when it is empty the model says nothing.
        repeat: The last reply is given again and again.
        choose: Makes the reply of a call instead of the script.
        bodies: Chat bodies received.
        streamed: Whether each was asked for as a stream.
        cancelled: Set when a caller cancels a call whose reply waits.
        contexts: Who asked, for each body.
        address: Where it listens, while `running`.
    """

    script: list[Reply] = field(default_factory=list)
    repeat: bool = False
    choose: Callable[[gateway_pb2.CallContext, dict[str, Any]], Reply] | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    streamed: list[bool] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    contexts: list[gateway_pb2.CallContext] = field(default_factory=list)
    address: str = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[ScriptedGateway]:
        """Serves on a free port of 127.0.0.1."""
        server = grpc.aio.server()
        gateway_pb2_grpc.add_ChatServiceServicer_to_server(self, server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(0)

    async def ChatCompletion(
        self,
        request: gateway_pb2.ChatCompletionRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> gateway_pb2.ChatCompletionResponse:
        """Gives the next reply as a whole."""
        reply = await self._begin(request.context, request.body_json, streamed=False)
        if reply.error:
            await _fail(context, reply.error, reply.error_provider)
        body = json.dumps(_whole(reply)).encode() if reply.raw is None else reply.raw
        return gateway_pb2.ChatCompletionResponse(body_json=body, metadata=_metadata(reply))

    async def StreamChatCompletion(
        self,
        request: gateway_pb2.StreamChatCompletionRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[gateway_pb2.StreamChatCompletionResponse]:
        """Streams the next reply."""
        reply = await self._begin(request.context, request.body_json, streamed=True)
        if reply.error and not reply.error_after_chunks:
            await _fail(context, reply.error, reply.error_provider)
        if reply.raw is not None:
            yield gateway_pb2.StreamChatCompletionResponse(chunk_json=reply.raw)
        for chunk in _chunks(reply):
            yield gateway_pb2.StreamChatCompletionResponse(chunk_json=json.dumps(chunk).encode())
        if reply.error:
            await _fail(context, reply.error, reply.error_provider)
        if reply.metadata:
            yield gateway_pb2.StreamChatCompletionResponse(metadata=_metadata(reply))

    async def _begin(
        self, context: gateway_pb2.CallContext, body_json: bytes, *, streamed: bool
    ) -> Reply:
        body = json.loads(body_json)
        self.bodies.append(body)
        self.streamed.append(streamed)
        self.contexts.append(context)
        reply = self._next(context, body)
        if reply.wait is not None:
            try:
                await reply.wait.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        return reply

    def _next(self, context: gateway_pb2.CallContext, body: dict[str, Any]) -> Reply:
        if self.choose is not None:
            return self.choose(context, body)
        if self.repeat and len(self.script) == 1:
            return self.script[0]
        return self.script.pop(0) if self.script else Reply()


class BotClient:
    """The bridge's side of one Converse stream.

    Attributes:
        responses: Everything received.
        error: How the stream failed, if it did.
        media_seconds: Media time of the audio sent so far.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.responses: list[voice_pb2.ConverseResponse] = []
        self.error: grpc.aio.AioRpcError | None = None
        self.media_seconds = 0.0
        self._requests: asyncio.Queue[voice_pb2.ConverseRequest | None] = asyncio.Queue()
        self._audio_sequence = 0
        self._changed = asyncio.Event()
        self._call: Any = voice_pb2_grpc.VoiceBotServiceStub(channel).Converse(self._outgoing())
        self._reader = asyncio.create_task(self._read())

    def send(self, **member: Any) -> None:
        """Sends a ConverseRequest with this member of its oneof."""
        self._requests.put_nowait(voice_pb2.ConverseRequest(**member))

    def half_close(self) -> None:
        """Sends nothing more."""
        self._requests.put_nowait(None)

    def text(self, text: str, media_time_seconds: float = 0.0) -> None:
        """Sends Text."""
        self.send(text=voice_pb2.Text(text=text, media_time_seconds=media_time_seconds))

    def audio(self, pcm: bytes) -> None:
        """Sends one Audio message of samples at 16 kHz, at the next media time."""
        self.send(
            audio=voice_pb2.Audio(
                sequence=self._audio_sequence,
                media_time_seconds=self.media_seconds,
                pcm=pcm,
                sample_rate_hz=INPUT_RATE_HZ,
            )
        )
        self._audio_sequence += 1
        self.media_seconds += len(pcm) / 2 / INPUT_RATE_HZ

    async def speak(self, pcm: bytes, seconds: float = 0.0) -> None:
        """Sends samples at 16 kHz in real time, then silence up to `seconds` in all."""
        total = max(len(pcm) / 2 / INPUT_RATE_HZ, seconds)
        started = time.monotonic()
        for index in range(round(total / FRAME_SECONDS)):
            frame = pcm[index * _FRAME_BYTES : (index + 1) * _FRAME_BYTES]
            self.audio(frame + bytes(_FRAME_BYTES - len(frame)))
            await asyncio.sleep(max(0.0, started + (index + 1) * FRAME_SECONDS - time.monotonic()))

    @contextlib.asynccontextmanager
    async def silence(self) -> AsyncIterator[None]:
        """Keeps the line open with silence while the body runs."""
        task = asyncio.create_task(self.speak(b"", 600))
        try:
            yield
        finally:
            task.cancel()

    def events(self, kind: str) -> list[Any]:
        """Returns the events of a kind ("tool_call" for instance) received so far."""
        return [
            getattr(response.event, kind)
            for response in self.responses
            if response.WhichOneof("message") == "event"
            and response.event.WhichOneof("event") == kind
        ]

    def kinds(self) -> list[str]:
        """Returns what came, in order: message or event kinds; a run of audio counts once."""
        found: list[str] = []
        for response in self.responses:
            kind: str = response.WhichOneof("message") or ""
            if kind == "event":
                kind = response.event.WhichOneof("event") or ""
            if kind != "audio" or not found or found[-1] != "audio":
                found.append(kind)
        return found

    async def wait_for(self, condition: Callable[[], T], seconds: float = 20.0) -> T:
        """Waits until a condition holds over what was received, and returns its value.

        Raises:
            AssertionError: The stream ended before.
            TimeoutError: It did not hold in time.
        """
        async with asyncio.timeout(seconds):
            while not (value := condition()):
                if self._reader.done():
                    raise AssertionError(f"the stream ended: {self.error}, {self.kinds()}")
                self._changed.clear()
                await self._changed.wait()
            return value

    async def ready(self) -> voice_pb2.Ready:
        """Waits for Ready."""
        await self.wait_for(lambda: self.responses, 60)
        return self.responses[0].ready

    async def ended(self, seconds: float = 20.0) -> None:
        """Waits for the end of the stream.

        Raises:
            TimeoutError: It did not end in time.
        """
        _, late = await asyncio.wait({self._reader}, timeout=seconds)
        if late:
            raise TimeoutError(f"the stream did not end within {seconds:.0f} s")

    async def finish(self) -> voice_pb2.Summary:
        """Sends Finish and returns the Summary."""
        self.send(finish=voice_pb2.Finish(reason="test"))
        await self.ended()
        if self.error is not None:
            raise self.error
        return self.responses[-1].summary

    async def cancel(self) -> None:
        """Goes away in the middle of it."""
        self._call.cancel()
        await asyncio.wait({self._reader}, timeout=5)

    async def _outgoing(self) -> AsyncIterator[voice_pb2.ConverseRequest]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def _read(self) -> None:
        try:
            async for response in self._call:
                self.responses.append(response)
                self._changed.set()
        except grpc.aio.AioRpcError as error:
            self.error = error
        except asyncio.CancelledError:
            pass
        # gRPC leaves the iterator of requests waiting otherwise.
        self.half_close()
        self._changed.set()


_USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 3},
}


def _metadata(reply: Reply) -> gateway_pb2.CallMetadata:
    metadata = gateway_pb2.CallMetadata(
        request_id="request", upstream_model="model", headers=reply.headers
    )
    if reply.cost_usd is not None:
        metadata.cost_usd = reply.cost_usd
    return metadata


def _whole(reply: Reply) -> dict[str, Any]:
    text = reply.text if isinstance(reply.text, str) else "".join(reply.text)
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if reply.calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in reply.calls
        ]
    return {
        "id": "answer",
        "object": "chat.completion",
        "created": 1,
        "model": "model",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": _USAGE,
    }


def _chunks(reply: Reply) -> list[dict[str, Any]]:
    texts = [reply.text] if isinstance(reply.text, str) else reply.text
    chunks = [_chunk({"role": "assistant", "content": ""})]
    chunks += [_chunk({"content": text}) for text in texts if text]
    if reply.calls:
        # All calls begin in one chunk, and their arguments come in two parts.
        begun = [
            {
                "index": index,
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": arguments[:3]},
            }
            for index, (call_id, name, arguments) in enumerate(reply.calls)
        ]
        rest = [
            {"index": index, "function": {"arguments": arguments[3:]}}
            for index, (_, _, arguments) in enumerate(reply.calls)
        ]
        chunks += [_chunk({"tool_calls": begun}), _chunk({"tool_calls": rest})]
    chunks.append({**_chunk({}), "choices": [], "usage": _USAGE})
    return chunks


def _chunk(delta: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": "chunk",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }


async def _fail(
    context: grpc.aio.ServicerContext[Any, Any],
    error: tuple[grpc.StatusCode, str, str],
    provider: str,
) -> None:
    code, domain, openai_code = error
    number: Any = code.value
    status = status_pb2.Status(code=number[0], message=f"{openai_code} happened")
    if domain:
        info = error_details_pb2.ErrorInfo(
            reason=openai_code.upper(),
            domain=domain,
            metadata={"code": openai_code, "http_status": "400", "provider": provider},
        )
        detail = any_pb2.Any()
        detail.Pack(info)
        status.details.append(detail)
    rich = rpc_status.to_status(status)
    context.set_trailing_metadata(rich.trailing_metadata)
    await context.abort(rich.code, rich.details)
