"""A gateway to ask: one that runs somewhere, or one of our own for as long as a command takes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from tau2eval_cli.environment import check_environment
from tau2eval_cli.errors import CommandError, NotValid, WrongUse
from tau2eval_cli.plan import check_target, make_folder
from tau2eval_cli.preflight import check_targets
from tau2eval_cli.services import GATEWAY, SCRIPTED
from tau2eval_cli.session import LOGS
from tau2eval_cli.supervisor import Supervisor, SupervisorConfig
from tau2eval_cli.wiring import Wiring
from tau2eval_common.client import open_channel

ASKING: Final = frozenset({GATEWAY.name, SCRIPTED.name})
"""What it takes to ask a gateway of ours."""
CALL_SECONDS: Final = 30.0
_WRONG_USE: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


@dataclass(frozen=True)
class GatewayTarget:
    """Which gateway a command asks.

    Attributes:
        output_dir: Folder of runs, in which a gateway of ours keeps its database.
        address: A running gateway (gRPC); empty starts one.
        gateway_names: Further environment variables that a gateway of ours gets.
    """

    output_dir: Path
    address: str = ""
    gateway_names: Sequence[str] = ()

    def check(self, *, make: bool = False) -> None:
        """Refuses what cannot work.

        Args:
            make: Whether the folder is made when it is not there.

        Raises:
            WrongUse: With what to do instead.
        """
        check_target("--gateway-address", self.address)
        if self.address:
            return
        check_environment(os.environ)
        if make:
            make_folder(self.output_dir)
        elsewhere = os.environ.get("DATABASE_URL") or os.environ.get(GATEWAY.key("data_dir"))
        if not self.output_dir.is_dir() and not elsewhere:
            raise WrongUse(
                f"there is no folder {self.output_dir}; --output-dir names the folder of runs "
                "whose gateway is meant"
            )


@asynccontextmanager
async def open_gateway(
    target: GatewayTarget,
    say: Callable[[str], None],
    started: Callable[[Supervisor], None] | None = None,
) -> AsyncIterator[grpc.aio.Channel]:
    """Opens a channel to the gateway, which is started where none is named.

    Args:
        target: Which gateway.
        say: Told what happens to services of ours.
        started: Told the supervisor before anything is started.

    Raises:
        WrongUse: When nothing listens where it should.
        NotValid: When a service of ours does not start.
    """
    if target.address:
        await check_targets({"--gateway-address": target.address})
        async with open_channel(target.address) as channel:
            yield channel
        return
    folder = target.output_dir.absolute()
    supervisor = Supervisor(
        SupervisorConfig(
            wiring=Wiring(artifacts_dir=folder, services=ASKING),
            logs_dir=folder / LOGS,
            environ=os.environ,
            gateway_names=target.gateway_names,
        ),
        say,
    )
    if started is not None:
        started(supervisor)
    async with supervisor, open_channel(supervisor.running[GATEWAY.name].grpc) as channel:
        yield channel


def gateway_fault(what: str, error: grpc.aio.AioRpcError) -> CommandError:
    """Returns the command's error for a call that the gateway did not serve.

    Args:
        what: What it was asked to do, in words that follow "did not".
        error: Of the call.
    """
    details = error.details() or ""
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return WrongUse(f"the gateway did not {what}: it is of an older version than this command")
    if error.code() in _WRONG_USE:
        return WrongUse(f"the gateway did not {what}: {details}")
    return NotValid(f"the gateway did not {what}: {error.code().name}: {details}")
