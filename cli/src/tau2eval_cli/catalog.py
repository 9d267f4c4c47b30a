"""`scenarios`, `show` and `gold`: the domain itself, without any service."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tau2eval_airline as airline
from tau2eval_cli.errors import WrongUse
from tau2eval_cli.plan import check_name, in_domain


@contextmanager
def fixtures_explained() -> Iterator[None]:
    """Turns a missing or altered fixture into a message.

    Raises:
        WrongUse: With what the domain says about it.
    """
    try:
        yield
    except airline.AirlineError as error:
        raise WrongUse(str(error)) from None


def known_scenarios() -> list[str]:
    """Returns the names of all scenarios, in order."""
    return list(airline.list_scenarios())


def scenario_names(domain: str) -> list[str]:
    """Returns the names of a domain's scenarios; of all with an empty domain.

    Raises:
        WrongUse: When there is no such domain.
    """
    return in_domain(known_scenarios(), domain) if domain else known_scenarios()


def list_entries(domain: str) -> list[dict[str, Any]]:
    """Returns name, domain and tau2_id of each scenario."""
    scenarios = [airline.get_scenario(name) for name in scenario_names(domain)]
    return [
        {"name": scenario.name, "domain": scenario.domain, "tau2_id": scenario.tau2_id}
        for scenario in scenarios
    ]


def describe(name: str) -> dict[str, Any]:
    """Returns what a scenario is made of.

    Raises:
        WrongUse: When there is no such scenario, or a fixture is missing or altered.
    """
    check_name(known_scenarios(), name)
    with fixtures_explained():
        scenario = airline.get_scenario(name)
        assertions = scenario.nl_assertions
        return {
            "name": scenario.name,
            "domain": scenario.domain,
            "tau2_id": scenario.tau2_id,
            "agent_prompt": scenario.get_agent_prompt(),
            "user_prompt": scenario.get_user_prompt(),
            "tools": list(scenario.agent_resources.tools),
            "max_duration": scenario.max_duration,
            "success_signals": [str(signal) for signal in scenario.success_signals],
            "nl_assertions": None if assertions is None else list(assertions),
        }


def success_signals(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns the signals that gate each scenario, by name.

    Raises:
        WrongUse: When a fixture is missing or altered.
    """
    with fixtures_explained():
        return {
            name: [str(signal) for signal in airline.get_scenario(name).success_signals]
            for name in names
        }


def gold(domain: str) -> dict[str, dict[str, Any]]:
    """Returns the ground truth of each scenario by name: both hashes and the recorded actions.

    Raises:
        WrongUse: When there is no such domain, or a fixture is missing or altered.
    """
    with fixtures_explained():
        truth = {}
        for name in scenario_names(domain):
            scenario = airline.get_scenario(name)
            truth[name] = {
                "seed_db_hash": scenario.seed_db_hash,
                "expected_db_hash": scenario.expected_db_hash,
                "reference_answer": scenario.reference_answer,
            }
        return truth


def check_fixtures() -> None:
    """Loads the fixtures, so that a fault is told before any service starts.

    Raises:
        WrongUse: When one is missing or altered.
    """
    with fixtures_explained():
        airline.load_fixtures()
        airline.load_seed()


def print_json(value: object) -> None:
    """Prints a value as JSON on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_scenarios(domain: str) -> None:
    """Prints the scenarios as a table."""
    from rich.console import Console
    from rich.table import Table

    entries = list_entries(domain)
    table = Table(box=None, pad_edge=False)
    for heading in ("scenario", "domain", "tau2 task"):
        table.add_column(heading, no_wrap=True)
    for entry in entries:
        table.add_row(entry["name"], entry["domain"], entry["tau2_id"])
    console = Console()
    console.print(table)
    console.print(f"{len(entries)} scenarios; `tau2-eval show NAME` tells what one is made of")


def print_scenario(name: str) -> None:
    """Prints what a scenario is made of, for reading."""
    facts = describe(name)
    print(f"{facts['name']}  (domain {facts['domain']}, tau2 task {facts['tau2_id']})")
    print(f"longest call: {facts['max_duration']} s")
    print(f"gated by: {', '.join(facts['success_signals'])}")
    print(f"agent's tools: {', '.join(facts['tools'])}")
    if facts["nl_assertions"]:
        print("\nclaims judged about what was said")
        for number, claim in enumerate(facts["nl_assertions"], start=1):
            print(f"{number:3}. {claim}")
    for heading, key in (("caller's prompt", "user_prompt"), ("agent's prompt", "agent_prompt")):
        print(f"\n===== {heading} =====\n{facts[key]}")


def print_gold(domain: str) -> None:
    """Prints the ground truth as a table."""
    from rich.console import Console
    from rich.table import Table

    truth = gold(domain)
    table = Table(box=None, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    table.add_column("database", no_wrap=True)
    table.add_column("recorded actions", overflow="fold")
    for name, entry in truth.items():
        same = entry["expected_db_hash"] == entry["seed_db_hash"]
        actions = entry["reference_answer"]["actions"]
        table.add_row(
            name,
            "unchanged" if same else entry["expected_db_hash"][:12],
            ", ".join(action["name"] for action in actions) or "none",
        )
    records = sum(len(entry["reference_answer"]["actions"]) for entry in truth.values())
    acting = sum(bool(entry["reference_answer"]["actions"]) for entry in truth.values())
    console = Console()
    console.print(table)
    console.print(f"{len(truth)} scenarios, {acting} with actions, {records} records")
