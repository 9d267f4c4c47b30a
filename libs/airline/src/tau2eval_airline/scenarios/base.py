"""What every tau2 scenario derives from its task: prompts, tools, gold, expected database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

from tau2eval_airline.database import OverlayDatabase, Record, SeedDatabase, clone
from tau2eval_airline.errors import GoldReplayError
from tau2eval_airline.fixtures import (
    Fixtures,
    FixtureSource,
    load_fixtures,
    load_seed,
    source_from_env,
)
from tau2eval_airline.prompts import (
    USER_ROLE,
    VOICE_ALPHANUMERIC_RULE,
    agent_prompt,
    user_prompt,
)
from tau2eval_airline.signals import Signal
from tau2eval_airline.tools.base import _Tau2InvokeMixin

Side = Literal["agent", "user"]


@dataclass(frozen=True)
class UserPersona:
    """Who the simulated caller is.

    Attributes:
        role: The part to play.
        personality: tau2's task_instructions.
        name: None in tau2: the identity comes from what the caller knows.
    """

    role: str
    personality: str | None
    name: str | None = None


@dataclass(frozen=True)
class UserResources:
    """What the simulated caller knows, and what not; None where tau2 says nothing."""

    known_info: str | None
    unknown_info: str | None


@dataclass(frozen=True)
class AgentResources:
    """What the agent's bot registers: class names, looked up in a domain, then in the default."""

    tool_domain: str
    tools: tuple[str, ...]


class GoldAction(NamedTuple):
    """One action of the gold list, reads included.

    Attributes:
        action_id: tau2's id, such as "39_10".
        name: tau2's method name.
        arguments: The arguments; a copy.
    """

    action_id: str
    name: str
    arguments: dict[str, Any]


class GoldReplay(NamedTuple):
    """What one pass over the gold actions yields."""

    db: OverlayDatabase
    actions: list[Record]


class Tau2BaseScenario:
    """One tau2 task as a voice conversation.

    A concrete class sets `name` and `tau2_id` and nothing else. A domain's base class sets
    `domain`, `agent_tools` and `_build_tool_map`.

    Args:
        source: Where the fixtures are; the environment's choice by default.
    """

    name: ClassVar[str]
    tau2_id: ClassVar[str]
    domain: ClassVar[str]
    db_path: ClassVar[str]
    agent_tools: ClassVar[tuple[str, ...]]
    """Class names of the agent's tools."""

    user_tools: ClassVar[tuple[str, ...]] = ()
    """Class names of the caller's tools: none."""

    max_duration: ClassVar[int] = 900
    """Limit of the conversation in seconds, unless a run sets its own."""

    def __init__(self, source: FixtureSource | None = None) -> None:
        self._source = source

    @cached_property
    def source(self) -> FixtureSource:
        """Where this scenario's fixtures are."""
        return self._source or source_from_env()

    @cached_property
    def _fixtures(self) -> Fixtures:
        return load_fixtures(self.source)

    @cached_property
    def tau2_task(self) -> Mapping[str, Any]:
        """The task as it is replayed; shared, never to be modified."""
        return self._fixtures.tasks[self.tau2_id]

    @cached_property
    def policy(self) -> str:
        """The text of policy.md, unchanged."""
        return self._fixtures.policy

    @cached_property
    def db(self) -> SeedDatabase:
        """The seeded database, shared."""
        return load_seed(self.source)

    @cached_property
    def seed_db_hash(self) -> str:
        """Plain hash of the seeded database."""
        return self.db.hash()

    @cached_property
    def gold_actions(self) -> list[GoldAction]:
        """The gold actions in order, reads included, corrections applied."""
        actions = self.tau2_task["evaluation_criteria"]["actions"] or []
        return [
            GoldAction(str(action["action_id"]), str(action["name"]), clone(action["arguments"]))
            for action in actions
        ]

    @cached_property
    def _gold(self) -> GoldReplay:
        return self._gold_replay()

    @cached_property
    def expected_scenario_db(self) -> OverlayDatabase:
        """The database after the gold actions; shared, never to be written to."""
        return self._gold.db

    @cached_property
    def expected_db_hash(self) -> str:
        """Plain hash of expected_scenario_db."""
        return self._gold.db.hash()

    @cached_property
    def gold_mutates(self) -> bool:
        """Whether the gold actions change the database."""
        return self.expected_db_hash != self.seed_db_hash

    @cached_property
    def reference_answer(self) -> dict[str, list[Record]]:
        """The records of the gold actions that record: {"actions": [...]}."""
        return {"actions": self._gold.actions}

    @cached_property
    def nl_assertions(self) -> tuple[str, ...] | None:
        """The adopted claims about what is said; None without any."""
        return None

    @cached_property
    def success_signals(self) -> tuple[Signal, ...]:
        """The signals that gate the verdict."""
        spoken = (Signal.NL_ASSERTION,) if self.nl_assertions else ()
        return (Signal.DB_STATE_MATCH, *spoken, Signal.CLEAN_EXIT)

    @cached_property
    def agent_resources(self) -> AgentResources:
        """What the agent's bot registers."""
        return AgentResources(self.domain, self.agent_tools)

    @property
    def agent_persona(self) -> str:
        """A stub for code that walks over all scenarios; no part of the prompt."""
        return ""

    @property
    def agent_task(self) -> str:
        """A stub for code that walks over all scenarios; no part of the prompt."""
        return ""

    @property
    def agent_actions(self) -> tuple[str, ...]:
        """A stub for code that walks over all scenarios; no part of the prompt."""
        return ()

    @cached_property
    def _instructions(self) -> Mapping[str, Any]:
        instructions: Mapping[str, Any] = self.tau2_task["user_scenario"]["instructions"]
        return instructions

    @cached_property
    def user_persona(self) -> UserPersona:
        """Who the caller is; nameless, because known_info says the name."""
        return UserPersona(role=USER_ROLE, personality=self._instructions["task_instructions"])

    @cached_property
    def user_task(self) -> str:
        """Why the caller calls."""
        return str(self._instructions["reason_for_call"])

    @cached_property
    def user_guidelines(self) -> tuple[str, ...]:
        """Rules for the caller's speech: the spelling rule only."""
        return (VOICE_ALPHANUMERIC_RULE,)

    @cached_property
    def user_resources(self) -> UserResources:
        """What the caller knows, and what not."""
        return UserResources(self._instructions["known_info"], self._instructions["unknown_info"])

    def get_agent_prompt(self) -> str:
        """Returns the agent's system prompt: the policy unchanged, then the notes."""
        return agent_prompt(self.policy)

    def get_user_prompt(self) -> str:
        """Returns the simulated caller's system prompt."""
        persona, resources = self.user_persona, self.user_resources
        return user_prompt(
            role=persona.role,
            personality=persona.personality,
            task=self.user_task,
            guidelines=self.user_guidelines,
            known=resources.known_info,
            unknown=resources.unknown_info,
            name=persona.name,
        )

    def setup_shared_state(self, state: dict[str, Any], side: Side = "agent") -> dict[str, Any]:
        """Puts into a bot's initial state what its side of the scenario needs.

        Args:
            state: The state to be sent to the bot; changed in place.
            side: Whose bot it is.

        Returns:
            `state`: with db_path for the agent, untouched for the caller.
        """
        if side == "agent":
            state["db_path"] = self.db_path
        return state

    def _build_tool_map(self, state: dict[str, Any]) -> Mapping[str, _Tau2InvokeMixin]:
        """Makes the domain's tools over a state, by tau2's method name."""
        raise NotImplementedError

    def _gold_replay(self) -> GoldReplay:
        """Runs the gold actions through the tools' invoke() on a fresh overlay.

        Raises:
            GoldReplayError: If an action is unknown or refused; the 50 airline golds have none.
        """
        db = OverlayDatabase(self.db)
        state: dict[str, Any] = {"db": db, "actions": [], "side": "agent"}
        tools = self._build_tool_map(state)
        for action in self.gold_actions:
            tool = tools.get(action.name)
            where = f"{self.name}, gold action {action.action_id} ({action.name})"
            if tool is None:
                raise GoldReplayError(f"{where}: there is no such tool")
            result = tool.invoke(**action.arguments)
            if result.get("status") == "error":
                raise GoldReplayError(f"{where}: {result['message']}")
        return GoldReplay(db, state["actions"])


__all__ = [
    "AgentResources",
    "GoldAction",
    "GoldReplay",
    "Side",
    "Tau2BaseScenario",
    "UserPersona",
    "UserResources",
]
