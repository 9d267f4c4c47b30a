"""Entry: `python -m tau2eval_gateway`."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable

from tau2eval_common.logs import setup_logging
from tau2eval_common.server import run_service
from tau2eval_common.settings import load_settings_or_exit
from tau2eval_common.usage import only_help
from tau2eval_gateway.content_log import ExceptionTextFilter
from tau2eval_gateway.model_list import ModelListError
from tau2eval_gateway.service import GatewayService, configured_deployments
from tau2eval_gateway.settings import GatewaySettings, SeedSettings, help_text

YOUNG_OBJECTS = 10_000
"""Objects between two looks of the garbage collector; Python's own 700 is one call's worth."""


class GatewayProcess(GatewayService):
    """The gateway in a process that does nothing else."""

    async def start(self) -> None:
        """Starts it, and spares the collector what has come to stay; see `GatewayService`.

        Without this a full collection walks through all modules and stops every call for it.
        """
        await super().start()
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, 10, 10)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's event loops where they exist, else None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def main(arguments: list[str]) -> int:
    """Runs the gateway until it is told to stop and returns the exit code."""
    if (code := only_help(arguments, "gateway", help_text())) is not None:
        return code
    settings = load_settings_or_exit(GatewaySettings)
    seed = load_settings_or_exit(SeedSettings)
    setup_logging("gateway", settings.log_level, settings.log_format)
    if not settings.log_content:
        for handler in logging.getLogger().handlers:
            handler.addFilter(ExceptionTextFilter())
    try:
        deployments = configured_deployments(settings)
    except ModelListError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2
    return run_service(GatewayProcess(settings, seed, deployments), settings, loop_factory())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
