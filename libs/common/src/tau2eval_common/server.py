"""The gRPC server that every service runs in: health, reflection, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tau2eval_common.interceptors import ErrorInterceptor
from tau2eval_common.lifecycle import stop_on_signals, stop_with_parent
from tau2eval_common.logs import setup_logging
from tau2eval_common.settings import ServiceSettings

logger = logging.getLogger(__name__)

END_SECONDS = 5.0
"""How long tasks that are left at the end may take to be cancelled."""

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Largest gRPC message; records and audio travel in smaller parts."""

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *CHANNEL_OPTIONS,
    ("grpc.so_reuseport", 0),
    # Clients ping quiet calls every 20 s (a model that thinks, a slow judge): that is no abuse.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


class Service(Protocol):
    """What a service implements to run in `run_service`.

    It may have a method `drain()` beside these: called when the first signal comes, it ends the
    calls that only wait.
    """

    name: str

    async def start(self) -> None:
        """Loads what must be there before the first call: models, stores, connections."""

    def register(self, server: grpc.aio.Server) -> Sequence[str]:
        """Adds the servicers and returns their full gRPC service names."""

    def addresses(self) -> dict[str, str]:
        """Returns further addresses that it listens on, by protocol ("http": "127.0.0.1:3300")."""

    async def stop(self) -> None:
        """Releases everything, after the last call has ended."""


async def serve(service: Service, settings: ServiceSettings) -> None:
    """Runs a service until SIGTERM, SIGINT or, by setting, the end of its parent.

    When everything is loaded it prints one line of JSON on standard output, {"event": "listening",
    "service", "grpc", ...}, and turns healthy. The first signal turns health to NOT_SERVING,
    refuses new calls and lets those in progress end within `drain_seconds`; a second one ends them
    at once.

    Raises:
        OSError: When the port cannot be had.
    """
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=list(SERVER_OPTIONS))
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    stopping = asyncio.Event()
    at_once = asyncio.Event()
    stop_on_signals(stopping, at_once)
    if settings.exit_with_parent:
        stop_with_parent(stopping, at_once)
    await service.start()
    try:
        names = [*service.register(server)]
        reflection.enable_server_reflection(
            (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        try:
            port = server.add_insecure_port(f"{settings.host}:{settings.port}")
        except RuntimeError as error:
            raise OSError(f"{settings.host}:{settings.port} cannot be listened on") from error
        if port == 0:
            raise OSError(f"{settings.host}:{settings.port} cannot be listened on")
        await server.start()
        for name in ("", *names):
            await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        line = {
            "event": "listening",
            "service": service.name,
            "grpc": f"{settings.host}:{port}",
            **service.addresses(),
        }
        print(json.dumps(line), flush=True)
        logger.info("listening on %s:%d", settings.host, port)
        await stopping.wait()
        logger.info(
            "draining: no new calls, up to %.0f s for those in progress", settings.drain_seconds
        )
        stopped = asyncio.ensure_future(server.stop(settings.drain_seconds))
        # Whoever reads NOT_SERVING must find new calls refused, so the server begins to stop first.
        await asyncio.sleep(0)
        await health_servicer.enter_graceful_shutdown()
        drain = getattr(service, "drain", None)
        if drain is not None:
            drain()
        await _drained(server, stopped, at_once)
    finally:
        await service.stop()


async def _drained(
    server: grpc.aio.Server, stop: asyncio.Future[None], at_once: asyncio.Event
) -> None:
    hurry = asyncio.ensure_future(at_once.wait())
    both: set[asyncio.Future[Any]] = {stop, hurry}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not stop.done():
        await server.stop(0)
    hurry.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stop


async def _whole(service: Service, settings: ServiceSettings) -> None:
    await serve(service, settings)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if not left:
        return
    _, late = await asyncio.wait(left, timeout=END_SECONDS)
    if late:
        # asyncio.run would wait for them for ever, and nothing is left to be lost.
        for task in late:
            frames = task.get_stack(limit=1)
            where = f"{frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else "?"
            logger.error("the task %s does not end (%s)", task.get_name(), where)
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def run_service(
    service: Service,
    settings: ServiceSettings,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Runs a service as a process's main function and returns its exit code.

    Args:
        service: What runs.
        settings: Ports and times.
        loop_factory: Makes the event loop; None: asyncio's own.

    Returns:
        0 after an orderly end, 2 when the settings cannot work (a port in use, for instance).
    """
    setup_logging(service.name, settings.log_level, settings.log_format)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_whole(service, settings))
    except OSError as error:
        print(f"{service.name}: {error}", file=sys.stderr)
        return 2
    return 0
