"""What events.jsonl says about tool calls and the stages of each answer."""

from __future__ import annotations

import bisect
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_scorer.report.formats import parsed

STAGES = ("stt", "llm_first_token", "llm", "tool", "tts_first_audio")
"""Stages of an answer, in the order in which they come."""


@dataclass(frozen=True)
class ToolCall:
    """A tool call of the agent.

    Attributes:
        number: From 1.
        seconds: When it was made, on the bridge's clock.
        result: Parsed where it is JSON; None when none came.
        answered: Whether a result came.
        is_error: The tool refused, or answered with an error.
        latency_seconds: Of the tool.
    """

    number: int
    seconds: float
    name: str
    arguments: Any
    result: Any = None
    answered: bool = False
    is_error: bool = False
    latency_seconds: float | None = None


@dataclass(frozen=True)
class Moment:
    """Something else that is worth a line: the exit, an error."""

    seconds: float
    role: str
    text: str
    is_error: bool


def read_events(data: bytes | None) -> list[dict[str, Any]]:
    """Returns the events of an events.jsonl; lines that are none are left out."""
    events = []
    for line in (data or b"").splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if (
            isinstance(event, dict)
            and isinstance(event.get("time_seconds"), int | float)
            and isinstance(event.get("data"), dict)
        ):
            events.append(event)
    return events


def tool_calls(events: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
    """Returns the tool calls with their results; a model may give several calls one id."""
    results: dict[tuple[Any, Any], deque[Mapping[str, Any]]] = {}
    for event in events:
        if event.get("event") == "tool_result":
            key = (event.get("role"), event["data"].get("call_id"))
            results.setdefault(key, deque()).append(event["data"])
    calls: list[ToolCall] = []
    for event in events:
        if event.get("event") != "tool_call":
            continue
        data = event["data"]
        waiting = results.get((event.get("role"), data.get("call_id")))
        calls.append(
            ToolCall(
                number=len(calls) + 1,
                seconds=float(event["time_seconds"]),
                name=str(data.get("name", "")),
                arguments=parsed(str(data.get("arguments_json", ""))),
                **(_result(waiting.popleft()) if waiting else {}),
            )
        )
    return calls


def _result(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "answered": True,
        "result": parsed(str(data.get("result_json", ""))),
        "is_error": bool(data.get("is_error")),
        "latency_seconds": data.get("latency_seconds"),
    }


def moments(events: Sequence[Mapping[str, Any]]) -> Iterator[Moment]:
    """Yields exits and errors."""
    for event in events:
        data, role = event["data"], str(event.get("role", ""))
        seconds = float(event["time_seconds"])
        if event.get("event") == "exit":
            yield Moment(seconds, role, f"ends the call: {data.get('reason', '')}", False)
        elif event.get("event") == "error":
            kind = str(data.get("kind", "error")).replace("_", " ")
            yield Moment(seconds, role, f"{kind}: {data.get('message', '')}", True)


def stages_by_turn(
    events: Sequence[Mapping[str, Any]], agent_starts: Sequence[float]
) -> list[dict[str, float]]:
    """Returns for each agent turn how long each stage took before it, in seconds.

    A stage that came several times is summed: a turn after three tool calls had four model calls.
    Stages may overlap and leave out the wait for the end of the caller's turn, so they need not
    add up to the response latency.

    Args:
        events: Of the call, by time.
        agent_starts: Start of each agent turn in seconds, in order.
    """
    found: list[dict[str, float]] = [{} for _ in agent_starts]
    for event in events:
        if event.get("event") != "stage_latency" or event.get("role") != "agent":
            continue
        stage, seconds = event["data"].get("stage"), event["data"].get("seconds")
        if stage not in STAGES or not isinstance(seconds, int | float):
            continue
        # By its beginning: a model still streams when its first words are heard.
        turn = bisect.bisect_left(agent_starts, event["time_seconds"] - seconds)
        if turn < len(found):
            found[turn][stage] = found[turn].get(stage, 0.0) + seconds
    return found
