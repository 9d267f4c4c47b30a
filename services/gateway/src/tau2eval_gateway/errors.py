"""Every fault of a model call: OpenAI's error body for HTTP, a domain error for gRPC.

The kinds matter to the bots: a `RequestRefused` or `ModelNotFound` is the fault of whoever wrote
the request; all other kinds are infrastructure.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import orjson

from tau2eval_common.errors import Tau2EvalError

DOMAIN = "tau2eval.gateway"
MAX_MESSAGE_CHARS = 1_000
MAX_WORD_CHARS = 100
MAX_DETAILS_BYTES = 4_000
_UNSERVED = frozenset({429, 503, 529})
"""Statuses by which a provider says that it has not done the work (529: Anthropic, overloaded)."""

_CONTEXT_LENGTH = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|prompt is too long|too many tokens"
    r"|exceeds? the (maximum|model's)[^.]{0,40}(token|context)",
    re.IGNORECASE,
)
# What some providers answer with status 400 though nothing is wrong with the request.
_ACCOUNT = re.compile(
    r"credit balance|billing (details|account|plan|limit|hard limit)"
    r"|insufficient (credit|fund|quota|balance)|quota exceeded"
    r"|exceeded (your|the) (current )?quota|usage limits?|organization has been|not active"
    r"|location is not supported"
    r"|(api[ _-]?key|token|credential)s? (is |are |has |have )?(not valid|invalid|expired|missing"
    r"|been (revoked|disabled))|invalid (api[ _-]?key|credential)|account (is|has been) "
    r"(deactivated|suspended|disabled)|payment (is )?required",
    re.IGNORECASE,
)
_GENERIC_CODES = frozenset({"", "400", "413", "422", "invalid_request_error", "bad_request"})
_REFUSAL_CODES = frozenset(
    {
        "context_length_exceeded",
        "invalid_request_error",
        "invalid_request",
        "content_policy_violation",
        "content_filter",
        "invalid_prompt",
        "unsupported_parameter",
        "unsupported_value",
        "string_above_max_length",
    }
)


class Retry(enum.Enum):
    """Whether an upstream may be asked again after an error; see `tau2eval_gateway.retries`."""

    NO = "no"
    """It may have done the work."""
    LATER = "later"
    """It has done no work."""
    AT_ONCE = "at once"
    """Nor does it need a pause: a kept connection had been closed."""


class GatewayError(Tau2EvalError):
    """A model call failed.

    Attributes:
        http_status: What the HTTP API answers.
        error_code: OpenAI's `code`, in lower case.
        error_type: OpenAI's `type`.
        param: The member of the request that is at fault, if one is known.
        retry_after: The provider's Retry-After value, unchanged.
        details: Further members of the provider's error object.
        retry: Whether the same request may be sent again.
    """

    default_status = 500
    default_type = "server_error"

    def __init__(
        self,
        message: str,
        *,
        error_code: str,
        http_status: int | None = None,
        error_type: str | None = None,
        param: str | None = None,
        provider: str = "",
        provider_status: int | None = None,
        retry_after: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry: Retry = Retry.NO,
    ) -> None:
        self.http_status = http_status or self.default_status
        self.error_code = error_code
        self.error_type = error_type or self.default_type
        self.param = param
        self.provider = provider
        self.retry_after = retry_after
        self.details = dict(details or {})
        self.retry = retry
        metadata = {
            "http_status": str(self.http_status),
            "code": error_code,
            "type": self.error_type,
            "provider": provider,
        }
        if provider_status is not None:
            metadata["provider_status"] = str(provider_status)
        if retry_after:
            metadata["retry_after"] = retry_after
        super().__init__(message, reason=_reason(error_code), metadata=metadata, domain=DOMAIN)

    def replace_words(self, change: Callable[[str], str]) -> None:
        """Puts general words in place of a code, type or param that a redactor would change."""
        if change(self.error_code) != self.error_code:
            general = "invalid_request_error" if self.http_status < 429 else "upstream_error"
            self.error_code = self.metadata["code"] = general
            self.reason = _reason(general)
        if change(self.error_type) != self.error_type:
            self.error_type = self.metadata["type"] = self.default_type
        if self.param is not None and change(self.param) != self.param:
            self.param = None

    def body(self) -> dict[str, Any]:
        """Returns the OpenAI-shaped error body."""
        return {
            "error": {
                **self.details,
                "message": self.message,
                "type": self.error_type,
                "code": self.error_code,
                "param": self.param,
            }
        }

    def body_json(self) -> bytes:
        """Returns `body` as JSON."""
        return orjson.dumps(self.body())


def _reason(error_code: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", error_code.upper()).strip("_")[:63] or "UNKNOWN"


class RequestRefused(GatewayError):
    """The request itself is wrong, as the gateway or the provider says."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    default_status = 400
    default_type = "invalid_request_error"


class ModelNotFound(GatewayError):
    """No such model, here or at the provider."""

    code = grpc.StatusCode.NOT_FOUND
    default_status = 404
    default_type = "invalid_request_error"


class KeyRefused(GatewayError):
    """No valid key of this gateway came with the request."""

    code = grpc.StatusCode.UNAUTHENTICATED
    default_status = 401
    default_type = "authentication_error"


class TooMany(GatewayError):
    """A rate or a limit, the provider's or the gateway's own."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    default_status = 429
    default_type = "rate_limit_error"


class UpstreamError(GatewayError):
    """The provider failed, cannot be reached, or answered what is no answer."""

    code = grpc.StatusCode.UNAVAILABLE
    default_status = 502
    default_type = "upstream_error"


class UpstreamTimeout(GatewayError):
    """The provider was too slow."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    default_status = 504
    default_type = "upstream_error"


class NotConfigured(GatewayError):
    """The gateway's own configuration cannot serve this model."""

    code = grpc.StatusCode.INTERNAL
    default_status = 500
    default_type = "configuration_error"


def timeout_error(phase: str, seconds: float, provider: str = "") -> UpstreamTimeout:
    """Returns the error of a slow phase: "connect", "first_byte", "idle" or "total"."""
    return UpstreamTimeout(
        f"the upstream was too slow: no result of phase {phase} within {seconds:g} s",
        error_code=f"upstream_timeout_{phase}",
        provider=provider,
    )


def provider_error(
    status: int,
    payload: bytes | Mapping[str, Any] | None,
    *,
    provider: str,
    retry_after: str | None = None,
) -> GatewayError:
    """Maps a provider's error answer.

    Args:
        status: Its HTTP status; 200 for an error inside a stream.
        payload: Its body, raw or parsed. Messages are kept; the caller of this redacts them.
        provider: Name for the metadata.
        retry_after: Its Retry-After header.
    """
    error = _error_object(payload)
    message = _text(error.get("message")) or f"the provider answered with status {status}"
    code = _text(error.get("code"))[:MAX_WORD_CHARS]
    kind = _text(error.get("type"))[:MAX_WORD_CHARS]
    param = _text(error.get("param"))[:MAX_WORD_CHARS] or None
    message = message[:MAX_MESSAGE_CHARS]
    common: dict[str, Any] = {"provider": provider, "details": _further(error)}
    if status in _UNSERVED:
        common["retry"] = Retry.LATER
    if status < 400:
        status = _status_in_stream(code, kind)
    elif status > 599:
        status = 502
    common["provider_status"] = status
    if status in (400, 413, 422) and not error:
        # A proxy's page, for instance: nobody has said what is wrong with the request.
        return UpstreamError(message, error_code="upstream_invalid_response", **common)
    if status in (400, 413, 422) and _ACCOUNT.search(message):
        return UpstreamError(
            f"the provider refused the gateway's own account: {message}",
            error_code="provider_account_refused",
            **common,
        )
    if status in (400, 413, 422):
        if code.lower() in _GENERIC_CODES and (
            _CONTEXT_LENGTH.search(message) or _CONTEXT_LENGTH.search(kind)
        ):
            code = "context_length_exceeded"
        elif code in ("", str(status)):
            code = "invalid_request_error"
        return RequestRefused(
            message,
            http_status=status,
            error_code=code,
            error_type=kind or None,
            param=param,
            **common,
        )
    if status == 404 and error:
        code = code if code not in ("", "404") else "model_not_found"
        return ModelNotFound(
            message, error_code=code, error_type=kind or None, param=param, **common
        )
    if status == 404:
        return UpstreamError(
            "the provider does not know the path; check the model's api_base",
            error_code="upstream_not_found",
            **common,
        )
    if status in (401, 403):
        return UpstreamError(
            f"the provider refused the gateway's own key or rights: {message}",
            error_code="provider_auth_failed",
            **common,
        )
    if status == 429:
        return TooMany(
            message,
            error_code=code if code not in ("", "429") else "rate_limit_exceeded",
            error_type=kind or None,
            retry_after=retry_after,
            **common,
        )
    if status in (408, 504):
        return UpstreamTimeout(
            message, http_status=status, error_code=code or "upstream_timeout", **common
        )
    return UpstreamError(
        message,
        http_status=status if status >= 400 else 502,
        error_code=code if code and not code.isdigit() else "upstream_error",
        error_type=kind or None,
        retry_after=retry_after,
        **common,
    )


def _status_in_stream(code: str, kind: str) -> int:
    """Returns the status that an error inside a stream stands for."""
    if code.isdigit() and 400 <= int(code) <= 599:
        return int(code)
    names = {code.lower(), kind.lower()}
    if names & _REFUSAL_CODES:
        return 400
    if names & {"rate_limit_exceeded", "rate_limit_error", "insufficient_quota"}:
        return 429
    return 502


def _error_object(payload: bytes | Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(payload, bytes):
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError):
            return {}
    if isinstance(payload, list) and len(payload) == 1:
        # Google's way.
        payload = payload[0]
    if not isinstance(payload, Mapping):
        return {}
    error = payload.get("error", payload)
    if isinstance(error, str):
        return {"message": error}
    if not isinstance(error, Mapping):
        return {}
    # A JSON body of another shape ({"detail": "Not Found"}) says nothing about a model.
    return dict(error) if "message" in error or "code" in error or "type" in error else {}


def _further(error: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the members of an error object that OpenAI's has not, unless they are large."""
    known = ("message", "type", "code", "param")
    found = {name: value for name, value in error.items() if name not in known}
    try:
        return found if found and len(orjson.dumps(found)) <= MAX_DETAILS_BYTES else {}
    except (orjson.JSONEncodeError, RecursionError):
        return {}


def _text(value: object) -> str:
    if isinstance(value, str):
        # Half an emoji could not be passed on.
        return value.encode("utf-8", "replace").decode()
    return "" if value is None or isinstance(value, (dict, list)) else str(value)
