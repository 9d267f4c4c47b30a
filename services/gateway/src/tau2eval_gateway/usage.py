"""Tokens of a call, from what the provider says or else from an estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

BYTES_PER_TOKEN = 4
"""Rough average of English text and JSON in UTF-8, for answers that bring no usage."""
MAX_TOKENS = 2**53
"""Larger counts are no counts; what is kept must fit a database's integer."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call.

    Attributes:
        prompt_tokens: All tokens read, those of the cache included, however the provider counts.
        completion_tokens: All tokens written, reasoning included.
        cached_tokens: Read from the provider's cache.
        cache_write_tokens: Written to it.
        reasoning_tokens: Written and not shown.
        cost_usd: What the provider itself says that it costs, in dollars; None: nothing said.
        estimated: Counted from characters, because the provider said nothing or too little.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    estimated: bool = False


def read_usage(usage: object) -> Usage | None:
    """Reads a `usage` member; None when there is none, or one that says nothing.

    Providers differ in what they count in. OpenAI, Gemini, DeepSeek and OpenRouter count cached
    tokens within prompt_tokens; Anthropic's usage, and what some proxies make of it, has them
    beside. xAI and Gemini's OpenAI-compatible API have reasoning beside completion_tokens. The
    result is the same for both: everything that was read, and everything that was written.
    """
    if not isinstance(usage, dict) or not usage:
        return None
    prompt_details = _mapping(usage.get("prompt_tokens_details"))
    completion_details = _mapping(usage.get("completion_tokens_details"))
    cached = _first(
        prompt_details.get("cached_tokens"),
        usage.get("cache_read_input_tokens"),
        usage.get("prompt_cache_hit_tokens"),
    )
    written = _first(
        prompt_details.get("cache_write_tokens"),
        prompt_details.get("cache_creation_tokens"),
        usage.get("cache_creation_input_tokens"),
    )
    reasoning = _count(completion_details.get("reasoning_tokens"))
    prompt = _count(usage.get("prompt_tokens"))
    completion = _count(usage.get("completion_tokens"))
    total = _count(usage.get("total_tokens"))
    if not prompt and "prompt_tokens" not in usage and "input_tokens" in usage:
        # Anthropic's own shape; OpenAI's other API has these names with the cache within.
        details = _mapping(usage.get("input_tokens_details"))
        beside = not details
        prompt = _count(usage.get("input_tokens"))
        completion = completion or _count(usage.get("output_tokens"))
        cached = cached or _count(details.get("cached_tokens"))
        prompt += cached + written if beside else 0
    else:
        prompt, completion, reasoning = _whole(
            prompt, completion, total, cached + written, reasoning
        )
    cost = _cost(usage)
    if not (prompt or completion) and cost is None:
        return None
    return Usage(
        prompt_tokens=max(prompt, cached + written),
        completion_tokens=max(completion, reasoning),
        cached_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        cost_usd=cost,
    )


def _whole(
    prompt: int, completion: int, total: int, cache: int, reasoning: int
) -> tuple[int, int, int]:
    """Returns prompt, completion and reasoning tokens with every part counted in once.

    total_tokens tells who counts how: what it has above prompt and completion stands beside them.
    """
    if cache > prompt:
        prompt += cache
    if reasoning > completion:
        completion += reasoning
    beside = total - prompt - completion
    if beside <= 0:
        return prompt, completion, reasoning
    if cache and beside == cache:
        return prompt + cache, completion, reasoning
    if cache and reasoning and beside == cache + reasoning:
        return prompt + cache, completion + reasoning, reasoning
    if reasoning and beside == reasoning:
        return prompt, completion + reasoning, reasoning
    if not reasoning:
        # Gemini's OpenAI-compatible API counts thoughts in the total only; they are billed.
        return prompt, completion + beside, beside
    return prompt, completion, reasoning


def merge(earlier: Usage | None, later: Usage) -> Usage:
    """Returns what two usages of one stream say together; counts only grow."""
    if earlier is None:
        return later
    return Usage(
        prompt_tokens=max(earlier.prompt_tokens, later.prompt_tokens),
        completion_tokens=max(earlier.completion_tokens, later.completion_tokens),
        cached_tokens=max(earlier.cached_tokens, later.cached_tokens),
        cache_write_tokens=max(earlier.cache_write_tokens, later.cache_write_tokens),
        reasoning_tokens=max(earlier.reasoning_tokens, later.reasoning_tokens),
        cost_usd=earlier.cost_usd if later.cost_usd is None else later.cost_usd,
    )


def estimate(body: Mapping[str, Any], completion_bytes: int) -> Usage:
    """Estimates the tokens of a call whose provider said nothing.

    Args:
        body: The request.
        completion_bytes: UTF-8 bytes that the model wrote, tool calls included.
    """
    try:
        prompt_bytes = len(orjson.dumps([body.get("messages"), body.get("tools")]))
    except orjson.JSONEncodeError:
        prompt_bytes = 0
    return Usage(
        prompt_tokens=-(-prompt_bytes // BYTES_PER_TOKEN),
        completion_tokens=-(-completion_bytes // BYTES_PER_TOKEN),
        estimated=True,
    )


def complete_usage(
    usage: Usage | None, body: Mapping[str, Any], completion_bytes: int, whole: bool
) -> Usage:
    """Returns the tokens of an answer, estimated where the provider has not said them.

    A stream that was left in the middle may hold counts of its beginning: more was written since.

    Args:
        usage: What the provider said.
        body: The request.
        completion_bytes: UTF-8 bytes that the model wrote, as far as they were seen.
        whole: Whether the answer came to its end.
    """
    if usage is None:
        return estimate(body, completion_bytes)
    if not usage.prompt_tokens and usage.cost_usd is None:
        # No prompt is empty.
        read = estimate(body, 0).prompt_tokens
        usage = replace(usage, prompt_tokens=read, estimated=True)
    seen = -(-completion_bytes // BYTES_PER_TOKEN)
    short = usage.completion_tokens == 0 if whole else usage.completion_tokens < seen
    if not seen or not short:
        return usage
    cost = usage.cost_usd if whole else None
    return replace(usage, completion_tokens=seen, cost_usd=cost, estimated=True)


def written_bytes(message: Mapping[str, Any]) -> int:
    """Returns the UTF-8 bytes of a message or delta: text, reasoning and tool calls."""
    total = thought = 0
    for name, value in message.items():
        if name in ("content", "refusal"):
            total += _size(value)
        elif name in ("reasoning_content", "reasoning"):
            # Some servers send the same reasoning under both names.
            thought = max(thought, _size(value))
        elif name == "tool_calls" and isinstance(value, list):
            for call in value:
                function = _mapping(call.get("function")) if isinstance(call, dict) else {}
                total += _size(function.get("name")) + _size(function.get("arguments"))
    return total + thought


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list):
        # Parts of content: only their text is written by the model.
        return sum(_size(part.get("text")) for part in value if isinstance(part, dict))
    return 0


def _cost(usage: Mapping[str, Any]) -> float | None:
    """Returns the dollars that the provider says; OpenRouter's fee has the bill beside it."""
    cost = _dollars(usage.get("cost"))
    if cost is not None and usage.get("is_byok") is True:
        # With the caller's own provider key, `cost` is the router's share alone.
        upstream = _dollars(_mapping(usage.get("cost_details")).get("upstream_inference_cost"))
        return None if upstream is None else cost + upstream
    return cost


def _dollars(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= MAX_TOKENS else None


def _mapping(value: object) -> Mapping[str, Any]:
    # A dict, not any Mapping: that is what parsers make, and it is much faster to tell.
    return value if isinstance(value, dict) else {}


def _first(*values: object) -> int:
    return next((count for value in values if (count := _count(value))), 0)


def _count(value: object) -> int:
    if type(value) is int:
        return value if 0 < value <= MAX_TOKENS else 0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    if not math.isfinite(value) or value <= 0 or value > MAX_TOKENS:
        return 0
    return int(value)
