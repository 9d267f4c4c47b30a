"""The HTTP application: OpenAI's chat completions and models, and health."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from aiohttp import web

from .agents import AGENTS, Reply, ScriptedCrash
from .caller import caller
from .catalog import Catalog, Plan
from .completion import CREATED, Completion, RequestError, complete
from .conversation import MalformedMessages, parse
from .judge import judgement
from .models import EXPECTED_OUTCOMES, ScriptedModel

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Largest request; a long call with its tool results stays far below."""

HEADER = "x-tau2eval-"
_SLOW = "scripted/slow"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedModels:
    """Answers chat completion requests by scripts.

    Args:
        catalog: The plans of the scenarios.
        slow_seconds: How late scripted/slow is with each response.
    """

    def __init__(self, catalog: Catalog, slow_seconds: float) -> None:
        self._catalog = catalog
        self._slow_seconds = slow_seconds

    def application(self) -> web.Application:
        """Returns the application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_errors])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/health", self._health)
        return app

    async def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Completion:
        """Computes the answer to a request.

        Args:
            body: The parsed body.
            headers: The request's headers; x-tau2eval-... tell scenario, role, session and trial.

        Raises:
            RequestError: When the request cannot be answered, or the script is to fail.
        """
        model = _model(body)
        _check_role(model, headers)
        identity = "\n".join(
            headers.get(HEADER + name, "") for name in ("run", "session", "scenario", "trial")
        )
        if body.get("n") not in (None, 1):
            raise RequestError(400, "a script has one answer: n must be 1", "invalid_n", param="n")
        if model.role == "judge":
            return complete(model.id, body, identity, Reply(judgement(body)))
        plan = self._plan(headers)
        try:
            conversation = parse(body.get("messages"))
        except MalformedMessages as error:
            raise RequestError(400, str(error), "invalid_messages", param="messages") from error
        if model.id == _SLOW:
            await asyncio.sleep(self._slow_seconds)
        script = caller if model.role == "user" else AGENTS[model.id]
        try:
            reply = script(plan, conversation)
        except ScriptedCrash:
            raise RequestError(
                500,
                "scripted/crash fails from its third turn on",
                "scripted_crash",
                type="server_error",
            ) from None
        return complete(model.id, body, identity, reply)

    def _plan(self, headers: Mapping[str, str]) -> Plan:
        scenario = headers.get(HEADER + "scenario")
        if not scenario:
            raise RequestError(
                400,
                f"the header {HEADER}scenario is missing. A script needs it to know its scenario; "
                "the gateway sends it only to upstreams that are marked as its own, when the "
                "call's context names a scenario",
                "scenario_header_missing",
            )
        plan = self._catalog.get(scenario)
        if plan is None:
            raise RequestError(
                400,
                f"there is no scenario {scenario!r} (header {HEADER}scenario)",
                "scenario_not_found",
            )
        return plan

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        completion = await self.answer(body, request.headers)
        if not body.get("stream"):
            return web.Response(body=completion.body(), content_type="application/json")
        options = body.get("stream_options") or {}
        include_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream", "cache-control": "no-cache"}
        )
        await response.prepare(request)
        for event in completion.events(include_usage=include_usage):
            await response.write(event)
        await response.write_eof()
        return response

    async def _models(self, request: web.Request) -> web.Response:
        data = [
            {"id": model, "object": "model", "created": CREATED, "owned_by": "tau2eval"}
            for model in EXPECTED_OUTCOMES
        ]
        return _json(200, {"object": "list", "data": data})

    async def _health(self, request: web.Request) -> web.Response:
        return _json(200, {"status": "ok"})


def _check_role(model: ScriptedModel, headers: Mapping[str, str]) -> None:
    role = headers.get(HEADER + "role") or model.role
    if role != model.role:
        raise RequestError(
            400,
            f"{model.id} plays the {model.role}, and the header {HEADER}role says {role!r}",
            "role_mismatch",
            param="model",
        )


def _model(body: Mapping[str, Any]) -> ScriptedModel:
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise RequestError(400, "model must be a model's id", "invalid_model", param="model")
    model = EXPECTED_OUTCOMES.get(name)
    if model is None:
        raise RequestError(
            404,
            f"there is no model {name!r}; the models are {', '.join(EXPECTED_OUTCOMES)}",
            "model_not_found",
            param="model",
        )
    return model


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"the body is no JSON: {error}", "invalid_json") from error
    if not isinstance(body, dict):
        raise RequestError(400, "the body must be a JSON object", "invalid_json")
    return body


def _json(status: int, value: Any) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Gives every error OpenAI's form."""
    try:
        return await handler(request)
    except RequestError as raised:
        error = raised
    except web.HTTPException as raised:
        code = (raised.reason or "error").lower().replace(" ", "_")
        error = RequestError(raised.status, raised.text or raised.reason, code)
    except ConnectionResetError:
        raise
    except Exception:
        logger.exception("unexpected error in %s", request.path)
        error = RequestError(
            500, "unexpected error; the log has the details", "internal_error", type="server_error"
        )
    return web.Response(status=error.status, body=error.body(), content_type="application/json")
