"""Serves the report pages and the raw files of runs over HTTP, to read only."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Protocol
from urllib.parse import quote, urlsplit

from aiohttp import ClientConnectionResetError, web

from tau2eval_common.errors import NotFound, Tau2EvalError, Unavailable
from tau2eval_scorer.layout import REPORT_FILE
from tau2eval_scorer.report import content_security_policy, render_message, render_runs
from tau2eval_scorer.storage import StoredFile

logger = logging.getLogger(__name__)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_CHUNK_BYTES = 256 * 1024
_WRITE_SECONDS = 60.0
"""How long a client may leave a piece of a file unread."""
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_TYPES = {
    "html": "text/html",
    "json": "application/json",
    "jsonl": "text/plain",
    "txt": "text/plain",
    "csv": "text/csv",
    "wav": "audio/wav",
}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Server": "tau2-eval",
}
_FILE_POLICY = "default-src 'none'; media-src 'self'; style-src 'unsafe-inline'"
"""A raw file runs nothing; the browser's own viewers bring a style of theirs."""


class ReportSource(Protocol):
    """Where pages and files come from; `report.library.ReportLibrary` is one."""

    async def runs(self) -> Sequence[dict[str, Any]]:
        """Returns the runs as `report.render_runs` takes them."""

    async def page(self, run_id: str, path: str) -> bytes:
        """Returns a page by its path below the run's folder, or raises NotFound."""

    async def find(self, run_id: str, path: str) -> StoredFile:
        """Returns a file by its path below the run's folder, or raises NotFound."""

    async def open(self, file: StoredFile) -> BinaryIO:
        """Opens a file, or raises FileNotFoundError."""


class ReportServer:
    """The HTTP server of the reports.

    How to wire it in ScorerService:

        start():     self._http = ReportServer(core.reports, settings.host, settings.http_port)
                     await self._http.start()
        addresses(): return {"http": self._http.address}
        stop():      await self._http.stop(), before the core is stopped

    Args:
        source: Pages and files.
        host: Address to listen on.
        port: 0 takes a free one.
    """

    def __init__(self, source: ReportSource, host: str, port: int) -> None:
        self._source = source
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """Where it listens, "127.0.0.1:3315" for instance; empty before `start`."""
        return self._address

    async def start(self) -> None:
        """Begins to listen.

        Raises:
            OSError: When the port is taken.
        """
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self._port)
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        host, port = runner.addresses[0][:2]
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._runner = runner

    async def stop(self) -> None:
        """Ends it; requests in progress have two seconds."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def application(self) -> web.Application:
        """Returns the aiohttp application."""
        app = web.Application(middlewares=[self._guard], client_max_size=1)
        app.router.add_get("/", self._index)
        app.router.add_get("/runs/{run_id}", self._to_run)
        app.router.add_get("/runs/{run_id}/", self._to_run)
        app.router.add_get("/runs/{run_id}/{path:.+}", self._file)
        return app

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return _page(render_runs(await self._source.runs()).encode())

    async def _to_run(self, request: web.Request) -> web.StreamResponse:
        run_id = quote(request.match_info["run_id"], safe="")
        return web.Response(status=302, headers={"Location": f"/runs/{run_id}/{REPORT_FILE}"})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        run_id, path = request.match_info["run_id"], request.match_info["path"]
        if path == REPORT_FILE or path.endswith(f"/{REPORT_FILE}"):
            return _page(await self._source.page(run_id, path))
        file = await self._source.find(run_id, path)
        try:
            stream = await self._source.open(file)
        except FileNotFoundError:
            raise Unavailable("the files were moved; ask again", reason="CHANGED") from None
        try:
            return await _send(request, file, stream)
        finally:
            with suppress(OSError):
                stream.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuses other sites' names, turns faults into pages, and adds the headers."""
        try:
            if not self._is_own_name(request.headers.get("Host", "")):
                # A page elsewhere may make its own name mean this machine.
                raise web.HTTPMisdirectedRequest
            response = await handler(request)
        except NotFound as error:
            response = _message(404, "Not found", error.message)
        except Tau2EvalError as error:
            response = _message(503, "Not available now", error.message)
        except web.HTTPException as error:
            response = _message(error.status, error.reason, "There is nothing to read here.")
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            logger.error("unexpected %s in a report", type(error).__name__, exc_info=True)
            response = _message(500, "Something failed", "The scorer's log has the reason.")
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _is_own_name(self, host: str) -> bool:
        """Whether a Host header names this server; one that listens to all is given any name."""
        if not _is_loopback(self._host):
            return True
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            return _is_loopback(name)
        return False


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return False


def _page(body: bytes, status: int = 200) -> web.Response:
    return web.Response(
        body=body,
        status=status,
        content_type="text/html",
        charset="utf-8",
        headers={"Content-Security-Policy": content_security_policy()},
    )


def _message(status: int, heading: str, text: str) -> web.Response:
    return _page(render_message(heading, text).encode(), status)


async def _send(request: web.Request, file: StoredFile, stream: BinaryIO) -> web.StreamResponse:
    """Sends a file, or the part of it that was asked for."""
    tag = f'"{hashlib.sha256(f"{file.location}:{file.size}".encode()).hexdigest()[:32]}"'
    ending = file.path.rpartition(".")[2].lower()
    kind = _TYPES.get(ending, "application/octet-stream")
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Security-Policy": _FILE_POLICY,
        "Content-Type": f"{kind}; charset=utf-8" if kind.startswith("text/") else kind,
        "ETag": tag,
    }
    if ending not in _TYPES:
        headers["Content-Disposition"] = "attachment"
    part = _asked_for(request, file.size, tag)
    if part is None:
        headers["Content-Range"] = f"bytes */{file.size}"
        return web.Response(status=416, headers={**headers, "Content-Type": "text/plain"})
    first, length = part
    status = 200
    if "Range" in request.headers and length < file.size:
        status = 206
        headers["Content-Range"] = f"bytes {first}-{first + length - 1}/{file.size}"
    response = web.StreamResponse(status=status, headers={**headers, **_HEADERS})
    response.content_length = length
    await response.prepare(request)
    with suppress(ClientConnectionResetError):  # Readers leave in the middle: no fault of ours.
        if request.method != "HEAD":
            await _copy(stream, first, length, response)
        await response.write_eof()
    return response


def _asked_for(request: web.Request, size: int, tag: str) -> tuple[int, int] | None:
    """Returns (first byte, number of bytes); None when that part does not exist.

    Several parts at once, and other units, are answered with the whole file, as HTTP allows.
    """
    whole = (0, size)
    match = _RANGE.fullmatch(request.headers.get("Range", "").strip())
    if match is None or request.headers.get("If-Range", tag) != tag:
        return whole
    first, last = match.groups()
    if not first and not last:
        return whole
    if not first:
        length = min(int(last), size)
        return (size - length, length) if length else None
    if last and int(last) < int(first):
        return whole
    if int(first) >= size:
        return None
    end = min(int(last), size - 1) if last else size - 1
    return int(first), end - int(first) + 1


async def _copy(stream: BinaryIO, first: int, length: int, response: web.StreamResponse) -> None:
    """Copies a part of a file; reads are in threads, and a client that stands still is left."""
    if first:
        await asyncio.to_thread(stream.seek, first)
    while length:
        chunk = await asyncio.to_thread(stream.read, min(length, _CHUNK_BYTES))
        if not chunk:
            # The length was promised: a short answer must not look like a whole one.
            raise ConnectionResetError("the file became shorter while it was sent")
        length -= len(chunk)
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await response.write(chunk)
        except TimeoutError:
            raise ConnectionResetError("the client does not read") from None
