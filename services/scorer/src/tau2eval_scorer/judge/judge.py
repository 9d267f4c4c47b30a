"""The judge: one question about all assertions of a call, answered with a verdict for each."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval_airline import assertions_sha256
from tau2eval_scorer.catalog import ScenarioCard
from tau2eval_scorer.judge.client import ChatModel, JudgeCallError, JudgeReply
from tau2eval_scorer.judge.majority import judged, settled
from tau2eval_scorer.judge.parse import Answer, BadAnswer, parse_answer
from tau2eval_scorer.judge.prompt import (
    PROMPT_VERSION,
    REPAIR_PROMPT,
    SYSTEM_PROMPT,
    prompt_sha256,
    response_format,
)
from tau2eval_scorer.judge.result import JudgeResult, JudgeUsage
from tau2eval_scorer.judge.sections import JudgeInput, judge_input
from tau2eval_scorer.judge.settings import JudgeSettings
from tau2eval_scorer.record import Conversation

logger = logging.getLogger(__name__)

MAX_ANSWERS = 3
"""Fresh questions for one vote whose answers could not be used; each is followed by one repair."""
MAX_CALLS = 5
"""Fresh questions for one vote whose model call failed."""
TOTAL_SECONDS = 220.0
"""A whole judgement, all votes together: with the rest of the scoring it stays below 240 s, and the
bridge waits 300 s for a verdict."""
PARALLEL_VOTES = 3
_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 60.0


class JudgeFailed(Exception):
    """One vote could not be had."""


@dataclass
class _Vote:
    """One independent judgement as it is asked for; `problem` is what went wrong last."""

    body: dict[str, Any]
    context: gateway_pb2.CallContext
    count: int
    timeout: float
    temperature: float | None
    usage: list[JudgeUsage] = field(default_factory=list)
    problem: str = ""


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
        self._refused: dict[str, set[str]] = {}

    async def judge_scenario(
        self,
        conversation: Conversation,
        card: ScenarioCard,
        actions: Sequence[Mapping[str, Any]] | None,
        settings: JudgeSettings,
        asked: JudgeInput | None = None,
    ) -> JudgeResult:
        """Judges a call. Never raises for a judge that fails: the result says so.

        Args:
            conversation: The record.
            card: Its scenario, with the assertions.
            actions: What the agent recorded.
            settings: An enabled judge.
            asked: The judge's input, where it is made already.
        """
        if asked is None:
            asked = judge_input(conversation, card, actions, settings)
        header = conversation.header
        context = gateway_pb2.CallContext(
            run_id=header.run_id,
            scenario=header.scenario,
            trial=header.trial,
            role="judge",
            session_id=header.attempt_id,
        )
        count, timeout = len(card.nl_assertions), settings.timeout_seconds
        # Several votes at temperature 0 would be one vote.
        fixed = "temperature" in settings.parameters or settings.votes > 1
        temperature = None if fixed else 0.0
        votes = [
            _Vote(_body(settings, asked.user_content, at), context, count, timeout, temperature)
            for at in range(settings.votes)
        ]
        answers, problems = await self._ask_all(votes)
        result = JudgeResult(
            status="error",
            model=settings.model,
            prompt_version=PROMPT_VERSION,
            prompt_sha256=prompt_sha256(),
            assertions_sha256=assertions_sha256(),
            votes=len(votes),
            failed_votes=len(problems),
            system_prompt=SYSTEM_PROMPT,
            user_content=asked.user_content,
            usage=tuple(call for vote in votes for call in vote.usage),
            settings=settings.to_dict(),
        )
        if problems:
            failed = f"{len(problems)} of {len(votes)} votes failed: {problems[0]}"
            text = failed if len(votes) > 1 else problems[0]
            logger.warning("%s %s: judge: %s", header.run_id, header.scenario, text)
            if not settled(answers, count, len(votes)):
                return replace(result, error=text)
        return judged(result, card.nl_assertions, answers, asked.quotes)

    async def _ask_all(self, votes: Sequence[_Vote]) -> tuple[list[Answer], list[str]]:
        """Asks for every vote, a few at once; returns those that were had, and why others not."""
        gate = asyncio.Semaphore(PARALLEL_VOTES)

        async def ask(vote: _Vote) -> Answer:
            async with gate:
                return await self._ask(vote)

        tasks = [asyncio.ensure_future(ask(vote)) for vote in votes]
        try:
            await asyncio.wait(tasks, timeout=self._total)
        finally:
            late = [task for task in tasks if task.cancel()]
            await asyncio.gather(*late, return_exceptions=True)
        answers: list[Answer] = []
        problems: list[str] = []
        for task, vote in zip(tasks, votes, strict=True):
            if task.cancelled():
                last = f" ({vote.problem})" if vote.problem else ""
                problems.append(f"the judge came to no end within {self._total:g} s{last}")
            elif (error := task.exception()) is None:
                answers.append(task.result())
            elif isinstance(error, JudgeFailed):
                problems.append(str(error))
            else:
                # Of a fault of ours nothing else must be lost: the conversation is judged later.
                logger.error("the judge failed", exc_info=error)
                problems.append(f"unexpected {type(error).__name__} in the judge")
        return answers, problems

    async def _ask(self, vote: _Vote) -> Answer:
        """Gets one vote: a question, one repair of an answer out of form, and repetitions.

        Raises:
            JudgeFailed: When there is no usable answer after all tries.
        """
        pause = self._first_pause
        bad = failed = 0
        while True:
            wait = pause
            try:
                return await self._question(vote)
            except BadAnswer as error:
                vote.problem = f"its answer cannot be used: {error}"
                bad += 1
            except JudgeCallError as error:
                vote.problem = str(error)
                failed += 1
                wait = max(pause, min(error.retry_after_seconds, _MAX_PAUSE_SECONDS))
                if not error.transient:
                    raise JudgeFailed(vote.problem) from None
            if bad >= MAX_ANSWERS or failed >= MAX_CALLS:
                raise JudgeFailed(vote.problem)
            await asyncio.sleep(wait * random.uniform(1.0, 1.25))  # noqa: S311 no secret
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

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

        What a model refuses is left out, and for this model from then on.

        Raises:
            JudgeCallError: When it fails.
        """
        model = str(vote.body["model"])
        body = {**vote.body, "messages": messages}
        extras: dict[str, Any] = {"response_format": response_format(vote.count)}
        if vote.temperature is not None:
            extras["temperature"] = vote.temperature
        refused = self._refused.setdefault(model, set())
        form = frozenset(extras) - refused
        left = _subsets(form)
        while True:
            left.remove(form)
            offered = {name: extras[name] for name in sorted(form)}
            try:
                reply = await self._chat.complete({**body, **offered}, vote.context, vote.timeout)
            except JudgeCallError as error:
                if not error.refused or not left:
                    raise
                form = _next_form(left, str(error))
                continue
            refused |= frozenset(extras) - form
            vote.usage.append(reply.usage)
            return reply


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


def _subsets(names: frozenset[str]) -> list[frozenset[str]]:
    """All ways to leave names out, the fullest first."""
    ordered = sorted(names)
    return [
        frozenset(subset)
        for size in range(len(ordered), -1, -1)
        for subset in itertools.combinations(ordered, size)
    ]


def _next_form(left: Sequence[frozenset[str]], message: str) -> frozenset[str]:
    """Leaves out first what the refusal names."""
    named = {name for name, words in _NAMED_BY.items() if any(w in message for w in words)}
    return min(left, key=lambda form: (len(form & named), -len(form)))


_NAMED_BY: Mapping[str, tuple[str, ...]] = {
    "response_format": ("response_format", "json_schema", "schema", "structured"),
    "temperature": ("temperature",),
}


def _parse(reply: JudgeReply, count: int) -> Answer:
    if reply.cut_off:
        raise BadAnswer("it was cut off at the limit of tokens")
    return parse_answer(reply.text, count)
