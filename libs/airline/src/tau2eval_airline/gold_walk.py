"""What a scripted agent needs to act as the gold list does."""

from __future__ import annotations

from typing import Any

from .database import clone
from .fixtures import FixtureSource
from .scenarios.registry import get_scenario


def gold_walk(name: str, source: FixtureSource | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Returns the gold actions of a scenario in order, reads included, corrections applied.

    Args:
        name: The scenario's name.
        source: Where its fixtures are; the environment's choice by default.

    Returns:
        (model-visible tool name, arguments) each; independent copies.

    Raises:
        UnknownScenarioError: If there is no such scenario.
        FixtureError: If the fixtures are missing or altered.
    """
    scenario = get_scenario(name, source)
    return [(action.name, clone(action.arguments)) for action in scenario.gold_actions]
