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

logger = logging.getLogger(__name__)

GATEWAY_DOMAIN = "tau2eval.gateway"
DEFAULT_TIMEOUT_SECONDS = 120.0
RETRIES = 2
"""Further attempts after UNAVAILABLE, only while no chunk has arrived."""
_RETRY_BASE_SECONDS = 0.4
_CONTROL_FLOW_PREFIXES = ("marina/", "marina:")
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


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call as the model wrote it; `arguments_json` may be anything."""

    call_id: str
    name: str
    arguments_json: str


@dataclass(slots=True)
class Completion:
    """What a model call gave.

    Attributes:
        text: The words, as streamed.
        tool_calls: Requested calls in order.
        usage: Tokens, price and times of the call.
    """

    text: str = ""
    tool_calls: list[RequestedCall] = field(default_factory=list)
    usage: voice_pb2.Usage = field(default_factory=voice_pb2.Usage)


@dataclass(slots=True)
class _PartialCall:
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class _Assembly:
    """Puts the chunks of one stream together."""

    def __init__(self) -> None:
        self.text = ""
        self.usage: Mapping[str, Any] = {}
        self.metadata: gateway_pb2.CallMetadata | None = None
        self.chunks = 0
        self._calls: dict[int, _PartialCall] = {}

    def add(self, chunk_json: bytes) -> str:
        """Takes a chunk and returns the words in it."""
        try:
            chunk = json.loads(chunk_json)
            self.chunks += 1
            if usage := chunk.get("usage"):
                self.usage = usage
            choices = chunk.get("choices") or ()
            delta = (choices[0].get("delta") or {}) if choices else {}
            for part in delta.get("tool_calls") or ():
                self._add_call(part)
            words = delta.get("content") or delta.get("refusal") or ""
            if not isinstance(words, str):
                raise TypeError("content is no text")
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            raise ModelCallError(
                f"the gateway sent a chunk that cannot be read ({error})",
                kind=voice_pb2.ERROR_KIND_GATEWAY,
                code="malformed_chunk",
            ) from error
        self.text += words
        return words

    def _add_call(self, part: Mapping[str, Any]) -> None:
        # Some providers send whole calls without an index.
        index = part.get("index")
        if index is None:
            index = len(self._calls)
        call = self._calls.setdefault(index, _PartialCall())
        function = part.get("function") or {}
        call.call_id = call.call_id or part.get("id") or ""
        call.name += function.get("name") or ""
        call.arguments += function.get("arguments") or ""

    def calls(self) -> list[RequestedCall]:
        """Returns the requested calls in order."""
        return [
            RequestedCall(
                call_id=call.call_id or f"call_{index}",
                name=call.name,
                arguments_json=call.arguments.strip() or "{}",
            )
            for index, call in sorted(self._calls.items())
        ]


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
        self._parameters = parse_parameters(model)
        self._timeout = model.timeout_seconds or DEFAULT_TIMEOUT_SECONDS

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        on_text: TextCallback,
    ) -> Completion:
        """Asks the model once and streams its words to `on_text`.

        Cancelling this coroutine cancels the call.

        Raises:
            ModelCallError: The call failed, was too slow, or its stream was cut off.
        """
        body: dict[str, Any] = {
            **self._parameters,
            "model": self._model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:
            body["tools"] = [self._declared(tool) for tool in tools]
        request = gateway_pb2.StreamChatCompletionRequest(
            context=self._context, body_json=json.dumps(body).encode()
        )
        started = time.monotonic()
        deadline = started + self._timeout
        for attempt in range(RETRIES + 1):
            assembly = _Assembly()
            try:
                first_token = await self._attempt(request, assembly, on_text, started, deadline)
                return self._completion(assembly, first_token, time.monotonic() - started)
            except grpc.aio.AioRpcError as error:
                wait = _RETRY_BASE_SECONDS * 2**attempt * random.uniform(0.75, 1.25)  # noqa: S311
                if (
                    error.code() is not grpc.StatusCode.UNAVAILABLE
                    or assembly.chunks
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
        if self._model.startswith(_CONTROL_FLOW_PREFIXES):
            return tool
        return {key: value for key, value in tool.items() if key != "annotations"}

    async def _attempt(
        self,
        request: gateway_pb2.StreamChatCompletionRequest,
        assembly: _Assembly,
        on_text: TextCallback,
        started: float,
        deadline: float,
    ) -> float:
        """Runs one stream to its end and returns the seconds to the first token (0: none)."""
        first_token = 0.0
        call = self._stub.StreamChatCompletion(request, timeout=deadline - time.monotonic())
        try:
            async for response in call:
                if response.WhichOneof("message") == "metadata":
                    assembly.metadata = response.metadata
                    continue
                words = assembly.add(response.chunk_json)
                if not first_token and (words or assembly.calls()):
                    first_token = time.monotonic() - started
                if words:
                    await on_text(words)
        finally:
            # Does nothing to a call that has ended.
            call.cancel()
        if assembly.metadata is None:
            raise ModelCallError(
                "the gateway's stream ended without its metadata: it was cut off",
                kind=voice_pb2.ERROR_KIND_GATEWAY,
                code="truncated_stream",
            )
        return first_token

    def _completion(self, assembly: _Assembly, first_token: float, seconds: float) -> Completion:
        usage = assembly.usage
        details = usage.get("prompt_tokens_details") or {}
        message = voice_pb2.Usage(
            model=self._model,
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
            cached_tokens=int(details.get("cached_tokens") or 0),
            latency_seconds=seconds,
            first_token_seconds=first_token,
        )
        metadata = assembly.metadata
        if metadata is not None and metadata.HasField("cost_usd"):
            message.cost_usd = metadata.cost_usd
        return Completion(text=assembly.text, tool_calls=assembly.calls(), usage=message)


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
