"""Takes a request through the control flows that its model id names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tau2eval_gateway.errors import GatewayError, Retry, timeout_error
from tau2eval_gateway.flows.base import Flow, FlowContext, Inner, Reply, Spent, sum_costs
from tau2eval_gateway.flows.ids import Plan
from tau2eval_gateway.flows.present import present
from tau2eval_gateway.flows.state import ConversationState, StateStore, open_state
from tau2eval_gateway.lessons import header_value, weaker
from tau2eval_gateway.requests import (
    CallContext,
    CallMetadata,
    ChatRequest,
    dump,
    format_cost,
    refused,
    with_model,
)

logger = logging.getLogger(__name__)

COST_HEADERS = ("obligations", "argcheck")
"""Flows whose own cost has a header (seed 004)."""
_KEPT_BACK_SECONDS = 0.25
"""Of the caller's time, so that a draft still reaches it."""
_HELPER_SHARE = 0.5
"""Of the time that is left, at most, goes to one helper call."""


class LessonMatch(Protocol):
    """Lessons that fit a request."""

    @property
    def message(self) -> str:
        """Text of the one system message; empty: none."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the lessons in it."""


class LessonSource(Protocol):
    """Finds lessons and puts them into a request."""

    async def match(self, body: Mapping[str, Any]) -> LessonMatch:
        """Returns the lessons for the last user turn; none when they cannot be read."""

    def insert(self, request: ChatRequest, message: str) -> ChatRequest:
        """Returns the request with the message after the caller's system messages."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A model's whole answer, what it took, and what the gateway says of the call."""

    reply: Reply
    spent: Spent
    metadata: CallMetadata


AskModel = Callable[[ChatRequest, CallContext, str], Awaitable[Asked]]
"""Makes one upstream call: (request for a plain id, context, key id). Raises GatewayError."""
MakeFlow = Callable[[str, Plan], Flow]


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """What the flows are told by the configuration.

    Attributes:
        lessons: "armed", "observe" or "off".
        helper_seconds: Bound on one helper call.
        total_seconds: Bound on a whole request.
    """

    lessons: str = "armed"
    helper_seconds: float = 60.0
    total_seconds: float = 600.0


class Pipeline:
    """Composes flows. One object serves all requests and keeps nothing about them.

    Args:
        ask: Makes the upstream calls and their ledger rows.
        make_flow: Returns a flow by name.
        store: State of conversations.
        lessons: None: there are none.
        settings: Bounds and modes.
    """

    def __init__(
        self,
        ask: AskModel,
        make_flow: MakeFlow,
        store: StateStore,
        lessons: LessonSource | None,
        settings: FlowSettings,
    ) -> None:
        self._ask = ask
        self._make_flow = make_flow
        self._store = store
        self._lessons = lessons
        self._settings = settings

    def check(self, plan: Plan, request: ChatRequest) -> list[Flow]:
        """Returns the flows of a plan, outermost first, when they can serve the request.

        Raises:
            RequestRefused: It asks for what a flow cannot give; nothing was spent.
        """
        flows = [self._make_flow(name, plan) for name in plan.flows]
        count = request.body.get("n")
        if flows and count is not None and (isinstance(count, bool) or count != 1):
            raise refused(
                "a control flow gives one choice: leave `n` out",
                code="unsupported_parameter",
                param="n",
            )
        if not all(isinstance(message.get("role"), str) for message in request.body["messages"]):
            raise refused("every message needs a `role`", param="messages")
        for flow in flows:
            if request.stream and not flow.streams:
                raise refused(
                    f"marina/{flow.name}: answers are whole: send stream: false",
                    code="unsupported_parameter",
                    param="stream",
                )
        return flows

    async def complete(
        self, plan: Plan, request: ChatRequest, context: CallContext, key_id: str
    ) -> tuple[Reply, FlowContext, dict[str, str]]:
        """Answers a request.

        Returns:
            The reply, the request's context with what was spent, and the x-marina-* headers of
            the flows.

        Raises:
            GatewayError: The request is refused, or the first call for an answer failed.
        """
        flows = self.check(plan, request)
        flow_context, ask_agent = self._open(plan, request, context, key_id)
        headers: dict[str, str] = {}
        prepared = await self._with_lessons(plan, request, flow_context, headers)
        inner = ask_agent
        for flow in reversed(flows):
            inner = _around(flow, inner, flow_context)
        reply = await inner(with_model(prepared, plan.agent_model))
        if "verify" in plan.flows:
            # Flows around verify make calls of their own.
            reply = present(reply, request.model, flow_context.spent)
        return reply, flow_context, {**headers, **flow_headers(plan, flow_context)}

    async def prepare_stream(
        self, plan: Plan, request: ChatRequest, context: CallContext, key_id: str
    ) -> tuple[ChatRequest, FlowContext, dict[str, str]]:
        """Returns the request to stream, for the plain model, and the flows' headers.

        Raises:
            GatewayError: As `complete`.
        """
        flows = self.check(plan, request)
        flow_context, _ = self._open(plan, request, context, key_id)
        headers: dict[str, str] = {}
        prepared = await self._with_lessons(plan, request, flow_context, headers)
        prepared = with_model(prepared, plan.agent_model)
        for flow in flows:
            prepared = await _prepared(flow, prepared, flow_context)
        return prepared, flow_context, {**headers, **flow_headers(plan, flow_context)}

    def _open(
        self, plan: Plan, request: ChatRequest, context: CallContext, key_id: str
    ) -> tuple[FlowContext, Inner]:
        loop = asyncio.get_running_loop()
        total = self._settings.total_seconds
        if context.deadline_seconds is not None:
            total = min(total, context.deadline_seconds)
        deadline = loop.time() + total
        views: dict[str, ConversationState] = {}
        answered = False

        def left() -> float:
            return deadline - loop.time() - (_KEPT_BACK_SECONDS if answered else 0.0)

        async def call(asked: ChatRequest, who: CallContext) -> Reply:
            try:
                result = await self._ask(asked, who, key_id)
            except GatewayError as error:
                if _may_cost(error):
                    flow_context.spent.append(Spent(None))
                raise
            flow_context.spent.append(result.spent)
            return result.reply

        async def ask_agent(asked: ChatRequest) -> Reply:
            nonlocal answered
            seconds = left()
            if seconds <= 0:
                raise timeout_error("total", total)
            reply = await call(asked, replace(inside, deadline_seconds=seconds))
            answered = True
            return reply

        async def consult(role: str, model: str, body: Mapping[str, Any]) -> Reply:
            seconds = min(self._settings.helper_seconds, left() * _HELPER_SHARE)
            if seconds <= 0:
                raise timeout_error("total", total)
            filled = {"model": model, **body}
            asked = ChatRequest(raw=dump(filled), body=filled, model=model, stream=False)
            who = replace(inside, role=role, deadline_seconds=seconds)
            return await call(asked, who)

        async def open_view(flow: str, _: ChatRequest) -> ConversationState:
            # The caller's own history counts, not what outer flows and lessons have added to it.
            if flow not in views:
                views[flow] = await open_state(
                    self._store, flow, key_id, context.session_id, request
                )
            return views[flow]

        inside = replace(context, arm=plan.arm)
        flow_context = FlowContext(
            requested_model=request.model,
            agent_model=plan.agent_model,
            caller=key_id,
            session_id=context.session_id,
            consult=consult,
            open_state=open_view,
            caller_messages=request.body["messages"],
        )
        return flow_context, ask_agent

    async def _with_lessons(
        self, plan: Plan, request: ChatRequest, context: FlowContext, headers: dict[str, str]
    ) -> ChatRequest:
        mode = plan.lessons or ("armed" if "verify" in plan.flows else "off")
        mode = weaker(mode, self._settings.lessons)
        if mode == "off":
            return request
        match = await self._lessons.match(request.body) if self._lessons is not None else None
        headers["x-marina-lessons"] = header_value(mode, match.names if match is not None else ())
        if mode == "observe" or match is None or not match.message or self._lessons is None:
            return request
        context.lessons = match.message
        return self._lessons.insert(request, match.message)


def flow_headers(plan: Plan, context: FlowContext) -> dict[str, str]:
    """Returns the x-marina-* headers of the flows of a plan (seed 004)."""
    headers: dict[str, str] = {}
    for name in plan.flows:
        tally = context.tally(name)
        headers[f"x-marina-{name}"] = tally.header()
        if name in COST_HEADERS and (cost := sum_costs(tally.own)) is not None:
            headers[f"x-marina-{name}-cost-usd"] = format_cost(cost)
    return headers


def _around(flow: Flow, inner: Inner, context: FlowContext) -> Inner:
    """Returns the flow as an inner call that never costs the caller a draft that is there."""

    async def ask(request: ChatRequest) -> Reply:
        drafts: list[Reply] = []

        async def watched(asked: ChatRequest) -> Reply:
            reply = await inner(asked)
            drafts.append(reply)
            return reply

        try:
            return await flow.complete(request, watched, context)
        except Exception as error:
            if isinstance(error, GatewayError) and not drafts:
                raise
            _note_failure(flow, context, error)
            return drafts[0] if drafts else await inner(request)

    return ask


def _may_cost(error: GatewayError) -> bool:
    """Returns whether a call that failed may be billed: it was sent, and nothing says it was not.

    An answer with an error status is not billed; one that never came, or broke off, may be.
    """
    sent = bool(error.provider) and error.retry is Retry.NO
    return sent and "provider_status" not in error.metadata


async def _prepared(flow: Flow, request: ChatRequest, context: FlowContext) -> ChatRequest:
    try:
        return await flow.prepare(request, context)
    except Exception as error:
        _note_failure(flow, context, error)
        return request


def _note_failure(flow: Flow, context: FlowContext, error: Exception) -> None:
    # The text of an unknown exception may hold words of the conversation.
    logger.error("marina/%s failed (%s); the answer passes", flow.name, type(error).__name__)
    tally = context.tally(flow.name)
    if flow.name == "verify":
        tally.verdict = tally.verdict or "checker-unavailable"
    else:
        tally.counters["failed"] += 1
