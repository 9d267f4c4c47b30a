"""The scenarios as the scorer needs them, over libs/airline."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_airline import (
    ChangedRecord,
    Tau2BaseScenario,
    UnknownScenarioError,
    apply_changes,
    compare_actions,
    compare_databases,
    get_scenario,
    list_scenarios,
    load_fixtures,
    load_seed,
    source_from_env,
)
from tau2eval_common.errors import InvalidInput, NotFound
from tau2eval_scorer.jsonio import parse_json
from tau2eval_scorer.record import Summary
from tau2eval_scorer.signals import DbState


@dataclass(frozen=True)
class ScenarioCard:
    """A scenario's facts; see GetScenarioResponse.

    Attributes:
        reference_answer: {"actions": [...]}.
        gold_mutates: Whether the gold actions change the database.
        nl_assertions: The adopted assertions; empty without any.
    """

    name: str
    domain: str
    tau2_id: str
    agent_prompt: str
    user_prompt: str
    agent_tool_domain: str
    agent_tool_names: tuple[str, ...]
    max_duration_seconds: int
    success_signals: tuple[str, ...]
    nl_assertions: tuple[str, ...]
    agent_db_path: str
    seed_db_hash: str
    expected_db_hash: str
    reference_answer: Mapping[str, Any]
    gold_mutates: bool


class Catalog:
    """All scenarios of the installed domains; safe to use from several threads.

    Scenarios are computed when they are first asked for. `load` checks the fixtures beforehand.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scenarios: dict[str, Tau2BaseScenario] = {}
        self._cards: dict[str, ScenarioCard] = {}

    def load(self) -> None:
        """Loads the fixtures and the seeded database.

        Raises:
            tau2eval_airline.FixtureError: When a file is missing or is not the pinned one.
        """
        source = source_from_env()
        load_fixtures(source)
        load_seed(source).hash()

    def names(self, domain: str = "") -> list[str]:
        """Returns scenario names in numeric order; only those of a domain when it is given."""
        return list_scenarios(domain or None)

    def domain_of(self, name: str) -> tuple[str, str]:
        """Returns (domain, tau2_id) of a scenario without loading anything.

        Raises:
            NotFound: When there is no such scenario.
        """
        scenario = self._scenario(name)
        return scenario.domain, scenario.tau2_id

    def check_names(self, names: Sequence[str]) -> None:
        """Refuses names that are no scenarios.

        Raises:
            InvalidInput: With the nearest names that exist.
        """
        for name in names:
            try:
                self._scenario(name)
            except NotFound as error:
                raise InvalidInput(error.message, reason="NO_SUCH_SCENARIO") from None

    def card(self, name: str) -> ScenarioCard:
        """Returns a scenario's facts; replays its gold actions when first asked.

        Raises:
            NotFound: When there is no such scenario.
        """
        scenario = self._scenario(name)
        with self._lock:
            if name not in self._cards:
                self._cards[name] = _card(scenario)
            return self._cards[name]

    def db_state(self, card: ScenarioCard, summary: Summary | None) -> DbState:
        """Compares the agent's reported end state with the expected one.

        The reported hash must be that of the seeded database with the reported changes; a report
        that contradicts itself is `inconsistent` and never a score.
        """
        if not card.agent_db_path:
            return DbState(has_database=False)
        if summary is None or not summary.db_hash:
            return DbState(True, card.expected_db_hash, "", "missing")
        scenario = self._scenario(card.name)
        expected = card.expected_db_hash
        try:
            actual = apply_changes(
                scenario.db,
                [
                    ChangedRecord(
                        change.table,
                        change.key,
                        parse_json(change.record_json),
                        change.payment_operation_sizes,
                    )
                    for change in summary.changes
                ],
            )
            rebuilt = actual.hash()
            if rebuilt != summary.db_hash:
                text = (
                    f"the agent's bot reported the hash {summary.db_hash[:64]}, but its changed "
                    f"records make {rebuilt}"
                )
                return DbState(True, expected, summary.db_hash, inconsistent=text)
            result = compare_databases(scenario.expected_scenario_db, actual)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            text = f"the agent's bot reported changed records that cannot be read: {error}"
            return DbState(True, expected, summary.db_hash, inconsistent=text[:500])
        return DbState(
            True, expected, summary.db_hash, result.how, tuple(map(dict, result.differences))
        )

    def action_match(
        self, card: ScenarioCard, actions: Sequence[Mapping[str, Any]] | None
    ) -> tuple[bool | None, str]:
        """Compares actions with the reference answer.

        Returns:
            Whether they match (None when there are none to compare), and a line for a person.
        """
        if actions is None:
            return None, "the agent reported no actions"
        wanted = len(card.reference_answer.get("actions") or ())
        try:
            matches = compare_actions(card.reference_answer, actions)
        except (ValueError, TypeError, AttributeError) as error:
            return None, f"the agent's actions cannot be read: {error}"[:500]
        return matches, f"{len(actions)} actions recorded, {wanted} in the reference answer"

    def _scenario(self, name: str) -> Tau2BaseScenario:
        with self._lock:
            if name not in self._scenarios:
                try:
                    self._scenarios[name] = get_scenario(name)
                except UnknownScenarioError as error:
                    raise NotFound(str(error), reason="NO_SUCH_SCENARIO") from None
            return self._scenarios[name]


def _card(scenario: Tau2BaseScenario) -> ScenarioCard:
    state = scenario.setup_shared_state({}, "agent")
    return ScenarioCard(
        name=scenario.name,
        domain=scenario.domain,
        tau2_id=scenario.tau2_id,
        agent_prompt=scenario.get_agent_prompt(),
        user_prompt=scenario.get_user_prompt(),
        agent_tool_domain=scenario.agent_resources.tool_domain,
        agent_tool_names=tuple(scenario.agent_resources.tools),
        max_duration_seconds=scenario.max_duration,
        success_signals=tuple(str(signal) for signal in scenario.success_signals),
        nl_assertions=tuple(scenario.nl_assertions or ()),
        agent_db_path=str(state.get("db_path", "")),
        seed_db_hash=scenario.seed_db_hash,
        expected_db_hash=scenario.expected_db_hash,
        reference_answer=scenario.reference_answer,
        gold_mutates=scenario.gold_mutates,
    )
