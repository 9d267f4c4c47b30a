"""Scores a conversation with its judge: the CPU work in threads, the model calls on the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tau2eval_airline import assertions_sha256
from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.judge import JudgeResult, JudgeSettings, LLMJudge, prompt_sha256
from tau2eval_scorer.judge.result import JudgeQuestion, JudgeStatus
from tau2eval_scorer.judge.sections import JudgeInput, judge_input
from tau2eval_scorer.record import Conversation
from tau2eval_scorer.scoring import Facts, ScoredConversation, examine, score
from tau2eval_scorer.signals import NL_ASSERTION
from tau2eval_scorer.verdict import NOT_RUN_KINDS

InThread = Callable[..., Awaitable[Any]]


class ConversationScorer:
    """Scores conversations.

    Args:
        catalog: The scenarios.
        in_thread: Runs a function with arguments in a thread.
        judge: The judge; None where no gateway is known.
    """

    def __init__(self, catalog: Catalog, in_thread: InThread, judge: LLMJudge | None) -> None:
        self._catalog = catalog
        self._in_thread = in_thread
        self._judge = judge

    async def score(
        self,
        conversation: Conversation,
        scenario_directory: str,
        settings: JudgeSettings,
        kept: JudgeResult | None = None,
    ) -> ScoredConversation:
        """Scores a conversation and asks the judge where something waits for it.

        Args:
            conversation: The record.
            scenario_directory: Where its artifacts lie below the run's folder.
            settings: The judge; one without a model is off.
            kept: An earlier judgement of the same conversation, taken when it answers the same
                question, put in the same way.

        Raises:
            tau2eval_common.errors.NotFound: When its scenario is not in the catalog.
        """
        facts: Facts = await self._in_thread(examine, conversation, self._catalog)
        judgement = await self._judgement(conversation, facts, settings, kept)
        scored: ScoredConversation = await self._in_thread(
            score,
            conversation,
            self._catalog,
            scenario_directory,
            judgement,
            settings.threshold,
            facts,
        )
        return scored

    async def _judgement(
        self,
        conversation: Conversation,
        facts: Facts,
        settings: JudgeSettings,
        kept: JudgeResult | None,
    ) -> JudgeResult:
        status = _settled(conversation, facts, settings)
        if status is not None:
            return JudgeResult(status=status, assertions_sha256=assertions_sha256())
        if self._judge is None:
            return JudgeResult(
                status="error",
                error="the scorer knows no gateway to ask the judge through",
                model=settings.model,
                assertions_sha256=assertions_sha256(),
                settings=settings.to_dict(),
            )
        asked: JudgeInput = await self._in_thread(
            judge_input, conversation, facts.card, facts.actions, settings
        )
        question = JudgeQuestion(
            facts.card.nl_assertions, asked.user_content, prompt_sha256(), settings.to_dict()
        )
        if kept is not None and kept.stands_for(question):
            return kept
        return await self._judge.judge_scenario(
            conversation, facts.card, facts.actions, settings, asked
        )


def _settled(
    conversation: Conversation, facts: Facts, settings: JudgeSettings
) -> JudgeStatus | None:
    """Returns why the judge is not asked, or None when it is."""
    gates = NL_ASSERTION in facts.card.success_signals
    if not gates and not (settings.enabled and settings.all_scenarios):
        return "not_needed"
    if conversation.stop_reason in NOT_RUN_KINDS or facts.db.inconsistent:
        # Infrastructure: there is no call to judge.
        return "not_needed"
    if not settings.enabled:
        return "off"
    if conversation.agent_turns < conversation.min_agent_turns:
        # A failure already, which the rates of the signals skip.
        return "not_needed"
    return None
