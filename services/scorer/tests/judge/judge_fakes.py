"""Calls as a judge gets them, and a gateway whose replies a test decides."""

import asyncio
import contextlib
import json

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_common.client import open_channel
from tau2eval_scorer.catalog import ScenarioCard
from tau2eval_scorer.judge import GatewayChat, LLMJudge
from tau2eval_scorer.record import (
    Conversation,
    Header,
    Role,
    Side,
    StopReason,
    Summary,
    TimedEvent,
    Turn,
)

ASSERTIONS = ("The agent refuses.", "The agent looks up ABC123.", "The agent gives no refund.")


def turn(role, text, start, end=None, heard="", unspoken="", interrupted=False):
    end = start + 1 if end is None else end
    return Turn(Role(role), text, heard, text, start, end, interrupted, unspoken, None)


def heard(role, text, at):
    data = {"text": text, "audio_seconds": 1.0, "latency_seconds": 0.1}
    return TimedEvent(at, Role(role), "transcript_heard", data)


def tool_call(at, call_id="c1", name="look_up", arguments='{"id": "ABC123"}', role="agent"):
    data = {"call_id": call_id, "name": name, "arguments_json": arguments}
    return TimedEvent(at, Role(role), "tool_call", data)


def tool_result(at, call_id="c1", name="look_up", result="{}", is_error=False, role="agent"):
    data = {
        "call_id": call_id,
        "name": name,
        "result_json": result,
        "is_error": is_error,
        "latency_seconds": 0.0,
    }
    return TimedEvent(at, Role(role), "tool_result", data)


def call(turns=(), events=(), modality="voice", context=None, stop=StopReason.AGENT_EXIT):
    """A conversation; `context` is what the agent's bot reports of its own context."""
    header = Header(
        "run-1", "tau2_airline__0", 2, "attempt-7", "", {}, {}, "agent", "user", modality, 16_000
    )
    summary = Summary("", (), (), context, None, ())
    return Conversation(
        header=header,
        events=tuple(sorted(events, key=lambda event: event.time_seconds)),
        turns=tuple(sorted(turns, key=lambda item: item.start_seconds)),
        sides={Role.AGENT: Side(Role.AGENT, summary, {})},
        stop_reason=stop,
        stop_detail="",
        duration_seconds=60.0,
        line_quality={},
        min_agent_turns=1,
        audio_frames=0,
    )


def card(assertions=ASSERTIONS):
    return ScenarioCard(
        name="tau2_airline__0",
        domain="tau2_airline",
        tau2_id="0",
        agent_prompt="",
        user_prompt="",
        agent_tool_domain="",
        agent_tool_names=(),
        max_duration_seconds=900,
        success_signals=("DB_STATE_MATCH", "CLEAN_EXIT", "NL_ASSERTION"),
        nl_assertions=tuple(assertions),
        agent_db_path="",
        seed_db_hash="",
        expected_db_hash="",
        reference_answer={"actions": []},
        gold_mutates=False,
    )


def answer(*passes, score=0.5, **fields):
    """A judge's whole answer."""
    return json.dumps(
        {
            "score": score,
            "reason": "because",
            "nl_assertion_verdicts": [
                {"index": at, "passed": passed, "reason": f"r{at}", "quote": ""}
                for at, passed in enumerate(passes, start=1)
            ],
            **fields,
        }
    )


class Refusal(Exception):
    """Makes the gateway fail a call."""

    def __init__(self, code, openai_code="invalid_request_error", message="", **metadata):
        self.code, self.openai_code = code, openai_code
        self.message, self.metadata = message or openai_code, metadata


class FakeGateway(gateway_pb2_grpc.ChatServiceServicer):
    """Answers with `reply(body)`: a text, a whole body, or a Refusal; may be a coroutine.

    Attributes:
        bodies: Chat bodies received.
        contexts: Who asked, for each.
    """

    def __init__(self, *replies, cost=0.001):
        self._replies = list(replies)
        self._cost = cost
        self.bodies, self.contexts = [], []

    async def reply(self, body):
        item = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        found = item(body) if callable(item) else item
        return await found if asyncio.iscoroutine(found) else found

    async def ChatCompletion(self, request, context):
        body = json.loads(request.body_json)
        self.bodies.append(body)
        self.contexts.append(request.context)
        found = await self.reply(body)
        if isinstance(found, Refusal):
            await self._fail(context, found)
        if isinstance(found, str):
            found = completion(found)
        if not isinstance(found, bytes):
            found = json.dumps(found).encode()
        metadata = gateway_pb2.CallMetadata(request_id="r")
        if self._cost is not None:
            metadata.cost_usd = self._cost
        return gateway_pb2.ChatCompletionResponse(body_json=found, metadata=metadata)

    async def _fail(self, context, refusal):
        info = error_details_pb2.ErrorInfo(
            reason=refusal.openai_code.upper(),
            domain="tau2eval.gateway",
            metadata={"code": refusal.openai_code, **refusal.metadata},
        )
        detail = any_pb2.Any()
        detail.Pack(info)
        status = rpc_status.to_status(
            status_pb2.Status(code=refusal.code.value[0], message=refusal.message, details=[detail])
        )
        context.set_trailing_metadata(status.trailing_metadata)
        await context.abort(status.code, status.details)

    @contextlib.asynccontextmanager
    async def judging(self, **arguments):
        """Serves on a free port and gives a judge that asks there."""
        server = grpc.aio.server()
        gateway_pb2_grpc.add_ChatServiceServicer_to_server(self, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channel = open_channel(f"127.0.0.1:{port}")
        try:
            yield LLMJudge(GatewayChat(channel), first_pause_seconds=0.01, **arguments)
        finally:
            await channel.close()
            await server.stop(0)


def completion(text, finish="stop", **fields):
    return {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 40},
        },
        **fields,
    }


def sections(content):
    """Reads the judge's input as a parser would that knows the form."""
    lines = content.split("\n")
    assert lines.pop() == ""
    found = []
    while lines:
        opening, body, closing = lines[:3]
        del lines[:3]
        name = opening[1:-1]
        assert (opening, closing) == (f"<{name}>", f"</{name}>")
        found.append((name, json.loads(body)))
    return found
