from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tau2eval_airline import OverlayDatabase, SeedDatabase, Tool, load_seed, resolve_tools
from tau2eval_airline.scenarios import Tau2AirlineBaseScenario


@pytest.fixture(scope="session")
def seed() -> SeedDatabase:
    return load_seed()


@pytest.fixture
def state(seed: SeedDatabase) -> dict[str, Any]:
    return {"db": OverlayDatabase(seed), "actions": []}


@pytest.fixture
def db(state: dict[str, Any]) -> OverlayDatabase:
    return state["db"]


@pytest.fixture
def tools(state: dict[str, Any]) -> dict[str, Tool]:
    return resolve_tools("tau2_airline", Tau2AirlineBaseScenario.agent_tools, state)


@pytest.fixture
def call(tools: dict[str, Tool]) -> Callable[..., dict[str, Any]]:
    def run(name: str, **arguments: Any) -> dict[str, Any]:
        return tools[name].invoke(**arguments)

    return run
