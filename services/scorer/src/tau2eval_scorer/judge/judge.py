"""The judge: one question about all assertions of a call, answered with a verdict for each."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval_airline import assertions_sha256
from tau2eval_scorer.catalog import ScenarioCard
from tau2eval_scorer.judge.client import ChatModel, JudgeCallError, JudgeReply
from tau2eval_scorer.judge.parse import Answer, BadAnswer, parse_answer
from tau2eval_scorer.judge.prompt import (
    PROMPT_VERSION,
    REPAIR_PROMPT,
    SYSTEM_PROMPT,
    prompt_sha256,
    response_format,
)
from tau2eval_scorer.judge.result import AssertionVerdict, JudgeResult, JudgeUsage
from tau2eval_scorer.judge.sections import user_content
from tau2eval_scorer.judge.settings import JudgeSettings
from tau2eval_scorer.record import Conversation

logger = logging.getLogger(__name__)

MAX_TRIES = 3
"""Fresh questions for one vote; each may be followed by one repair."""
TOTAL_SECONDS = 240.0
"""A whole judgement, all votes together. The bridge waits 300 s for a verdict."""
PARALLEL_VOTES = 3
_FIRST_PAUSE_SECONDS = 1.0


class JudgeFailed(Exception):
    """One vote could not be had."""


@dataclass
class _Vote:
    """One independent judgement as it is asked for."""

    body: dict[str, Any]
    context: gateway_pb2.CallContext
    count: int
    timeout: float
    usage: list[JudgeUsage] = field(default_factory=list)


class LLMJudge:
    """Judges calls by a model behind the gateway.

    Args:
        chat: The gateway.
        total_seconds: Limit of one whole judgement.
        first_pause_seconds: Pause before the first repetition of a failed call; it doubles.
    """

    def __init__(
        self,
        chat: ChatModel,
        *,
        total_seconds: float = TOTAL_SECONDS,
        first_pause_seconds: float = _FIRST_PAUSE_SECONDS,
    ) -> None:
        self._chat = chat
        self._total = total_seconds
        self._first_pause = first_pause_seconds
        self._forms: dict[str, tuple[str, ...]] = {}

    async def judge_scenario(
        self,
        conversation: Conversation,
        card: ScenarioCard,
        actions: Sequence[Mapping[str, Any]] | None,
        settings: JudgeSettings,
    ) -> JudgeResult:
        """Judges a call. Never raises for a judge that fails: the result says so.

        Args:
            conversation: The record.
            card: Its scenario, with the assertions.
            actions: What the agent recorded.
            settings: An enabled judge.
        """
        content = user_content(
            conversation,
            card,
            actions,
            include_conversation=settings.include_conversation,
            compact=settings.compact_context,
        )
        header = conversation.header
        context = gateway_pb2.CallContext(
            run_id=header.run_id,
            scenario=header.scenario,
            trial=header.trial,
            role="judge",
            session_id=header.attempt_id,
        )
        timeout = settings.timeout_seconds
        votes = [
            _Vote(_body(settings, content, at), context, len(card.nl_assertions), timeout)
            for at in range(settings.votes)
        ]
        error = ""
        answers: list[Answer] = []
        try:
            async with asyncio.timeout(self._total):
                answers = await self._ask_all(votes)
        except JudgeFailed as failure:
            error = str(failure)
        except TimeoutError:
            error = f"the judge did not come to an end within {self._total:.0f} s"
        usage = tuple(call for vote in votes for call in vote.usage)
        blank = JudgeResult(
            status="error",
            error=error,
            model=settings.model,
            prompt_version=PROMPT_VERSION,
            prompt_sha256=prompt_sha256(),
            assertions_sha256=assertions_sha256(),
            votes=settings.votes,
            system_prompt=SYSTEM_PROMPT,
            user_content=content,
            usage=usage,
            settings=settings.to_dict(),
        )
        if error:
            logger.warning("%s %s: judge: %s", header.run_id, header.scenario, error)
            return blank
        return _judged(blank, card.nl_assertions, answers)

    async def _ask_all(self, votes: Sequence[_Vote]) -> list[Answer]:
        """Asks for every vote, a few at once; one that fails fails the whole judgement.

        Raises:
            JudgeFailed: When a vote cannot be had.
        """
        gate = asyncio.Semaphore(PARALLEL_VOTES)

        async def ask(vote: _Vote) -> Answer:
            async with gate:
                return await self._ask(vote)

        tasks = [asyncio.ensure_future(ask(vote)) for vote in votes]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, vote: _Vote) -> Answer:
        """Gets one vote: a question, one repair of an answer out of form, and repetitions.

        Raises:
            JudgeFailed: When there is no usable answer after all tries.
        """
        problem = ""
        pause = self._first_pause
        for attempt in range(MAX_TRIES):
            if attempt:
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 no secret
                pause *= 2
            try:
                return await self._question(vote)
            except BadAnswer as error:
                problem = f"its answer cannot be used: {error}"
            except JudgeCallError as error:
                problem = str(error)
                if not error.transient:
                    break
        raise JudgeFailed(problem)

    async def _question(self, vote: _Vote) -> Answer:
        """Asks once, and once more when the answer is not in form.

        Raises:
            BadAnswer: When the second answer is not in form either.
            JudgeCallError: When a model call fails.
        """
        messages = list(vote.body["messages"])
        reply = await self._complete(vote, messages)
        try:
            return _parse(reply, vote.count)
        except BadAnswer as error:
            messages += [
                {"role": "assistant", "content": reply.text or "(nothing)"},
                {
                    "role": "user",
                    "content": REPAIR_PROMPT.format(problem=error, count=vote.count),
                },
            ]
        return _parse(await self._complete(vote, messages), vote.count)

    async def _complete(self, vote: _Vote, messages: list[dict[str, str]]) -> JudgeReply:
        """One model call, structured where the model takes that.

        Raises:
            JudgeCallError: When it fails.
        """
        model = str(vote.body["model"])
        body = {**vote.body, "messages": messages}
        # What many models refuse, left out step by step; what worked is remembered.
        extras: dict[str, Any] = {"response_format": response_format(vote.count)}
        if "temperature" not in body:
            extras["temperature"] = 0.0
        forms = [self._forms[model]] if model in self._forms else _forms(extras)
        for at, form in enumerate(forms):
            asked = {**body, **{name: extras[name] for name in form if name in extras}}
            try:
                reply = await self._chat.complete(asked, vote.context, vote.timeout)
            except JudgeCallError as error:
                if not error.refused or at == len(forms) - 1:
                    raise
                continue
            self._forms[model] = form
            vote.usage.append(reply.usage)
            return reply
        raise AssertionError("unreachable")


def _body(settings: JudgeSettings, content: str, vote: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        **settings.parameters,
        "model": settings.model,
        "messages": [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": content},
        ],
    }
    seed = body.get("seed")
    if vote and isinstance(seed, int):
        # Votes with one seed would be one vote.
        body["seed"] = seed + vote
    return body


def _forms(extras: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """All ways to leave extras out, the fullest first."""
    names = tuple(extras)
    return [
        form for size in range(len(names), -1, -1) for form in itertools.combinations(names, size)
    ]


def _parse(reply: JudgeReply, count: int) -> Answer:
    if reply.cut_off:
        raise BadAnswer("it was cut off at the limit of tokens")
    return parse_answer(reply.text, count)


def _judged(
    blank: JudgeResult, assertions: Sequence[str], answers: Sequence[Answer]
) -> JudgeResult:
    evidence = _plain(blank.user_content)
    verdicts = []
    agreeing = 0
    for at, assertion in enumerate(assertions):
        decisions = [answer.decisions[at] for answer in answers]
        passed = sum(decision.passed for decision in decisions) * 2 > len(decisions)
        agreeing += sum(decision.passed == passed for decision in decisions)
        told = next(decision for decision in decisions if decision.passed == passed)
        verdicts.append(
            AssertionVerdict(
                index=at + 1,
                assertion=assertion,
                passed=passed,
                reason=told.reason,
                quote=told.quote,
                quote_found=_plain(told.quote) in evidence if told.quote.strip() else None,
                votes=tuple(decision.passed for decision in decisions),
            )
        )
    pairs = len(assertions) * len(answers)
    return replace(
        blank,
        status="judged",
        error="",
        score=round(fmean(answer.score for answer in answers), 6),
        reason=answers[0].reason,
        verdicts=tuple(verdicts),
        agreement=round(agreeing / pairs, 6) if pairs else None,
    )


def _plain(text: str) -> str:
    """Letters and digits only, so that quoting, escapes and spacing do not matter."""
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match.group(1), 16)), text)
    return re.sub(r"[\W_]+", " ", text.replace("\\n", " ").casefold()).strip()
