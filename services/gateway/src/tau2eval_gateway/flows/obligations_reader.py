"""Reads user messages into obligations, each message once (statement 23)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tau2eval_gateway.flows.base import FlowContext, Reply
from tau2eval_gateway.flows.messages import (
    SYSTEM_ROLES,
    message_digest,
    parse_json_object,
    text_of,
)
from tau2eval_gateway.flows.obligations_ledger import (
    Declared,
    Obligation,
    kept_obligations,
    said_until,
    settled_by,
    take_obligations,
    write_tools,
)
from tau2eval_gateway.flows.obligations_prompts import read_body
from tau2eval_gateway.flows.state import ConversationState

logger = logging.getLogger(__name__)

MAX_TRIES = 3
"""Requests in which a user message is tried to be read before it is given up."""
MAX_NEW = 20
"""User messages read in one call; more are left for the next request."""
_MAX_WAIT_SECONDS = 120.0
_READ, _FAILED = "read", "read-failed"

Ask = Callable[[Mapping[str, Any], FlowContext], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A user message.

    Attributes:
        at: Its index in `messages`.
        point: Length of the history through it.
        name: Stands for it in the state: what it says, and how often that was said before.
    """

    at: int
    point: int
    name: str


@dataclass(slots=True)
class ReadResult:
    """What all user messages of a conversation ask for, as far as they could be read.

    Attributes:
        obligations: In order of the conversation.
        withdrawn: Names of those that the user took back.
        count: Messages that this request read.
        failed: Whether a message could not be read now.
    """

    obligations: list[Obligation] = field(default_factory=list)
    withdrawn: set[str] = field(default_factory=set)
    count: int = 0
    failed: bool = False


class ObligationsReader:
    """Reads what was not read before, and finds again what was.

    Args:
        ask: Asks the ledger model.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        # Messages that are being read: a parallel request that needs one waits for it. An entry
        # lasts as long as the call.
        self._running: dict[str, asyncio.Future[Any]] = {}

    async def read(
        self,
        state: ConversationState,
        messages: Sequence[Mapping[str, Any]],
        declared: Declared,
        context: FlowContext,
    ) -> ReadResult:
        """Returns what the user messages ask for.

        A message that cannot be read is tried again in later requests, `MAX_TRIES` in all.
        """
        said = [one for one in user_messages(messages) if one.point <= state.length]
        known: dict[str, Any] = {}
        for fact in state.facts(_READ):
            known.setdefault(fact.name, fact.value)
        result = ReadResult()
        new = await self._wait_for_others(state, said, known, result)
        if new:
            await self._read_new(state, messages, new, said, known, declared, context, result)
        found = _collect(said, known)
        result.obligations, result.withdrawn = found.obligations, found.withdrawn
        return result

    async def _wait_for_others(
        self,
        state: ConversationState,
        said: Sequence[UserMessage],
        known: dict[str, Any],
        result: ReadResult,
    ) -> list[UserMessage]:
        """Takes over what parallel requests read; returns what is left for this one."""
        given_up = _given_up(state)
        while True:
            unread = [one for one in said if one.name not in known and one.name not in given_up]
            unread = unread[-MAX_NEW:]
            keys = {one.name: state.key(one.point) for one in unread}
            running = {
                name: self._running[key] for name, key in keys.items() if key in self._running
            }
            if not running:
                return unread
            await asyncio.wait(set(running.values()), timeout=_MAX_WAIT_SECONDS)
            for one in unread:
                future = running.get(one.name)
                if future is None or future.cancelled():
                    continue
                value = future.result() if future.done() else None
                if value is None:
                    # It failed there; the same question is not asked twice at once.
                    given_up.add(one.name)
                    result.failed = True
                else:
                    known[one.name] = await state.add(_READ, one.name, value, at=one.point)

    async def _read_new(
        self,
        state: ConversationState,
        messages: Sequence[Mapping[str, Any]],
        new: Sequence[UserMessage],
        said: Sequence[UserMessage],
        known: dict[str, Any],
        declared: Declared,
        context: FlowContext,
        result: ReadResult,
    ) -> None:
        loop = asyncio.get_running_loop()
        futures = {state.key(one.point): loop.create_future() for one in new}
        self._running.update(futures)
        try:
            values = await self._question(messages, new, said, known, declared, context)
            for one in new:
                if values is None:
                    await state.add(_FAILED, one.name, True)
                    futures[state.key(one.point)].set_result(None)
                    continue
                value = await state.add(_READ, one.name, values[one.name], at=one.point)
                known[one.name] = value
                result.count += 1
                futures[state.key(one.point)].set_result(value)
            result.failed = result.failed or values is None
        finally:
            for key, future in futures.items():
                del self._running[key]
                # The caller went away: who waits reads it instead.
                future.cancel()

    async def _question(
        self,
        messages: Sequence[Mapping[str, Any]],
        new: Sequence[UserMessage],
        said: Sequence[UserMessage],
        known: Mapping[str, Any],
        declared: Declared,
        context: FlowContext,
    ) -> dict[str, Any] | None:
        """Asks about new messages; returns what to keep of each, or None when that failed."""
        until = new[-1].at
        earlier = _collect([one for one in said if one.at < until], known)
        settled = settled_by(earlier.obligations, messages[: until + 1], declared)
        open_ones = [
            one
            for one in earlier.obligations
            if one.name not in settled and one.name not in earlier.withdrawn
        ]
        numbered = list(enumerate(open_ones, 1))
        writes, dispatcher = write_tools(declared)
        tools = [(name, tool) for name, tool in declared.items() if name in writes or dispatcher]
        try:
            body = read_body(messages, [one.at for one in new], numbered, tools)
            reply = await self._ask(body, context)
        except Exception as error:
            note_failure("reading", error)
            return None
        answer = parse_json_object(text_of(reply.message), "obligations", "withdrawn")
        if answer is None:
            return None
        items, withdrawn = answer.get("obligations"), answer.get("withdrawn")
        if items is None and isinstance(withdrawn, list):
            items = []
        if not isinstance(items, list):
            return None
        taken_back = withdrawn if isinstance(withdrawn, list) else []
        ids = {as_id(item) for item in taken_back}
        sorted_items = _by_message(items, new)
        values: dict[str, Any] = {}
        for one in new:
            last = one is new[-1]
            found = take_obligations(
                sorted_items[one.at],
                declared,
                said_until(messages, one.at),
                open_ones,
                one.name,
                one.at,
            )
            open_ones = [*open_ones, *found]
            values[one.name] = {
                "obligations": [obligation.kept() for obligation in found],
                "withdrawn": [obligation.name for number, obligation in numbered if number in ids]
                if last
                else [],
            }
        return values


def user_messages(messages: Sequence[Mapping[str, Any]]) -> Iterator[UserMessage]:
    """Yields the user messages that have words."""
    point = 0
    seen: Counter[str] = Counter()
    for at, message in enumerate(messages):
        if message.get("role") in SYSTEM_ROLES:
            continue
        point += 1
        if message.get("role") == "user" and text_of(message).strip():
            digest = message_digest(message)
            yield UserMessage(at, point, f"{digest}:{seen[digest]}")
            seen[digest] += 1


def as_id(value: Any) -> int | None:
    """Returns an id that a model gave as a number or as its digits."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def note_failure(doing: str, error: Exception) -> None:
    """Logs a failure that the caller does not see."""
    # The text of an unknown exception may hold words of the conversation.
    logger.warning("obligations: %s failed (%s)", doing, type(error).__name__)


def _collect(said: Sequence[UserMessage], known: Mapping[str, Any]) -> ReadResult:
    result = ReadResult()
    for one in said:
        value = known.get(one.name)
        if not isinstance(value, Mapping):
            continue
        withdrawn = value.get("withdrawn")
        earlier = {obligation.name for obligation in result.obligations}
        result.withdrawn |= earlier.intersection(
            name
            for name in (withdrawn if isinstance(withdrawn, list) else ())
            if isinstance(name, str)
        )
        result.obligations += kept_obligations(value.get("obligations"), one.name, one.at)
    return result


def _given_up(state: ConversationState) -> set[str]:
    """Returns the names of messages that are not to be tried (again) in this request."""
    tries: Counter[str] = Counter()
    for fact in state.facts(_FAILED):
        # The same request sent again has the tries that it had the first time.
        tries[fact.name] += MAX_TRIES if fact.own else 0 if fact.current else 1
    return {name for name, count in tries.items() if count >= MAX_TRIES}


def _by_message(items: Sequence[Any], new: Sequence[UserMessage]) -> dict[int, list[Any]]:
    """Sorts a model's items by the message that they say they are from; the last one by default."""
    found: dict[int, list[Any]] = {one.at: [] for one in new}
    homeless: list[Any] = []
    for item in items:
        at = as_id(item.get("message")) if isinstance(item, Mapping) else None
        (homeless if at is None else found.get(at, homeless)).append(item)
    found[new[-1].at] += homeless
    return found
