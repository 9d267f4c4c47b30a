"""A pipeline around ArgcheckFlow without servers: scripted models, memory state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tau2eval_gateway.errors import UpstreamError
from tau2eval_gateway.flows.argcheck import ArgcheckFlow
from tau2eval_gateway.flows.base import FlowContext, Reply, Spent, Tally
from tau2eval_gateway.flows.state import ConversationState, MemoryStateStore, open_state
from tau2eval_gateway.requests import ChatRequest, parse_chat_request

AGENT = "vendor/agent"


def tool(name: str, properties: Mapping[str, Any] | None = None) -> dict[str, Any]:
    parameters = {"type": "object", "properties": dict(properties or {})}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("get_order", {"order_id": {"type": "string"}}),
    tool("cancel_order", {"order_id": {"type": "string"}}),
    tool("refund", {"order_id": {"type": "string"}, "amount": {"type": "number"}}),
    tool(
        "update_trip",
        {
            "trip_id": {"type": "string"},
            "cabin": {"enum": ["economy", "basic_economy", "business"]},
            "flights": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"number": {"type": "string"}, "date": {"type": "string"}},
                },
            },
            "note": {"type": "string"},
        },
    ),
]


def call(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def calls(*listed: tuple[str, Any]) -> dict[str, Any]:
    made = [call(name, arguments, f"c{at}") for at, (name, arguments) in enumerate(listed)]
    return {"role": "assistant", "content": None, "tool_calls": made}


def says(text: str | None) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def result(value: Any, call_id: str = "c0") -> dict[str, Any]:
    content = value if isinstance(value, str) else json.dumps(value)
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def chat(*messages: Mapping[str, Any], **more: Any) -> ChatRequest:
    body = {"model": AGENT, "messages": list(messages), "tools": TOOLS, **more}
    return parse_chat_request(json.dumps(body).encode(), 10_000_000)


def reply_of(message: Mapping[str, Any], finish: str | None = None, cost: Any = None) -> Reply:
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    body = {
        "id": "x",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": dict(message), "finish_reason": finish}],
    }
    return Reply(json.dumps(body).encode(), body, AGENT)


def verdict(*items: Mapping[str, Any]) -> str:
    return json.dumps({"calls": list(items)})


def unsupported(position: int, *values: Any) -> dict[str, Any]:
    return {"call": position, "supported": False, "values": list(values), "why": "invented"}


def supported(position: int) -> dict[str, Any]:
    return {"call": position, "supported": True, "values": [], "why": ""}


@dataclass
class Bench:
    """What the models answer, and what they were asked."""

    drafts: list[Any] = field(default_factory=list)
    judgements: list[Any] = field(default_factory=list)
    asked: list[ChatRequest] = field(default_factory=list)
    judged: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    store: MemoryStateStore = field(default_factory=MemoryStateStore)
    session: str = ""
    agent_cost: float | None = 0.01
    judge_cost: float | None = 0.001
    replies: list[Reply] = field(default_factory=list)

    def context(self, request: ChatRequest) -> FlowContext:
        async def consult(role: str, model: str, body: Mapping[str, Any]) -> Reply:
            self.judged.append((role, model, body))
            answer = self.judgements.pop(0)
            if isinstance(answer, Exception):
                raise answer
            made.spent.append(Spent(self.judge_cost, {}))
            return reply_of(says(answer))

        async def opened(flow: str, _: ChatRequest) -> ConversationState:
            if flow not in views:
                views[flow] = await open_state(self.store, flow, "key", self.session, request)
            return views[flow]

        views: dict[str, ConversationState] = {}
        made = FlowContext(AGENT, AGENT, "key", self.session, consult, opened)
        return made

    async def inner(self, request: ChatRequest, context: FlowContext) -> Reply:
        self.asked.append(request)
        answer = self.drafts.pop(0)
        if isinstance(answer, Exception):
            raise answer
        context.spent.append(Spent(self.agent_cost, {}))
        reply = answer if isinstance(answer, Reply) else reply_of(answer)
        self.replies.append(reply)
        return reply

    async def ask(
        self, request: ChatRequest, flow: ArgcheckFlow | None = None, times: int = 1
    ) -> tuple[Reply, Tally]:
        """Passes a request through the flow; more often within one request, as outer flows do."""
        context = self.context(request)
        flow = flow or ArgcheckFlow()
        for _ in range(times):
            reply = await flow.complete(request, lambda r: self.inner(r, context), context)
        return reply, context.tally("argcheck")


def outage() -> UpstreamError:
    return UpstreamError("away", error_code="upstream_error")


def note_of(request: ChatRequest) -> str:
    """The trailing system message of a retry."""
    last = request.body["messages"][-1]
    assert last["role"] == "system"
    return str(last["content"])
