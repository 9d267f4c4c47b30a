"""The OpenAI-compatible HTTP API, over aiohttp."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import orjson
from aiohttp import web

from tau2eval_gateway.core import GatewayCore
from tau2eval_gateway.errors import GatewayError
from tau2eval_gateway.keys import KeyRing
from tau2eval_gateway.openapi import openapi_json
from tau2eval_gateway.requests import (
    CallContext,
    CallMetadata,
    ChatRequest,
    parse_chat_request,
    refused,
    too_large,
)
from tau2eval_gateway.sse import DONE_EVENT
from tau2eval_gateway.stream import ChatStream
from tau2eval_gateway.watchdog import Watchdog

logger = logging.getLogger(__name__)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_REQUEST_ID = "x-request-id"
_ID_KEY = web.RequestKey("request_id", str)
_MAX_BODY_SECONDS = 60.0
_MAX_SEGMENT_SECONDS = 60.0
"""How long a client may leave a piece of a stream unread."""


def quiet_server_log() -> logging.Logger:
    """Returns a log for aiohttp's server, without the exceptions that it adds.

    Those quote the bytes of what is no HTTP request, and a key may be among them.
    """
    log = logging.getLogger(f"{__name__}.server")
    log.addFilter(_without_exception)
    return log


def _without_exception(record: logging.LogRecord) -> bool:
    record.exc_info = record.exc_text = None
    return True


class HttpApi:
    """Routes of the API.

    Args:
        core: Serves the calls.
        keys: Who may call.
        max_body_bytes: Larger bodies are refused with 413.
    """

    def __init__(self, core: GatewayCore, keys: KeyRing, max_body_bytes: int) -> None:
        self._core = core
        self._keys = keys
        self._max_body_bytes = max_body_bytes
        self._created = int(time.time())

    def application(self) -> web.Application:
        """Returns the aiohttp application."""
        app = web.Application(
            middlewares=[_errors_middleware], client_max_size=self._max_body_bytes
        )
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/health", self._health)
        app.router.add_get("/v1/openapi.json", self._document)
        return app

    async def _document(self, request: web.Request) -> web.Response:
        return web.Response(body=openapi_json(), content_type="application/json")

    async def _health(self, request: web.Request) -> web.Response:
        ledger = self._core.ledger
        return _json(
            {
                "status": "degraded" if ledger.failing else "ok",
                "ledger": "failing" if ledger.failing else "ok",
                "ledger_rows_waiting": ledger.rows_waiting,
            }
        )

    async def _models(self, request: web.Request) -> web.Response:
        self._keys.authenticate(request.headers.get("Authorization"))
        ids = await self._core.list_models()
        data = [
            {"id": name, "object": "model", "created": self._created, "owned_by": "tau2-eval"}
            for name in ids
        ]
        return _json({"object": "list", "data": data})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        key_id = self._keys.admit(request.headers.get("Authorization"))
        context = _context(request)
        if (request.content_length or 0) > self._max_body_bytes:
            raise too_large(self._max_body_bytes)
        try:
            # What has come is there at once; a timer would cost more than reading it.
            bound = None if request.content.is_eof() else _MAX_BODY_SECONDS
            async with asyncio.timeout(bound):
                raw = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise too_large(self._max_body_bytes) from None
        except TimeoutError:
            raise refused(
                f"the request body did not arrive within {_MAX_BODY_SECONDS:g} s",
                code="request_timeout",
                status=408,
            ) from None
        chat = parse_chat_request(raw, self._max_body_bytes)
        if chat.stream:
            return await self._stream(request, chat, context, key_id)
        result = await self._core.complete(chat, context, key_id)
        return web.Response(
            body=result.body,
            content_type="application/json",
            charset="utf-8",
            headers=_headers(result.metadata),
        )

    async def _stream(
        self, request: web.Request, chat: ChatRequest, context: CallContext, key_id: str
    ) -> web.StreamResponse:
        async with await self._core.stream(chat, context, key_id) as stream:
            response = web.StreamResponse(
                headers={
                    "Content-Type": "text/event-stream; charset=utf-8",
                    "Cache-Control": "no-cache",
                    "X-Accel-Buffering": "no",
                    **_headers(stream.early_metadata()),
                }
            )
            with suppress(ConnectionError):
                # A client that has gone ends the block, and with it the upstream's call.
                await response.prepare(request)
                await _relay(stream, response)
        return response


async def _relay(stream: ChatStream, response: web.StreamResponse) -> None:
    watchdog = Watchdog()
    end: bytes | None = None
    try:
        async for events in stream:
            data = b"".join([event.raw for event in events])
            if stream.metadata is not None:
                end = data + DONE_EVENT
                break
            with watchdog.until(asyncio.get_running_loop().time() + _MAX_SEGMENT_SECONDS):
                await response.write(data)
        else:
            end = DONE_EVENT
    except GatewayError as error:
        # No [DONE]: the client must not take what it has for a whole answer.
        end = b"data: " + error.body_json() + b"\n\n"
    except TimeoutError:
        raise ConnectionResetError("the client does not read") from None
    except ConnectionError:
        raise
    except Exception as error:
        logger.error("unexpected %s in a stream", type(error).__name__, exc_info=True)
        end = b"data: " + _internal_error().body_json() + b"\n\n"
    finally:
        watchdog.close()
    try:
        async with asyncio.timeout(_MAX_SEGMENT_SECONDS):
            await response.write_eof(end)
    except TimeoutError:
        raise ConnectionResetError("the client does not read") from None


@web.middleware
async def _errors_middleware(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Gives every answer a request id, and every fault OpenAI's error body."""
    request[_ID_KEY] = _request_id(request)
    try:
        response = await handler(request)
    except GatewayError as error:
        response = _error_response(error)
    except web.HTTPException as error:
        response = _error_response(_from_aiohttp(error))
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception as error:
        logger.error("unexpected %s in %s", type(error).__name__, request.path, exc_info=True)
        response = _error_response(_internal_error())
    if not response.prepared:
        response.headers[_REQUEST_ID] = request[_ID_KEY]
    return response


def _internal_error() -> GatewayError:
    return GatewayError("unexpected fault of the gateway", error_code="internal_error")


def _from_aiohttp(error: web.HTTPException) -> GatewayError:
    codes = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}
    return refused(
        f"{error.reason}: this gateway serves POST /v1/chat/completions, GET /v1/models, GET "
        "/v1/health and GET /v1/openapi.json",
        code=codes.get(error.status, "invalid_request_error"),
        status=error.status,
    )


def _error_response(error: GatewayError) -> web.Response:
    response = web.Response(
        body=error.body_json(), status=error.http_status, content_type="application/json"
    )
    if error.retry_after:
        response.headers["Retry-After"] = re.sub(r"[^\x20-\x7e]", "", error.retry_after)
    if error.http_status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _json(body: object) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _headers(metadata: CallMetadata) -> dict[str, str]:
    return {_REQUEST_ID: metadata.request_id, **metadata.headers}


def _request_id(request: web.Request) -> str:
    """Returns the caller's trace id when it sends one, so that logs and traces meet."""
    match = _TRACEPARENT.fullmatch(request.headers.get("traceparent", ""))
    return match.group(1) if match else os.urandom(16).hex()


def _context(request: web.Request) -> CallContext:
    headers = request.headers
    trial = headers.get("x-tau2eval-trial", "")
    if trial and not re.fullmatch(r"\d{1,9}", trial):
        raise refused("x-tau2eval-trial is not a number", code="invalid_context", param="trial")
    return CallContext(
        request_id=request[_ID_KEY],
        run_id=headers.get("x-tau2eval-run", ""),
        scenario=headers.get("x-tau2eval-scenario", ""),
        trial=int(trial or 0),
        role=headers.get("x-tau2eval-role", ""),
        arm=headers.get("x-tau2eval-arm", ""),
        session_id=headers.get("x-marina-session", headers.get("x-tau2eval-session", "")),
    )
