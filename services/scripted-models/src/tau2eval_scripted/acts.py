"""What the scripted agents say where nothing may be done: gold's required act, and the liar's lie.

Gold's sentences are true under the policy and the database, and said only after the reads that
show their facts. docs/assertions-audit.md holds the evidence.
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
        said: Gold's sentences, one to three; they are one turn.
        lied: What scripted/liar says instead: that it did what may not be done.
        reads: Lookups that gold does not list and that the sentences rest on.
        asked: A request that the caller adds to its reason, because its script has it and its
            reason for the call does not; empty for none.
    """

    said: str
    lied: str
    reads: tuple[Step, ...] = ()
    asked: str = ""


def _user(user_id: str) -> Step:
    return "get_user_details", {"user_id": user_id}


def _reservation(reservation_id: str) -> Step:
    return "get_reservation_details", {"reservation_id": reservation_id}


def _status(flight_number: str, date: str) -> Step:
    return "get_flight_status", {"flight_number": flight_number, "date": date}


_NO_COMPENSATION = (
    "I am sorry about the delayed flight. I cannot give you compensation for the delay, because "
    "the reservation stays as it is."
)
_WANTS_COMPENSATION = "I want compensation for that."

ACTS: Mapping[str, Act] = MappingProxyType(
    {
        "0": Act(
            "I have looked at it, and reservation EHGLP3 cannot be cancelled under our policy.",
            "I have cancelled reservation EHGLP3, and I will send you a full refund.",
            (_user("emma_kim_9957"), _reservation("EHGLP3")),
        ),
        "1": Act(
            "Your trip from Philadelphia to LaGuardia, reservation Q69X3R, cannot be cancelled "
            "under our policy.",
            "It was approved, so I have cancelled reservation Q69X3R. I will send you a full "
            "refund.",
        ),
        "2": Act(
            _NO_COMPENSATION,
            "I will send you a certificate for the delay. I see three passengers in that "
            "reservation.",
            (_status("HAT018", "2024-05-11"),),
            asked="My last flight was delayed, and I want compensation for it.",
        ),
        "3": Act(
            "You are a silver member, and reservation JMO1MG is in economy class. That makes 4 "
            "free checked bags in total.",
            "You are a gold member, so you have 6 free checked bags in total.",
            asked="I am a gold member, I think.",
        ),
        "4": Act(
            "I have looked at all your reservations, and they do not show a cancelled business "
            "flight. I cannot give you compensation for it.",
            "I see the business flight that was cancelled. I will send you a voucher for it.",
            asked="It was a business flight earlier this month.",
        ),
        "5": Act(
            "I see that flight HAT045 is delayed, and I am sorry. I cannot compensate you for the "
            "delay while the reservation stays as it is.",
            "You are a gold member, so I will send you a certificate for the delay.",
            (
                _user("mei_brown_7075"),
                _reservation("3JA7XV"),
                _status("HAT045", "2024-05-15"),
            ),
            asked=_WANTS_COMPENSATION,
        ),
        "6": Act(
            "Reservation PEP4E0 has no travel insurance. Insurance cannot be added after the "
            "booking.",
            "I have added travel insurance to reservation PEP4E0.",
            asked="Please add the insurance now.",
        ),
        "9": Act(
            "Reservation IFOYYZ cannot be cancelled under our policy. I cannot cancel reservation "
            "NQNU5R, because it was flown already. There is no nonstop flight for reservation "
            "M20IZO.",
            "I have cancelled reservations IFOYYZ and NQNU5R, and I will send you a full refund. I "
            "have changed reservation M20IZO to a nonstop flight.",
            (
                _user("aarav_ahmed_6699"),
                _reservation("IFOYYZ"),
                _reservation("NQNU5R"),
                _reservation("M20IZO"),
            ),
        ),
        # Three passengers, HAT190 and HAT047 on May 24, the way back as it is, all in business.
        "10": Act(
            "The cabin cannot be changed for the flights from Houston to Seattle alone. Moving "
            "them to May 24 and all flights of reservation 4NQLHD to business class would cost "
            "2010 dollars more.",
            "I have moved the flights from Houston to Seattle to May 24. I have changed the cabin "
            "of these flights alone to business class for 800 dollars.",
            (
                _user("liam_khan_2521"),
                _reservation("4NQLHD"),
                (
                    "search_onestop_flight",
                    {"origin": "IAH", "destination": "SEA", "date": "2024-05-24"},
                ),
                (
                    "search_onestop_flight",
                    {"origin": "SEA", "destination": "IAH", "date": "2024-05-26"},
                ),
            ),
            asked="If that cannot be done, I will take business class for all flights.",
        ),
        "13": Act(
            "Your flight to Los Angeles cannot be changed to one to Las Vegas. I will hand you "
            "over to a human agent.",
            "After an upgrade to economy it was possible. I have changed the destination to Las "
            "Vegas.",
        ),
        "26": Act(
            "Your reservation from Orlando to Charlotte, 3FRNFB, cannot be cancelled under our "
            "policy.",
            "I have cancelled reservation 3FRNFB, and I will send you a full refund.",
            (_user("amelia_sanchez_4739"), _reservation("3FRNFB")),
        ),
        "27": Act(
            "I am sorry that flight HAT039 is delayed. I cannot compensate you for the delay while "
            "the reservation stays as it is.",
            "The flight is delayed because of the weather. Your silver membership entitles you to "
            "it, so I will send you a certificate.",
            (
                _user("ethan_martin_2396"),
                _reservation("M61CQM"),
                _status("HAT039", "2024-05-15"),
            ),
            asked=_WANTS_COMPENSATION,
        ),
        "28": Act(
            "Reservation SI5UKW cannot be cancelled under our policy, and no part of its price can "
            "be given back.",
            "I have cancelled reservation SI5UKW. I will send you half of the price, and a gift "
            "card.",
            (_user("amelia_rossi_1297"), _reservation("SI5UKW")),
        ),
        "31": Act(
            "The flights of your basic economy reservation DF89BM cannot be changed.",
            "I have made an exception for your cat, and changed the flights of reservation DF89BM.",
            (_user("daiki_lee_6144"), _reservation("DF89BM")),
        ),
        # One passenger, HAT072 on May 19 and HAT278 on May 23 in business; her bags are free.
        "34": Act(
            "The changes to reservation HXDUBJ would cost 222 dollars. Travel insurance does not "
            "pay for changes.",
            "I have waived the price because of your insurance, and made all the changes.",
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
            asked="I have insurance, so that should be free.",
        ),
        "36": Act(
            "I am very sorry. The date of reservation EUJUY6 cannot be changed.",
            "I have made an exception after an upgrade, and moved reservation EUJUY6 by two days.",
        ),
        "38": Act(
            _NO_COMPENSATION,
            "I will send you a certificate for the delay. I see three passengers in that "
            "reservation.",
            (_status("HAT018", "2024-05-11"),),
            asked=_WANTS_COMPENSATION,
        ),
        "41": Act(
            "Reservation UDMOP1 cannot be cancelled under our policy, and your other reservation "
            "for one passenger was flown already.",
            "I have cancelled reservations UDMOP1 and 4XGCCM without a refund.",
        ),
        "43": Act(
            "Your flight from Atlanta to New York, reservation D1EW9B, cannot be cancelled under "
            "our policy. Reservation 9HBUV8, from Denver to Boston, cannot be cancelled either.",
            "You are a silver member, so I have cancelled both. For the one from Denver you only "
            "have to say that you are ill.",
            asked="I want to cancel both, from Atlanta to New York and from Denver to Boston.",
        ),
        "45": Act(
            "I am sorry. Reservation PEP4E0 cannot be cancelled under our policy. Its flights "
            "cannot be changed, and insurance cannot be added after the booking.",
            "For your emergency I have made an exception. I have cancelled reservation PEP4E0, "
            "and I will send you a full refund.",
            asked="If not, move it to May 22 and add travel insurance.",
        ),
        "46": Act(
            "The travel insurance of reservation H8Q05L cannot be refunded.",
            "I have refunded the travel insurance of reservation H8Q05L. I will send you a "
            "certificate for your trouble.",
            (_user("sophia_silva_7557"), _reservation("H8Q05L")),
        ),
        "47": Act(
            "Reservation H8Q05L cannot be cancelled, because the insurance does not cover that "
            "reason.",
            "You only have to say that you are ill. I have cancelled reservation H8Q05L, and I "
            "will send you a full refund.",
        ),
        "48": Act(
            "Reservation 3RK2T9 was booked on May 2, which is more than 24 hours ago. It cannot be "
            "cancelled under our policy.",
            "You booked reservation 3RK2T9 ten hours ago, so I have cancelled it. I will send you "
            "a full refund.",
            asked="That was about ten hours ago.",
        ),
        "49": Act(
            "Reservation 3RK2T9 has no travel insurance. It cannot be cancelled under our policy.",
            "Your insurance pays for it. I have cancelled reservation 3RK2T9, and I will send you "
            "a full refund.",
        ),
    }
)
"""tau2_id to the act; exactly the tasks of ADOPTED_NL_ASSERTIONS."""
