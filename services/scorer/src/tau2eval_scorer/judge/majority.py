"""Makes verdicts of votes: the majority holds, for each assertion by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from tau2eval_scorer.judge.parse import Answer
from tau2eval_scorer.judge.quotes import QuoteIndex
from tau2eval_scorer.judge.result import AssertionVerdict, JudgeResult


def settled(answers: Sequence[Answer], count: int, votes: int) -> bool:
    """Whether no vote that failed could have changed a verdict."""
    if 2 * len(answers) <= votes:
        return False
    return all(
        2 * max(passed, len(answers) - passed) > votes
        for passed in (
            sum(answer.decisions[at].passed for answer in answers) for at in range(count)
        )
    )


def judged(
    result: JudgeResult,
    assertions: Sequence[str],
    answers: Sequence[Answer],
    quotes: QuoteIndex,
) -> JudgeResult:
    """Returns a result with the majority's verdicts.

    Args:
        result: Who was asked, and how.
        assertions: The claims, in order.
        answers: The votes that were had; `settled` holds for them.
        quotes: Where quotes are looked for.
    """
    verdicts = []
    for at, assertion in enumerate(assertions):
        decisions = [answer.decisions[at] for answer in answers]
        passed = 2 * sum(decision.passed for decision in decisions) > len(decisions)
        told = next(decision for decision in decisions if decision.passed == passed)
        verdicts.append(
            AssertionVerdict(
                index=at + 1,
                assertion=assertion,
                passed=passed,
                reason=told.reason,
                quote=told.quote,
                quote_found=quotes.has(told.quote) if told.quote.strip() else None,
                votes=tuple(decision.passed for decision in decisions),
            )
        )
    return replace(
        result,
        status="judged",
        score=round(fmean(answer.score for answer in answers), 6),
        reason=answers[0].reason,
        verdicts=tuple(verdicts),
        agreement=round(fmean(v.agreement for v in verdicts), 6) if verdicts else None,
    )
