"""The process: settings in, one listening line out, an orderly end on SIGTERM."""

from __future__ import annotations

import asyncio
import json
import logging
import sys

from aiohttp import web

from tau2eval_airline import FixtureError
from tau2eval_common.lifecycle import stop_on_signals, stop_with_parent
from tau2eval_common.logs import setup_logging

from .app import ScriptedModels
from .catalog import Catalog
from .settings import ScriptedSettings

logger = logging.getLogger(__name__)

SERVICE = "scripted-models"
_GRACE_SECONDS = 2.0


async def serve(settings: ScriptedSettings) -> None:
    """Serves until SIGTERM, SIGINT or, by setting, the end of the parent.

    When it is ready it prints {"event": "listening", "service", "http"} on standard output. The
    first signal refuses new connections and lets the answers in progress end; a second one, or
    the parent's end, ends them at once.

    Raises:
        OSError: When the port cannot be had.
        tau2eval_airline.FixtureError: When the airline's files are missing or altered.
    """
    stopping, at_once = asyncio.Event(), asyncio.Event()
    stop_on_signals(stopping, at_once)
    if settings.exit_with_parent:
        stop_with_parent(stopping, at_once)
    models = ScriptedModels(await asyncio.to_thread(Catalog), settings.slow_seconds)
    runner = web.AppRunner(
        models.application(),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=settings.slow_seconds + _GRACE_SECONDS,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
        port = runner.addresses[0][1]
        line = {"event": "listening", "service": SERVICE, "http": f"{settings.host}:{port}"}
        print(json.dumps(line), flush=True)
        logger.info("listening on %s:%d", settings.host, port)
        await stopping.wait()
        logger.info("ending: no new connections; answers in progress end")
    finally:
        end = asyncio.ensure_future(runner.cleanup())
        hurry = asyncio.ensure_future(at_once.wait())
        await asyncio.wait({end, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if end.done():
            end.result()
        else:
            end.cancel()


def run(settings: ScriptedSettings) -> int:
    """Runs the server as a process's main function.

    Returns:
        0 after an orderly end, 2 when it cannot start (a port in use, a fixture missing).
    """
    setup_logging(SERVICE, settings.log_level, settings.log_format)
    try:
        asyncio.run(serve(settings))
    except (OSError, FixtureError) as error:
        print(f"{SERVICE}: {error}", file=sys.stderr)
        return 2
    return 0
