"""The HTTP application: OpenAI's chat completions and models, and health."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from aiohttp import web

from .agents import AGENTS, END, Reply, ScriptedCrash
from .caller import caller, with_tokens
from .catalog import Catalog, Plan
from .completion import CREATED, Completion, RequestError, complete
from .conversation import Conversation, MalformedMessages, parse, without_note
from .helpers import helper_answer, helper_task
from .judge import judgement
from .models import EXPECTED_OUTCOMES, ScriptedModel
from .recognise import Recogniser

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
        self._recogniser = Recogniser(catalog)
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
        model, task = _model(body)
        identity = "\n".join(
            headers.get(HEADER + name, "") for name in ("run", "session", "scenario", "trial")
        )
        if body.get("n") not in (None, 1):
            raise RequestError(400, "a script has one answer: n must be 1", "invalid_n", param="n")
        if (helper := helper_task(body)) is not None:
            return complete(
                body["model"], body, identity, Reply(helper_answer(model.id, helper, body))
            )
        _check_role(model, headers)
        if model.role == "checker":
            raise RequestError(
                400,
                f"{model.id} answers the helper tasks of control flows and plays no side of a call",
                "not_a_helper_task",
                param="messages",
            )
        if model.role == "judge":
            return complete(model.id, body, identity, Reply(judgement(body)))
        try:
            conversation = parse(_messages(body))
        except MalformedMessages as error:
            raise RequestError(400, str(error), "invalid_messages", param="messages") from error
        plan = self._plan(model, task, headers, conversation)
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
        if model.role == "user":
            reply = with_tokens(reply, conversation)
        elif reply.call == END and not _can_end(body):
            reply = Reply(reply.text)
        return complete(body["model"], body, identity, reply)

    def _plan(
        self,
        model: ScriptedModel,
        task: str,
        headers: Mapping[str, str],
        conversation: Conversation,
    ) -> Plan:
        """Finds the scenario: by the header, by the model id, or by what was said."""
        scenario = headers.get(HEADER + "scenario") or task
        if scenario:
            plan = self._recogniser.named(scenario)
            if plan is None:
                raise RequestError(
                    400,
                    f"there is no scenario {scenario!r} (header {HEADER}scenario, or @ in the "
                    "model id)",
                    "scenario_not_found",
                )
            return plan
        user = model.role == "user"
        found = (
            self._recogniser.of_caller(conversation)
            if user
            else self._recogniser.of_agent(conversation)
        )
        if len(found) == 1:
            return found[0]
        told = "the caller's instructions" if user else "the caller's words"
        if found:
            names = ", ".join(plan.scenario for plan in found)
            what, code = f"{told} fit {names}", "scenario_ambiguous"
        else:
            what, code = f"{told} fit no scenario", "scenario_header_missing"
        raise RequestError(
            400,
            f"a script must know its scenario. The header {HEADER}scenario is missing (the gateway "
            "sends it only to upstreams that are marked as its own, when the call's context names "
            f"a scenario), and {what}. {model.id}@TASK names one in the model id",
            code,
        )

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


def _can_end(body: Mapping[str, Any]) -> bool:
    """Whether the caller has the tool that ends a call; tau2's text agent has none."""
    tools = body.get("tools")
    if not isinstance(tools, list) or not tools:
        return True
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
    return any(each.get("name") == END[0] for each in functions if isinstance(each, dict))


def _messages(body: Mapping[str, Any]) -> object:
    messages = body.get("messages")
    return without_note(messages) if isinstance(messages, list) else messages


def _model(body: Mapping[str, Any]) -> tuple[ScriptedModel, str]:
    """Returns the model, and the task that the id names behind an @; empty for none."""
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise RequestError(400, "model must be a model's id", "invalid_model", param="model")
    model_id, _, task = name.partition("@")
    model = EXPECTED_OUTCOMES.get(model_id)
    if model is None:
        raise RequestError(
            404,
            f"there is no model {name!r}; the models are {', '.join(EXPECTED_OUTCOMES)}",
            "model_not_found",
            param="model",
        )
    return model, task


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
