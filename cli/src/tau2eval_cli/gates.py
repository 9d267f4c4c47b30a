"""What a result is held to: `--fail-under` and `--require-clean`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli.errors import WrongUse

_MAX_NAMED = 8
_ONE = ("scorer", "assertions", "judge_model", "judge_prompt_sha256")
"""Versions of which the conversations of one result have one each."""


def parse_share(flag: str, text: str) -> Fraction | None:
    """Reads a share: 0.8, or 80%. None for an empty text.

    Raises:
        WrongUse: For anything else.
    """
    if not text:
        return None
    number = text.strip()
    percent = number.endswith("%")
    try:
        value = Decimal(number.removesuffix("%").strip())
        share = Fraction(value) / 100 if percent else Fraction(value)
    except (InvalidOperation, ValueError, OverflowError):
        raise WrongUse(f"{flag} takes a share from 0 to 1, or percent: 0.8 or 80%") from None
    if not 0 <= share <= 1:
        hint = f"; do you mean {text.strip()}%?" if not percent and 1 < share <= 100 else ""
        raise WrongUse(f"{flag} {text} is no share from 0 to 1 (or 0% to 100%){hint}")
    return share


@dataclass(frozen=True)
class Gates:
    """What a person asks of a result.

    Attributes:
        fail_under: Smallest success rate, the agent's own not_run taken as failures.
        require_clean: Refuse a result with any reservation.
    """

    fail_under: Fraction | None = None
    require_clean: bool = False

    def share(self, summary: Mapping[str, Any]) -> Fraction | None:
        """Returns the rate that `fail_under` is compared with; None when there is none."""
        rate = summary.get("success_rate_with_agent_faults_failed") or {}
        return Fraction(rate["passed"], rate["of"]) if rate.get("of") else None

    def fails(self, share: Fraction | None) -> bool:
        """Tells whether a rate is below the smallest."""
        return self.fail_under is not None and (share is None or share < self.fail_under)

    def unclean(
        self, summary: Mapping[str, Any], verdicts: Sequence[scorer_pb2.Verdict]
    ) -> list[str]:
        """Returns the reservations about a result, in words."""
        if not summary:
            return ["the run's summary could not be had"]
        reasons = []
        if short := summary.get("short_of_trials"):
            named = [f"{task['scenario']} ({task['scored']}/{task['planned']})" for task in short]
            reasons.append(f"short of scores: {_some(named)}")
        if summary.get("mixed_settings"):
            reasons.append("the run was resumed with other settings")
        versions = summary.get("versions") or {}
        if several := [name for name in _ONE if len(versions.get(name) or {}) > 1]:
            reasons.append(f"not all conversations were scored alike: {', '.join(several)}")
        others = (summary.get("other_attempts") or {}).get("attempts") or []
        if lost := [item for item in others if item["outcome"] == "not_run"]:
            named = [
                f"{item['scenario']} trial {item['trial']} ({item['not_run_kind']})"
                for item in lost
            ]
            reasons.append(f"attempts were lost and repeated: {_some(named)}")
        unjudged = dict.fromkeys(
            verdict.scenario
            for verdict in verdicts
            if not verdict.fully_judged and verdict.outcome != scorer_pb2.OUTCOME_NOT_RUN
        )
        if unjudged:
            reasons.append(f"not fully judged: {_some(list(unjudged))}")
        return reasons

    def to_json(self, summary: Mapping[str, Any], not_clean: list[str]) -> dict[str, Any]:
        """Returns what became of the gates; null for one that was not asked for."""
        share = self.share(summary)
        return {
            "fail_under": None
            if self.fail_under is None
            else {
                "least": float(self.fail_under),
                "rate": None if share is None else float(share),
                "passed": not self.fails(share),
            },
            "require_clean": {"passed": not not_clean, "reasons": not_clean}
            if self.require_clean
            else None,
        }


NO_GATES = Gates()


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMED])
    more = len(names) - _MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
