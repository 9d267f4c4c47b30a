"""One model call of the judge, over gateway.v1."""

from __future__ import annotations

import json
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


class JudgeCallError(Exception):
    """A model call of the judge failed.

    Attributes:
        transient: Whether the same request may do better later.
        refused: The request itself was refused: its form may be what is not supported.
    """

    def __init__(self, message: str, *, transient: bool, refused: bool) -> None:
        super().__init__(message)
        self.transient = transient
        self.refused = refused


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
            info = error_info(error)
            refused = (
                error.code() is grpc.StatusCode.INVALID_ARGUMENT
                and info is not None
                and info.domain == GATEWAY_DOMAIN
            )
            raise JudgeCallError(
                f"the judge's model call failed: {describe_rpc_error(error)}",
                transient=error.code() in _TRANSIENT,
                refused=refused,
            ) from None
        return _reply(response, str(body["model"]))


def _reply(response: gateway_pb2.ChatCompletionResponse, model: str) -> JudgeReply:
    try:
        body = json.loads(response.body_json)
        choice = body["choices"][0]
        text = choice["message"].get("content") or choice["message"].get("refusal") or ""
        if not isinstance(text, str):
            raise TypeError("content is no text")
        usage = body.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        cost = response.metadata.cost_usd if response.metadata.HasField("cost_usd") else None
        return JudgeReply(
            text=text,
            cut_off=choice.get("finish_reason") == "length",
            usage=JudgeUsage(
                model=model,
                prompt_tokens=int(usage.get("prompt_tokens") or 0),
                completion_tokens=int(usage.get("completion_tokens") or 0),
                cached_tokens=int(details.get("cached_tokens") or 0),
                cost_usd=cost,
            ),
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise JudgeCallError(
            f"the judge's model answered with a body that cannot be read: {error!r}",
            transient=True,
            refused=False,
        ) from None
