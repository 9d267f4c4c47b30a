"""Values of the core as messages of scorer.v1, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_scorer.catalog import ScenarioCard
from tau2eval_scorer.compare_text import comparison_text
from tau2eval_scorer.jsonio import dump_line, parse_object, redact
from tau2eval_scorer.judge import JudgeSettings
from tau2eval_scorer.rescoring import ScoredAgain
from tau2eval_scorer.resume import ResumeItem
from tau2eval_scorer.store import Attempt, AttemptKey, ClaimAnswer, Plan, Run

MAX_METRICS_BYTES = 8 * 1024 * 1024
"""More details than this are left out of one response; the artifacts have them."""
MAX_SUMMARY_BYTES = 4 * 1024 * 1024
_DETAILS = ("scenarios", "missing")
"""Lists of a longer summary that are left out, in this order. No gate is decided by them."""


def outcome(name: str) -> scorer_pb2.Outcome.ValueType:
    """Returns the enum value of an outcome's name."""
    return scorer_pb2.Outcome.Value(f"OUTCOME_{name.upper()}")


def plan_from(message: scorer_pb2.RunPlan) -> Plan:
    """Reads a plan; members of its settings that are named like secrets are blanked.

    Raises:
        InvalidInput: When its settings are not a JSON object, or its judge cannot be used.
    """
    return Plan(
        message.run_id,
        tuple(message.scenarios),
        message.trials or 1,
        settings_from(message.settings_json),
        JudgeSettings.from_message(message.judge),
    )


def settings_from(text: str) -> dict[str, Any]:
    """Reads settings; members that are named like secrets are blanked.

    Raises:
        InvalidInput: When they are not a JSON object.
    """
    try:
        settings: dict[str, Any] = redact(parse_object(text))
    except ValueError as error:
        raise InvalidInput(f"settings_json: {error}", reason="BAD_PLAN") from None
    return settings


def plan_to(plan: Plan) -> scorer_pb2.RunPlan:
    """Writes a plan."""
    return scorer_pb2.RunPlan(
        run_id=plan.run_id,
        scenarios=plan.scenarios,
        trials=plan.trials,
        settings_json=_json(plan.settings),
        judge=judge_to(plan.judge),
    )


def judge_to(judge: JudgeSettings) -> scorer_pb2.JudgeConfig | None:
    """Writes a judge; None when it is off."""
    if not judge.enabled:
        return None
    return scorer_pb2.JudgeConfig(
        model=judge.model,
        parameters_json=_json(judge.parameters) if judge.parameters else "",
        votes=judge.votes,
        timeout_seconds=judge.timeout_seconds,
        threshold=judge.threshold,
        include_conversation=judge.include_conversation,
        compact_context=judge.compact_context,
        all_scenarios=judge.all_scenarios,
    )


def verdict(attempt: Attempt, artifacts_path: str, details: bool = True) -> scorer_pb2.Verdict:
    """Writes a verdict; what would not fit into a message is left to the artifacts.

    Args:
        attempt: The attempt with its newest scoring.
        artifacts_path: Where its files lie below the run's folder.
        details: Adds metrics_json and judge_result_json.
    """
    value = attempt.verdict
    metrics = attempt.metrics_json if details else ""
    judge = _asked(attempt.scoring.judge_json) if details else ""
    if _bytes(metrics) + _bytes(judge) > MAX_METRICS_BYTES:
        judge = ""
    if _bytes(metrics) > MAX_METRICS_BYTES:
        metrics = ""
    return scorer_pb2.Verdict(
        run_id=attempt.key.run_id,
        scenario=attempt.key.scenario,
        trial=attempt.key.trial,
        attempt_id=attempt.key.attempt_id,
        outcome=outcome(value["outcome"]),
        not_run_kind=value["not_run_kind"],
        success_breakdown=scorer_pb2.SuccessBreakdown(**value["success_breakdown"]),
        stop_reason=record_pb2.StopReason.Value(f"STOP_REASON_{value['stop_reason'].upper()}"),
        duration_seconds=value["duration_seconds"],
        fully_judged=value["fully_judged"],
        metrics_json=metrics,
        explanation=value["explanation"],
        artifacts_path=artifacts_path,
        judge_result_json=judge,
        scoring=attempt.scoring.number,
        counts=attempt.counts,
    )


def verdicts(attempts: Sequence[tuple[Attempt, str]]) -> list[scorer_pb2.Verdict]:
    """Writes verdicts for one response, with their details where all of them fit."""
    size = sum(_bytes(a.metrics_json) + _bytes(a.scoring.judge_json) for a, _ in attempts)
    whole = size <= MAX_METRICS_BYTES
    return [verdict(attempt, path, whole) for attempt, path in attempts]


def summary_json(summary: Mapping[str, Any], limit: int = MAX_SUMMARY_BYTES) -> str:
    """Writes a summary as JSON; of a very large run without the lists of single conversations.

    all_metrics.json has them always.
    """
    text = _json(summary)
    left = dict(summary)
    for name in _DETAILS:
        if _bytes(text) <= limit:
            return text
        left[name] = []
        text = _json(left)
    if _bytes(text) > limit:
        others = left["other_attempts"]
        short = [{**attempt, "explanation": ""} for attempt in others["attempts"]]
        text = _json({**left, "other_attempts": {**others, "attempts": short}})
    return text


def summary_text(text: str, limit: int = MAX_SUMMARY_BYTES) -> str:
    """Returns all_summary.txt; of a very long one the lines that fit, and where the others are."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    kept = data[:limit].decode("utf-8", "ignore").rpartition("\n")[0]
    return f"{kept}\n... and more; all_summary.txt has all of it\n"


def _bytes(text: str) -> int:
    """Length on the wire."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _asked(judge_json: str) -> str:
    """Returns a judge_result.json, or nothing when no judge was asked."""
    status = orjson.loads(judge_json)["status"] if judge_json else ""
    return judge_json if status in ("judged", "error") else ""


def claim_key(
    request: scorer_pb2.ClaimTrialRequest | scorer_pb2.ReleaseTrialRequest,
) -> AttemptKey:
    """Reads whose claim is meant."""
    return AttemptKey(request.run_id, request.scenario, request.trial, request.attempt_id)


def claim_response(answer: ClaimAnswer) -> scorer_pb2.ClaimTrialResponse:
    """Writes what became of a claim."""
    response = scorer_pb2.ClaimTrialResponse(
        state=scorer_pb2.ClaimState.Value(f"CLAIM_STATE_{answer.state.upper()}")
    )
    if answer.claim is not None:
        response.holder = answer.claim.holder
        response.expires_in_seconds = answer.claim.expires_in
        response.attempt_id = answer.claim.attempt_id
    return response


def resume_response(
    run: Run, items: Sequence[ResumeItem], changes: Sequence[Mapping[str, Any]]
) -> scorer_pb2.ResumeRunResponse:
    """Writes what a resumption does."""
    return scorer_pb2.ResumeRunResponse(
        plan=plan_to(run.plan),
        items=[
            scorer_pb2.ResumeItem(
                scenario=item.scenario,
                trial=item.trial,
                action=scorer_pb2.ResumeAction.Value(f"RESUME_ACTION_{item.action.upper()}"),
                reason=item.reason,
                holder=item.holder,
            )
            for item in items
        ],
        changes=[
            scorer_pb2.SettingChange(
                name=change["name"],
                before_json=_json(change["before"]),
                after_json=_json(change["after"]),
            )
            for change in changes
        ],
    )


def score_response(result: ScoredAgain, artifacts_path: str) -> scorer_pb2.ScoreRunResponse:
    """Writes a conversation after another scoring."""
    return scorer_pb2.ScoreRunResponse(
        verdict=verdict(result.attempt, artifacts_path),
        outcome_before=outcome(result.before),
        total=result.total,
        done=result.done,
        problem=result.problem,
    )


def scenario_response(card: ScenarioCard) -> scorer_pb2.GetScenarioResponse:
    """Writes a scenario's facts."""
    return scorer_pb2.GetScenarioResponse(
        info=scorer_pb2.ScenarioInfo(name=card.name, domain=card.domain, tau2_id=card.tau2_id),
        agent_prompt=card.agent_prompt,
        user_prompt=card.user_prompt,
        agent_tool_domain=card.agent_tool_domain,
        agent_tool_names=card.agent_tool_names,
        max_duration_seconds=card.max_duration_seconds,
        success_signals=card.success_signals,
        nl_assertions=card.nl_assertions,
        agent_db_path=card.agent_db_path,
        seed_db_hash=card.seed_db_hash,
        expected_db_hash=card.expected_db_hash,
        reference_answer_json=_json(card.reference_answer),
    )


def compare(
    run_a: tuple[Run, Sequence[Attempt]],
    run_b: tuple[Run, Sequence[Attempt]],
    comparison: Mapping[str, Any],
) -> scorer_pb2.CompareRunsResponse:
    """Writes a comparison; pairs are by scenario and trial, in the order of the first plan."""
    outcomes = [
        {(attempt.key.scenario, attempt.key.trial): attempt.outcome for attempt in attempts}
        for _, attempts in (run_a, run_b)
    ]
    places = dict.fromkeys(
        (scenario, trial)
        for run, _ in (run_a, run_b)
        for scenario in run.plan.scenarios
        for trial in range(run.plan.trials)
    )
    response = scorer_pb2.CompareRunsResponse(
        comparison_json=_json(comparison), comparison_text=comparison_text(comparison)
    )
    for scenario, trial in places:
        a, b = (side.get((scenario, trial), "unspecified") for side in outcomes)
        response.pairs.add(
            scenario=scenario, trial=trial, outcome_a=outcome(a), outcome_b=outcome(b)
        )
        if not {a, b} <= {"passed", "failed"}:
            response.not_comparable += 1
        elif a == b:
            response.both_passed += a == "passed"
            response.both_failed += a == "failed"
        else:
            response.only_a_passed += a == "passed"
            response.only_b_passed += b == "passed"
    return response


def _json(value: Any) -> str:
    return dump_line(value).decode().strip()
