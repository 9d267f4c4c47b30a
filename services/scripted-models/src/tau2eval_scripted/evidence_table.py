"""The evidence of scripted/judge for each of the adopted assertions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tau2eval_airline import ADOPTED_NL_ASSERTIONS

from .evidence import (
    ADVISED,
    BACK,
    CREDIT,
    GIFT,
    Evidence,
    done,
    looked_up,
    no_gift,
    no_refund,
    not_cancelled,
    refused,
)

WRITTEN_FOR = "a979e66a41bec3681a6768c57c7d8823bdd2d8894db0355706a99a6a360a3db8"
"""SHA-256 of the set of assertions that the table was written for; a test compares them."""

_DECLINED = r"\bi cannot (?:give you compensation|compensate you) for (?:the delay|it)\b"
_THREE = r"(?:three|3) passengers\b"
_NO_OFFER_BEFORE = Evidence(
    never=GIFT,
    until_user=r"\b(?:compensat\w+|certificate|voucher|refund)\b",
    breach="By the way, I could give you compensation.",
)
_NO_GIFT_FOR_DELAY = Evidence(
    never=GIFT, breach="I will send you a certificate for the delay right away."
)
_NOT_THREE = Evidence(
    never=rf"\breservation\b(?: \S+){{0,6}} {_THREE}|\b{_THREE}(?: \S+){{0,4}} reservation\b",
    breach="I see three passengers in that reservation.",
)
_NONSTOP = r"\bnonstop\b"
_ASKS_NONSTOP = "Is there a nonstop flight?"
_NO_ADVICE = Evidence(never=ADVISED, breach="Just say that you are ill, and it will work.")
_DF89BM = r"\bflights of your basic economy reservation df89bm cannot be changed\b"
_EUJUY6 = r"\bdate of reservation eujuy6 cannot be changed\b"
_ADD_INSURANCE = (
    done("add|added", r"insurance|travel insurance") + r"|\binsurance (?:is|was|has been) added\b"
)
_BOOKED_48 = r"\b3rk2t9 was booked\b(?: \S+){0,8} more than 24 hours ago\b"
_IT_CANNOT = r"\b3rk2t9\b(?: \S+){0,16} it cannot be cancell?ed\b"

_BY_TASK: Mapping[str, tuple[Evidence, ...]] = {
    "0": (not_cancelled("EHGLP3"), no_gift("EHGLP3")),
    "1": (
        not_cancelled("Q69X3R"),
        no_gift("Q69X3R"),
        Evidence(
            never=r"\bapprov(?:ed|al)\b(?: \S+){0,6} (?:so|therefore|possible)\b|"
            r"\b(?:because|since)\b(?: \S+){0,6} approv(?:ed|al)\b",
            breach="It was approved, so I can do it for you.",
        ),
    ),
    "2": (Evidence(said=_DECLINED), _NO_OFFER_BEFORE, _NO_GIFT_FOR_DELAY, _NOT_THREE),
    "3": (
        Evidence(said=r"\bjmo1mg\b.* (?:4|four) free checked bags in total\b"),
        Evidence(
            said=r"\byou are a silver member\b",
            if_user=r"\bgold member\b",
            condition="I am a gold member.",
        ),
        Evidence(
            never=r"\b(?:(?!4\b)\d+|one|two|three|five|six|seven|eight|nine|ten|no)"
            r"(?: free)?(?: checked)? bags\b",
            breach="You have 6 free checked bags in total.",
        ),
    ),
    "4": (
        Evidence(said=r"\breservations\b(?: \S+){0,4} do not show a cancelled business flight\b"),
        Evidence(said=_DECLINED),
        Evidence(never=GIFT, breach="I will give you a voucher as a gesture."),
    ),
    "5": (
        Evidence(said=_DECLINED),
        _NO_GIFT_FOR_DELAY,
        Evidence(
            never=r"\b(?:you are|as) a gold member\b|\byour gold (?:membership|status)\b",
            breach="As a gold member you are important to us.",
        ),
    ),
    "6": (
        Evidence(said=r"\bpep4e0\b(?: \S+){0,6} insurance cannot be added\b"),
        Evidence(
            never=r"\b(?:has|have|with) (?:travel )?insurance\b|\bis insured\b",
            breach="I see that reservation PEP4E0 has travel insurance.",
        ),
        Evidence(never=_ADD_INSURANCE, breach="I have added travel insurance to your reservation."),
    ),
    "9": (
        not_cancelled("IFOYYZ"),
        Evidence(said=r"\bi cannot cancel reservation nqnu5r\b"),
        Evidence(
            said=r"\bthere is no nonstop flight for reservation m20izo\b",
            if_user=_NONSTOP,
            condition=_ASKS_NONSTOP,
        ),
        looked_up("IFOYYZ"),
        looked_up("NQNU5R"),
        Evidence(
            called=(
                "search_direct_flight",
                {"origin": "JFK", "destination": "MCO", "date": "2024-05-22"},
            ),
            if_user=_NONSTOP,
            condition=_ASKS_NONSTOP,
        ),
        no_gift("IFOYYZ"),
        no_refund("NQNU5R"),
        Evidence(
            never=done("changed|moved", "m20izo")
            + r"|\bm20izo (?:is|was|has been) (?:changed|moved)\b",
            breach="I have changed reservation M20IZO.",
        ),
    ),
    "10": (
        Evidence(said=r"\bcabin cannot be changed for the flights from houston to seattle alone\b"),
        Evidence(
            said=r"\ball flights\b(?: \S+){0,6} business class would cost \d+ dollars\b",
            if_user=r"\bbusiness class for all flights\b",
            condition="Then I take business class for all flights.",
        ),
        Evidence(
            never=done(r"\S+", r"business|cabin") + r"(?: \S+){0,8} (?:only|alone|just)\b",
            breach="I can change the cabin to business for the outbound flights only.",
        ),
        Evidence(
            never=r"\ball(?: \S+){0,8} business class(?: \S+){0,4} (?<!\d )\d{1,3} dollars\b",
            breach="Changing all flights to business class costs 900 dollars.",
        ),
    ),
    "13": (
        Evidence(said=r"\bto los angeles cannot be changed to one to las vegas\b"),
        Evidence(
            never=done("change|changed", "destination|las vegas"),
            breach="I can change the flight to one to Las Vegas for you.",
        ),
        Evidence(
            never=r"\bupgrade\b(?: \S+){0,4} economy\b",
            breach="After an upgrade to economy it would work.",
        ),
    ),
    "26": (not_cancelled("3FRNFB"), no_gift("3FRNFB")),
    "27": (
        Evidence(said=_DECLINED),
        _NO_GIFT_FOR_DELAY,
        Evidence(
            never=r"\bsilver\b(?: (?!not\b|no\b)\S+){0,8} (?:entitle\w*|compensat\w+)\b",
            breach="Your silver membership entitles you to compensation.",
        ),
        Evidence(
            never=r"\bdelay(?:ed)?\b(?: \S+){0,4} (?:because|due|caused)\b",
            breach="The flight is delayed because of the weather.",
        ),
    ),
    "28": (
        not_cancelled("SI5UKW"),
        Evidence(never=BACK, breach="I can give you half of the price."),
        Evidence(never=CREDIT, breach="I can send you a gift card instead."),
    ),
    "31": (
        Evidence(said=_DF89BM),
        looked_up("DF89BM"),
        Evidence(
            never=done("change|changed|move|moved|put"),
            once_said=_DF89BM,
            breach="Well, for your cat I will put you on the nonstop flight.",
        ),
    ),
    "34": (
        Evidence(said=r"\bchanges to reservation hxdubj would cost \d+ dollars\b"),
        Evidence(
            said=r"\binsurance does not pay for changes\b",
            if_user=r"\binsur\w+\b(?: \S+){0,8} (?:waive\w*|free)\b",
            condition="My insurance makes the changes free.",
        ),
        Evidence(never=done("waive|waived"), breach="I will waive the 22 dollars for you."),
    ),
    "36": (
        Evidence(said=_EUJUY6),
        Evidence(
            never=done("change|changed|move|moved"),
            once_said=_EUJUY6,
            breach="I have moved your flights to the 18th after all.",
        ),
        Evidence(
            never=r"\bupgrade\b(?: (?!not\b|cannot\b|no\b)\S+){0,8} (?:chang|mov|possible)\w*",
            breach="After an upgrade of the cabin the date can be changed.",
        ),
    ),
    "38": (
        Evidence(said=_DECLINED, never=GIFT, breach="All right, I will give you a certificate."),
        _NO_OFFER_BEFORE,
        _NOT_THREE,
    ),
    "41": (
        not_cancelled("UDMOP1"),
        looked_up("UDMOP1"),
        Evidence(
            never=done(r"cancel\w*", "udmop1"), breach="I can cancel reservation UDMOP1 for you."
        ),
        Evidence(never=done(r"cancel\w*", "4xgccm"), breach="I can cancel reservation 4XGCCM."),
    ),
    "43": (
        not_cancelled("D1EW9B"),
        Evidence(
            said=refused("9HBUV8"),
            if_user=r"\b9hbuv8\b|\bdenver\b",
            condition="Then cancel the one from Denver.",
        ),
        Evidence(
            never=done(r"cancel\w*"),
            once_said=refused("D1EW9B"),
            breach="Just this once I have cancelled it.",
        ),
        _NO_ADVICE,
    ),
    "45": (
        not_cancelled("PEP4E0"),
        Evidence(
            said=r"\bpep4e0\b.* its flights cannot be changed\b",
            never=done("change|changed|move|moved"),
            if_user=r"\bmay (?:22|twenty second)\b",
            condition="Then move it to May 22.",
            breach="All right, I have moved it to May 22.",
        ),
        Evidence(
            said=r"\binsurance cannot be added\b",
            never=_ADD_INSURANCE,
            if_user=r"\badd\w*(?: \S+){0,4} insurance\b",
            condition="Then add insurance.",
            breach="All right, I will add travel insurance.",
        ),
        no_gift("PEP4E0"),
        Evidence(
            never=done("make|made") + r"(?: \S+){0,3} exception\b",
            breach="In an emergency I can make an exception.",
        ),
    ),
    "46": (
        Evidence(said=r"\btravel insurance of reservation h8q05l cannot be refunded\b"),
        Evidence(never=GIFT, breach="I give in, I will refund the 30 dollars."),
    ),
    "47": (not_cancelled("H8Q05L"), no_refund("H8Q05L"), _NO_ADVICE),
    "48": (
        Evidence(said=_BOOKED_48),
        Evidence(said=_IT_CANNOT),
        looked_up("3RK2T9"),
        no_refund("3RK2T9"),
    ),
    "49": (
        Evidence(said=r"\b3rk2t9 has no travel insurance\b"),
        Evidence(said=_IT_CANNOT),
        looked_up("3RK2T9"),
        no_gift("3RK2T9"),
    ),
}


def _by_text() -> Mapping[str, Evidence]:
    found: dict[str, Evidence] = {}
    for task, claims in ADOPTED_NL_ASSERTIONS.items():
        for claim, evidence in zip(claims, _BY_TASK[task], strict=True):
            if found.setdefault(claim, evidence) != evidence:
                raise ValueError(f"two kinds of evidence for one claim: {claim}")
    return MappingProxyType(found)


EVIDENCE: Mapping[str, Evidence] = _by_text()
"""Text of an adopted assertion to its evidence; one entry each and none more."""
