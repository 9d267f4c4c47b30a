"""scripted/caller: says who it is and why it calls, then helps the call to its end.

It decides by what the agent's last words contain, as they were heard. Whatever it does not
understand it answers with words that let the agent go on; it never says nothing.
"""

from __future__ import annotations

import re

from .agents import Reply
from .catalog import Caller, Plan
from .conversation import Conversation, words

GOODBYE = "Goodbye."
NOTHING_ELSE = "No, that is all. Thank you. Goodbye."
YES = "Yes, please go ahead."
HOLD = "Okay, thank you."
STOP = "###STOP###"
TRANSFERRED = "###TRANSFER###"
_GO_ON = (
    "Yes, please go on.",
    "I am not sure about that. Please go on.",
    "That is fine with me. Please continue.",
)

# Matched against what was heard in lower case without punctuation, in this order.
_GOODBYE = re.compile(
    r"\b(?:good ?bye|bye|bye bye|have a (?:great|good|nice|safe) (?:day|one|trip))\b"
)
_TRANSFERRED = re.compile(r"\b(?:transferred|transferring)\b")
_TRANSFER = re.compile(rf"{_TRANSFERRED.pattern}|\bhuman agent\b")
_ANYTHING_ELSE = re.compile(
    r"\b(?:anything|something|any thing|what) else\b|\banything (?:more|further)\b|"
    r"\banything i can (?:do|help)\b|\bhelp you further\b|"
    r"\bany (?:other|more|further) (?:question|request|thing|concern)s?\b"
)
_CONFIRM = re.compile(
    r"\b(?:go ahead|go a head|proceed|confirm|shall i|should i|would you like me|do you want me|"
    r"say yes|yes or no|is that (?:ok|okay|correct|right|alright)|do you agree|are you sure)\b"
)
_ASKS_NAME = re.compile(r"\b(?:user id|user i d|your name|full name|your id|who am i speaking)\b")
_ASKS_RESERVATION = re.compile(
    r"\b(?:reservation|booking|confirmation) (?:id|i d|number|code)\b|\bwhich reservation\b"
)
_ASKS_MORE = re.compile(
    r"\b(?:tell me more|more about|more detail\w*|how can i help|how may i help|"
    r"what can i do for you|reason for|repeat|say that again|did not (?:catch|hear)|"
    r"didn't (?:catch|hear))\b"
)


def caller(plan: Plan, conversation: Conversation) -> Reply:
    """Returns the caller's next words."""
    who = plan.caller
    said = [text for _, text in conversation.texts("assistant")]
    if not said:
        return Reply(opening(who))
    last = max(at for at, _ in conversation.texts("assistant"))
    heard = " ".join(words(" ".join(text for _, text in conversation.texts("user", last))))
    if _GOODBYE.search(heard):
        return Reply(GOODBYE)
    if _TRANSFER.search(heard):
        return Reply(HOLD)
    if _ANYTHING_ELSE.search(heard):
        return Reply(NOTHING_ELSE)
    if _CONFIRM.search(heard):
        return Reply(YES)
    if not _told(who, said):
        return Reply(who.reason)
    if _ASKS_NAME.search(heard):
        return Reply(_identity(who))
    if _ASKS_RESERVATION.search(heard):
        return Reply(_reservation(who))
    if _ASKS_MORE.search(heard):
        return Reply(who.reason)
    return Reply(_GO_ON[len(said) % len(_GO_ON)])


def opening(who: Caller) -> str:
    """Returns the caller's first words."""
    return f"{_identity(who)} {who.reason}"


def with_tokens(reply: Reply, conversation: Conversation) -> Reply:
    """Ends the call by tau2's tokens where the system text speaks of them.

    tau2's text conversations have no line to hang up: its user simulator ends them by a token.
    """
    if STOP not in conversation.system:
        return reply
    if reply.text in (GOODBYE, NOTHING_ELSE):
        return Reply(f"{reply.text} {STOP}")
    texts = conversation.texts("user")
    if texts and _TRANSFERRED.search(" ".join(words(texts[-1][1]))):
        return Reply(TRANSFERRED)
    return reply


def _identity(who: Caller) -> str:
    if who.name:
        return f"Hello, my name is {who.name} and my user ID is {who.user_id}."
    return f"Hello, my user ID is {who.user_id}."


def _reservation(who: Caller) -> str:
    if not who.reservations:
        return "I do not know the reservation number. Please look it up."
    if len(who.reservations) == 1:
        return f"My reservation number is {who.reservations[0]}."
    return f"My reservation numbers are {' and '.join(who.reservations)}."


def _told(who: Caller, said: list[str]) -> bool:
    """Whether the reason was heard in good part, and not cut off by an interruption."""
    reason = words(who.reason)
    spoken = " ".join(" ".join(words(text)) for text in said)
    return " ".join(reason[: max(3, len(reason) // 2)]) in spoken
