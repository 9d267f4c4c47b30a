"""What a caller sees of an answer that took several upstream calls (statements 19 and 20)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from tau2eval_gateway.flows.base import Reply, Spent, sum_costs, sum_usage


def present(reply: Reply, model: str, spent: Sequence[Spent]) -> Reply:
    """Returns a reply as the caller sees it (statements 19 and 20).

    Args:
        reply: The message that goes out; its text and calls stay as they are.
        model: The id that the caller asked for.
        spent: Every upstream call that the request took.
    """
    body = {**reply.body, "model": model}
    if usage := total_usage(spent):
        body["usage"] = usage
    choices = body.get("choices")
    if isinstance(choices, list):
        body["choices"] = [_finished(choice) for choice in choices]
    try:
        return replace(reply, raw=dump_answer(body), body=body)
    except RecursionError:
        # Nested deeper than can be written. The answer is worth more than its id and its sums.
        return reply


def total_usage(spent: Sequence[Spent]) -> dict[str, Any]:
    """Returns the sum of the calls' usage; its cost only where that of every call is known."""
    usage = sum_usage([call.usage for call in spent])
    if "cost" in usage:
        cost = sum_costs(spent)
        if cost is None:
            del usage["cost"]
        else:
            usage["cost"] = cost
    if not all("cost_details" in call.usage for call in spent):
        usage.pop("cost_details", None)
    return usage


def _finished(choice: Any) -> Any:
    """Returns a choice whose finish_reason says whether calls are to be made."""
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(message, Mapping):
        return choice
    reason = choice.get("finish_reason")
    if message.get("tool_calls"):
        right = "tool_calls"
    elif message.get("function_call"):
        right = "function_call"
    else:
        right = "stop"
    # Cut-off and filtered answers say so whatever they hold.
    if reason == right or reason not in ("stop", "tool_calls", "function_call", None):
        return choice
    return {**choice, "finish_reason": right}


def dump_answer(body: Mapping[str, Any]) -> bytes:
    """Writes an answer.

    Raises:
        RecursionError: It is nested too deeply.
    """
    try:
        return orjson.dumps(body)
    except (orjson.JSONEncodeError, RecursionError):
        return json.dumps(body).encode()
