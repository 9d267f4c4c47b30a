"""What of this machine can change a result: settings of the services, and versions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from tau2eval_cli.services import AGENT_BOT, BRIDGE, GATEWAY, USER_BOT

_MATTER: Final = (AGENT_BOT, USER_BOT, BRIDGE, GATEWAY)
# Where things are, how much is told, how much goes at once: none of it changes a conversation.
_INDIFFERENT = re.compile(
    r"""HOST|(\w+_)?PORT|(\w+_)?ADDRESS|(\w+_)?DIR|LOG_\w+|EXIT_WITH_PARENT|MAX_SESSIONS
    |(\w+_)?DRAIN_SECONDS|SPEECH_PRELOAD|CLIENT_QUEUE|SUBMIT_\w+|GRPC_REQUIRE_KEY
    |\w*(KEY|KEYS|TOKEN|SECRET|PASSWORD)""",
    re.VERBOSE,
)
_MODEL_CONFIG: Final = GATEWAY.key("model_config")


def service_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of services in the environment that can change a result.

    The gateway's model list is a file: it stands for itself by its SHA-256.
    """
    found = {
        name: value
        for spec in _MATTER
        for name, value in sorted(environ.items())
        if name.startswith(spec.prefix)
        and name != _MODEL_CONFIG
        and not _INDIFFERENT.fullmatch(name.removeprefix(spec.prefix))
    }
    if path := environ.get(_MODEL_CONFIG, ""):
        found[f"{_MODEL_CONFIG}_SHA256"] = _digest(Path(path))
    return found


def versions() -> dict[str, str]:
    """Returns the versions of our packages, by name."""
    return dict(
        sorted(
            (distribution.metadata["Name"], distribution.version)
            for distribution in distributions()
            if (distribution.metadata["Name"] or "").startswith("tau2eval-")
        )
    )


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""  # The gateway says what is wrong with it.
