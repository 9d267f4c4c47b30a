"""Tokens and dollars of a call, from what the provider says or else from an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

CHARS_PER_TOKEN = 4
"""Rough English average, for streams that bring no usage."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call.

    Attributes:
        prompt_tokens: All tokens read, cached ones included.
        completion_tokens: All tokens written, reasoning included.
        cached_tokens: Read from the provider's cache.
        cache_write_tokens: Written to it.
        reasoning_tokens: Written and not shown.
        cost_usd: What the provider itself says that it costs, in dollars; None: nothing said.
        estimated: Counted from characters, because the provider said nothing.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    estimated: bool = False


def read_usage(usage: object) -> Usage | None:
    """Reads OpenAI's `usage` member; None when there is none."""
    if not isinstance(usage, Mapping) or not usage:
        return None
    prompt = _mapping(usage.get("prompt_tokens_details"))
    completion = _mapping(usage.get("completion_tokens_details"))
    cost = usage.get("cost")
    known = isinstance(cost, (int, float)) and not isinstance(cost, bool) and cost >= 0
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(prompt.get("cached_tokens")),
        cache_write_tokens=_count(prompt.get("cache_write_tokens"))
        or _count(usage.get("cache_creation_input_tokens")),
        reasoning_tokens=_count(completion.get("reasoning_tokens")),
        cost_usd=float(cost) if known and isinstance(cost, (int, float)) else None,
    )


def estimate(body: Mapping[str, Any], completion_chars: int) -> Usage:
    """Estimates the tokens of a call whose provider said nothing.

    Args:
        body: The request.
        completion_chars: Characters that the model wrote, tool calls included.
    """
    prompt_chars = len(orjson.dumps([body.get("messages"), body.get("tools")]))
    return Usage(
        prompt_tokens=-(-prompt_chars // CHARS_PER_TOKEN),
        completion_tokens=-(-completion_chars // CHARS_PER_TOKEN),
        estimated=True,
    )


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars a token, from the configuration.

    Attributes:
        cache_read: For cached prompt tokens; None: they cost as much as others.
    """

    input: float
    output: float
    cache_read: float | None = None

    def cost(self, usage: Usage) -> float:
        """Returns the price of a call in dollars; cached tokens are billed once."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        cache_price = self.input if self.cache_read is None else self.cache_read
        return (
            (usage.prompt_tokens - cached) * self.input
            + cached * cache_price
            + usage.completion_tokens * self.output
        )


def written_chars(message: Mapping[str, Any]) -> int:
    """Returns the characters that a message or delta holds: text, reasoning and tool calls."""
    total = sum(
        len(value)
        for name in ("content", "refusal", "reasoning_content", "reasoning")
        if isinstance(value := message.get(name), str)
    )
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = _mapping(call.get("function")) if isinstance(call, Mapping) else {}
        for name in ("name", "arguments"):
            value = function.get(name)
            total += len(value) if isinstance(value, str) else 0
    return total


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return max(0, int(value))
