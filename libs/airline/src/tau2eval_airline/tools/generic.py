"""Tools that need no database: arithmetic, the hand-over to a human, and the end of the call."""

from __future__ import annotations

from typing import Any

from .base import Properties, _RecordingMixin, _Tau2InvokeMixin, _Tau2ReadTool, text
from .calculator import CalculationError, calculate
from .values import ToolError


class CalculateTool(_Tau2ReadTool):
    """Evaluates arithmetic."""

    DESCRIPTION = (
        "Work out an arithmetic expression, rounded to two decimals. Takes decimal numbers, "
        "+ - * / and parentheses, nothing else."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {"expression": text("The arithmetic, such as '3 * (129 + 30)'.")}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return ["expression"]

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"result": calculate(p["expression"])}
        except CalculationError as error:
            raise ToolError("value_error", f"cannot calculate: {error}") from None


class TransferToHumanAgentsTool(_RecordingMixin):
    """Hands the caller to a human. Mutates nothing, is recorded, and ends the call."""

    DESCRIPTION = (
        "Hand the caller over to a human colleague and end your part of the call. Only for "
        "requests that the policy says to transfer. Sum up the case for the colleague."
    )
    EXIT_REASON = "transfer"

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {"summary": text("What the caller wants and what was done so far.")}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return ["summary"]

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        return self._record_action(p, {"message": "Transfer successful"})


class EndConversationTool(_Tau2InvokeMixin):
    """Ends the call. Belongs to the harness: the default namespace, not the airline."""

    DESCRIPTION = (
        "Hang up. Call it once the caller has nothing more to ask and you have said goodbye."
    )
    EXIT_REASON = "agent_exit"

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return []

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        return {"message": "The conversation ends."}
