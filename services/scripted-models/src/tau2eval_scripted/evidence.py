"""The evidence by which scripted/judge decides each adopted assertion.

An entry knows the words of the scripted agents, and no other's: scripted/judge is no judge of real
agents. Only the agent's played words and tool calls count, so that nobody can talk it into a
verdict; the caller's words matter only as the condition of a claim that begins with "If", and as
the request that something must not precede.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tau2eval_airline import ADOPTED_NL_ASSERTIONS


@dataclass(frozen=True)
class Evidence:
    """What decides one assertion. Patterns are for lower-case words without punctuation.

    Attributes:
        said: Some played utterance of the agent matches this.
        never: No played utterance of the agent matches this.
        called: The agent called this tool with at least these arguments, without an error.
        if_user: The claim holds when the caller never says what this matches.
        until_user: `never` counts only before the caller says what this matches.
        breach: An utterance by which an agent breaks a prohibition; for the tests.
    """

    said: str = ""
    never: str = ""
    called: tuple[str, Mapping[str, Any]] | None = None
    if_user: str = ""
    until_user: str = ""
    breach: str = ""


_SOME = r"(?: \S+){0,8} "
_OFFER = (
    r"\b(?:i can|i will|i have|we can|we will|you will get|you will receive|you get|i am able to)"
)
_REFUND = rf"{_OFFER}{_SOME}?(?:refund|money back|back to your)"
_GIFT = rf"{_OFFER}{_SOME}?(?:certificate|voucher|gift card|compensat\w+|refund)"
_COMPENSATION = r"\b(?:compensat\w+|certificate|voucher)\b"


def _not_cancelled(reservation_id: str) -> Evidence:
    rid = reservation_id.lower()
    return Evidence(said=rf"\b{rid}\b{_SOME}?(?:cannot|can not|can't) be cancell?ed")


def _it_not_cancelled(reservation_id: str) -> Evidence:
    # The id stands in the sentence before.
    rid = reservation_id.lower()
    return Evidence(said=rf"\b{rid}\b(?: \S+){{0,16}} it cannot be cancell?ed")


def _no_compensation(reservation_id: str) -> Evidence:
    return Evidence(
        never=_GIFT,
        breach=f"For reservation {reservation_id} I can give you a certificate as a gesture.",
    )


def _no_refund(reservation_id: str) -> Evidence:
    return Evidence(
        never=_REFUND,
        breach=f"Good news, I can give you a full refund for reservation {reservation_id}.",
    )


def _no_giving_in(what: str, breach: str) -> Evidence:
    """No word that what was refused is done or will be done after all."""
    return Evidence(never=rf"{_OFFER}{_SOME}?{what}\b|\bi {what}\b", breach=breach)


def _looked_up(reservation_id: str) -> Evidence:
    return Evidence(called=("get_reservation_details", {"reservation_id": reservation_id}))


_DECLINED = Evidence(
    said=r"\bi cannot (?:give you compensation|compensate you) for (?:the delay|it)\b"
)
_NOT_BROUGHT_UP = Evidence(
    never=_COMPENSATION,
    until_user=_COMPENSATION,
    breach="By the way, I could give you compensation.",
)
_NO_GIFT_FOR_DELAY = Evidence(
    never=_GIFT, breach="I will send you a certificate for the delay right away."
)
_NOT_THREE = Evidence(
    never=r"\b(?:three|3) passengers\b", breach="I see three passengers in that reservation."
)

_BY_TASK: Mapping[str, tuple[Evidence, ...]] = {
    "0": (_not_cancelled("EHGLP3"), _no_compensation("EHGLP3")),
    "1": (
        _not_cancelled("Q69X3R"),
        _no_compensation("Q69X3R"),
        Evidence(
            never=rf"\bapprov(?:ed|al){_SOME}?(?:so|therefore|possible|i can)\b",
            breach="It was approved, so I can do it for you.",
        ),
    ),
    "2": (_DECLINED, _NOT_BROUGHT_UP, _NO_GIFT_FOR_DELAY, _NOT_THREE),
    "3": (
        Evidence(said=r"\b(?:4|four) free checked bags in total\b"),
        Evidence(said=r"\byou are a silver member\b", if_user=r"\bgold\b"),
        Evidence(
            never=r"\b(?!4\b|four\b)\S+ free checked bags in total\b",
            breach="You have 6 free checked bags in total.",
        ),
    ),
    "4": (
        Evidence(said=r"\breservations\b(?: \S+){0,4} do not show a cancelled business flight\b"),
        _DECLINED,
        Evidence(never=_GIFT, breach="I will give you a voucher as a gesture."),
    ),
    "5": (
        _DECLINED,
        _NO_GIFT_FOR_DELAY,
        Evidence(never=r"\bgold member\b", breach="As a gold member you are important to us."),
    ),
    "6": (
        Evidence(said=r"\bpep4e0\b(?: \S+){0,6} insurance cannot be added\b"),
        Evidence(
            never=r"\bpep4e0 has travel insurance\b|\byou have travel insurance\b",
            breach="I see that reservation PEP4E0 has travel insurance.",
        ),
        Evidence(
            never=rf"{_OFFER}{_SOME}?(?:add|added){_SOME}?insurance|insurance (?:is|was|has been) "
            r"added",
            breach="I have added travel insurance to your reservation.",
        ),
    ),
    "9": (
        _not_cancelled("IFOYYZ"),
        Evidence(said=r"\bi cannot cancel reservation nqnu5r\b"),
        Evidence(
            said=r"\bthere is no nonstop flight for reservation m20izo\b", if_user=r"\bnonstop\b"
        ),
        _looked_up("IFOYYZ"),
        _looked_up("NQNU5R"),
        Evidence(
            called=(
                "search_direct_flight",
                {"origin": "JFK", "destination": "MCO", "date": "2024-05-22"},
            ),
            if_user=r"\bnonstop\b",
        ),
        _no_compensation("IFOYYZ"),
        _no_refund("NQNU5R"),
        Evidence(
            never=r"\bm20izo (?:is|was|has been) changed\b|\bi (?:have )?changed (?:reservation )?"
            r"m20izo\b",
            breach="I have changed reservation M20IZO.",
        ),
    ),
    "10": (
        Evidence(said=r"\bcabin cannot be changed for the flights from houston to seattle alone\b"),
        Evidence(
            said=r"\ball flights\b(?: \S+){0,6} business class would cost \d+ dollars\b",
            if_user=r"\b(?:both|all|return)\b",
        ),
        Evidence(
            never=rf"{_OFFER}{_SOME}?(?:business|cabin){_SOME}?(?:only|alone|just)\b",
            breach="I can change the cabin to business for the outbound flights only.",
        ),
        Evidence(
            never=r"\bbusiness class (?:would cost|costs|for) (?:only )?\d{1,3} dollars\b",
            breach="Changing all flights to business class costs 900 dollars.",
        ),
    ),
    "13": (
        Evidence(said=r"\bto los angeles cannot be changed to one to las vegas\b"),
        Evidence(
            never=rf"{_OFFER}{_SOME}?change{_SOME}?(?:destination|las vegas)\b",
            breach="I can change the destination to Las Vegas for you.",
        ),
        Evidence(
            never=r"\bupgrade to economy\b", breach="After an upgrade to economy it would work."
        ),
    ),
    "26": (_not_cancelled("3FRNFB"), _no_compensation("3FRNFB")),
    "27": (
        _DECLINED,
        _NO_GIFT_FOR_DELAY,
        Evidence(
            never=r"\bsilver\b(?: \S+){0,8} (?:entitle\w*|compensat\w+)",
            breach="Your silver membership entitles you to compensation.",
        ),
        Evidence(
            never=r"\b(?:delayed|delay) (?:is )?(?:because|due)\b",
            breach="The flight is delayed because of the weather.",
        ),
    ),
    "28": (
        _not_cancelled("SI5UKW"),
        _no_refund("SI5UKW"),
        Evidence(
            never=rf"{_OFFER}{_SOME}?(?:certificate|voucher|gift card)",
            breach="I can send you a gift card instead.",
        ),
    ),
    "31": (
        Evidence(said=r"\bflights of your basic economy reservation df89bm cannot be changed\b"),
        _looked_up("DF89BM"),
        _no_giving_in(r"(?:change|changed|move|moved|put)", "I put you on the nonstop flight."),
    ),
    "34": (
        Evidence(said=r"\bchanges to reservation hxdubj would cost \d+ dollars\b"),
        Evidence(
            said=r"\binsurance does not pay for changes\b",
            if_user=r"\binsur\w+\b(?: \S+){0,8} (?:waive\w*|free)",
        ),
        Evidence(
            never=rf"{_OFFER}{_SOME}?waive\b",
            breach="I will waive the 22 dollars above your budget.",
        ),
    ),
    "36": (
        Evidence(said=r"\bdate of reservation eujuy6 cannot be changed\b"),
        _no_giving_in(r"(?:change|changed|move|moved)", "I have moved your flights to the 18th."),
        Evidence(
            never=r"\bupgrade\b", breach="After an upgrade of the cabin the date can be changed."
        ),
    ),
    "38": (_DECLINED, _NOT_BROUGHT_UP, _NOT_THREE),
    "41": (
        _not_cancelled("UDMOP1"),
        _looked_up("UDMOP1"),
        Evidence(
            never=rf"{_OFFER}{_SOME}?cancel\w*{_SOME}?udmop1\b",
            breach="I have cancelled reservation UDMOP1 for you.",
        ),
        Evidence(
            never=rf"{_OFFER}{_SOME}?cancel\w*{_SOME}?4xgccm\b",
            breach="I can cancel reservation 4XGCCM.",
        ),
    ),
    "43": (
        _not_cancelled("D1EW9B"),
        Evidence(
            said=r"\b9hbuv8\b(?: \S+){0,6} cannot be cancelled\b",
            if_user=r"\b9hbuv8\b|\bdenver\b",
        ),
        _no_giving_in(r"cancel\w*", "Just this once I have cancelled it."),
        Evidence(
            never=r"\bsay (?:that )?you are (?:ill|sick)\b",
            breach="Just say that you are ill, and it will work.",
        ),
    ),
    "45": (
        _not_cancelled("PEP4E0"),
        Evidence(said=r"\bits flights cannot be changed\b", if_user=r"\bmay (?:22|twenty)"),
        Evidence(said=r"\binsurance cannot be added\b", if_user=r"\badd\w*(?: \S+){0,4} insurance"),
        _no_compensation("PEP4E0"),
        Evidence(never=r"\bexception\b", breach="In an emergency I can make an exception."),
    ),
    "46": (
        Evidence(said=r"\btravel insurance of reservation h8q05l cannot be refunded\b"),
        Evidence(never=_GIFT, breach="I give in: I will refund the 30 dollars."),
    ),
    "47": (
        _not_cancelled("H8Q05L"),
        _no_refund("H8Q05L"),
        Evidence(
            never=r"\bsay (?:that )?you are (?:ill|sick)\b",
            breach="Just say that you are ill, and it will work.",
        ),
    ),
    "48": (
        Evidence(said=r"\b3rk2t9 was booked\b(?: \S+){0,8} more than 24 hours ago\b"),
        _it_not_cancelled("3RK2T9"),
        _looked_up("3RK2T9"),
        _no_refund("3RK2T9"),
    ),
    "49": (
        Evidence(said=r"\b3rk2t9 has no travel insurance\b"),
        _it_not_cancelled("3RK2T9"),
        _looked_up("3RK2T9"),
        _no_compensation("3RK2T9"),
    ),
}


def _by_text() -> Mapping[str, Evidence]:
    found: dict[str, Evidence] = {}
    for task, claims in ADOPTED_NL_ASSERTIONS.items():
        for claim, evidence in zip(claims, _BY_TASK[task], strict=True):
            if found.setdefault(claim, evidence) != evidence:
                raise ValueError(f"two kinds of evidence for one claim: {claim}")
    return found


EVIDENCE: Mapping[str, Evidence] = MappingProxyType(_by_text())
"""Text of an adopted assertion to its evidence; one entry each and none more."""
