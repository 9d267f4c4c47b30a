"""One model call of the judge, over gateway.v1."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_common.errors import describe_rpc_error, error_info
from tau2eval_scorer.judge.result import JudgeUsage

GATEWAY_DOMAIN = "tau2eval.gateway"
_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)


# The request was refused for what is in it; leaving out a parameter does not help.
_CONTENT_CODES = frozenset(
    {"context_length_exceeded", "content_policy_violation", "content_filter", "invalid_prompt"}
)
MAX_ERROR_CHARS = 500


class JudgeCallError(Exception):
    """A model call of the judge failed.

    Attributes:
        transient: Whether the same request may do better later.
        refused: The request was refused, perhaps for a parameter that the model does not know.
        retry_after_seconds: What the provider asks for; 0 when it says nothing.
    """

    def __init__(
        self,
        message: str,
        *,
        transient: bool,
        refused: bool = False,
        retry_after_seconds: float = 0.0,
    ) -> None:
        super().__init__(message[:MAX_ERROR_CHARS])
        self.transient = transient
        self.refused = refused
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True)
class JudgeReply:
    """The text of one model call; `cut_off` when a limit of tokens ended it."""

    text: str
    cut_off: bool
    usage: JudgeUsage


class ChatModel(Protocol):
    """What the judge needs of the gateway."""

    async def complete(
        self, body: Mapping[str, Any], context: gateway_pb2.CallContext, timeout: float
    ) -> JudgeReply:
        """Asks once, within `timeout` seconds.

        Raises:
            JudgeCallError: When there is no usable reply.
        """
        ...


class GatewayChat:
    """The gateway's ChatService as a `ChatModel`; the channel belongs to the caller."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = gateway_pb2_grpc.ChatServiceStub(channel)

    async def complete(
        self, body: Mapping[str, Any], context: gateway_pb2.CallContext, timeout: float
    ) -> JudgeReply:
        """Asks once; see `ChatModel.complete`."""
        request = gateway_pb2.ChatCompletionRequest(
            context=context, body_json=json.dumps(body).encode()
        )
        try:
            response = await self._stub.ChatCompletion(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise _call_error(error) from None
        except grpc.aio.UsageError as error:
            raise JudgeCallError(
                f"the gateway's channel is closed: {error}", transient=False
            ) from None
        return _reply(response, str(body["model"]))


def _call_error(error: grpc.aio.AioRpcError) -> JudgeCallError:
    info = error_info(error)
    metadata = info.metadata if info is not None and info.domain == GATEWAY_DOMAIN else None
    return JudgeCallError(
        f"the judge's model call failed: {describe_rpc_error(error)}",
        transient=error.code() in _TRANSIENT,
        refused=error.code() is grpc.StatusCode.INVALID_ARGUMENT
        and metadata is not None
        and metadata.get("code") not in _CONTENT_CODES,
        retry_after_seconds=_seconds(metadata.get("retry_after", "") if metadata else ""),
    )


def _seconds(text: str) -> float:
    """Reads a Retry-After; the form with a date counts as nothing."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0


def _reply(response: gateway_pb2.ChatCompletionResponse, model: str) -> JudgeReply:
    try:
        body = json.loads(response.body_json)
        choice = body["choices"][0]
        text = choice["message"].get("content") or choice["message"].get("refusal") or ""
        if not isinstance(text, str):
            raise TypeError("content is no text")
        cut_off = choice.get("finish_reason") == "length"
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise JudgeCallError(
            f"the judge's model answered with a body that cannot be read: {error!r}",
            transient=True,
        ) from None
    return JudgeReply(text, cut_off, _usage(body, response.metadata, model))


def _usage(body: Mapping[str, Any], metadata: gateway_pb2.CallMetadata, model: str) -> JudgeUsage:
    usage = _object(body.get("usage"))
    cost = metadata.cost_usd if metadata.HasField("cost_usd") else None
    return JudgeUsage(
        model=model,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(_object(usage.get("prompt_tokens_details")).get("cached_tokens")),
        cost_usd=cost if cost is not None and math.isfinite(cost) and cost >= 0 else None,
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int:
    """A number of tokens that makes no sense costs no verdict."""
    return value if isinstance(value, int) and value > 0 else 0
