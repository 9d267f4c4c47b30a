"""Which tools exist: class names by namespace, as a scenario asks for them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from tau2eval_airline.errors import UnknownToolError

from .base import Tool, _Tau2InvokeMixin, action_name
from .generic import CalculateTool, EndConversationTool, TransferToHumanAgentsTool
from .reads import (
    GetFlightStatusTool,
    GetReservationDetailsTool,
    GetUserDetailsTool,
    ListAllAirportsTool,
    SearchDirectFlightTool,
    SearchOnestopFlightTool,
)
from .writes import (
    BookReservationTool,
    CancelReservationTool,
    SendCertificateTool,
    UpdateReservationBaggagesTool,
    UpdateReservationFlightsTool,
    UpdateReservationPassengersTool,
)

AIRLINE_DOMAIN = "tau2_airline"
DEFAULT_NAMESPACE = "default"
"""Where a class name is looked up that the domain itself does not have."""

TAU2_AIRLINE_TOOL_NAME_TO_CLASS: dict[str, type[_Tau2InvokeMixin]] = {
    tool.__name__: tool
    for tool in (
        GetUserDetailsTool,
        GetReservationDetailsTool,
        ListAllAirportsTool,
        SearchDirectFlightTool,
        SearchOnestopFlightTool,
        GetFlightStatusTool,
        CalculateTool,
        BookReservationTool,
        CancelReservationTool,
        SendCertificateTool,
        UpdateReservationBaggagesTool,
        UpdateReservationFlightsTool,
        UpdateReservationPassengersTool,
        TransferToHumanAgentsTool,
    )
}
"""Registry key (class name) to class, for tau2's 14 airline tools."""

TAU2_AIRLINE_ACTION_TO_TOOL_NAME: dict[str, str] = {
    action_name(name): name for name in TAU2_AIRLINE_TOOL_NAME_TO_CLASS
}
"""tau2's method name, as models and records have it, to the registry key."""

TOOL_REGISTRY: dict[str, dict[str, type[_Tau2InvokeMixin]]] = {
    AIRLINE_DOMAIN: TAU2_AIRLINE_TOOL_NAME_TO_CLASS,
    DEFAULT_NAMESPACE: {EndConversationTool.__name__: EndConversationTool},
}
"""Namespace to registry key to class. A further domain adds its namespace here."""


def resolve_tools(domain: str, names: Sequence[str], state: dict[str, Any]) -> dict[str, Tool]:
    """Makes the tools of one session.

    Args:
        domain: The namespace that is searched first; "default" comes second.
        names: Registry keys (class names), as in a scenario's agent_tools.
        state: The session's state; the tools share it.

    Returns:
        The tools by the name that the model sees, in the order of `names`.

    Raises:
        UnknownToolError: If a key is in neither namespace.
    """
    spaces = {**TOOL_REGISTRY[DEFAULT_NAMESPACE], **TOOL_REGISTRY.get(domain, {})}
    tools: dict[str, Tool] = {}
    for name in names:
        if name not in spaces:
            near = difflib.get_close_matches(name, spaces, n=1)
            known = f"did you mean {near[0]}?" if near else f"known: {', '.join(spaces)}"
            raise UnknownToolError(f"no tool {name!r} in domain {domain!r}; {known}")
        tool = spaces[name](state)
        tools[tool.name] = tool
    return tools
