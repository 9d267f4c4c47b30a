"""What the airline's scenarios have in common."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from tau2eval_airline import assertions
from tau2eval_airline.fixtures import DB_PATH
from tau2eval_airline.tools.base import _Tau2InvokeMixin, action_name
from tau2eval_airline.tools.registry import AIRLINE_DOMAIN, TAU2_AIRLINE_TOOL_NAME_TO_CLASS

from .base import Tau2BaseScenario

# Task 39 cancels three reservations. MSJ4OA is in economy, was booked ten days before the
# scenario's clock, was not cancelled by the airline, and the caller's reason is neither health
# nor weather: the policy forbids what the gold action does. Tasks 43 and 44 apply the rule.
GOLD_ACTION_DROPS: dict[str, frozenset[str]] = {"39": frozenset({"39_10"})}
"""tau2_id to the action_ids that are left out of the gold list. Empty it to restore upstream."""


class Tau2AirlineBaseScenario(Tau2BaseScenario):
    """One of the 50 airline tasks."""

    domain = AIRLINE_DOMAIN
    db_path = DB_PATH
    agent_tools = (*TAU2_AIRLINE_TOOL_NAME_TO_CLASS, "EndConversationTool")

    @cached_property
    def tau2_task(self) -> Mapping[str, Any]:
        """The task of tasks.json without the actions of GOLD_ACTION_DROPS."""
        task = self._fixtures.tasks[self.tau2_id]
        drops = GOLD_ACTION_DROPS.get(self.tau2_id)
        if not drops:
            return task
        criteria = task["evaluation_criteria"]
        kept = [action for action in criteria["actions"] if action["action_id"] not in drops]
        return {**task, "evaluation_criteria": {**criteria, "actions": kept}}

    @cached_property
    def nl_assertions(self) -> tuple[str, ...] | None:
        """The claims of ADOPTED_NL_ASSERTIONS, never those of the fixture; None without any."""
        return assertions.ADOPTED_NL_ASSERTIONS.get(self.tau2_id) or None

    def _build_tool_map(self, state: dict[str, Any]) -> Mapping[str, _Tau2InvokeMixin]:
        return {
            action_name(name): tool(state) for name, tool in TAU2_AIRLINE_TOOL_NAME_TO_CLASS.items()
        }
