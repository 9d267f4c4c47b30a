"""The scenarios; importing this package registers all of them and loads no fixture."""

from . import airline_00_24, airline_25_49
from .airline import GOLD_ACTION_DROPS, Tau2AirlineBaseScenario
from .base import (
    AgentResources,
    GoldAction,
    Side,
    Tau2BaseScenario,
    UserPersona,
    UserResources,
)
from .registry import get_scenario, list_domains, list_scenarios, register_eval_scenario

__all__ = [
    "GOLD_ACTION_DROPS",
    "AgentResources",
    "GoldAction",
    "Side",
    "Tau2AirlineBaseScenario",
    "Tau2BaseScenario",
    "UserPersona",
    "UserResources",
    "airline_00_24",
    "airline_25_49",
    "get_scenario",
    "list_domains",
    "list_scenarios",
    "register_eval_scenario",
]
