"""The scenarios by name."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, TypeVar

from tau2eval_airline.errors import DuplicateScenarioError, UnknownScenarioError
from tau2eval_airline.fixtures import FixtureSource

if TYPE_CHECKING:
    from .base import Tau2BaseScenario

ScenarioClass = TypeVar("ScenarioClass", bound="type[Tau2BaseScenario]")

_NUMBER = re.compile(r"(\d+)")

# Filled while the scenario modules are imported, and read only after that.
_scenarios: dict[str, type[Tau2BaseScenario]] = {}


def register_eval_scenario(cls: ScenarioClass) -> ScenarioClass:
    """Registers a concrete scenario class under its `name`; a class decorator.

    Args:
        cls: The class; it sets `name` and `tau2_id`.

    Returns:
        The class itself.

    Raises:
        DuplicateScenarioError: If another class has the name already.
        ValueError: If the name is not "<domain>__<id>".
    """
    if "__" not in cls.name.strip("_"):
        raise ValueError(f"{cls.__name__}: a scenario's name is <domain>__<id>, not {cls.name!r}")
    if cls.name in _scenarios:
        other = _scenarios[cls.name].__name__
        raise DuplicateScenarioError(f"{cls.__name__} and {other} are both named {cls.name!r}")
    _scenarios[cls.name] = cls
    return cls


def list_scenarios(domain: str | None = None) -> list[str]:
    """Returns the names of all scenarios, numbers in numeric order.

    Args:
        domain: Only names that start with "<domain>__"; all by default.
    """
    names = [name for name in _scenarios if domain is None or name.startswith(f"{domain}__")]
    return sorted(names, key=_natural)


def list_domains() -> list[str]:
    """Returns the domains that have scenarios, sorted."""
    return sorted({name.split("__")[0] for name in _scenarios})


def get_scenario(name: str, source: FixtureSource | None = None) -> Tau2BaseScenario:
    """Returns a new instance of a scenario; its properties are computed on first use.

    Args:
        name: The scenario's name, such as "tau2_airline__7".
        source: Where its fixtures are; the environment's choice by default.

    Raises:
        UnknownScenarioError: If there is none of that name; the message suggests near ones.
    """
    if name not in _scenarios:
        near = difflib.get_close_matches(name, list_scenarios(), n=3)
        advice = f"did you mean {' or '.join(near)}?" if near else f"domains: {list_domains()}"
        raise UnknownScenarioError(f"there is no scenario {name!r}; {advice}")
    return _scenarios[name](source)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(name)]
