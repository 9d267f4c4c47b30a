"""Model ids that name control flows, and the arms that follow from them.

An id reads from the outside in: marina/obligations:marina/argcheck:<model> is the argument check
around the model, and the obligations ledger around both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tau2eval_gateway.errors import GatewayError, ModelNotFound
from tau2eval_gateway.requests import refused

FLOW_PREFIX = "marina/"
CREW_PREFIX = "marina:"
FLOW_NAMES = ("obligations", "argcheck", "verify")
"""In the order in which an arm names them."""
PLAIN_ARM = "single"
"""Arm of a model id without a control flow."""


class CrewPlan(Protocol):
    """A named composition from the configuration."""

    @property
    def name(self) -> str:
        """Behind marina: in the id."""

    @property
    def proposer(self) -> str:
        """Plain id of the model that answers."""

    @property
    def checkers(self) -> Sequence[str]:
        """Plain ids; empty: verify's default."""

    @property
    def flows(self) -> Sequence[str]:
        """Outermost first."""

    @property
    def rounds(self) -> int | None:
        """Revisions of verify; None: the setting."""

    @property
    def lessons(self) -> str | None:
        """Mode (armed, observe, off); None: as for ids with the same flows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a model id asks for.

    Attributes:
        flows: Names of the control flows, outermost first.
        agent_model: The plain id of the model that answers.
        checkers: Plain ids of verify's checkers; empty: the default.
        arm: For ledger, spans and metrics.
        rounds: Revisions of verify; None: the setting.
        lessons: A crew's own mode; None: the setting.
    """

    flows: tuple[str, ...]
    agent_model: str
    checkers: tuple[str, ...]
    arm: str
    rounds: int | None = None
    lessons: str | None = None


def is_flow_id(model: str) -> bool:
    """Returns whether an id names a control flow or a crew."""
    return model.startswith((FLOW_PREFIX, CREW_PREFIX))


def read_model_id(model: str, crews: Mapping[str, CrewPlan]) -> Plan | None:
    """Reads a model id; None for a plain one.

    Raises:
        RequestRefused: The id is put together wrongly.
        ModelNotFound: There is no such flow or crew.
    """
    if model.startswith(CREW_PREFIX):
        return _crew(model.removeprefix(CREW_PREFIX), crews)
    if not model.startswith(FLOW_PREFIX):
        return None
    flows: list[str] = []
    checkers: tuple[str, ...] = ()
    rest = model
    while rest.startswith(FLOW_PREFIX):
        name, colon, rest = rest.removeprefix(FLOW_PREFIX).partition(":")
        if name not in FLOW_NAMES:
            raise ModelNotFound(
                f"there is no control flow of that name; the ids are "
                f"{', '.join(f'{FLOW_PREFIX}{flow}:<model>' for flow in FLOW_NAMES)}",
                error_code="model_not_found",
                param="model",
            )
        if not colon or not rest:
            raise _wrong(f"{FLOW_PREFIX}{name}: is not followed by a model id")
        if name in flows:
            raise _wrong(f"the model id names {name} twice")
        flows.append(name)
        if name == "verify":
            # The last + splits: a proposer's id may hold one itself.
            proposer, plus, checker = rest.rpartition("+")
            if plus:
                if not proposer or not checker:
                    raise _wrong("a + in a verify id stands between a proposer and a checker")
                rest, checkers = proposer, (checker,)
    for plain in (rest, *checkers):
        if is_flow_id(plain):
            raise _wrong("crews and checkers with control flows cannot be parts of a model id")
    return Plan(tuple(flows), rest, checkers, arm_of(flows))


def arm_of(flows: Sequence[str]) -> str:
    """Returns the arm of a set of flows, whatever their order in the id."""
    return "+".join(flow for flow in FLOW_NAMES if flow in flows) or PLAIN_ARM


def _crew(name: str, crews: Mapping[str, CrewPlan]) -> Plan:
    crew = crews.get(name)
    if crew is None:
        raise ModelNotFound(
            "there is no crew of that name; GET /v1/models lists the crews of this gateway",
            error_code="model_not_found",
            param="model",
        )
    return Plan(
        tuple(crew.flows),
        crew.proposer,
        tuple(crew.checkers),
        f"crew:{crew.name}",
        crew.rounds,
        crew.lessons,
    )


def _wrong(message: str) -> GatewayError:
    return refused(message, code="invalid_model", param="model")
