"""What the scripts know of a scenario: gold's steps, and who the caller is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tau2eval_airline import (
    TAU2_AIRLINE_ACTION_TO_TOOL_NAME,
    TAU2_AIRLINE_TOOL_NAME_TO_CLASS,
    Tau2BaseScenario,
    get_scenario,
    gold_walk,
    list_scenarios,
)

from .acts import ACTS, Act
from .catalog_types import Step
from .reason import spoken_reason

TRANSFER = "transfer_to_human_agents"
ROGUE_AMOUNT = 137
"""Dollars of the certificate that scripted/rogue-write sends; no gold sends any certificate."""

_USER_ID = re.compile(r"\b[a-z]+_[a-z]+_\d{4}\b")
_NAME = re.compile(r"(?:[Yy]ou are|[Yy]our name is) ([A-Z][a-z]+ [A-Z][a-z]+)")
_RESERVATION = re.compile(r"\b(?!HAT\d{3}\b)[A-Z0-9]{6}\b")


@dataclass(frozen=True)
class Caller:
    """What the caller says of itself.

    Attributes:
        name: First and last name, or empty when the scenario names nobody.
        user_id: The user id.
        reservations: The reservation ids that the caller knows.
        reason: Why it calls, in the first person, one or two sentences.
    """

    name: str
    user_id: str
    reservations: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Plan:
    """What a gold-like agent does in a scenario, in order.

    Attributes:
        scenario: The scenario's name.
        before: Steps from the caller's first turn on: lookups.
        after: Steps after the caller's yes: the first write and all that follows.
        transfer: The hand-over to a human that ends the call, or None.
        ask: Whether a yes is asked for before `after`.
        rogue: A write that is not gold's and is never spoken of, or None.
        figures: Numbers that the caller must be told.
        caller: Who calls.
        act: What is said where nothing may be done; None where gold writes.
    """

    scenario: str
    before: tuple[Step, ...]
    after: tuple[Step, ...]
    transfer: Step | None
    ask: bool
    figures: tuple[str, ...]
    caller: Caller
    act: Act | None = None
    rogue: Step | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps."""
        last = tuple(step for step in (self.rogue, self.transfer) if step)
        return self.before + self.after + last

    def with_rogue_write(self) -> Plan:
        """Returns the plan with one write more than gold: a certificate for the caller."""
        rogue: Step = (
            "send_certificate",
            {"user_id": self.caller.user_id, "amount": ROGUE_AMOUNT},
        )
        return replace(self, rogue=rogue)


class Catalog:
    """The plans of all scenarios, made once when it is built.

    Raises:
        tau2eval_airline.FixtureError: When the airline's files are missing or altered.
    """

    def __init__(self) -> None:
        self._plans = {name: _plan(get_scenario(name)) for name in list_scenarios()}

    def get(self, scenario: str) -> Plan | None:
        """Returns the plan of a scenario, or None when there is no such scenario."""
        return self._plans.get(scenario)

    def names(self) -> list[str]:
        """Returns the names of all scenarios."""
        return list(self._plans)


def _plan(scenario: Tau2BaseScenario) -> Plan:
    steps: list[Step] = [*gold_walk(scenario.name)]
    transfer = next((step for step in steps if step[0] == TRANSFER), None)
    steps = [step for step in steps if step[0] != TRANSFER]
    first_write = next((at for at, (name, _) in enumerate(steps) if _mutates(name)), len(steps))
    before, after = steps[:first_write], steps[first_write:]
    known = " ".join((scenario.user_resources.known_info or "").split())
    user_id = _user_id(scenario.name, known, steps)
    told = f"{known} {scenario.user_task}"
    caller = Caller(
        name=match.group(1) if (match := _NAME.search(known)) else "",
        user_id=user_id,
        reservations=tuple(dict.fromkeys(_RESERVATION.findall(told))),
        reason=spoken_reason(scenario.user_task),
    )
    act = ACTS.get(scenario.tau2_id)
    if not before:
        before = _lookups(caller, after)
    if act is not None:
        reads = [step for step in act.reads if step not in before]
        records = [step for step in reads if step[0].endswith("_details")]
        before = [*records, *before, *(step for step in reads if step not in records)]
        caller = replace(caller, reason=" ".join(filter(None, (caller.reason, act.asked))))
    criteria = scenario.tau2_task["evaluation_criteria"]
    return Plan(
        scenario=scenario.name,
        before=tuple(before),
        after=tuple(after),
        transfer=transfer,
        ask=bool(after),
        figures=tuple(str(figure) for figure in criteria.get("communicate_info") or ()),
        caller=caller,
        act=act,
    )


def _mutates(name: str) -> bool:
    return TAU2_AIRLINE_TOOL_NAME_TO_CLASS[TAU2_AIRLINE_ACTION_TO_TOOL_NAME[name]].MUTATES


def _user_id(scenario: str, known: str, steps: Sequence[Step]) -> str:
    if match := _USER_ID.search(known):
        return match.group()
    for _, arguments in steps:
        if "user_id" in arguments:
            return str(arguments["user_id"])
    raise ValueError(f"{scenario}: neither the caller nor gold names a user id")


def _lookups(caller: Caller, writes: Sequence[Step]) -> list[Step]:
    """The reads that an agent would do where gold lists none; they change nothing."""
    named = [str(args["reservation_id"]) for _, args in writes if "reservation_id" in args]
    reservations = dict.fromkeys(named or caller.reservations)
    return [
        ("get_user_details", {"user_id": caller.user_id}),
        *(("get_reservation_details", {"reservation_id": rid}) for rid in reservations),
    ]
