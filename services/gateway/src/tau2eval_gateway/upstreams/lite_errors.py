"""Maps what LiteLLM raises; the core redacts the messages."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from tau2eval_gateway.errors import (
    GatewayError,
    ModelNotFound,
    NotConfigured,
    Retry,
    UpstreamError,
    UpstreamTimeout,
    provider_error,
)
from tau2eval_gateway.upstreams.base import UpstreamCall

logger = logging.getLogger(__name__)

_PREFIX = re.compile(r"(litellm\.)?\w+(Error|Exception|Timeout)\s*[:-]\s+")
_MAX_CAUSES = 10


def truncated(provider: str) -> UpstreamError:
    """Returns the error of a stream that ended before its end."""
    return UpstreamError(
        "the upstream's stream broke off before its end",
        error_code="upstream_truncated",
        provider=provider,
    )


def map_error(litellm: Any, error: Exception, call: UpstreamCall) -> GatewayError:
    """Returns the gateway's error for an exception of LiteLLM or of what it uses.

    Args:
        litellm: The module.
        error: What was raised.
        call: By which call.
    """
    if isinstance(error, GatewayError):
        return error
    provider = str(getattr(error, "llm_provider", "") or call.route.provider)
    message = _message(error)
    if "LLM Provider NOT provided" in message:
        return ModelNotFound(
            "no such model here, and LiteLLM knows no provider for this id",
            error_code="model_not_found",
            param="model",
        )
    if "Missing credentials" in message or "api_key client option must be set" in message:
        return NotConfigured(
            f"no key for the provider {provider}: set it in the gateway's environment under "
            f"LiteLLM's name ({provider.upper()}_API_KEY for most) or in the model list",
            error_code="provider_key_missing",
            provider=provider,
        )
    if "before a finish_reason" in message:
        return truncated(provider)
    cause, unserved = _transport_fault(error)
    retry = Retry.LATER if unserved else Retry.NO
    if isinstance(error, litellm.Timeout):
        return UpstreamTimeout(
            "the upstream was too slow",
            error_code="upstream_timeout",
            provider=provider,
            retry=retry,
        )
    if cause is not None or isinstance(error, litellm.APIConnectionError):
        # LiteLLM gives it status 500 and a text with addresses in it.
        return UpstreamError(
            f"the upstream cannot be reached or broke off ({type(cause or error).__name__})",
            error_code="upstream_connection_error",
            provider=provider,
            retry=retry,
        )
    status = getattr(error, "status_code", None)
    if not isinstance(status, int) or status < 400:
        logger.warning("LiteLLM failed with %s", type(error).__name__)
        return UpstreamError(
            f"LiteLLM failed with {type(error).__name__}",
            error_code="upstream_error",
            provider=provider,
        )
    payload = {"message": message, **_details(error, message)}
    if isinstance(error, litellm.ContextWindowExceededError):
        payload["code"] = "context_length_exceeded"
    return provider_error(
        status, {"error": payload}, provider=provider, retry_after=_retry_after(error)
    )


def _transport_fault(error: BaseException) -> tuple[BaseException | None, bool]:
    """Finds what the HTTP client of LiteLLM met.

    Returns:
        The client's error, None when there was an answer; and whether no connection came about.
    """
    found: BaseException | None = None
    unserved = False
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            break
        names = {kind.__name__ for kind in type(cause).__mro__}
        if names & {"TransportError", "ClientConnectionError", "ClientPayloadError"}:
            found = found or cause
        unserved = unserved or bool(names & {"ConnectError", "ConnectTimeout"})
        cause = cause.__cause__ or cause.__context__
    return found, unserved


def _message(error: Exception) -> str:
    """Returns the provider's words without the names that LiteLLM puts before them."""
    message = str(getattr(error, "message", "") or type(error).__name__)
    while match := _PREFIX.match(message):
        message = message[match.end() :]
    return message


def _details(error: Exception, message: str) -> dict[str, Any]:
    """Returns the provider's error object, which some of LiteLLM's ways keep only as text."""
    found = getattr(error, "body", None)
    if not isinstance(found, dict) and message.startswith("{"):
        try:
            found, _ = json.JSONDecoder().raw_decode(message)
        except (ValueError, RecursionError):
            found = None
    if not isinstance(found, dict):
        return {}
    if isinstance(found.get("error"), dict):
        found = found["error"]
    return {
        name: found[name]
        for name in ("message", "type", "code", "param")
        if found.get(name) is not None
    }


def _retry_after(error: Exception) -> str | None:
    response = getattr(error, "response", None)
    for headers in (
        getattr(error, "litellm_response_headers", None),
        getattr(response, "headers", None),
    ):
        value = headers.get("retry-after") if headers is not None else None
        if isinstance(value, str):
            return value
    return None
