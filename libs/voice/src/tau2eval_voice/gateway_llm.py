"""Model calls of a bot, over gateway.v1. Chat bodies stay OpenAI's JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import InvalidInput, error_info
from tau2eval_voice.chat_answers import Answer, RequestedCall, UnreadableAnswer

logger = logging.getLogger(__name__)

GATEWAY_DOMAIN = "tau2eval.gateway"
DEFAULT_TIMEOUT_SECONDS = 120.0
RETRIES = 2
"""Further attempts after UNAVAILABLE, only while nothing has arrived."""
_RETRY_BASE_SECONDS = 0.4
_CONTROL_FLOW_PREFIXES = ("marina/", "marina:")
_MARINA_HEADER = "x-marina-"
_RESERVED = frozenset({"model", "messages", "tools", "stream", "stream_options", "n"})

TextCallback = Callable[[str], Awaitable[None]]


class ModelCallError(Exception):
    """A model call failed.

    Attributes:
        kind: MODEL_REQUEST when the provider refuses the bot's own request, else GATEWAY.
        code: Machine-readable code, "context_length_exceeded" for instance.
    """

    def __init__(self, message: str, *, kind: voice_pb2.ErrorKind.ValueType, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.code = code


@dataclass(slots=True)
class Completion:
    """What a model call gave.

    Attributes:
        text: The words.
        tool_calls: Requested calls in order.
        usage: Tokens, price and times of the call.
    """

    text: str = ""
    tool_calls: list[RequestedCall] = field(default_factory=list)
    usage: voice_pb2.Usage = field(default_factory=voice_pb2.Usage)


class GatewayModel:
    """A model behind the gateway, as one session asks it.

    Args:
        channel: Open channel to the gateway; shared by the sessions of a process.
        context: Who asks.
        model: The model id, further members of the body, and the limit of one call.

    Raises:
        InvalidInput: `model` cannot be used.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        context: gateway_pb2.CallContext,
        model: voice_pb2.ModelConfig,
    ) -> None:
        self._stub = gateway_pb2_grpc.ChatServiceStub(channel)
        self._context = context
        self._model = model.model
        self._whole = model.model.startswith(_CONTROL_FLOW_PREFIXES)
        self._parameters = parse_parameters(model)
        self._timeout = model.timeout_seconds or DEFAULT_TIMEOUT_SECONDS

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        on_text: TextCallback,
    ) -> Completion:
        """Asks the model once and gives its words to `on_text`, as they come.

        Control flows look at whole answers, so the words of a marina id come all at once.
        Cancelling this coroutine cancels the call.

        Raises:
            ModelCallError: The call failed, was too slow, or its stream was cut off.
        """
        body: dict[str, Any] = {
            **self._parameters,
            "model": self._model,
            "messages": list(messages),
        }
        if not self._whole:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if tools:
            body["tools"] = [self._declared(tool) for tool in tools]
        encoded = json.dumps(body).encode()
        started = time.monotonic()
        deadline = started + self._timeout
        for attempt in range(RETRIES + 1):
            call = _Call(on_text, started, deadline)
            try:
                if self._whole:
                    await self._ask(encoded, call)
                else:
                    await self._stream(encoded, call)
                return self._completion(call)
            except UnreadableAnswer as error:
                raise ModelCallError(
                    f"the gateway sent what is no answer: {error}",
                    kind=voice_pb2.ERROR_KIND_GATEWAY,
                    code="malformed_answer" if self._whole else "malformed_chunk",
                ) from error
            except grpc.aio.AioRpcError as error:
                wait = _RETRY_BASE_SECONDS * 2**attempt * random.uniform(0.75, 1.25)  # noqa: S311
                if (
                    error.code() is not grpc.StatusCode.UNAVAILABLE
                    or call.answer.chunks
                    or attempt == RETRIES
                    or time.monotonic() + wait >= deadline
                ):
                    raise classify(error) from error
                logger.warning("the gateway is unavailable; trying again in %.1f s", wait)
                await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    def _declared(self, tool: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns a declaration without hints for the control flows when none is asked for.

        Providers may refuse a member that OpenAI's API does not have.
        """
        if self._whole:
            return tool
        return {key: value for key, value in tool.items() if key != "annotations"}

    async def _ask(self, body: bytes, call: _Call) -> None:
        """Runs one call without streaming."""
        request = gateway_pb2.ChatCompletionRequest(context=self._context, body_json=body)
        running = self._stub.ChatCompletion(request, timeout=call.remaining)
        try:
            response = await running
        finally:
            # Does nothing to a call that has ended.
            running.cancel()
        call.metadata = response.metadata
        await call.take(call.answer.add_completion(response.body_json))

    async def _stream(self, body: bytes, call: _Call) -> None:
        """Runs one stream to its end."""
        request = gateway_pb2.StreamChatCompletionRequest(context=self._context, body_json=body)
        running = self._stub.StreamChatCompletion(request, timeout=call.remaining)
        try:
            async for response in running:
                if response.WhichOneof("message") == "metadata":
                    call.metadata = response.metadata
                    continue
                await call.take(call.answer.add_chunk(response.chunk_json))
        finally:
            running.cancel()
        if call.metadata is None:
            raise ModelCallError(
                "the gateway's stream ended without its metadata: it was cut off",
                kind=voice_pb2.ERROR_KIND_GATEWAY,
                code="truncated_stream",
            )

    def _completion(self, call: _Call) -> Completion:
        usage = call.answer.usage
        message = voice_pb2.Usage(
            model=self._model,
            prompt_tokens=_count(usage, "prompt_tokens"),
            completion_tokens=_count(usage, "completion_tokens"),
            cached_tokens=_count(usage.get("prompt_tokens_details"), "cached_tokens"),
            latency_seconds=time.monotonic() - call.started,
            first_token_seconds=call.first_token,
        )
        metadata = call.metadata
        if metadata is not None:
            if metadata.HasField("cost_usd"):
                message.cost_usd = metadata.cost_usd
            for name, value in metadata.headers.items():
                if name.lower().startswith(_MARINA_HEADER):
                    message.marina_headers[name.lower()] = value
        return Completion(text=call.answer.text, tool_calls=call.answer.calls(), usage=message)


class _Call:
    """One attempt.

    Attributes:
        answer: What has come of it.
        metadata: What the gateway says of the call; None until then.
        started: When the first attempt began, by the monotonic clock.
        first_token: Seconds from then to the first word or tool call; 0: none yet.
    """

    def __init__(self, on_text: TextCallback, started: float, deadline: float) -> None:
        self.answer = Answer()
        self.metadata: gateway_pb2.CallMetadata | None = None
        self.started = started
        self.first_token = 0.0
        self._deadline = deadline
        self._on_text = on_text

    @property
    def remaining(self) -> float:
        """Seconds that the call may still take."""
        return self._deadline - time.monotonic()

    async def take(self, words: str) -> None:
        """Notes and passes on words that have just come; empty for none."""
        if not self.first_token and (words or self.answer.calls()):
            self.first_token = time.monotonic() - self.started
        if words:
            await self._on_text(words)


def _count(usage: object, name: str) -> int:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**62 else 0


def parse_parameters(model: voice_pb2.ModelConfig) -> dict[str, Any]:
    """Returns the extra members of the chat body.

    Raises:
        InvalidInput: They are no JSON object, or name what the bot itself sets.
    """
    if not model.model:
        raise InvalidInput("Setup.model.model is empty; name a model that the gateway serves")
    if model.timeout_seconds < 0:
        raise InvalidInput("Setup.model.timeout_seconds is negative")
    if not model.parameters_json:
        return {}
    try:
        parameters = json.loads(model.parameters_json)
    except ValueError as error:
        raise InvalidInput(f"Setup.model.parameters_json is no JSON: {error}") from error
    if not isinstance(parameters, dict):
        raise InvalidInput("Setup.model.parameters_json is no JSON object")
    if taken := sorted(_RESERVED & parameters.keys()):
        raise InvalidInput(
            f"Setup.model.parameters_json sets {', '.join(taken)}, which the bot sets itself"
        )
    return parameters


def classify(error: grpc.aio.AioRpcError) -> ModelCallError:
    """Returns what a failed gateway call means for the conversation.

    A request of the bot's own making that a provider refuses is the agent's failure. Everything
    else is infrastructure, also a model id that nobody serves and what the gateway itself refuses:
    those are settings of the run.
    """
    info = error_info(error)
    code = error.code()
    refused = (
        code is grpc.StatusCode.INVALID_ARGUMENT
        and info is not None
        and info.domain == GATEWAY_DOMAIN
        and bool(info.metadata.get("provider"))
    )
    reason = ""
    if info is not None:
        reason = info.metadata.get("code", "") or info.reason
    return ModelCallError(
        f"{code.name}: {error.details() or 'no details'}",
        kind=voice_pb2.ERROR_KIND_MODEL_REQUEST if refused else voice_pb2.ERROR_KIND_GATEWAY,
        code=(reason or code.name).lower(),
    )
