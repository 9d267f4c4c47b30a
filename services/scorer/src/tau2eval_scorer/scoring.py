"""Scores one conversation: signals, verdict and metrics, from the record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_scorer import metrics
from tau2eval_scorer.accuracy import speech_accuracy
from tau2eval_scorer.catalog import Catalog, ScenarioCard
from tau2eval_scorer.jsonio import parse_json
from tau2eval_scorer.judge.result import JudgeResult
from tau2eval_scorer.judge.settings import DEFAULT_THRESHOLD
from tau2eval_scorer.record import Conversation, Role
from tau2eval_scorer.signals import (
    ACTION_MATCH,
    CLEAN_EXIT,
    DB_STATE_MATCH,
    JUDGE_PASSED,
    NL_ASSERTION,
    DbState,
    Signal,
    Status,
    action_match,
    clean_exit,
    db_state_match,
    judge_passed,
    nl_assertion,
)
from tau2eval_scorer.verdict import Composite, Evidence, compose

MAX_EXPLANATION_CHARS = 2000


@dataclass(frozen=True)
class ScoredConversation:
    """A conversation and everything that is said about it.

    Attributes:
        fully_judged: False when nothing judges what had to be said: the gold actions change
            nothing, no assertion was judged, and it has not failed already.
        actions: What the agent recorded; None when that is not known.
        judgement: What the judge found, or why it was not asked; None while it is not settled.
        metrics: The content of metrics.json.
    """

    conversation: Conversation
    card: ScenarioCard
    signals: Mapping[str, Signal]
    composite: Composite
    db: DbState
    fully_judged: bool
    actions: Sequence[Mapping[str, Any]] | None
    judgement: JudgeResult | None
    metrics: Mapping[str, Any]

    def verdict_dict(self) -> dict[str, Any]:
        """Returns the verdict as the store keeps it."""
        return {
            "outcome": str(self.composite.outcome),
            "not_run_kind": self.composite.not_run_kind,
            "success_breakdown": self.composite.breakdown.to_dict(),
            "stop_reason": str(self.conversation.stop_reason),
            "duration_seconds": self.conversation.duration_seconds,
            "fully_judged": self.fully_judged,
            # It may name what an agent reported; a lone surrogate fits into no message.
            "explanation": self.composite.explanation[:MAX_EXPLANATION_CHARS]
            .encode("utf-8", "replace")
            .decode(),
        }


@dataclass(frozen=True)
class Facts:
    """What a conversation did, before anybody judges it.

    Attributes:
        actions: What the agent recorded; None when that is not known.
        action_match: Whether they are the reference answer's; None when they cannot be compared.
        action_detail: A line for a person on that.
    """

    card: ScenarioCard
    db: DbState
    actions: Sequence[Mapping[str, Any]] | None
    action_match: bool | None
    action_detail: str


def examine(conversation: Conversation, catalog: Catalog) -> Facts:
    """Compares the end state and the actions; takes up to seconds of CPU, so call it in a thread.

    Raises:
        tau2eval_common.errors.NotFound: When its scenario is not in the catalog.
    """
    card = catalog.card(conversation.header.scenario)
    actions = recorded_actions(conversation)
    matches, detail = catalog.action_match(card, actions)
    db = catalog.db_state(card, conversation.summary(Role.AGENT))
    return Facts(card, db, actions, matches, detail)


def score(
    conversation: Conversation,
    catalog: Catalog,
    scenario_directory: str,
    judgement: JudgeResult | None = None,
    judge_threshold: float = DEFAULT_THRESHOLD,
    facts: Facts | None = None,
) -> ScoredConversation:
    """Scores a conversation; takes up to seconds of CPU, so call it in a thread.

    Args:
        conversation: The record.
        catalog: The scenarios.
        scenario_directory: Where its artifacts lie below the run's folder, for metrics.json.
        judgement: What the judge found, or why it was not asked; None counts as a judge that is
            off.
        judge_threshold: Score from which the informational JUDGE_PASSED passes.
        facts: What `examine` found, if it was called already.

    Raises:
        tau2eval_common.errors.NotFound: When its scenario is not in the catalog.
    """
    facts = facts or examine(conversation, catalog)
    card, db = facts.card, facts.db
    signals = {
        signal.name: signal
        for signal in (
            db_state_match(db),
            clean_exit(conversation.stop_reason),
            action_match(facts.action_match, facts.action_detail),
            nl_assertion(card.nl_assertions, judgement),
        )
        if signal.name != NL_ASSERTION or NL_ASSERTION in card.success_signals
    }
    if judgement is not None and judgement.judged:
        signals[JUDGE_PASSED] = judge_passed(judgement, judge_threshold)
    composite = compose(
        Evidence(
            stop_reason=conversation.stop_reason,
            stop_detail=conversation.stop_detail,
            signals=signals,
            success_signals=card.success_signals,
            agent_turns=conversation.agent_turns,
            min_agent_turns=conversation.min_agent_turns,
            db_inconsistent=db.inconsistent,
        )
    )
    fully_judged = (
        card.gold_mutates
        # A failure already, for which nobody was asked.
        or composite.insufficient_agent_turns
        or (
            NL_ASSERTION in signals
            and signals[NL_ASSERTION].status in (Status.PASSED, Status.FAILED)
        )
    )
    return ScoredConversation(
        conversation=conversation,
        card=card,
        signals=signals,
        composite=composite,
        db=db,
        fully_judged=fully_judged,
        actions=facts.actions,
        judgement=judgement,
        metrics=metrics.build(
            conversation=conversation,
            card=card,
            signals=signals,
            composite=composite,
            db=db,
            fully_judged=fully_judged,
            is_action_match=facts.action_match,
            judgement=judgement,
            accuracy=speech_accuracy(
                conversation.turns, conversation.header.modality, conversation.duration_seconds
            ),
            scenario_directory=scenario_directory,
        ),
    )


def recorded_actions(conversation: Conversation) -> list[Mapping[str, Any]] | None:
    """Returns the agent's actions: from its summary, or from its events when it was lost."""
    summary = conversation.summary(Role.AGENT)
    if summary is not None:
        return list(summary.actions)
    actions: list[Mapping[str, Any]] = []
    for event in conversation.events:
        if event.role is Role.AGENT and event.kind == "action_recorded":
            try:
                action = parse_json(str(event.data["action_json"]))
            except ValueError:
                return None
            if not isinstance(action, dict):
                return None
            actions.append(action)
    return actions or None


__all__ = [
    "ACTION_MATCH",
    "CLEAN_EXIT",
    "DB_STATE_MATCH",
    "JUDGE_PASSED",
    "NL_ASSERTION",
    "Facts",
    "ScoredConversation",
    "examine",
    "recorded_actions",
    "score",
]
