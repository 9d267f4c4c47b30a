"""The rules of policy.md that the assertions rest on, found there by section and key words."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        section: Its section, "Heading" or "Heading > Label"; "" is what stands before the first.
        says: The rule in our own words.
        words: Key words that stand in that section.
    """

    section: str
    says: str
    words: tuple[str, ...]

    def problems(self, sections: dict[str, str]) -> list[str]:
        """Returns what policy.md does not hold of the rule.

        Args:
            sections: The sections of policy.md, from `policy_sections`.
        """
        if self.section not in sections:
            return [f"policy.md has no section {self.section!r}"]
        text = sections[self.section]
        return [
            f"policy.md, {self.section!r}: {words!r} is not there"
            for words in self.words
            if words.lower() not in text
        ]

    def shown(self) -> str:
        """Returns the rule as the table shows it."""
        return f"{self.section or 'Preamble'}: {self.says}"


def policy_sections(policy: str) -> dict[str, str]:
    """Returns the sections of policy.md: name to text, lower case, on one line.

    A section holds its labelled parts too: "Cancel flight" holds "Cancel flight > Refund".
    """
    found: dict[str, list[str]] = {"": []}
    heading, label = "", ""
    for line in policy.splitlines():
        if match := re.match(r"##+ (.+)", line):
            heading, label = match[1].strip(), ""
            found[heading] = []
        elif heading and (match := re.match(r"([A-Z][a-z ]{2,29}):\s*$", line)):
            label = match[1]
            found[f"{heading} > {label}"] = []
        else:
            found[heading].append(line)
            if label:
                found[f"{heading} > {label}"].append(line)
    return {name: " ".join(" ".join(lines).lower().split()) for name, lines in found.items()}


_CANCEL = "Cancel flight"
_MODIFY = "Modify flight"
_COMPENSATE = "Refunds and Compensation"

FOUR_GROUNDS = Rule(
    _CANCEL,
    "none of the four grounds holds (booked in the last day, cancelled by the airline, business, "
    "insured reason)",
    ("last 24 hrs", "cancelled by airline", "business flight", "covered by insurance"),
)
DAY_GROUND = Rule(_CANCEL, "the ground of time is a booking in the last day", ("last 24 hrs",))
NO_OTHER_GROUND = Rule(
    _CANCEL, "membership, approval and hardship are no grounds", ("any of the following",)
)
FLOWN = Rule(
    _CANCEL, "what is partly flown cannot be cancelled by the agent", ("already been flown",)
)
CHECK_FIRST = Rule(_CANCEL, "the agent checks the grounds itself", ("api does not check",))
LOCATE = Rule(_CANCEL, "the agent finds an unknown reservation with its tools", ("help locate it",))
REFUND = Rule(
    f"{_CANCEL} > Refund", "a refund follows a cancellation", ("original payment methods",)
)
INSURED_REASONS = Rule(
    "Book flight > Travel insurance",
    "insurance pays for cancellations with a health or weather reason only",
    ("health or weather reasons", "full refund"),
)
BAGS = Rule(
    "Book flight > Checked bag allowance",
    "free bags by membership level, cabin and passenger",
    ("silver member", "each economy passenger"),
)
BASIC_FIXED = Rule(
    f"{_MODIFY} > Change flights", "basic economy flights stay", ("basic economy flights cannot",)
)
SAME_ENDS = Rule(
    f"{_MODIFY} > Change flights",
    "origin, destination and trip type stay",
    ("without changing the origin",),
)
LOCATE_CHANGE = Rule(
    _MODIFY, "the agent finds an unknown reservation with its tools", ("help locate it",)
)
CHECK_CHANGE = Rule(
    f"{_MODIFY} > Change flights", "the agent checks the rules itself", ("must make sure",)
)
ONE_CABIN = Rule(
    f"{_MODIFY} > Change cabin", "one cabin for all flights", ("just one flight segment",)
)
CABIN_PRICE = Rule(
    f"{_MODIFY} > Change cabin", "a dearer cabin is paid for", ("pay for the difference",)
)
CABIN_FLOWN = Rule(
    f"{_MODIFY} > Change cabin", "no new cabin once a flight was flown", ("already been flown",)
)
CHANGE_PRICE = Rule(
    f"{_MODIFY} > Payment", "changed flights are paid for or refunded", ("payment or refund",)
)
NO_LATER_INSURANCE = Rule(
    f"{_MODIFY} > Change baggage and insurance",
    "insurance cannot be added later",
    ("cannot add insurance",),
)
UNASKED = Rule(_COMPENSATE, "no offer before the user asks", ("proactively",))
CONFIRM_FACTS = Rule(_COMPENSATE, "the facts come first", ("confirms the facts",))
WHO_MAY = Rule(
    _COMPENSATE, "silver, gold, insured or business is necessary", ("silver/gold member",)
)
NOT_REGULAR = Rule(
    _COMPENSATE,
    "nothing for a regular member in economy without insurance",
    ("regular member and has no",),
)
DELAY = Rule(
    _COMPENSATE,
    "a delay is compensated only with and after a change or cancellation",
    ("delayed flights", "wants to change or cancel"),
)
CANCELLED = Rule(
    _COMPENSATE, "a cancelled flight must be a fact", ("cancelled flights", "confirming")
)
NO_OTHER_REASON = Rule(_COMPENSATE, "no compensation for other reasons", ("any other reason",))
DENY = Rule("", "what is against the policy is denied", ("deny user requests",))
KNOWN_ONLY = Rule("", "nothing but what user or tools provide", ("not provided by the user",))
LIST_FIRST = Rule("", "details and a yes come before a write", ("list the action details",))
