"""What a caller asks: the checked chat body, and who asks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from tau2eval_gateway.errors import GatewayError, RequestRefused
from tau2eval_gateway.json_spans import item_start, member_spans

MAX_MODEL_CHARS = 256
MAX_CONTEXT_CHARS = 200
_ROLE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat completion request that has passed the checks.

    Attributes:
        raw: The caller's bytes.
        body: `raw`, parsed.
        model: The model id that the caller asks for.
        stream: Whether the caller asks for a stream.
    """

    raw: bytes
    body: dict[str, Any]
    model: str
    stream: bool


@dataclass(frozen=True, slots=True)
class CallContext:
    """Who asks, for the ledger and for scripted models.

    Attributes:
        request_id: Goes back as x-request-id.
        deadline_seconds: Time that the caller still waits, in seconds; None: not said.
        arm: Empty: derived from the model id.
    """

    request_id: str
    run_id: str = ""
    scenario: str = ""
    trial: int = 0
    role: str = ""
    arm: str = ""
    session_id: str = ""
    deadline_seconds: float | None = None

    def __post_init__(self) -> None:
        """Bounds what callers can write into the ledger.

        Raises:
            RequestRefused: A value is too long or holds characters that no header may.
        """
        for name in ("run_id", "scenario", "arm", "session_id"):
            value = getattr(self, name)
            if len(value) > MAX_CONTEXT_CHARS or not _PRINTABLE.fullmatch(value):
                raise refused(
                    f"{name} is not printable ASCII of at most {MAX_CONTEXT_CHARS} characters",
                    code="invalid_context",
                    param=name,
                )
        if self.role and not _ROLE.fullmatch(self.role):
            raise refused(
                'role is not a lower-case word of at most 32 characters, such as "agent"',
                code="invalid_context",
                param="role",
            )

    def upstream_headers(self) -> dict[str, str]:
        """Returns the x-tau2eval-* headers for an upstream of our own."""
        headers = {
            "x-tau2eval-run": self.run_id,
            "x-tau2eval-scenario": self.scenario,
            "x-tau2eval-trial": str(self.trial),
            "x-tau2eval-role": self.role,
            "x-tau2eval-session": self.session_id,
        }
        return {name: value for name, value in headers.items() if value}


@dataclass(frozen=True, slots=True)
class CallMetadata:
    """What is ours in an answer.

    Attributes:
        cost_usd: In dollars; None when unknown.
        headers: The x-marina-* headers by lower-case name.
    """

    request_id: str
    upstream_model: str
    cost_usd: float | None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatResult:
    """A whole answer: the chat.completion object as JSON, and what is ours."""

    body: bytes
    metadata: CallMetadata


def format_cost(cost: float) -> str:
    """Writes dollars as a plain decimal number."""
    text = f"{cost:.10f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def refused(
    message: str,
    *,
    code: str = "invalid_request_error",
    param: str | None = None,
    status: int = 400,
) -> RequestRefused:
    """Returns the error of a request that the gateway itself refuses; it cost nothing."""
    return RequestRefused(message, error_code=code, param=param, http_status=status)


def too_large(limit: int) -> GatewayError:
    """Returns the error of a body over the limit (bytes)."""
    return refused(
        f"the request body is larger than {limit} bytes", code="request_too_large", status=413
    )


def parse_chat_request(raw: bytes, max_bytes: int) -> ChatRequest:
    """Checks a chat body as far as the gateway must understand it; the rest is the provider's.

    Raises:
        RequestRefused: It is too large, no JSON object, or lacks a model or messages.
    """
    if len(raw) > max_bytes:
        raise too_large(max_bytes)
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise refused(
            f"the request body is not valid JSON (line {error.lineno}, column {error.colno})",
            code="invalid_json",
        ) from None
    if not isinstance(body, dict):
        raise refused("the request body is not a JSON object", code="invalid_json")
    model = body.get("model")
    if not isinstance(model, str) or not model.strip():
        raise refused("name a model: `model` is missing or empty", param="model")
    if len(model) > MAX_MODEL_CHARS or not _PRINTABLE.fullmatch(model):
        raise refused(
            f"`model` is not printable ASCII of at most {MAX_MODEL_CHARS} characters",
            param="model",
        )
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise refused("`messages` is missing or is not a list with messages", param="messages")
    if not all(isinstance(message, dict) for message in messages):
        raise refused("every item of `messages` must be an object", param="messages")
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise refused("`stream` is neither true nor false", param="stream")
    return ChatRequest(raw=raw, body=body, model=model, stream=bool(stream))


def body_for_model(request: ChatRequest, model: str) -> bytes:
    """Returns the caller's bytes with another model id and no other change."""
    if model == request.model:
        return request.raw
    raw = request.raw
    quoted = orjson.dumps(model)
    for start, end in reversed(member_spans(raw, "model")):
        raw = raw[:start] + quoted + raw[end:]
    return raw


def with_model(request: ChatRequest, model: str) -> ChatRequest:
    """Returns the request for another model; no other byte of it changes."""
    if model == request.model:
        return request
    return ChatRequest(
        raw=body_for_model(request, model),
        body={**request.body, "model": model},
        model=model,
        stream=request.stream,
    )


def append_messages(request: ChatRequest, *messages: Mapping[str, Any]) -> ChatRequest:
    """Returns the request with messages at the end of its conversation.

    All bytes before the new ones stay as they are, so that what the provider has cached of the
    prompt still counts (statement 25).
    """
    if not messages:
        return request
    body = {**request.body, "messages": [*request.body["messages"], *messages]}
    # Of a key that occurs twice, parsers take the last.
    _, end = member_spans(request.raw, "messages")[-1]
    added = b"".join(b"," + dump(message) for message in messages)
    # The value is a list that is not empty: see parse_chat_request.
    raw = request.raw[: end - 1] + added + request.raw[end - 1 :]
    return ChatRequest(raw=raw, body=body, model=request.model, stream=request.stream)


def insert_message(request: ChatRequest, at: int, message: Mapping[str, Any]) -> ChatRequest:
    """Returns the request with a message before the one at a position; no other byte changes.

    Args:
        request: Stays as it is.
        at: From 0; the number of messages to append.
        message: The new one.
    """
    messages = request.body["messages"]
    if at >= len(messages):
        return append_messages(request, message)
    body = {**request.body, "messages": [*messages[:at], message, *messages[at:]]}
    start, _ = member_spans(request.raw, "messages")[-1]
    start = item_start(request.raw, start, at)
    raw = request.raw[:start] + dump(message) + b"," + request.raw[start:]
    return ChatRequest(raw=raw, body=body, model=request.model, stream=request.stream)


def dump(body: Mapping[str, Any]) -> bytes:
    """Writes a body. What is no Unicode (half an emoji in a model's answer) is written escaped.

    Raises:
        RequestRefused: It is nested too deeply.
    """
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        pass
    try:
        return json.dumps(body).encode()
    except (RecursionError, TypeError, ValueError):
        raise refused("the request body is nested too deeply", code="invalid_json") from None
