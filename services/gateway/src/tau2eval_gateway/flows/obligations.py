"""marina/obligations:<model>: keeps in view what the user asked for (statements 22 to 30).

1. Each user message is read once into obligations, by the ledger model.
2. Those that no successful write call has settled ride as a trailing note.
3. A reply without tool calls is judged while one is open that was not nudged yet. If it leaves one
   owed, the agent is asked once more, with its draft quoted; that reply is returned verbatim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tau2eval_gateway.flows.base import FlowContext, Inner, Reply
from tau2eval_gateway.flows.messages import (
    declared_tools,
    parse_json_object,
    text_of,
    tool_calls,
)
from tau2eval_gateway.flows.obligations_ledger import (
    Obligation,
    settled_by,
    write_tools,
)
from tau2eval_gateway.flows.obligations_prompts import judge_body, note_message, nudge_message
from tau2eval_gateway.flows.obligations_reader import ObligationsReader, as_id, note_failure
from tau2eval_gateway.flows.state import ConversationState
from tau2eval_gateway.requests import ChatRequest, append_messages

ROLE = "ledger"
"""Role of the flow's own calls in the spend ledger."""
MAX_JUDGED = 20
"""Open obligations, the newest ones, that one judgement is about."""
_NUDGED = "nudged"


@dataclass(slots=True)
class _View:
    """What is known in one request.

    Attributes:
        open: Obligations that are neither settled nor withdrawn, oldest first.
        nudged: Names of those whose nudge is used up.
    """

    state: ConversationState
    messages: Sequence[Mapping[str, Any]]
    open: list[Obligation] = field(default_factory=list)
    nudged: set[str] = field(default_factory=set)


class ObligationsFlow:
    """Implements `Flow`.

    Args:
        model: Of the flow's own calls; empty: the agent's model.
    """

    name = "obligations"
    streams = True

    def __init__(self, model: str = "") -> None:
        self._model = model
        self._reader = ObligationsReader(self._consult)

    async def prepare(self, request: ChatRequest, context: FlowContext) -> ChatRequest:
        """Returns the request with the note; a stream gets no more (statement 27)."""
        view = await self._view(request, context)
        return _with_note(request, view)

    async def complete(self, request: ChatRequest, inner: Inner, context: FlowContext) -> Reply:
        """Answers a request.

        Raises:
            GatewayError: The call for the draft failed.
        """
        view = await self._view(request, context)
        noted = _with_note(request, view)
        mark = context.mark()
        draft = await inner(noted)
        drafted = context.since(mark)
        if view is None or not _may_owe(draft, request.body):
            return draft
        owed = await self._judged(view, draft, context)
        if not owed:
            return draft
        tally = context.tally(self.name)
        mark = context.mark()
        try:
            # Used up before the retry, so that a retry that is cut off is not made again.
            for one in owed:
                await view.state.add(_NUDGED, one.name, True)
            tally.counters["nudged"] += len(owed)
            nudge = nudge_message(owed, text_of(draft.message))
            second = await inner(append_messages(noted, nudge))
        except Exception as error:
            note_failure("retry", error)
            tally.counters["retry-failed"] += 1
            tally.own.extend(context.since(mark))
            return draft
        if not _says_anything(second):
            tally.counters["retry-failed"] += 1
            tally.own.extend(context.since(mark))
            return draft
        tally.own.extend(drafted)
        return second

    async def _view(self, request: ChatRequest, context: FlowContext) -> _View | None:
        """Returns what is open; None when there is nothing to keep, or it cannot be kept."""
        tally = context.tally(self.name)
        for counter in ("read", "open", "settled", "judged", "nudged"):
            tally.counters.setdefault(counter, 0)
        declared = declared_tools(request.body)
        writes, dispatcher = write_tools(declared)
        if not writes and not dispatcher:
            return None
        try:
            state = await context.open_state(self.name, request)
            view = _View(state, request.body["messages"])
            read = await self._reader.read(state, view.messages, declared, context)
        except Exception as error:
            note_failure("reading", error)
            tally.counters["read-failed"] += 1
            return None
        tally.counters["read"] += read.count
        if read.failed:
            tally.counters["read-failed"] += 1
        settled = settled_by(read.obligations, view.messages, declared)
        view.open = [
            one
            for one in read.obligations
            if one.name not in settled and one.name not in read.withdrawn
        ]
        # What the same request found when it was sent before is not used up (statement 29).
        view.nudged = {fact.name for fact in state.facts(_NUDGED) if fact.own or not fact.current}
        tally.counters["open"] = len(view.open)
        tally.counters["settled"] = len(settled)
        return view

    async def _judged(self, view: _View, draft: Reply, context: FlowContext) -> list[Obligation]:
        """Returns the open obligations that a draft leaves owed; none when that is not known."""
        asked = [one for one in view.open if one.name not in view.nudged][-MAX_JUDGED:]
        if not asked:
            return []
        tally = context.tally(self.name)
        numbered = list(enumerate(asked, 1))
        try:
            body = judge_body(view.messages, numbered, text_of(draft.message))
            reply = await self._consult(body, context)
            statuses = _statuses(text_of(reply.message))
        except Exception as error:
            note_failure("judging", error)
            statuses = None
        if statuses is None:
            tally.counters["judge-failed"] += 1
            return []
        tally.counters["judged"] += 1
        return [one for number, one in numbered if statuses.get(number) == {"owed"}]

    async def _consult(self, body: Mapping[str, Any], context: FlowContext) -> Reply:
        mark = context.mark()
        try:
            return await context.consult(ROLE, self._model or context.agent_model, body)
        finally:
            context.tally(self.name).own.extend(context.since(mark))


def _with_note(request: ChatRequest, view: _View | None) -> ChatRequest:
    if view is None or not view.open:
        return request
    return append_messages(request, note_message(view.open))


def _may_owe(draft: Reply, body: Mapping[str, Any]) -> bool:
    """Returns whether a draft can leave something owed that a retry could settle."""
    message = draft.message
    acts = bool(message.get("tool_calls")) or bool(message.get("function_call"))
    return (
        bool(message)
        and not acts
        and not message.get("refusal")
        and (body.get("tool_choice") != "none")
    )


def _says_anything(reply: Reply) -> bool:
    message = reply.message
    return bool(
        text_of(message)
        or tool_calls(message)
        or any(message.get(name) for name in ("function_call", "refusal", "audio"))
    )


def _statuses(answer: str) -> dict[int, set[str]] | None:
    """Returns what a judge says of each id; None when its answer cannot be read."""
    found = parse_json_object(answer, "open")
    items = found.get("open") if found is not None else None
    if not isinstance(items, list):
        return None
    statuses: dict[int, set[str]] = {}
    for item in items:
        if isinstance(item, Mapping) and (number := as_id(item.get("id"))) is not None:
            status = item.get("status")
            word = status.strip().lower() if isinstance(status, str) else ""
            statuses.setdefault(number, set()).add(word)
    return statuses
