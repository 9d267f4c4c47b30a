"""What a bot needs for a live session, without knowing the domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tau2eval_airline.database import ChangedRecord, OverlayDatabase, Record, clone
from tau2eval_airline.fixtures import FixtureSource, load_db_artifact

from .base import ExitReason, Tool, _Tau2InvokeMixin
from .values import ToolError, parse_arguments


@dataclass(frozen=True)
class ToolOutcome:
    """What came of one tool call.

    Attributes:
        result: JSON data for the model: the result, or {status: "error", ...}.
        is_error: Whether the call was refused.
        action: The record of the call for the scorer, or None if it is none of those recorded.
        exit_reason: Set if the conversation ends once the result was delivered and the agent's
            last words were spoken: "agent_exit" or "transfer".
    """

    result: Any
    is_error: bool = False
    action: Record | None = None
    exit_reason: ExitReason | None = None


@dataclass(frozen=True)
class SessionSummary:
    """What a session leaves behind for the scorer.

    Attributes:
        db_hash: The plain hash of the session's database in hexadecimal; None without one.
        changed_records: Every record that differs from the seed.
        actions: The recorded calls, in order.
    """

    db_hash: str | None
    changed_records: list[ChangedRecord]
    actions: list[Record]


def apply_initialization(
    state: dict[str, Any],
    db_path: str,
    shared_state: Mapping[str, Any] | None = None,
    source: FixtureSource | None = None,
) -> None:
    """Prepares a session's state: its shared values and a fresh overlay of the database.

    Args:
        state: The session's state, changed in place.
        db_path: "tau2_airline/db.json" as a scenario sends it; "" for a side without database.
        shared_state: Further values for the state.
        source: Where the fixtures are; the environment's choice by default.

    Raises:
        FixtureError: If there is no such database, or it is not the pinned one.
    """
    state.update(shared_state or {})
    state["actions"] = []
    state.pop("db", None)
    if db_path:
        state["db_path"] = db_path
        state["db"] = OverlayDatabase(load_db_artifact(db_path, source))


async def call_tool(
    tools: Mapping[str, Tool], name: str, arguments: str | Mapping[str, Any] | None
) -> ToolOutcome:
    """Runs one tool call of a model.

    Args:
        tools: The session's tools, from `resolve_tools`.
        name: The tool's name as the model gave it.
        arguments: JSON text or an object.

    Returns:
        The outcome. Nothing that a model sends makes this raise.
    """
    tool = tools.get(name)
    try:
        if not isinstance(tool, _Tau2InvokeMixin):
            known = list(tools)
            raise ToolError(
                "unknown_tool",
                f"there is no tool {str(name)[:60]!r}; the tools are {', '.join(known)}",
                {"available_tools": known},
            )
        values = parse_arguments(arguments)
    except ToolError as error:
        return ToolOutcome(error.as_data(), is_error=True)
    recorded = tool.state.get("actions", [])
    before = len(recorded)
    result = await tool._execute(**values)
    if result.get("status") == "error":
        return ToolOutcome(result, is_error=True)
    actions = tool.state.get("actions", [])
    action = clone(actions[-1]) if len(actions) > before else None
    return ToolOutcome(result, action=action, exit_reason=tool.EXIT_REASON)


def session_summary(state: Mapping[str, Any]) -> SessionSummary:
    """Sums up a session for the scorer.

    Args:
        state: The session's state.

    Returns:
        Hash, changed records and actions; copies that later calls do not change.
    """
    db = state.get("db")
    actions: list[Record] = clone(state.get("actions", []))
    if not isinstance(db, OverlayDatabase):
        return SessionSummary(None, [], actions)
    return SessionSummary(db.hash(), db.changed_records(), actions)
