"""`serve`: one service in the foreground."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from tau2eval_cli.environment import child_environment
from tau2eval_cli.errors import NotValid, WrongUse
from tau2eval_cli.services import SERVICES, ServiceSpec


def find_service(name: str) -> ServiceSpec:
    """Returns a service by name.

    Raises:
        WrongUse: With the names that there are.
    """
    if name in SERVICES:
        return SERVICES[name]
    near = difflib.get_close_matches(name, SERVICES, n=2)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise WrongUse(f"no service {name!r}.{hint} There are {', '.join(SERVICES)}")


def serve(
    name: str,
    *,
    host: str = "",
    port: int | None = None,
    http_port: int | None = None,
    gateway_names: Sequence[str] = (),
) -> NoReturn:
    """Becomes the process of a service.

    Args:
        name: The service.
        host: Address to listen on; empty leaves it to the service's settings.
        port: Port; None leaves it to the service's settings, 0 takes a free one.
        http_port: The same for the HTTP port of a service that has both.
        gateway_names: Further environment variables that the gateway gets.

    Raises:
        WrongUse: For a service that does not exist, or a port that it does not have.
        NotValid: When the service is not installed here.
    """
    spec = find_service(name)
    forced = {}
    if host:
        forced[spec.key("host")] = host
    if port is not None:
        forced[spec.key("port")] = str(port)
    if http_port is not None:
        if not spec.http_port:
            raise WrongUse(f"{name} has no second port; --http-port is for the gateway")
        forced[spec.key("http_port")] = str(http_port)
    if importlib.util.find_spec(spec.module) is None:
        raise NotValid(f"{name} is not installed in this Python ({spec.module}); run `make setup`")
    environment = child_environment(spec, os.environ, forced=forced, gateway_names=gateway_names)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", spec.module], environment)  # noqa: S606 ours
