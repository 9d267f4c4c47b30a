"""What scripted/gold says where nothing may be done: the required act of each adopted task.

The sentences are true under the policy and the database; facts are said only after the reads that
show them. docs/assertions-audit.md holds the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .catalog_types import Step


@dataclass(frozen=True)
class Act:
    """What is looked up and said in one task.

    Attributes:
        said: The sentences, one to three; they are one turn.
        reads: Lookups that gold does not list and that the sentences rest on.
        asked: A request that the caller adds to its reason, because its script has it and its
            reason for the call does not; empty for none.
    """

    said: str
    reads: tuple[Step, ...] = ()
    asked: str = ""


def _user(user_id: str) -> Step:
    return "get_user_details", {"user_id": user_id}


def _reservation(reservation_id: str) -> Step:
    return "get_reservation_details", {"reservation_id": reservation_id}


_NO_COMPENSATION = (
    "I am sorry about the delayed flight. I cannot give you compensation for the delay, because "
    "the reservation stays as it is."
)
_WANTS_COMPENSATION = "I want compensation for that."

ACTS: Mapping[str, Act] = MappingProxyType(
    {
        "0": Act(
            "I have looked at it, and reservation EHGLP3 cannot be cancelled under our policy.",
            (_user("emma_kim_9957"), _reservation("EHGLP3")),
        ),
        "1": Act(
            "Your trip from Philadelphia to LaGuardia, reservation Q69X3R, cannot be cancelled "
            "under our policy."
        ),
        "2": Act(_NO_COMPENSATION, asked=_WANTS_COMPENSATION),
        "3": Act(
            "You are a silver member, and reservation JMO1MG is in economy class. That makes 4 "
            "free checked bags in total.",
            asked="I am a gold member, I think.",
        ),
        "4": Act(
            "I have looked at all your reservations, and they do not show a cancelled business "
            "flight. I cannot give you compensation for it."
        ),
        "5": Act(
            "I see that flight HAT045 is delayed, and I am sorry. I cannot compensate you for the "
            "delay while the reservation stays as it is.",
            (_user("mei_brown_7075"), _reservation("3JA7XV")),
            asked=_WANTS_COMPENSATION,
        ),
        "6": Act(
            "Reservation PEP4E0 has no travel insurance. Insurance cannot be added after the "
            "booking."
        ),
        "9": Act(
            "Reservation IFOYYZ cannot be cancelled under our policy. I cannot cancel reservation "
            "NQNU5R, because it was flown already. There is no nonstop flight for reservation "
            "M20IZO.",
            (
                _user("aarav_ahmed_6699"),
                _reservation("IFOYYZ"),
                _reservation("NQNU5R"),
                _reservation("M20IZO"),
            ),
        ),
        "10": Act(
            "The cabin cannot be changed for the flights from Houston to Seattle alone. Changing "
            "all flights of reservation 4NQLHD to business class would cost 1302 dollars more.",
            (
                _user("liam_khan_2521"),
                _reservation("4NQLHD"),
                (
                    "search_onestop_flight",
                    {"origin": "IAH", "destination": "SEA", "date": "2024-05-24"},
                ),
            ),
        ),
        "13": Act(
            "Your flight to Los Angeles cannot be changed to one to Las Vegas. I will hand you "
            "over to a human agent."
        ),
        "26": Act(
            "Your reservation from Orlando to Charlotte, 3FRNFB, cannot be cancelled under our "
            "policy.",
            (_user("amelia_sanchez_4739"), _reservation("3FRNFB")),
        ),
        "27": Act(
            "I am sorry that flight HAT039 is delayed. I cannot compensate you for the delay while "
            "the reservation stays as it is.",
            (_user("ethan_martin_2396"), _reservation("M61CQM")),
            asked=_WANTS_COMPENSATION,
        ),
        "28": Act(
            "Reservation SI5UKW cannot be cancelled under our policy, and no part of its price can "
            "be given back.",
            (_user("amelia_rossi_1297"), _reservation("SI5UKW")),
        ),
        "31": Act(
            "The flights of your basic economy reservation DF89BM cannot be changed.",
            (_user("daiki_lee_6144"), _reservation("DF89BM")),
        ),
        "34": Act(
            "The changes to reservation HXDUBJ would cost 222 dollars. Travel insurance does not "
            "pay for changes.",
            (
                _user("yara_garcia_1905"),
                _reservation("HXDUBJ"),
                (
                    "search_direct_flight",
                    {"origin": "IAH", "destination": "SFO", "date": "2024-05-19"},
                ),
                (
                    "search_direct_flight",
                    {"origin": "SFO", "destination": "IAH", "date": "2024-05-23"},
                ),
            ),
        ),
        "36": Act("I am very sorry. The date of reservation EUJUY6 cannot be changed."),
        "38": Act(_NO_COMPENSATION, asked=_WANTS_COMPENSATION),
        "41": Act(
            "Reservation UDMOP1 cannot be cancelled under our policy, and your other reservation "
            "for one passenger was flown already."
        ),
        "43": Act(
            "Your flight from Atlanta to New York, reservation D1EW9B, cannot be cancelled under "
            "our policy. Reservation 9HBUV8, from Denver to Boston, cannot be cancelled either."
        ),
        "45": Act(
            "I am sorry. Reservation PEP4E0 cannot be cancelled under our policy. Its flights "
            "cannot be changed, and insurance cannot be added after the booking."
        ),
        "46": Act(
            "The travel insurance of reservation H8Q05L cannot be refunded.",
            (_user("sophia_silva_7557"), _reservation("H8Q05L")),
        ),
        "47": Act(
            "Reservation H8Q05L cannot be cancelled, because the insurance does not cover that "
            "reason."
        ),
        "48": Act(
            "Reservation 3RK2T9 was booked on May 2, which is more than 24 hours ago. It cannot be "
            "cancelled under our policy."
        ),
        "49": Act(
            "Reservation 3RK2T9 has no travel insurance. It cannot be cancelled under our policy."
        ),
    }
)
"""tau2_id to the act; exactly the tasks of ADOPTED_NL_ASSERTIONS."""
