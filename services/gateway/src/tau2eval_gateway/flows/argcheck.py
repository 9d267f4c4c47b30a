"""marina/argcheck: values that nobody has stated are challenged once (statements 31 to 39).

The check only ever asks the model to look again. It never rewrites an argument, it challenges a
call once, and whatever goes wrong in it leaves the draft as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from tau2eval_gateway.errors import GatewayError
from tau2eval_gateway.flows import evidence
from tau2eval_gateway.flows.argcheck_prompt import (
    JudgedCall,
    Unsupported,
    judge_body,
    note_message,
)
from tau2eval_gateway.flows.argcheck_verdict import read_verdict
from tau2eval_gateway.flows.base import FlowContext, Inner, Reply, Spent, Tally
from tau2eval_gateway.flows.messages import declared_tools, text_of, tool_calls
from tau2eval_gateway.flows.readwrite import is_write
from tau2eval_gateway.flows.state import ConversationState
from tau2eval_gateway.requests import ChatRequest, append_messages

Trigger = Literal["flagged", "all-writes"]
_JUDGED = "judged"
"""Kind of the fact that a call has been judged."""
_LARGE_BYTES = 16_000
"""A larger request is read in a thread, so that others go on."""
_CUT_SHORT = frozenset({"length", "content_filter"})

log = logging.getLogger(__name__)


class ArgcheckFlow:
    """Checks the arguments of writes against the conversation.

    Args:
        model: Judges; empty: the agent's own model.
        trigger: "flagged": writes with a value that nothing backs are judged; "all-writes": every
            write is.
    """

    name = "argcheck"
    streams = True

    def __init__(self, model: str = "", trigger: Trigger = "flagged") -> None:
        self._model = model
        self._trigger = trigger

    async def prepare(self, request: ChatRequest, context: FlowContext) -> ChatRequest:
        """Lets a stream pass: its calls are on their way before they could be checked."""
        context.tally(self.name).counters["streamed"] += 1
        return request

    async def complete(self, request: ChatRequest, inner: Inner, context: FlowContext) -> Reply:
        """Answers a request; a reply with unbacked values is asked for once more.

        Raises:
            GatewayError: The call for the draft failed.
        """
        mark = context.mark()
        draft = await inner(request)
        drafted = context.since(mark)
        tally = context.tally(self.name)
        try:
            return await self._check(request, draft, inner, context, drafted)
        except Exception as error:
            # Whatever went wrong, the draft exists. Nothing of the conversation is logged.
            log.warning("the argument check failed: %s", type(error).__name__)
            tally.counters["failed"] += 1
            return draft

    async def _check(
        self,
        request: ChatRequest,
        draft: Reply,
        inner: Inner,
        context: FlowContext,
        drafted: Sequence[Spent],
    ) -> Reply:
        tally = context.tally(self.name)
        tools = declared_tools(request.body)
        found = await _read(request, draft, tools)
        tally.counters["writes"] += len(found)
        tally.counters["flagged"] += sum(1 for each in found if each.findings)
        asked = [each for each in found if each.findings or self._trigger == "all-writes"]
        if not asked:
            return draft
        state = await _open_state(context, request)
        known = _known(state, tally)
        new = [each for each in asked if _digest(each) not in known]
        if len(new) < len(asked):
            tally.counters["reissued"] += len(asked) - len(new)
        if not new:
            return draft
        unsupported = await self._judge(request, new, tools, context)
        if unsupported is None:
            return draft
        await _remember(new, state, tally)
        if not unsupported:
            return draft
        mark = context.mark()
        try:
            retry = await inner(append_messages(request, note_message(unsupported)))
        except Exception as error:
            tally.counters["retry-failed"] += 1
            tally.own.extend(context.since(mark))
            if not isinstance(error, GatewayError):
                log.warning("the retry of an argument check failed: %s", type(error).__name__)
            return draft
        if not _is_whole(retry):
            tally.counters["retry-failed"] += 1
            tally.own.extend(context.since(mark))
            return draft
        tally.own.extend(drafted)
        with suppress(Exception):
            await _count_retry(request, retry, new, tools, tally)
        return retry

    async def _judge(
        self,
        request: ChatRequest,
        calls: Sequence[JudgedCall],
        tools: Mapping[str, Mapping[str, Any]],
        context: FlowContext,
    ) -> list[Unsupported] | None:
        """Returns the values that the judge finds unbacked; None when there is no verdict."""
        tally = context.tally(self.name)
        mark = context.mark()
        try:
            reply = await context.consult(
                "checker",
                self._model or context.agent_model,
                judge_body(request.body["messages"], calls, tools),
            )
        except Exception as error:
            tally.counters["judge-unavailable"] += 1
            if not isinstance(error, GatewayError):
                log.warning("the judge of arguments failed: %s", type(error).__name__)
            return None
        finally:
            tally.own.extend(context.since(mark))
        verdict = read_verdict(
            text_of(reply.message), calls, tools, believe=self._trigger == "all-writes"
        )
        if verdict is None:
            tally.counters["judge-unreadable"] += 1
            return None
        tally.counters["judged"] += len(calls)
        if verdict:
            tally.counters["unsupported"] += len({each.position for each in verdict})
        return [each.value for each in verdict]


async def _read(
    request: ChatRequest, reply: Reply, tools: Mapping[str, Mapping[str, Any]]
) -> list[JudgedCall]:
    """Returns the writes of a reply and what in them no strong evidence holds."""
    calls = list(enumerate(tool_calls(reply.message)))
    writes = [
        (at, call)
        for at, call in calls
        if is_write(call.name, tools.get(call.name), call.arguments, tools)
    ]
    if not writes:
        return []

    def read() -> list[JudgedCall]:
        said = evidence.gather(request.body["messages"])
        return [JudgedCall(at, call, evidence.check(call, said, tools)) for at, call in writes]

    return await asyncio.to_thread(read) if len(request.raw) > _LARGE_BYTES else read()


async def _open_state(context: FlowContext, request: ChatRequest) -> ConversationState | None:
    try:
        return await context.open_state(ArgcheckFlow.name, request)
    except Exception as error:
        log.warning("the state of a conversation cannot be read: %s", type(error).__name__)
        return None


def _known(state: ConversationState | None, tally: Tally) -> set[str]:
    """Returns the calls that were judged before this request, or within it.

    Facts found at exactly this history come from the same request sent before: a replay behaves as
    the first time did.
    """
    facts = state.facts(_JUDGED) if state is not None else []
    return {fact.name for fact in facts if not fact.current} | tally.noted


async def _remember(
    judged: Sequence[JudgedCall], state: ConversationState | None, tally: Tally
) -> None:
    for each in judged:
        tally.noted.add(_digest(each))
    if state is None:
        return
    try:
        for each in judged:
            await state.add(_JUDGED, _digest(each), True)
    except Exception as error:
        log.warning("the state of a conversation cannot be kept: %s", type(error).__name__)


async def _count_retry(
    request: ChatRequest,
    retry: Reply,
    challenged: Sequence[JudgedCall],
    tools: Mapping[str, Mapping[str, Any]],
    tally: Tally,
) -> None:
    """Counts what became of the challenged calls. The retry's own writes are not judged."""
    tally.counters["retried"] += 1
    before = {each.call.canonical() for each in challenged}
    writes = await _read(request, retry, tools)
    again = sum(1 for each in writes if each.call.canonical() in before)
    left = sum(1 for each in writes if each.findings and each.call.canonical() not in before)
    for name, count in (("reissued", again), ("still-flagged", left)):
        if count:
            tally.counters[name] += count


def _digest(judged: JudgedCall) -> str:
    return hashlib.sha256(judged.call.canonical().encode("utf-8", "surrogatepass")).hexdigest()


def _is_whole(reply: Reply) -> bool:
    """Returns whether a reply can stand in for a draft: it says or calls something, to its end."""
    choices = reply.body.get("choices")
    finish = choices[0].get("finish_reason") if isinstance(choices, list) and choices else None
    said = text_of(reply.message).strip() or tool_calls(reply.message)
    return bool(said or reply.message.get("refusal")) and finish not in _CUT_SHORT
