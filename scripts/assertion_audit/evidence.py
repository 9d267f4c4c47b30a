"""What each adopted assertion rests on, in the order of ADOPTED_NL_ASSERTIONS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from . import rules as r
from .facts import (
    Fact,
    all_reservations,
    business_extra,
    cheapest_business,
    direct,
    flight,
    free_bags,
    gold,
    no_cause,
    parameter,
    reservation,
    script,
    user,
)


class Kind(StrEnum):
    """What an assertion asks of the agent."""

    SPOKEN = "required act"
    """Something must be said, whatever the caller does."""

    CONDITIONAL = "conditional act"
    """Something must be said if the caller says something."""

    LOOKUP = "required lookup"
    """A tool must be called."""

    PROHIBITION = "prohibition"
    """Something must not be said, offered or claimed."""


@dataclass(frozen=True)
class Row:
    """The evidence for one assertion.

    Attributes:
        kind: What it asks for.
        facts: What must hold in the fixtures.
        rules: What must stand in the policy.
    """

    kind: Kind
    facts: tuple[Fact, ...]
    rules: tuple[r.Rule, ...]


def _row(kind: Kind, *parts: Fact | r.Rule) -> Row:
    return Row(
        kind,
        tuple(part for part in parts if isinstance(part, Fact)),
        tuple(part for part in parts if isinstance(part, r.Rule)),
    )


def _spoken(*parts: Fact | r.Rule) -> Row:
    return _row(Kind.SPOKEN, *parts)


def _if(*parts: Fact | r.Rule) -> Row:
    return _row(Kind.CONDITIONAL, *parts)


def _lookup(*parts: Fact | r.Rule) -> Row:
    return _row(Kind.LOOKUP, *parts)


def _never(*parts: Fact | r.Rule) -> Row:
    return _row(Kind.PROHIBITION, *parts)


def _old(reservation_id: str, created: str, hours: int, **more: Any) -> Fact:
    """A reservation that was booked more than a day ago."""
    if hours < 25:
        raise ValueError(f"{reservation_id}: {hours} hours are no more than a day")
    return reservation(reservation_id, created=created, hours_old=hours, **more)


def _kept(reservation_id: str, created: str, hours: int, **more: Any) -> Fact:
    """A reservation for which none of the grounds for a cancellation holds without insurance."""
    return _old(
        reservation_id, created, hours, **{"insurance": "no", "flown": 0, "cancelled": 0, **more}
    )


_BASIC = "basic_economy"
_EHGLP3 = _kept("EHGLP3", "2024-05-04T23:12:06", 255, cabin=_BASIC)
_Q69X3R = _kept("Q69X3R", "2024-05-14T09:52:38", 29, cabin="economy", trip="PHL-LGA")
_4OG6T3 = reservation("4OG6T3", passengers=1, delayed="HAT018 on 2024-05-11", flown=1)
_NOAH = all_reservations("noah_muller_9847", reservations=2, with_a_delayed_flight="4OG6T3")
_JMO1MG = reservation("JMO1MG", cabin="economy", passengers=2)
_SOPHIA = all_reservations(
    "sophia_silva_7557", reservations=5, in_business=0, with_a_cancelled_flight=0
)
_3JA7XV = reservation(
    "3JA7XV", cabin="business", insurance="no", delayed="HAT045 on 2024-05-15", flown=0
)
_HAT045 = flight("HAT045", "2024-05-15", "delayed")
_MEI = user("mei_brown_7075", "regular")
_INSURANCE_ONCE = parameter("insurance", "BookReservationTool")
_PEP4E0 = _kept("PEP4E0", "2024-05-05T05:10:43", 249, cabin=_BASIC)
_IFOYYZ = _kept("IFOYYZ", "2024-05-12T00:14:30", 86, cabin=_BASIC)
_NQNU5R = reservation("NQNU5R", flown=2, to_come=0)
_M20IZO = reservation(
    "M20IZO", trip="JFK-MCO", flights="HAT268 on 2024-05-22, HAT010 on 2024-05-22"
)
_NO_NONSTOP = direct("JFK", "MCO", 0)
_4NQLHD = reservation("4NQLHD", cabin="economy", trip="IAH-SEA", passengers=3, flown=0)
_CHEAPEST_KEPT = business_extra(
    "4NQLHD",
    (
        ("HAT190", "2024-05-24"),
        ("HAT047", "2024-05-24"),
        ("HAT021", "2024-05-26"),
        ("HAT279", "2024-05-27"),
    ),
    2010,
)
_CHEAPEST = cheapest_business("4NQLHD", {"2024-05-23": 2, "2024-05-25": 3}, 1206)
_XEWRD9 = reservation("XEWRD9", cabin=_BASIC, trip="LAX-ATL", flown=2)
_3FRNFB = _kept("3FRNFB", "2024-05-06T13:25:06", 217, cabin=_BASIC, trip="MCO-CLT")
_M61CQM = reservation("M61CQM", cabin="economy", insurance="no", delayed="HAT039 on 2024-05-15")
_HAT039 = flight("HAT039", "2024-05-15", "delayed")
_ETHAN = user("ethan_martin_2396", "silver")
_SI5UKW = _kept("SI5UKW", "2024-05-11T00:08:57", 110, cabin=_BASIC)
_DF89BM = reservation("DF89BM", cabin=_BASIC, trip="JFK-DTW")
_HXDUBJ = reservation("HXDUBJ", cabin="economy", insurance="yes", flown=0)
_PACKAGE = business_extra("HXDUBJ", (("HAT072", "2024-05-19"), ("HAT278", "2024-05-23")), 222)
_EUJUY6 = reservation("EUJUY6", cabin=_BASIC, flown=2)
_UDMOP1 = _kept("UDMOP1", "2024-05-09T11:34:16", 147, cabin=_BASIC, passengers=1)
_4XGCCM = reservation("4XGCCM", passengers=1, flown=2, to_come=0)
_SINGLES = all_reservations(
    "amelia_davis_8890", reservations=7, with_one_passenger="4XGCCM, UDMOP1"
)
_D1EW9B = _kept("D1EW9B", "2024-05-04T07:38:29", 271, cabin=_BASIC, trip="ATL-JFK")
_9HBUV8 = _kept("9HBUV8", "2024-05-12T17:08:42", 69, cabin=_BASIC, trip="DEN-BOS", insurance="yes")
_MAY_17 = all_reservations("mohamed_hernandez_5188", on_May_17="D1EW9B, 9HBUV8")
_H8Q05L = _kept("H8Q05L", "2024-05-03T15:12:00", 287, cabin=_BASIC, insurance="yes")
_3RK2T9 = _kept("3RK2T9", "2024-05-02T06:02:56", 320, cabin=_BASIC)

USERS: Mapping[str, str] = MappingProxyType(
    {
        "0": "emma_kim_9957",
        "1": "raj_sanchez_7340",
        "2": "noah_muller_9847",
        "3": "anya_garcia_5901",
        "4": "sophia_silva_7557",
        "5": "mei_brown_7075",
        "6": "sophia_taylor_9065",
        "9": "aarav_ahmed_6699",
        "10": "liam_khan_2521",
        "13": "james_lee_6136",
        "26": "amelia_sanchez_4739",
        "27": "ethan_martin_2396",
        "28": "amelia_rossi_1297",
        "31": "daiki_lee_6144",
        "34": "yara_garcia_1905",
        "36": "lucas_brown_4047",
        "38": "noah_muller_9847",
        "41": "amelia_davis_8890",
        "43": "mohamed_hernandez_5188",
        "45": "sophia_taylor_9065",
        "46": "sophia_silva_7557",
        "47": "sophia_silva_7557",
        "48": "anya_garcia_5901",
        "49": "anya_garcia_5901",
    }
)
"""Task to its caller; the records of a task's facts are this user's."""

ROWS: Mapping[str, tuple[Row, ...]] = MappingProxyType(
    {
        "0": (_spoken(_EHGLP3, r.FOUR_GROUNDS, r.DENY), _never(_EHGLP3, r.FOUR_GROUNDS, r.REFUND)),
        "1": (
            _spoken(_Q69X3R, r.FOUR_GROUNDS, r.DENY),
            _never(_Q69X3R, r.FOUR_GROUNDS, r.REFUND),
            _never(_Q69X3R, script("1", "approved it"), r.NO_OTHER_GROUND),
        ),
        "2": (
            _spoken(_NOAH, _4OG6T3, script("2", "never change or cancel"), r.DELAY, r.DENY),
            _never(script("2", "compensation right away"), r.UNASKED),
            _never(_4OG6T3, r.DELAY),
            _never(_NOAH, _4OG6T3, script("2", "there are 3"), r.CONFIRM_FACTS),
        ),
        "3": (
            _spoken(_JMO1MG, user("anya_garcia_5901", "silver"), free_bags("JMO1MG", 4), r.BAGS),
            _if(user("anya_garcia_5901", "silver"), script("3", "gold member"), r.BAGS),
            _never(_JMO1MG, free_bags("JMO1MG", 4), r.BAGS),
        ),
        "4": (
            _spoken(_SOPHIA, script("4", "business flight"), r.CONFIRM_FACTS),
            _spoken(_SOPHIA, r.CANCELLED, r.DENY),
            _never(_SOPHIA, r.CANCELLED, r.NO_OTHER_REASON),
        ),
        "5": (
            _spoken(_3JA7XV, _HAT045, script("5", "must stay as is"), r.DELAY, r.DENY),
            _never(_3JA7XV, r.DELAY),
            _never(_MEI, script("5", "gold member"), r.CONFIRM_FACTS),
        ),
        "6": (
            _spoken(_PEP4E0, _INSURANCE_ONCE, r.NO_LATER_INSURANCE),
            _never(_PEP4E0, script("6", "not showing up"), r.NO_LATER_INSURANCE),
            _never(_PEP4E0, _INSURANCE_ONCE, r.NO_LATER_INSURANCE),
        ),
        "9": (
            _spoken(_IFOYYZ, r.FOUR_GROUNDS, r.DENY),
            _spoken(_NQNU5R, r.FLOWN),
            _if(_M20IZO, _NO_NONSTOP, script("9", "nonstop flight if available"), r.KNOWN_ONLY),
            _lookup(_IFOYYZ, r.CHECK_FIRST),
            _lookup(_NQNU5R, r.CHECK_FIRST),
            _lookup(
                _M20IZO,
                gold(
                    "9",
                    "search_direct_flight",
                    origin="JFK",
                    destination="MCO",
                    date="2024-05-22",
                ),
                r.KNOWN_ONLY,
            ),
            _never(_IFOYYZ, r.FOUR_GROUNDS, r.REFUND),
            _never(_NQNU5R, r.FLOWN, r.REFUND),
            _never(_M20IZO, _NO_NONSTOP, script("9", "nonstop flight if available"), r.LIST_FIRST),
        ),
        "10": (
            _spoken(_4NQLHD, script("10", "for that iah to sea"), r.ONE_CABIN, r.DENY),
            _if(_4NQLHD, script("10", "total price"), r.CABIN_PRICE, r.LIST_FIRST),
            _never(_4NQLHD, r.ONE_CABIN),
            _never(_4NQLHD, _CHEAPEST_KEPT, _CHEAPEST, script("10", "$1000"), r.CABIN_PRICE),
        ),
        "13": (
            _spoken(
                _XEWRD9,
                script("13", "las vegas"),
                gold("13", "transfer_to_human_agents"),
                r.SAME_ENDS,
                r.DENY,
            ),
            _never(_XEWRD9, r.SAME_ENDS),
            _never(_XEWRD9, script("13", "upgrade to economy"), r.SAME_ENDS, r.CABIN_FLOWN),
        ),
        "26": (_spoken(_3FRNFB, r.FOUR_GROUNDS, r.DENY), _never(_3FRNFB, r.FOUR_GROUNDS, r.REFUND)),
        "27": (
            _spoken(_M61CQM, _HAT039, script("27", "cancel or modify"), r.DELAY, r.DENY),
            _never(_M61CQM, r.DELAY),
            _never(_ETHAN, _M61CQM, r.WHO_MAY, r.DELAY),
            _never(no_cause("HAT039", "2024-05-15"), script("27", "reason why"), r.KNOWN_ONLY),
        ),
        "28": (
            _spoken(_SI5UKW, r.FOUR_GROUNDS, r.DENY),
            _never(_SI5UKW, script("28", "minimum of 10%"), r.FOUR_GROUNDS, r.REFUND),
            _never(
                user("amelia_rossi_1297", "regular"),
                _SI5UKW,
                script("28", "gift card"),
                r.NOT_REGULAR,
                r.NO_OTHER_REASON,
            ),
        ),
        "31": (
            _spoken(_DF89BM, r.BASIC_FIXED, r.DENY),
            _lookup(
                all_reservations("daiki_lee_6144", from_JFK="DF89BM"),
                _DF89BM,
                script("31", "know your reservation id"),
                r.LOCATE_CHANGE,
                r.CHECK_CHANGE,
            ),
            _never(_DF89BM, script("31", "cat is really sick"), r.BASIC_FIXED),
        ),
        "34": (
            _spoken(_HXDUBJ, _PACKAGE, script("34", "$200 budget"), r.CHANGE_PRICE, r.LIST_FIRST),
            _if(_HXDUBJ, script("34", "should be waived"), r.INSURED_REASONS),
            _never(_HXDUBJ, _PACKAGE, r.INSURED_REASONS, r.CABIN_PRICE),
        ),
        "36": (
            _spoken(_EUJUY6, r.BASIC_FIXED, r.DENY),
            _never(_EUJUY6, script("36", "passed away"), r.BASIC_FIXED),
            _never(_EUJUY6, r.CABIN_FLOWN),
        ),
        "38": (
            _spoken(_NOAH, _4OG6T3, script("38", "ask for compensation"), r.DELAY, r.DENY),
            _never(script("38", "doesn't offer it"), r.UNASKED),
            _never(_NOAH, _4OG6T3, script("38", "there are 3"), r.CONFIRM_FACTS),
        ),
        "41": (
            _spoken(_SINGLES, _UDMOP1, r.FOUR_GROUNDS, r.DENY),
            _lookup(
                _SINGLES,
                gold("41", "get_reservation_details", reservation_id="UDMOP1"),
                r.LOCATE,
                r.CHECK_FIRST,
            ),
            _never(_UDMOP1, script("41", "not receive a refund"), r.FOUR_GROUNDS),
            _never(_SINGLES, _4XGCCM, r.FLOWN),
        ),
        "43": (
            _spoken(_MAY_17, _D1EW9B, r.FOUR_GROUNDS, r.DENY),
            _if(_MAY_17, _9HBUV8, script("43", "other flight on may 17"), r.FOUR_GROUNDS),
            _never(
                user("mohamed_hernandez_5188", "silver"),
                _D1EW9B,
                r.FOUR_GROUNDS,
                r.NO_OTHER_GROUND,
            ),
            _never(_9HBUV8, script("43", "you are healthy"), r.INSURED_REASONS),
        ),
        "45": (
            _spoken(_PEP4E0, r.FOUR_GROUNDS, r.DENY),
            _if(_PEP4E0, script("45", "may 22nd"), r.BASIC_FIXED),
            _if(_PEP4E0, _INSURANCE_ONCE, script("45", "add insurance"), r.NO_LATER_INSURANCE),
            _never(_PEP4E0, script("45", "full refund"), r.FOUR_GROUNDS, r.REFUND),
            _never(_PEP4E0, script("45", "family emergency"), r.NO_OTHER_GROUND),
        ),
        "46": (
            _spoken(
                _H8Q05L,
                _INSURANCE_ONCE,
                script("46", "don't want to cancel"),
                r.INSURED_REASONS,
                r.DENY,
            ),
            _never(_H8Q05L, script("46", "not happy with the service"), r.NO_OTHER_REASON),
        ),
        "47": (
            _spoken(_H8Q05L, script("47", "friend's birthday"), r.FOUR_GROUNDS, r.DENY),
            _never(_H8Q05L, script("47", "full refund"), r.INSURED_REASONS, r.FOUR_GROUNDS),
            _never(_H8Q05L, r.INSURED_REASONS, r.KNOWN_ONLY),
        ),
        "48": (
            _spoken(_3RK2T9, script("48", "10 hours ago"), r.DAY_GROUND),
            _spoken(_3RK2T9, r.FOUR_GROUNDS, r.DENY),
            _lookup(
                _3RK2T9,
                gold("48", "get_reservation_details", reservation_id="3RK2T9"),
                r.CHECK_FIRST,
            ),
            _never(_3RK2T9, script("48", "full refund"), r.FOUR_GROUNDS, r.REFUND),
        ),
        "49": (
            _spoken(_3RK2T9, script("49", "purchased insurance"), r.INSURED_REASONS),
            _spoken(_3RK2T9, script("49", "sick"), r.FOUR_GROUNDS, r.DENY),
            _lookup(
                _3RK2T9,
                gold("49", "get_reservation_details", reservation_id="3RK2T9"),
                r.CHECK_FIRST,
            ),
            _never(_3RK2T9, r.FOUR_GROUNDS, r.REFUND),
        ),
    }
)
"""tau2_id to the evidence, one row for each assertion."""

__all__ = ["ROWS", "USERS", "Kind", "Row"]
