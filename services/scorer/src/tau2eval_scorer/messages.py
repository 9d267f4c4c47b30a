"""Values of the core as messages of scorer.v1, and back."""

from __future__ import annotations

from collections.abc import Sequence

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_scorer.catalog import ScenarioCard
from tau2eval_scorer.jsonio import dump_line, parse_object, redact
from tau2eval_scorer.store import Attempt, Plan, Run

MAX_METRICS_BYTES = 8 * 1024 * 1024
"""More metrics than this are left out of one response; the artifacts have them."""


def outcome(name: str) -> scorer_pb2.Outcome.ValueType:
    """Returns the enum value of an outcome's name."""
    return scorer_pb2.Outcome.Value(f"OUTCOME_{name.upper()}")


def plan_from(message: scorer_pb2.RunPlan) -> Plan:
    """Reads a plan; members of its settings that are named like secrets are blanked.

    Raises:
        InvalidInput: When its settings are not a JSON object.
    """
    try:
        settings = redact(parse_object(message.settings_json))
    except ValueError as error:
        raise InvalidInput(f"settings_json: {error}", reason="BAD_PLAN") from None
    return Plan(message.run_id, tuple(message.scenarios), message.trials or 1, settings)


def plan_to(plan: Plan) -> scorer_pb2.RunPlan:
    """Writes a plan."""
    return scorer_pb2.RunPlan(
        run_id=plan.run_id,
        scenarios=plan.scenarios,
        trials=plan.trials,
        settings_json=dump_line(plan.settings).decode().strip(),
    )


def verdict(attempt: Attempt, artifacts_path: str, with_metrics: bool = True) -> scorer_pb2.Verdict:
    """Writes a verdict; metrics that would not fit into a message are left to the artifacts."""
    value = attempt.verdict
    with_metrics = with_metrics and len(attempt.metrics_json) <= MAX_METRICS_BYTES
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
        metrics_json=attempt.metrics_json if with_metrics else "",
        explanation=value["explanation"],
        artifacts_path=artifacts_path,
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
        reference_answer_json=dump_line(card.reference_answer).decode().strip(),
    )


def compare(
    run_a: tuple[Run, Sequence[Attempt]], run_b: tuple[Run, Sequence[Attempt]]
) -> scorer_pb2.CompareRunsResponse:
    """Pairs two runs by scenario and trial, in the order of the first run's plan."""
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
    response = scorer_pb2.CompareRunsResponse()
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
