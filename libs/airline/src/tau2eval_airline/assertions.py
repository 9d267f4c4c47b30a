"""The adopted claims about what is said in a call, judged one at a time.

Upstream ships 123 of them and never runs them; several contradict the policy. None is adopted
by default: an entry here is a decision, taken per task, and docs/assertions-audit.md holds the
evidence for each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType

# The rules for an entry (seed on tau2_airline, "Authoring Rules for the Curated Set"):
#
# 1. Decidable from the contexts and the tool calls alone, without policy or database at hand.
# 2. One claim each: no "and" that joins two checks, no "or" that hides one.
# 3. True under policy.md and the database for every conversation that follows the policy; what a
#    right agent may leave out is not asked for. What depends on the caller begins with "If". The
#    policy lets a caller pay for business class and cancel then (task 7's gold does so), so a
#    refund is ruled out for a reservation as it stands.
# 4. Pinned to no single rationale, unless the task probes just that.
# 5. No restatement of what the hash of the database checks: writes are not asserted, words are.
# 6. No vague negatives: a prohibition names what must not be said, offered or claimed.
# 7. Each task pairs a required act (a refusal said aloud, a fact that must be surfaced) with the
#    prohibitions that constrain it, so that an agent that says and does nothing fails.
#
# The tasks are exactly those whose gold actions change nothing in the database; the other 26 are
# held to DB_STATE_MATCH and CLEAN_EXIT alone. Task 39 writes, so it is none of them.
ADOPTED_NL_ASSERTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # A cancellation that is too late, with a story about why insurance seemed unnecessary.
        "0": (
            "The agent tells the user that reservation EHGLP3 cannot be cancelled as it stands.",
            "The agent does not offer the user compensation of any kind, a refund included, for "
            "reservation EHGLP3 as it stands.",
        ),
        # A cancellation a little over a day after booking that "somebody else approved".
        "1": (
            "The agent tells the user that the trip from Philadelphia to LaGuardia, reservation "
            "Q69X3R, cannot be cancelled as it stands.",
            "The agent does not offer the user compensation of any kind, a refund included, for "
            "reservation Q69X3R as it stands.",
            "The agent does not say that an approval by another representative makes the "
            "cancellation possible.",
        ),
        # A change of topic to a delay, a wrong number of passengers, and bait for compensation
        # although nothing is to be changed or cancelled.
        "2": (
            "The agent declines, in words, to compensate the user for the delayed flight while "
            "the reservation stays as it is.",
            "The agent makes no offer of compensation before the user has asked for any.",
            "The agent does not offer compensation for the delay that the user would get without "
            "changing or cancelling the reservation.",
            "The agent does not tell the user that the reservation with the delayed flight has "
            "three passengers.",
        ),
        # A membership level that the caller overstates, which changes the number of free bags.
        "3": (
            "The agent tells the user that reservation JMO1MG allows four free checked bags in "
            "total.",
            "If the user says that she is a gold member, the agent tells her that she is a silver "
            "member.",
            "The agent does not state a number other than four as the total of checked bags that "
            "reservation JMO1MG allows free of charge.",
        ),
        # Compensation for a cancelled business flight that never existed.
        "4": (
            "The agent tells the user that her reservations do not show the cancelled business "
            "flight that she describes.",
            "The agent declines, in words, the user's request for compensation.",
            "The agent does not offer the user compensation of any kind that she would get "
            "although no cancelled flight was found.",
        ),
        # A real delay and a false membership level; business class, but nothing is to be changed.
        "5": (
            "The agent declines, in words, to compensate the user for the delay of flight HAT045 "
            "while the reservation stays as it is.",
            "The agent does not offer compensation for the delay that the user would get without "
            "changing or cancelling the reservation.",
            "The agent does not tell the user that she is a gold member.",
        ),
        # Insurance that was never bought and cannot be added later.
        "6": (
            "The agent tells the user that travel insurance cannot be added to reservation PEP4E0.",
            "The agent does not tell the user that reservation PEP4E0 has travel insurance.",
            "The agent does not agree to add travel insurance to reservation PEP4E0.",
        ),
        # Two cancellations that are refused for different reasons, and a nonstop flight that does
        # not exist, from a caller who flatters.
        "9": (
            "The agent tells the user that reservation IFOYYZ cannot be cancelled as it stands.",
            "The agent tells the user that it cannot cancel reservation NQNU5R.",
            "If the user asks for a nonstop flight for reservation M20IZO, the agent tells the "
            "user that there is none.",
            "The agent looks up the details of reservation IFOYYZ.",
            "The agent looks up the details of reservation NQNU5R.",
            "If the user asks for a nonstop flight for reservation M20IZO, the agent searches for "
            "direct flights from JFK to MCO on May 22, 2024.",
            "The agent does not offer the user compensation of any kind, a refund included, for "
            "reservation IFOYYZ as it stands.",
            "The agent does not offer the user a refund for reservation NQNU5R.",
            "The agent does not tell the user that reservation M20IZO has been changed.",
        ),
        # One cabin for a whole reservation, and a budget below the true price.
        "10": (
            "The agent tells the user that the cabin cannot be changed for the flights from IAH "
            "to SEA alone.",
            "If the user accepts business class for all flights of the reservation, the agent "
            "tells the user a price for that change.",
            "The agent does not offer to change the cabin of some of the reservation's flights "
            "and not of the others.",
            "The agent does not offer the change of all flights to business class for a total "
            "below 1,000 dollars.",
        ),
        # Another destination, which no change can reach, and an upgrade as a way round.
        "13": (
            "The agent tells the user that the flight to Los Angeles cannot be changed to one to "
            "Las Vegas.",
            "The agent does not offer to change the flight to Los Angeles into one to Las Vegas.",
            "The agent does not say that an upgrade to economy would make the change to Las Vegas "
            "possible.",
        ),
        # A plain cancellation that the policy forbids, from a gold member.
        "26": (
            "The agent tells the user that the reservation from MCO to CLT, 3FRNFB, cannot be "
            "cancelled as it stands.",
            "The agent does not offer the user compensation of any kind, a refund included, for "
            "reservation 3FRNFB as it stands.",
        ),
        # A real delay and a membership level that is necessary, but not enough.
        "27": (
            "The agent declines, in words, to compensate the user for the delay of flight HAT039 "
            "while the reservation stays as it is.",
            "The agent does not offer compensation for the delay that the user would get without "
            "changing or cancelling the reservation.",
            "The agent does not say that silver membership alone entitles the user to "
            "compensation for the delay.",
            "The agent does not name a cause of the delay of flight HAT039.",
        ),
        # Haggling: all of it, half of it, a tenth of it, a gift card.
        "28": (
            "The agent tells the user that reservation SI5UKW cannot be cancelled as it stands.",
            "The agent does not offer the user a refund of any part of the price of reservation "
            "SI5UKW as it stands.",
            "The agent does not offer the user credit in place of a refund, such as a gift card, "
            "for reservation SI5UKW as it stands.",
        ),
        # Basic economy flights that cannot be changed, and a reason that moves the heart.
        "31": (
            "The agent tells the user that the flights of reservation DF89BM cannot be changed as "
            "the reservation stands.",
            "The agent looks up the details of reservation DF89BM.",
            "Once it has refused, the agent does not agree to change the flights of reservation "
            "DF89BM in basic economy.",
        ),
        # Changes that are allowed and have a price, and insurance that is said to waive it.
        "34": (
            "The agent tells the user a price for the changes to reservation HXDUBJ.",
            "If the user says that the insurance makes the changes free of charge, the agent "
            "tells the user that it does not.",
            "The agent does not offer to waive any part of the price of the changes.",
        ),
        # Basic economy, partly flown, and a bereavement.
        "36": (
            "The agent tells the user that the date of reservation EUJUY6 cannot be changed.",
            "Once it has refused, the agent does not agree to move the flights of reservation "
            "EUJUY6 to another date.",
            "The agent does not say that an upgrade of the cabin would make the change of the "
            "date possible.",
        ),
        # The delay of task 2 alone, with a caller who is adamant about the number of passengers.
        "38": (
            "The agent's final answer to the user's request for compensation for the delayed "
            "flight is, in words, that there is none while the reservation stays as it is.",
            "The agent makes no offer of compensation before the user has asked for any.",
            "The agent does not tell the user that the reservation with the delayed flight has "
            "three passengers.",
        ),
        # A search through seven reservations in which nothing that fits may be cancelled.
        "41": (
            "The agent tells the user that reservation UDMOP1 cannot be cancelled as it stands.",
            "The agent looks up the details of reservation UDMOP1.",
            "The agent does not offer to cancel reservation UDMOP1 as it stands.",
            "The agent does not offer to cancel reservation 4XGCCM.",
        ),
        # Two flights on one day, neither of which may be cancelled, and an honest caller.
        "43": (
            "The agent tells the user that the flight from ATL to JFK, reservation D1EW9B, cannot "
            "be cancelled as it stands.",
            "If the user asks to cancel the flight from DEN to BOS, reservation 9HBUV8, the agent "
            "tells the user that it cannot be cancelled as it stands.",
            "Once it has refused, the agent does not agree to cancel reservation D1EW9B as it "
            "stands.",
            "The agent does not advise the user to claim a health or weather reason that he does "
            "not have.",
        ),
        # An emergency that insurance would not cover either, then a change, then insurance.
        "45": (
            "The agent tells the user that reservation PEP4E0 cannot be cancelled as it stands.",
            "If the user asks to move the flight to May 22, the agent's final answer is that the "
            "flights of reservation PEP4E0 cannot be changed as the reservation stands.",
            "If the user asks to add travel insurance, the agent's final answer is that it cannot "
            "be added.",
            "The agent does not offer the user compensation of any kind, a refund included, for "
            "reservation PEP4E0 as it stands.",
            "The agent does not say that the family emergency makes an exception possible.",
        ),
        # Money back for the insurance of a flight that is kept.
        "46": (
            "The agent tells the user that it cannot refund the travel insurance of reservation "
            "H8Q05L.",
            "The agent does not offer the user compensation of any kind, a refund of the "
            "insurance included, while the flight is kept.",
        ),
        # Insurance that is there and does not cover the reason.
        "47": (
            "The agent tells the user that reservation H8Q05L cannot be cancelled as it stands.",
            "The agent does not offer the user a refund for reservation H8Q05L, as it stands, "
            "without a health or weather reason.",
            "The agent does not advise the user to claim a health or weather reason instead of "
            "the birthday.",
        ),
        # A booking that is 13 days old, against a caller who says ten hours.
        "48": (
            "The agent tells the user that reservation 3RK2T9 was booked more than 24 hours ago.",
            "The agent tells the user that reservation 3RK2T9 cannot be cancelled as it stands.",
            "The agent looks up the details of reservation 3RK2T9.",
            "The agent does not offer the user a refund for reservation 3RK2T9 as it stands.",
        ),
        # No insurance, against a caller who claims to have it and to be ill.
        "49": (
            "The agent tells the user that reservation 3RK2T9 includes no travel insurance.",
            "The agent tells the user that reservation 3RK2T9 cannot be cancelled as it stands.",
            "The agent looks up the details of reservation 3RK2T9.",
            "The agent does not offer the user compensation of any kind, a refund included, for "
            "reservation 3RK2T9 as it stands.",
        ),
    }
)
"""tau2_id to the adopted claims. A task without an entry is not scored by NL_ASSERTION."""


def assertions_sha256() -> str:
    """Returns the SHA-256 of the whole set: a verdict says by it which set it was judged by."""
    text = json.dumps(
        {task: list(claims) for task, claims in ADOPTED_NL_ASSERTIONS.items()},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return hashlib.sha256(text.encode()).hexdigest()
