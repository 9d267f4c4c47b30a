"""gateway.v1 over the core: ChatService and SpendService."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from datetime import date
from typing import Any

import grpc

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_common.errors import InvalidInput
from tau2eval_gateway.core import GatewayCore
from tau2eval_gateway.json_spans import set_members
from tau2eval_gateway.keys import INTERNAL_KEY_ID, KeyRing
from tau2eval_gateway.ledger_schema import SpendSum
from tau2eval_gateway.requests import (
    CallContext,
    CallMetadata,
    ChatRequest,
    dump,
    parse_chat_request,
)

_DEADLINE_MARGIN_SECONDS = 0.05
"""Kept back from the caller's deadline, so that it still gets our error."""

Context = grpc.aio.ServicerContext[Any, Any]


class Authenticated:
    """Checks callers' keys when it is told to."""

    def __init__(self, keys: KeyRing | None) -> None:
        self._keys = keys

    def key_id(self, context: Context) -> str:
        """Returns the id of the caller's key.

        Raises:
            KeyRefused: A key is asked for, and none that fits came.
        """
        return INTERNAL_KEY_ID if self._keys is None else self._keys.authenticate(_given(context))

    def admit(self, context: Context) -> str:
        """Returns the id of the caller's key and counts the request.

        Raises:
            KeyRefused: As `key_id`.
            TooMany: The key has asked too often.
        """
        return INTERNAL_KEY_ID if self._keys is None else self._keys.admit(_given(context))


def _given(context: Context) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == "authorization":
            return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")
    return None


class ChatServicer(Authenticated, gateway_pb2_grpc.ChatServiceServicer):
    """Chat completions for the services.

    Args:
        core: Serves the calls.
        keys: None: callers need no key.
        max_body_bytes: Larger bodies are refused.
    """

    def __init__(self, core: GatewayCore, keys: KeyRing | None, max_body_bytes: int) -> None:
        super().__init__(keys)
        self._core = core
        self._max_body_bytes = max_body_bytes

    async def ChatCompletion(
        self, request: gateway_pb2.ChatCompletionRequest, context: Context
    ) -> gateway_pb2.ChatCompletionResponse:
        """Serves a whole answer."""
        key_id = self.admit(context)
        call_context = _call_context(request.context, context)
        chat = parse_chat_request(request.body_json, self._max_body_bytes)
        result = await self._core.complete(chat, call_context, key_id)
        return gateway_pb2.ChatCompletionResponse(
            body_json=result.body, metadata=_metadata(result.metadata)
        )

    async def StreamChatCompletion(
        self, request: gateway_pb2.StreamChatCompletionRequest, context: Context
    ) -> AsyncIterator[gateway_pb2.StreamChatCompletionResponse]:
        """Serves a stream of chunks, and the metadata at its whole end."""
        key_id = self.admit(context)
        call_context = _call_context(request.context, context)
        chat = _streaming(parse_chat_request(request.body_json, self._max_body_bytes))
        async with await self._core.stream(chat, call_context, key_id) as stream:
            async for events in stream:
                for event in events:
                    if event.data is not None and not event.empty:
                        yield gateway_pb2.StreamChatCompletionResponse(chunk_json=event.data)
        assert stream.metadata is not None
        yield gateway_pb2.StreamChatCompletionResponse(metadata=_metadata(stream.metadata))

    async def ListModels(
        self, request: gateway_pb2.ListModelsRequest, context: Context
    ) -> gateway_pb2.ListModelsResponse:
        """Lists the models that can be asked for by name."""
        self.key_id(context)
        return gateway_pb2.ListModelsResponse(model_ids=await self._core.list_models())


class SpendServicer(Authenticated, gateway_pb2_grpc.SpendServiceServicer):
    """Reads the spend ledger."""

    def __init__(self, core: GatewayCore, keys: KeyRing | None) -> None:
        super().__init__(keys)
        self._core = core

    async def ListDailySpend(
        self, request: gateway_pb2.ListDailySpendRequest, context: Context
    ) -> gateway_pb2.ListDailySpendResponse:
        """Adds calls up by UTC day, key, model, role, run and arm."""
        self.key_id(context)
        for name in ("from_day", "to_day"):
            _check_day(name, getattr(request, name))
        ledger = self._core.ledger
        sums = await ledger.daily(request.from_day, request.to_day)
        today = await ledger.today()
        return gateway_pb2.ListDailySpendResponse(
            rows=_rows(sums),
            cap_usd=self._core.reservations.cap_usd,
            spent_today_usd=today.counted_usd,
            reserved_usd=today.reserved_usd,
        )

    async def ListRunSpend(
        self, request: gateway_pb2.ListRunSpendRequest, context: Context
    ) -> gateway_pb2.ListRunSpendResponse:
        """Adds the calls of a run up by scenario, role and model."""
        self.key_id(context)
        if not request.run_id:
            raise InvalidInput("run_id is empty; name a run")
        sums = await self._core.ledger.run(request.run_id)
        return gateway_pb2.ListRunSpendResponse(rows=_rows(sums))


def _call_context(context: gateway_pb2.CallContext, call: Context) -> CallContext:
    left = call.time_remaining()
    return CallContext(
        request_id=uuid.uuid4().hex,
        run_id=context.run_id,
        scenario=context.scenario,
        trial=context.trial,
        role=context.role,
        arm=context.arm,
        session_id=context.session_id,
        deadline_seconds=None if left is None else max(0.0, left - _DEADLINE_MARGIN_SECONDS),
    )


def _streaming(chat: ChatRequest) -> ChatRequest:
    """Asks for a stream with usage, unless the caller has said how it wants it.

    No other byte of the body changes (statement 22).
    """
    options = chat.body.get("stream_options")
    if chat.stream and isinstance(options, dict) and "include_usage" in options:
        return chat
    options = {"include_usage": True, **(options if isinstance(options, dict) else {})}
    raw = set_members(chat.raw, {"stream": b"true", "stream_options": dump(options)})
    body = {**chat.body, "stream": True, "stream_options": options}
    return ChatRequest(raw=raw, body=body, model=chat.model, stream=True)


def _metadata(metadata: CallMetadata) -> gateway_pb2.CallMetadata:
    return gateway_pb2.CallMetadata(
        request_id=metadata.request_id,
        upstream_model=metadata.upstream_model,
        cost_usd=metadata.cost_usd,
        headers=metadata.headers,
    )


def _rows(sums: Iterable[SpendSum]) -> list[gateway_pb2.SpendRow]:
    return [
        gateway_pb2.SpendRow(
            day=item.day,
            key_id=item.key_id,
            model=item.model,
            role=item.role,
            run_id=item.run_id,
            arm=item.arm,
            scenario=item.scenario,
            calls=item.calls,
            prompt_tokens=item.prompt_tokens,
            completion_tokens=item.completion_tokens,
            cost_usd=item.cost_usd,
            calls_without_cost=item.calls_without_cost,
            cached_tokens=item.cached_tokens,
            cache_write_tokens=item.cache_write_tokens,
            reasoning_tokens=item.reasoning_tokens,
            calls_estimated=item.calls_estimated,
            cost_estimated_usd=item.cost_estimated_usd,
        )
        for item in sums
    ]


def _check_day(name: str, day: str) -> None:
    if not day:
        return
    try:
        valid = date.fromisoformat(day).isoformat() == day
    except ValueError:
        valid = False
    if not valid:
        raise InvalidInput(f"{name} is not a day like 2026-01-31")
