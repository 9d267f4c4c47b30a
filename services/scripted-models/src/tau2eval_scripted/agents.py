"""The scripted agents. Each computes its next response from the conversation alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from . import wording
from .catalog import TRANSFER, Plan
from .catalog_types import Step
from .conversation import Conversation, matched, without_stimulus, words

END: Step = ("end_conversation", {})

MAX_ASKS = 3
"""After so many requests for a yes that brought none, gold goes on: the call must end."""

MAX_CLOSINGS = 2
"""After so many closings that were cut off, gold says goodbye all the same."""

_YES = re.compile(
    r"\b(?:yes|yeah|yep|yup|sure|proceed|confirm|confirmed|correct|absolutely|agreed|go ahead|"
    r"please do|do it|do that)\b"
)
_NO = re.compile(r"^(?:no|not|nope)\b|\b(?:don't|do not|not) (?:go ahead|proceed|confirm|do)\b")
_TELL_MORE = "I see. Could you tell me more about it, please?"
_QUESTIONS = (
    "How long have you been flying with us?",
    "Which seat do you like best on a long flight?",
    "Do you often travel for work?",
    "What do you usually pack for a trip?",
    "Which city would you like to see next?",
    "How did you hear about our airline?",
)


@dataclass(frozen=True)
class Reply:
    """One model response.

    Attributes:
        text: What is said; empty for none.
        call: The one tool call, or None.
    """

    text: str = ""
    call: Step | None = None


class ScriptedCrash(Exception):
    """The script says that the provider fails now."""


Agent = Callable[[Plan, Conversation], Reply]


def gold(plan: Plan, conversation: Conversation) -> Reply:
    """Follows the gold actions and speaks; see the README for its turns."""
    conversation = without_stimulus(conversation)
    callers = conversation.texts("user")
    if not callers:
        return Reply(wording.GREETING)
    if conversation.calls and conversation.calls[-1][1].status == "running":
        return Reply(wording.WAIT)
    executed = matched(conversation, plan.steps)
    done = len(executed)
    since = max(executed[-1] if executed else -1, callers[0][0])
    if done < len(plan.steps):
        if done == len(plan.before) and plan.ask and (asked := _ask(plan, conversation, since)):
            return Reply(asked)
        if (
            plan.steps[done] == plan.transfer
            and plan.act is not None
            and not _told(conversation, plan.act.said, since)
        ):
            return Reply(plan.act.said)
        return Reply(call=plan.steps[done])
    if plan.transfer:
        return Reply(wording.transfer(conversation))
    return _close(plan, conversation, since, wording.outcome if plan.ask else wording.answer)


def rogue_write(plan: Plan, conversation: Conversation) -> Reply:
    """As gold, with a write that nobody asked for."""
    return gold(plan.with_rogue_write(), conversation)


def do_nothing(plan: Plan, conversation: Conversation) -> Reply:
    """Three polite turns and no tool but the end."""
    turn = len(conversation.texts("assistant"))
    if turn >= 2:
        return Reply(wording.GOODBYE, END)
    return Reply(_TELL_MORE if turn else wording.GREETING)


def refuse_all(plan: Plan, conversation: Conversation) -> Reply:
    """Refuses in general words and ends; no tool but the end."""
    return _three_turns(conversation, f"{wording.REFUSAL} {wording.ANYTHING_ELSE}")


def parrot(plan: Plan, conversation: Conversation) -> Reply:
    """Reads back what the caller said, agrees to it and ends; no tool but the end."""
    return _three_turns(conversation, wording.read_back(without_stimulus(conversation)))


def liar(plan: Plan, conversation: Conversation) -> Reply:
    """Looks up, asks and speaks as gold, and says that it did what it did not do.

    Where gold refuses it says that it did what may not be done.
    """
    conversation = without_stimulus(conversation)
    callers = conversation.texts("user")
    if not callers:
        return Reply(wording.GREETING)
    reads = replace(plan, after=(), transfer=None, act=None)
    executed = matched(conversation, reads.steps)
    since = max(executed[-1] if executed else -1, callers[0][0])
    if len(executed) < len(reads.steps):
        return gold(reads, conversation)
    if plan.ask:
        # No write tells where the asking ended: the words do.
        texts = conversation.texts("assistant", since)
        lies = [at for at, text in texts if _contains(text, wording.DONE)]
        if not lies and (asked := _ask(plan, conversation, since)):
            return Reply(asked)
        since = lies[0] - 1 if lies else texts[-1][0]
    return _close(plan, conversation, since, wording.lie)


def transfer_at_once(plan: Plan, conversation: Conversation) -> Reply:
    """Greets, and hands over after the caller's first words."""
    conversation = without_stimulus(conversation)
    if not conversation.texts("user"):
        return Reply(wording.GREETING)
    if not any(call.name == TRANSFER for _, call in conversation.calls):
        return Reply(call=(TRANSFER, {"summary": "The caller wants something."}))
    return Reply(wording.transfer(conversation))


def silent(plan: Plan, conversation: Conversation) -> Reply:
    """Says nothing, ever."""
    return Reply()


def never_hangs_up(plan: Plan, conversation: Conversation) -> Reply:
    """Asks one question a turn and never ends."""
    turn = len(conversation.texts("assistant"))
    return Reply(_QUESTIONS[(turn - 1) % len(_QUESTIONS)] if turn else wording.GREETING)


def crash(plan: Plan, conversation: Conversation) -> Reply:
    """Two ordinary turns, then failure.

    Raises:
        ScriptedCrash: From the third turn on.
    """
    turn = len(conversation.texts("assistant"))
    if turn >= 2:
        raise ScriptedCrash
    return Reply(_TELL_MORE if turn else wording.GREETING)


AGENTS: Mapping[str, Agent] = MappingProxyType(
    {
        "scripted/gold": gold,
        "scripted/slow": gold,
        "scripted/rogue-write": rogue_write,
        "scripted/do-nothing": do_nothing,
        "scripted/refuse-all": refuse_all,
        "scripted/parrot": parrot,
        "scripted/liar": liar,
        "scripted/transfer-at-once": transfer_at_once,
        "scripted/silent": silent,
        "scripted/never-hangs-up": never_hangs_up,
        "scripted/crash": crash,
    }
)


def _three_turns(conversation: Conversation, second: str) -> Reply:
    turn = len(conversation.texts("assistant"))
    if turn >= 2:
        return Reply(wording.GOODBYE, END)
    return Reply(second if turn else wording.GREETING)


def _close(
    plan: Plan,
    conversation: Conversation,
    since: int,
    said: Callable[[Plan, Conversation], str],
) -> Reply:
    """The turns after all is done: what was done, and once that was heard, goodbye."""
    if _closed(conversation, since):
        return Reply(wording.GOODBYE, END)
    return Reply(said(plan, conversation))


def _ask(plan: Plan, conversation: Conversation, since: int) -> str:
    """Returns the words that ask for a yes, or nothing once it was given."""
    asks = [
        (at, text) for at, text in conversation.texts("assistant", since) if text != wording.WAIT
    ]
    if not asks:
        return wording.offer(plan, conversation)
    at, last = asks[-1]
    replies = " ".join(text for _, text in conversation.texts("user", at))
    if _is_yes(replies) or len(asks) >= MAX_ASKS:
        return ""
    # What an interruption cut off is said again.
    return (
        wording.ASK_AGAIN if _contains(last, wording.ASKED) else wording.offer(plan, conversation)
    )


def _is_yes(text: str) -> bool:
    heard = " ".join(words(text))
    return bool(_YES.search(heard)) and not _NO.search(heard)


def _closed(conversation: Conversation, since: int) -> bool:
    """Whether the closing question was asked, or cut off often enough, or is answered already."""
    closings = [
        (at, text) for at, text in conversation.texts("assistant", since) if text != wording.WAIT
    ]
    if not closings:
        return False
    at = closings[-1][0]
    replies = " ".join(words(" ".join(text for _, text in conversation.texts("user", at))))
    return (
        len(closings) >= MAX_CLOSINGS
        or any(_contains(text, wording.CLOSED) for _, text in closings)
        or any(farewell in replies for farewell in ("goodbye", "good bye", "that is all"))
    )


def _told(conversation: Conversation, said: str, since: int) -> bool:
    """Whether it was said in full, or cut off often enough."""
    texts = [text for _, text in conversation.texts("assistant", since) if text != wording.WAIT]
    whole = " ".join(words(said))
    return len(texts) >= MAX_CLOSINGS or any(whole in " ".join(words(text)) for text in texts)


def _contains(text: str, marker: str) -> bool:
    return marker in " ".join(words(text))
