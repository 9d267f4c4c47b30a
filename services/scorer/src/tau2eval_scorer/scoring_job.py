"""Scores a conversation with its judge: the CPU work in threads, the model calls on the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tau2eval_airline import assertions_sha256
from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.judge import JudgeResult, JudgeSettings, LLMJudge, prompt_sha256
from tau2eval_scorer.record import Conversation
from tau2eval_scorer.scoring import ScoredConversation, score
from tau2eval_scorer.signals import NL_ASSERTION
from tau2eval_scorer.verdict import NOT_RUN_KINDS

T = TypeVar("T")

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
                questions in the same way.

        Raises:
            tau2eval_common.errors.NotFound: When its scenario is not in the catalog.
        """
        first: ScoredConversation = await self._in_thread(
            score, conversation, self._catalog, scenario_directory
        )
        judgement = await self._judgement(first, settings, kept)
        return await self._in_thread(  # type: ignore[no-any-return]
            score, conversation, self._catalog, scenario_directory, judgement, settings.threshold
        )

    async def _judgement(
        self, first: ScoredConversation, settings: JudgeSettings, kept: JudgeResult | None
    ) -> JudgeResult:
        conversation, card = first.conversation, first.card
        gates = NL_ASSERTION in card.success_signals
        if not gates and not (settings.enabled and settings.all_scenarios):
            return _unasked("not_needed")
        if conversation.stop_reason in NOT_RUN_KINDS or first.db.inconsistent:
            return _unasked("not_needed")
        if not settings.enabled or self._judge is None:
            return _unasked("off")
        if conversation.agent_turns < conversation.min_agent_turns:
            # A failure already, which the rates of the signals skip.
            return _unasked("not_needed")
        asked = settings.to_dict()
        if kept is not None and kept.stands_for(
            card.nl_assertions, settings.model, prompt_sha256(), asked
        ):
            return kept
        return await self._judge.judge_scenario(conversation, card, first.actions, settings)


def _unasked(status: Any) -> JudgeResult:
    return JudgeResult(status=status, assertions_sha256=assertions_sha256())
