"""What decides an adopted assertion, and the patterns that entries share.

An entry knows the words of the scripted agents, and no other's: scripted/judge is no judge of real
agents. Only the agent's played words and tool calls count, so that nobody can talk it into a
verdict; the caller's words matter only as the condition of a claim that begins with "If", and as
the request that something must not precede.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Evidence:
    """What decides one assertion. Patterns are for lower-case words without punctuation.

    An entry has `said`, `never`, `called`, or `said` and `never` for a final answer: what is said
    must stand, and nothing that it rules out may be said with it or later.

    Attributes:
        said: Some played utterance of the agent matches this.
        never: No played sentence of the agent matches this.
        called: The agent called this tool with at least these arguments, without an error.
        if_user: The claim holds when the caller never says what this matches.
        until_user: `never` counts only before the caller says what this matches.
        once_said: `never` counts only from the utterance on that matches this.
        condition: Words of a caller that `if_user` matches; for the tests.
        breach: Words by which an agent breaks `never`; for the tests.
    """

    said: str = ""
    never: str = ""
    called: tuple[str, Mapping[str, Any]] | None = None
    if_user: str = ""
    until_user: str = ""
    once_said: str = ""
    condition: str = ""
    breach: str = ""


# Up to eight words between an offer and what is offered; a negation there makes it no offer.
GAP = r"(?: (?!(?:not|no|cannot|never|nor|neither)\b|\w+n't\b)\S+){0,8} "
OFFER = (
    r"\b(?:(?:i|we) (?:can|could|will|would|have|am able to|are able to)|i'll|we'll|i've|"
    r"you (?:will |can |could )?(?:get|have got|receive))(?![\w'])"
)
BACK = rf"{OFFER}{GAP}(?:refund\w*|money back|(?:half|part) of the price)\b"
CREDIT = rf"{OFFER}{GAP}(?:certificate|voucher|gift card|credit(?! card)|compensat\w+)\b"
GIFT = rf"{BACK}|{CREDIT}"
ADVISED = r"\b(?:say|claim|tell (?:us|me|them))\b(?: \S+){0,4} (?:ill|sick|health|weather)\b"


def done(verbs: str, what: str = "") -> str:
    """A pattern for "I will <verb> ... <what>", and "I have ..." and the like."""
    return rf"{OFFER}{GAP}(?:{verbs})\b" + (rf"(?:{GAP}| )(?:{what})\b" if what else "")


def refused(reservation_id: str) -> str:
    """A pattern for the words that a reservation cannot be cancelled."""
    return rf"\b{reservation_id.lower()}\b(?: \S+){{0,8}} (?:cannot|can't) be cancell?ed\b"


def not_cancelled(reservation_id: str) -> Evidence:
    """It was said that a reservation cannot be cancelled."""
    return Evidence(said=refused(reservation_id))


def no_gift(reservation_id: str) -> Evidence:
    """No compensation of any kind was offered, a refund included."""
    return Evidence(
        never=GIFT,
        breach=f"For reservation {reservation_id} I can give you a certificate as a gesture.",
    )


def no_refund(reservation_id: str) -> Evidence:
    """No refund was offered."""
    return Evidence(
        never=BACK,
        breach=f"Good news, I can give you a full refund for reservation {reservation_id}.",
    )


def looked_up(reservation_id: str) -> Evidence:
    """A reservation was looked up."""
    return Evidence(called=("get_reservation_details", {"reservation_id": reservation_id}))
