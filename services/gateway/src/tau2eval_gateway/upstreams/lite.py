"""All other providers, by LiteLLM. It is imported at the first call that needs it."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from typing import Any

import orjson

from tau2eval_gateway.redaction import Redactor
from tau2eval_gateway.routes import Environment
from tau2eval_gateway.sse import DONE, SseEvent, encode
from tau2eval_gateway.upstreams.base import UpstreamAnswer, UpstreamCall
from tau2eval_gateway.upstreams.lite_errors import map_error, truncated
from tau2eval_gateway.usage import Usage

logger = logging.getLogger(__name__)

_ENVIRONMENT = {
    # Nothing is fetched on import or later but what a call itself needs.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_TELEMETRY": "False",
}

# The members of a chat body that LiteLLM translates for each provider. All others, whatever
# LiteLLM might otherwise take them for (api_base, api_key, ...), go to the provider as they are.
_TRANSLATED = frozenset(
    {
        "messages", "temperature", "top_p", "n", "stream_options", "stop", "max_tokens",
        "max_completion_tokens", "modalities", "prediction", "audio", "presence_penalty",
        "frequency_penalty", "logit_bias", "response_format", "seed", "tools",
        "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs", "functions",
        "function_call", "thinking", "web_search_options",
    }
)  # fmt: skip
_IF_SUPPORTED = frozenset({"reasoning_effort", "verbosity", "service_tier", "store", "user"})
"""Translated where LiteLLM knows that the model takes them, else forwarded as they are."""
_NOT_FORWARDED = frozenset({"model", "stream", "extra_body"})
_KEPT_NULLS = frozenset({"content", "finish_reason", "logprobs", "refusal"})


class LiteLLMUpstream:
    """Calls over `litellm.acompletion`, without its retries, callbacks and dropped parameters.

    Args:
        environment: For os.environ/NAME values.
        redactor: Learns the keys that are used.
    """

    def __init__(self, environment: Environment, redactor: Redactor) -> None:
        self._environment = environment
        self._redactor = redactor
        self._lock = asyncio.Lock()
        self._module: Any = None

    async def complete(self, call: UpstreamCall) -> UpstreamAnswer:
        """Asks for a whole answer; see `Upstream`."""
        litellm = await self._litellm()
        try:
            response = await litellm.acompletion(**self._arguments(litellm, call, stream=False))
        except Exception as error:
            raise map_error(litellm, error, call) from None
        body = _tidy(response.model_dump(mode="json"))
        return UpstreamAnswer(raw=orjson.dumps(body), body=body)

    async def stream(self, call: UpstreamCall) -> _Stream:
        """Opens a stream; see `Upstream`."""
        litellm = await self._litellm()
        try:
            stream = await litellm.acompletion(**self._arguments(litellm, call, stream=True))
        except Exception as error:
            raise map_error(litellm, error, call) from None
        return _Stream(litellm, call, stream)

    def price(self, call: UpstreamCall, usage: Usage) -> float | None:
        """Returns the cost by the model list's prices or LiteLLM's table; None when unknown."""
        prices = call.route.deployment.prices
        if prices is not None:
            return prices.cost(usage)
        try:
            litellm = self._module
            if litellm is None:
                return None
            tier = call.request.body.get("service_tier")
            prompt, completion = litellm.cost_per_token(
                model=call.route.model,
                usage_object=litellm.Usage(
                    # Within prompt_tokens, as LiteLLM expects both kinds of cache tokens.
                    prompt_tokens=usage.prompt_tokens,
                    completion_tokens=usage.completion_tokens,
                    total_tokens=usage.prompt_tokens + usage.completion_tokens,
                    prompt_tokens_details={
                        "cached_tokens": usage.cached_tokens,
                        "cache_creation_tokens": usage.cache_write_tokens,
                    },
                    completion_tokens_details={"reasoning_tokens": usage.reasoning_tokens},
                    cache_read_input_tokens=usage.cached_tokens,
                    cache_creation_input_tokens=usage.cache_write_tokens,
                ),
                service_tier=tier if tier in ("flex", "priority") else None,
            )
        except Exception:
            # Whatever it raises: the table does not know the model.
            return None
        cost = float(prompt + completion)
        # A table without prices gives 0, which is not known to be true.
        return cost if cost > 0 else None

    async def aclose(self) -> None:
        """Closes the connections that LiteLLM keeps."""
        if self._module is None:
            return
        try:
            cleanup = importlib.import_module("litellm.llms.custom_httpx.async_client_cleanup")
            async with asyncio.timeout(3):
                await cleanup.close_litellm_async_clients()
        except Exception as error:
            logger.debug("LiteLLM's connections were not closed: %s", type(error).__name__)

    async def _litellm(self) -> Any:
        async with self._lock:
            if self._module is None:
                logger.info("importing LiteLLM for the first model that needs it")
                # It takes seconds, which other calls must not wait for.
                self._module = await asyncio.to_thread(_import)
        return self._module

    def _arguments(self, litellm: Any, call: UpstreamCall, stream: bool) -> dict[str, Any]:
        deployment = call.route.deployment
        resolve = self._environment.resolve
        body = call.request.body
        extra = body.get("extra_body")
        extra_body = dict(extra) if isinstance(extra, dict) else {}
        arguments: dict[str, Any] = {}
        supported = self._supported(litellm, call)
        for name, value in body.items():
            if name in _NOT_FORWARDED:
                continue
            if name in _TRANSLATED or (name in _IF_SUPPORTED and name in supported):
                arguments[name] = value
            else:
                # As in OpenAI's client, what stands in extra_body goes before.
                extra_body.setdefault(name, value)
        for name, value in deployment.params.items():
            arguments[name] = resolve(value)
            if isinstance(arguments[name], str) and any(
                part in name for part in ("key", "secret", "token", "password")
            ):
                self._redactor.add(arguments[name])
        if deployment.api_base:
            arguments["api_base"] = resolve(deployment.api_base)
        if deployment.api_key:
            arguments["api_key"] = resolve(deployment.api_key)
            self._redactor.add(arguments["api_key"])
        if deployment.extra_headers:
            arguments["extra_headers"] = {
                name: resolve(value) for name, value in deployment.extra_headers.items()
            }
        if extra_body:
            arguments["extra_body"] = extra_body
        return {
            **arguments,
            "model": call.route.model,
            "stream": stream,
            "timeout": call.total_seconds,
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": False,
        }

    def _supported(self, litellm: Any, call: UpstreamCall) -> frozenset[str]:
        if not _IF_SUPPORTED & call.request.body.keys():
            return frozenset()
        provider = call.route.deployment.params.get("custom_llm_provider")
        try:
            return frozenset(
                litellm.get_supported_openai_params(
                    model=call.route.model, custom_llm_provider=provider
                )
                or ()
            )
        except Exception:
            # An unknown provider: the call itself tells.
            return frozenset()


class _Stream:
    """LiteLLM's chunks, as events."""

    def __init__(self, litellm: Any, call: UpstreamCall, stream: Any) -> None:
        self._litellm = litellm
        self._call = call
        self._stream = stream
        self._done = False

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> list[SseEvent]:
        if self._done:
            raise StopAsyncIteration
        try:
            chunk = await self._stream.__anext__()
        except StopAsyncIteration:
            self._done = True
            # LiteLLM invents finish_reason "stop" for a stream that broke off.
            if getattr(self._stream, "received_finish_reason", None) is None and not getattr(
                self._stream, "intermittent_finish_reason", None
            ):
                raise truncated(self._call.route.provider) from None
            return [encode(DONE)]
        except Exception as error:
            raise map_error(self._litellm, error, self._call) from None
        return [encode(orjson.dumps(_tidy(chunk.model_dump(mode="json"))))]

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is None:
            return
        try:
            async with asyncio.timeout(3):
                await close()
        except Exception as error:
            logger.debug("a LiteLLM stream was not closed: %s", type(error).__name__)


def _import() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    litellm: Any = importlib.import_module("litellm")
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = False
    litellm.num_retries = 0
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        # Its messages can hold prompts and keys; errors reach the caller by exceptions.
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


def _tidy(value: Any) -> Any:
    """Removes the nulls that LiteLLM adds, but those that OpenAI sends too."""
    if isinstance(value, dict):
        return {
            name: _tidy(item)
            for name, item in value.items()
            if item is not None or name in _KEPT_NULLS
        }
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return value
