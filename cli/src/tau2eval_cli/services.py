"""The services that make up an evaluation: names, settings, and who needs what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class ServiceSpec:
    """One service, as a process.

    Attributes:
        name: What `tau2-eval serve` calls it.
        module: Python package with a `__main__`; started with `python -m`.
        prefix: Of its settings in the environment.
        port: Default port of `settings_port`.
        http_port: Default HTTP port of a service with a second port of that kind; 0 without one.
        needs_fixtures: Whether it reads the airline fixtures.
        reaches_providers: Whether it calls model providers, and so is given their keys.
        keeps_runs: Whether it keeps the runs, and so is given the store's address and keys.
    """

    name: str
    module: str
    prefix: str
    port: int
    http_port: int = 0
    needs_fixtures: bool = False
    reaches_providers: bool = False
    keeps_runs: bool = False

    def key(self, setting: str) -> str:
        """Returns the environment variable of a setting ("max_sessions")."""
        return f"{self.prefix}{setting.upper()}"


SCRIPTED: Final = ServiceSpec(
    "scripted-models", "tau2eval_scripted", "TAU2EVAL_SCRIPTED_", 3320, needs_fixtures=True
)
SCORER: Final = ServiceSpec(
    "scorer",
    "tau2eval_scorer",
    "TAU2EVAL_SCORER_",
    3314,
    http_port=3315,
    needs_fixtures=True,
    keeps_runs=True,
)
GATEWAY: Final = ServiceSpec(
    "gateway",
    "tau2eval_gateway",
    "TAU2EVAL_GATEWAY_",
    3301,
    http_port=3300,
    reaches_providers=True,
)
AGENT_BOT: Final = ServiceSpec(
    "agent-bot", "tau2eval_agent_bot", "TAU2EVAL_AGENT_BOT_", 3311, needs_fixtures=True
)
USER_BOT: Final = ServiceSpec("user-bot", "tau2eval_user_bot", "TAU2EVAL_USER_BOT_", 3312)
BRIDGE: Final = ServiceSpec("bridge", "tau2eval_bridge", "TAU2EVAL_BRIDGE_", 3313)

START_ORDER: Final = ((SCRIPTED,), (GATEWAY,), (SCORER, AGENT_BOT, USER_BOT), (BRIDGE,))
"""Groups that start together, each after the one before it listens."""

STOP_ORDER: Final = ((BRIDGE,), (AGENT_BOT, USER_BOT), (SCORER,), (GATEWAY,), (SCRIPTED,))

SERVICES: Final = {
    spec.name: spec for spec in (GATEWAY, AGENT_BOT, USER_BOT, BRIDGE, SCORER, SCRIPTED)
}
