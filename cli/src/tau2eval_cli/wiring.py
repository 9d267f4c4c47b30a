"""Which settings connect one set of processes: ports, addresses, folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tau2eval_cli.child import Addresses
from tau2eval_cli.services import (
    AGENT_BOT,
    BRIDGE,
    GATEWAY,
    SCORER,
    SCRIPTED,
    SERVICES,
    USER_BOT,
    ServiceSpec,
)

ALL: Final = frozenset(SERVICES)
READING: Final = frozenset({SCORER.name})
"""What it takes to look at runs."""
JUDGING: Final = frozenset({SCORER.name, GATEWAY.name, SCRIPTED.name})
"""What it takes to score runs again."""


@dataclass(frozen=True)
class Wiring:
    """How the processes of one set are put together.

    Attributes:
        artifacts_dir: Where the scorer keeps runs.
        agent_address: gRPC target of an agent that is not ours; empty uses agent-bot.
        user_address: The same for the caller.
        ports: Ports by service and setting ("port", "http_port"); free ones otherwise.
        sessions: Calls held at once that the person asked for; 0 leaves it to the services.
        speech: Whether the bots load their speech models at the start.
        services: Names of the services that are started.
    """

    artifacts_dir: Path
    agent_address: str = ""
    user_address: str = ""
    ports: Mapping[tuple[str, str], int] = field(default_factory=dict)
    sessions: int = 0
    speech: bool = True
    services: frozenset[str] = ALL

    def wanted(self, spec: ServiceSpec) -> bool:
        """Tells whether this set needs a process of the service."""
        if spec.name not in self.services:
            return False
        if spec is AGENT_BOT:
            return not self.agent_address
        if spec is USER_BOT:
            return not self.user_address
        return True

    def defaults(self, spec: ServiceSpec) -> dict[str, str]:
        """Returns the settings that a person may override, by variable name."""
        settings = {spec.key("port"): "0"}
        if spec.http_port:
            settings[spec.key("http_port")] = "0"
        if spec is GATEWAY:
            settings[spec.key("data_dir")] = str(self.artifacts_dir / ".gateway")
        if spec is BRIDGE:
            settings[spec.key("spool_dir")] = str(self.artifacts_dir / ".bridge")
        if not self.speech and spec in (AGENT_BOT, USER_BOT):
            settings[spec.key("speech_preload")] = "false"
        if self.sessions and spec in (BRIDGE, AGENT_BOT, USER_BOT):
            settings[spec.key("max_sessions")] = str(self.sessions)
        return settings

    def forced(self, spec: ServiceSpec, running: Mapping[str, Addresses]) -> dict[str, str]:
        """Returns the settings that hold this set together, by variable name.

        Args:
            spec: The service.
            running: Where the services before it listen; its own entry, if it ran before, keeps
                its ports.
        """
        settings = {spec.key("host"): "127.0.0.1", spec.key("exit_with_parent"): "true"}
        settings |= {
            spec.key(setting): str(port)
            for (name, setting), port in self.ports.items()
            if name == spec.name
        }
        own = running.get(spec.name, Addresses())
        if own.grpc:
            settings[spec.key("port")] = str(Addresses.port(own.grpc))
        if own.http:
            name = "http_port" if spec.http_port else "port"
            settings[spec.key(name)] = str(Addresses.port(own.http))
        return settings | self._addresses(spec, running)

    def _addresses(self, spec: ServiceSpec, running: Mapping[str, Addresses]) -> dict[str, str]:
        if spec is SCORER:
            gateway = running.get(GATEWAY.name, Addresses()).grpc
            return {spec.key("artifacts_dir"): str(self.artifacts_dir)} | (
                {spec.key("gateway_address"): gateway} if gateway else {}
            )
        if spec is GATEWAY:
            return {spec.key("scripted_address"): running[SCRIPTED.name].http}
        if spec in (AGENT_BOT, USER_BOT):
            return {spec.key("gateway_address"): running[GATEWAY.name].grpc}
        if spec is BRIDGE:
            return {
                spec.key("scorer_address"): running[SCORER.name].grpc,
                spec.key("agent_address"): self.agent_address or running[AGENT_BOT.name].grpc,
                spec.key("user_address"): self.user_address or running[USER_BOT.name].grpc,
            }
        return {}
