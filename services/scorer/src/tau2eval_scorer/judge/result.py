"""What a judge found, as it is kept in judge_result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tau2eval_scorer.jsonio import redact

JUDGE_RESULT_VERSION = 1

JudgeStatus = Literal["judged", "error", "off", "not_needed"]


@dataclass(frozen=True)
class AssertionVerdict:
    """The verdict on one assertion.

    Attributes:
        index: Number of the assertion, from 1.
        passed: What the majority of the votes says.
        reason: Of the first vote that says so.
        quote: Words of the call that it rests on; may be empty.
        quote_found: Whether the quote is in the call; None without a quote. It changes no verdict.
        votes: The votes that were had, in order.
    """

    index: int
    assertion: str
    passed: bool
    reason: str
    quote: str
    quote_found: bool | None
    votes: tuple[bool, ...]

    @property
    def agreement(self) -> float:
        """Share of the votes that agree with the majority."""
        return self.votes.count(self.passed) / len(self.votes)


@dataclass(frozen=True)
class JudgeUsage:
    """One model call of the judge."""

    model: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost_usd: float | None


@dataclass(frozen=True)
class JudgeResult:
    """A judgement, or why there is none.

    Attributes:
        status: "judged"; "error": the judge failed, so nothing is known; "off": no judge is
            configured; "not_needed": the call has no assertions, or was never held.
        error: What failed, for a person.
        score: The judge's overall score from 0 to 1, informational; the mean over the votes.
        reason: The reason for the score.
        verdicts: One for each assertion, in order; empty unless judged.
        votes: Judgements that were asked for.
        failed_votes: Those of them that were not to be had. With status "judged" the others were a
            majority for each assertion all the same.
        agreement: Share of (assertion, vote) pairs that agree with the majority; None without any.
        system_prompt: What the judge was told.
        user_content: What the judge was given.
        assertions_sha256: Of the whole adopted set.
        usage: The model calls that were answered, repairs and unusable answers included.
        settings: The JudgeSettings.
    """

    status: JudgeStatus
    error: str = ""
    score: float | None = None
    reason: str = ""
    verdicts: tuple[AssertionVerdict, ...] = ()
    model: str = ""
    prompt_version: int = 0
    prompt_sha256: str = ""
    assertions_sha256: str = ""
    votes: int = 0
    failed_votes: int = 0
    agreement: float | None = None
    system_prompt: str = ""
    user_content: str = ""
    usage: tuple[JudgeUsage, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def judged(self) -> bool:
        """Whether there are verdicts."""
        return self.status == "judged"

    @property
    def pass_count(self) -> int:
        """Number of assertions that hold."""
        return sum(verdict.passed for verdict in self.verdicts)

    @property
    def pass_rate(self) -> float | None:
        """Share of the assertions that hold; None without verdicts."""
        return self.pass_count / len(self.verdicts) if self.verdicts else None

    def to_dict(self) -> dict[str, Any]:
        """Returns judge_result.json."""
        return {
            "judge_result_version": JUDGE_RESULT_VERSION,
            "status": self.status,
            "error": self.error or None,
            "score": self.score,
            "reason": self.reason,
            "judge_input": {"system_prompt": self.system_prompt, "user_content": self.user_content},
            "nl_assertion_verdicts": [
                {
                    "index": verdict.index,
                    "assertion": verdict.assertion,
                    "passed": verdict.passed,
                    "reason": verdict.reason,
                    "quote": verdict.quote,
                    "quote_found": verdict.quote_found,
                    "votes": list(verdict.votes),
                    "agreement": round(verdict.agreement, 6),
                }
                for verdict in self.verdicts
            ],
            "nl_assertion_pass_count": self.pass_count if self.judged else None,
            "nl_assertion_total": len(self.verdicts) if self.judged else None,
            "nl_assertion_pass_rate": self.pass_rate,
            "model": self.model or None,
            "prompt_version": self.prompt_version,
            "prompt_sha256": self.prompt_sha256,
            "assertions_sha256": self.assertions_sha256,
            "votes": self.votes,
            "failed_votes": self.failed_votes,
            "agreement": self.agreement,
            "usage": [
                {
                    "model": call.model,
                    "prompt_tokens": call.prompt_tokens,
                    "completion_tokens": call.completion_tokens,
                    "cached_tokens": call.cached_tokens,
                    "cost_usd": call.cost_usd,
                }
                for call in self.usage
            ],
            "settings": redact(self.settings),
        }

    @staticmethod
    def from_dict(value: Mapping[str, Any]) -> JudgeResult:
        """Reads what `to_dict` wrote.

        Raises:
            ValueError: When it is not that.
        """
        try:
            return _read(value)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a stored judgement cannot be read: {error!r}") from None

    def stands_for(self, asked: JudgeQuestion) -> bool:
        """Whether this judgement answers the same question, put in the same way."""
        return (
            self.judged
            and tuple(verdict.assertion for verdict in self.verdicts) == tuple(asked.assertions)
            and self.user_content == asked.user_content
            and self.prompt_sha256 == asked.prompt_sha256
            and _binding(self.settings) == _binding(asked.settings)
        )


@dataclass(frozen=True)
class JudgeQuestion:
    """What a judgement answers, for `JudgeResult.stands_for`."""

    assertions: Sequence[str]
    user_content: str
    prompt_sha256: str
    settings: Mapping[str, Any]


def _binding(settings: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: item for name, item in settings.items() if name not in _FREE}
    return dict(redact(kept))


_FREE = frozenset({"timeout_seconds", "threshold", "all_scenarios"})
"""Settings that change neither the question nor the answer."""


def _read(value: Mapping[str, Any]) -> JudgeResult:
    return JudgeResult(
        status=value["status"],
        error=value["error"] or "",
        score=value["score"],
        reason=value["reason"],
        verdicts=tuple(
            AssertionVerdict(
                index=item["index"],
                assertion=item["assertion"],
                passed=item["passed"],
                reason=item["reason"],
                quote=item["quote"],
                quote_found=item["quote_found"],
                votes=tuple(item["votes"]),
            )
            for item in value["nl_assertion_verdicts"]
        ),
        model=value["model"] or "",
        prompt_version=value["prompt_version"],
        prompt_sha256=value["prompt_sha256"],
        assertions_sha256=value["assertions_sha256"],
        votes=value["votes"],
        failed_votes=value["failed_votes"],
        agreement=value["agreement"],
        system_prompt=value["judge_input"]["system_prompt"],
        user_content=value["judge_input"]["user_content"],
        usage=tuple(JudgeUsage(**item) for item in value["usage"]),
        settings=dict(value["settings"]),
    )
