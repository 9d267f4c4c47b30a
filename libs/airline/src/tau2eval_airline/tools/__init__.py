"""The 14 airline tools, their registry, and the live interface for bots."""

from .base import ExitReason, Tool
from .live import (
    SessionSummary,
    ToolOutcome,
    apply_initialization,
    call_tool,
    session_summary,
)
from .registry import (
    TAU2_AIRLINE_ACTION_TO_TOOL_NAME,
    TAU2_AIRLINE_TOOL_NAME_TO_CLASS,
    resolve_tools,
)

__all__ = [
    "TAU2_AIRLINE_ACTION_TO_TOOL_NAME",
    "TAU2_AIRLINE_TOOL_NAME_TO_CLASS",
    "ExitReason",
    "SessionSummary",
    "Tool",
    "ToolOutcome",
    "apply_initialization",
    "call_tool",
    "resolve_tools",
    "session_summary",
]
