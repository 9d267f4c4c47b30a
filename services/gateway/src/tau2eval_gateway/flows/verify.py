"""marina/verify: a draft, a review, and a revision under the write gate (statements 5 to 20)."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tau2eval_gateway.errors import GatewayError
from tau2eval_gateway.flows.base import FlowContext, Inner, Reply
from tau2eval_gateway.flows.hold import citations, judge
from tau2eval_gateway.flows.hold_changes import Evidence
from tau2eval_gateway.flows.messages import SYSTEM_ROLES, declared_tools, text_of
from tau2eval_gateway.flows.present import dump_answer, present
from tau2eval_gateway.flows.quotes import said_in
from tau2eval_gateway.flows.verify_calls import adopt, calls_in
from tau2eval_gateway.flows.verify_prompt import (
    Review,
    checker_messages,
    read_review,
    reviser_message,
)
from tau2eval_gateway.requests import ChatRequest, append_messages

logger = logging.getLogger(__name__)

MAX_ROUNDS = 3

APPROVED = "approved"
REVISED = "revised"
HELD = "held-write"
UNAVAILABLE = "checker-unavailable"
REVISION_FAILED = "revision-failed"
FLAGGED = "flagged"


class VerifyFlow:
    """Has every draft reviewed before it goes out, and once more written when it is wrong.

    In each round all checkers read the message; when one of them wants a revision, the proposer
    writes one, and the write gate decides whether it may stand. The message under review is then
    the revision. Whatever goes wrong after the first draft, a message that passed goes out.

    Args:
        checkers: Model ids; none: the proposer checks itself.
        rounds: Revisions at most, held within 0 and 3; with 0 a fault is only flagged.
    """

    name = "verify"
    streams = False

    def __init__(self, checkers: Sequence[str], rounds: int) -> None:
        self._checkers = tuple(checkers)
        self._rounds = min(max(rounds, 0), MAX_ROUNDS)

    async def complete(self, request: ChatRequest, inner: Inner, context: FlowContext) -> Reply:
        """Answers a request.

        Raises:
            GatewayError: The proposer gave no draft.
        """
        start = context.mark()
        draft = await inner(request)
        work = _Work(request, inner, context, draft, (start, context.mark()))
        verdict = REVISED
        for number in range(max(self._rounds, 1)):
            ended = await self._round(work)
            if ended is not None:
                verdict = REVISED if ended == APPROVED and number else ended
                break
        tally = context.tally(self.name)
        tally.verdict = verdict
        spent = context.since(start)
        first, last = (mark - start for mark in work.made_by)
        tally.own.extend([*spent[:first], *spent[last:]])
        return present(work.current, context.requested_model, spent)

    async def prepare(self, request: ChatRequest, context: FlowContext) -> ChatRequest:
        """Returns the request as it is; verify has no streams."""
        return request

    async def _round(self, work: _Work) -> str | None:
        """Reviews and revises once; None: the message was revised and may be reviewed again."""
        failed = UNAVAILABLE
        try:
            reviews = await self._reviews(work)
            if not reviews:
                return UNAVAILABLE
            wanted = [review for review in reviews if review.revise]
            if not wanted:
                return APPROVED
            if not self._rounds:
                return FLAGGED
            failed = REVISION_FAILED
            return await work.revise(wanted)
        except Exception as error:
            # The draft is worth more than the check. Only the kind is logged: the text of an
            # unknown exception may hold words of the conversation.
            logger.error("marina/verify: %s in a review", type(error).__name__)
            return failed

    async def _reviews(self, work: _Work) -> list[Review]:
        """Returns what the checkers that could answer say."""
        models = self._checkers or (work.context.agent_model,)
        messages = work.checker_messages()
        answers = await asyncio.gather(*(_ask(work.context, m, messages) for m in models))
        return [answer for answer in answers if answer is not None]


class _Work:
    """One request on its way through the rounds.

    Attributes:
        current: The message that goes out as things stand.
        made_by: Where in `context.spent` the calls that wrote it begin and end.
    """

    def __init__(
        self,
        request: ChatRequest,
        inner: Inner,
        context: FlowContext,
        draft: Reply,
        made_by: tuple[int, int],
    ) -> None:
        self.context = context
        self.current = draft
        self.made_by = made_by
        self._request = request
        self._inner = inner
        self._own, self._notes = _callers_messages(request, context)

    def checker_messages(self) -> list[dict[str, Any]]:
        """Returns what a checker is asked."""
        message = self.current.message
        body = self._request.body
        lessons = self.context.lessons
        calls = calls_in(message, body)
        return checker_messages(body, self._own, self._notes, lessons, message, calls)

    async def revise(self, wanted: Sequence[Review]) -> str | None:
        """Has the message written again; None: the new one is now the current one."""
        body = self._request.body
        before = calls_in(self.current.message, body)
        said = said_in(self._own)
        cited, uncited = citations([review.conflicts for review in wanted], said)
        note = "\n".join(dict.fromkeys(review.note for review in wanted))
        told = reviser_message(self.current.message, before, note, cited)
        mark = self.context.mark()
        try:
            revision = await self._inner(append_messages(self._request, told))
        except GatewayError as error:
            logger.warning("marina/verify: no revision (%s)", error.error_code)
            return REVISION_FAILED
        if not _is_whole(revision):
            return REVISION_FAILED
        try:
            after = calls_in(revision.message, body)
            evidence = Evidence(said, declared_tools(body))
            ruling = judge(before, after, cited, evidence, uncited)
        except RecursionError:
            return HELD
        if ruling.broken is not None:
            logger.info("marina/verify: a revision is held (%s)", ruling.broken.name)
            return HELD
        message = adopt(revision.message, after, self.current.message, before, _new_id)
        self.current = _with_message(revision, message)
        self.made_by = (mark, self.context.mark())
        return None


async def _ask(
    context: FlowContext, model: str, messages: Sequence[Mapping[str, Any]]
) -> Review | None:
    """Asks one checker; None: it did not answer, or nobody can read what it says."""
    try:
        reply = await context.consult("checker", model, {"messages": list(messages)})
        review = read_review(text_of(reply.message))
    except GatewayError as error:
        logger.warning("marina/verify: no review (%s)", error.error_code)
        return None
    except Exception as error:
        # One checker's fault is not that of the others.
        logger.error("marina/verify: %s in a checker's call", type(error).__name__)
        return None
    if review is None:
        logger.warning("marina/verify: a review cannot be read")
    return review


def _callers_messages(
    request: ChatRequest, context: FlowContext
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Parts the caller's own messages from what lessons and outer flows have put among them.

    Only the former are evidence: a note of argcheck names the very ids that nobody has said.
    """
    own: list[Mapping[str, Any]] = []
    notes: list[str] = []
    asked = context.caller_messages
    for message in request.body["messages"]:
        if asked is not None and (len(own) >= len(asked) or message != asked[len(own)]):
            if text_of(message) != context.lessons:
                notes.append(text_of(message))
        elif _is_lessons(message, context):
            continue
        else:
            own.append(message)
    return own, notes


def _is_lessons(message: Mapping[str, Any], context: FlowContext) -> bool:
    return (
        bool(context.lessons)
        and message.get("role") in SYSTEM_ROLES
        and text_of(message) == context.lessons
    )


def _is_whole(reply: Reply) -> bool:
    """Returns whether a revision can stand for a draft: one choice, not cut off, not empty."""
    choices = reply.body.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        return False
    message = reply.message
    if not message or choices[0].get("finish_reason") in ("length", "content_filter", "error"):
        return False
    calls = message.get("tool_calls") or message.get("function_call")
    return bool(calls or text_of(message).strip() or message.get("refusal"))


def _with_message(reply: Reply, message: Mapping[str, Any]) -> Reply:
    """Returns a revision with its message mended.

    Raises:
        RecursionError: It cannot be written, so it cannot go out.
    """
    choice = {**reply.body["choices"][0], "message": message}
    body = {**reply.body, "choices": [choice]}
    return replace(reply, raw=dump_answer(body), body=body)


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
