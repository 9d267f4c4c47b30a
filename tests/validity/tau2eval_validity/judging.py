"""Part C: a verdict of the judge does not depend on votes, on when it is asked, or on luck."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tau2eval_airline as airline

from .agents import check_agent, observation, run_agent
from .services import Run, Services

VOTES = 3


@dataclass
class Check:
    """One check of the judge.

    Attributes:
        name: What was checked, in words.
        compared: How many things were held against each other.
        deviations: What differs, in words.
    """

    name: str
    compared: int = 0
    deviations: list[str] = field(default_factory=list)


def judged_names() -> tuple[str, ...]:
    """Returns the scenarios with adopted assertions."""
    return tuple(
        name for name in airline.list_scenarios() if airline.get_scenario(name).nl_assertions
    )


def verdicts(run: Run) -> dict[str, dict[str, Any]]:
    """Returns what counts of every scenario: outcome, signals, each assertion."""
    found = {}
    for name, entry in run.scenarios().items():
        judged = run.read(entry, "judge_result.json")
        found[name] = {
            **observation(entry),
            "status": judged.get("status"),
            "score": judged.get("score"),
            "assertions": [
                (verdict["index"], verdict["assertion"], verdict["passed"])
                for verdict in judged.get("nl_assertion_verdicts") or []
            ],
        }
    return found


def same_with_votes(services: Services, agent: str, one: Run) -> Check:
    """One vote and three give the same verdicts, on the calls of two runs."""
    names = judged_names()
    check = Check(f"{agent}: one vote and {VOTES} votes give the same verdicts")
    three = run_agent(services, agent, True, "--judge-votes", str(VOTES), names=names)
    left, right = verdicts(one), verdicts(three)
    for name in names:
        _same(check, name, left.get(name), right.get(name), one, three)
        entry = three.scenarios().get(name, {"artifacts_path": "none"})
        judged = three.read(entry, "judge_result.json")
        if judged.get("votes") != VOTES:
            words = f"{name}: {judged.get('votes')} votes were counted in {three.folder}"
            check.deviations.append(words)
        if judged.get("agreement") != 1.0:
            check.deviations.append(f"{name}: the votes agree in {judged.get('agreement')} only")
    return check


def same_from_the_record(services: Services, agent: str, before: Run, *options: str) -> Check:
    """Scoring again from the stored record gives the same verdicts, with nothing called again."""
    how = "judged anew" if options else "with the judgements that stand"
    check = Check(f"{agent}: scored again from the record, {how}: the same verdicts")
    old = {name: _stored(before, entry) for name, entry in before.scenarios().items()}
    done = services.command(
        *("score", before.run_id, "--scorer-address", services.addresses["scorer"]["grpc"]),
        *options,
    )
    if done.returncode not in (0, 3):
        words = f"`tau2-eval score` exited with {done.returncode}: {done.stderr[-500:]}"
        check.deviations.append(words)
        return check
    for name, entry in before.scenarios().items():
        new = _stored(before, entry)
        scoring, earlier = new.pop("scoring"), old[name].pop("scoring")
        if scoring is None or scoring <= earlier:
            words = f"{name}: scoring {scoring} follows {earlier} in {before.folder}"
            check.deviations.append(words)
        _same(check, name, old[name], new, before, before)
    return check


def off_is_never_passed(services: Services, agent: str, *options: str) -> Check:
    """Without a judge the 24 are not run (judge_off), the other 26 as the table says."""
    check = Check(f"{agent} without a judge: judge_off where assertions are adopted, never passed")
    run = run_agent(services, agent, False, *options)
    result = check_agent(agent, run, judge=False)
    check.compared = len(run.result["scenarios"])
    check.deviations += result.deviations
    entries = run.scenarios()
    for name in judged_names():
        if name in entries and (entries[name]["outcome"], entries[name]["kind"]) != (
            "not_run",
            "judge_off",
        ):
            check.deviations.append(f"{name}: {entries[name]['outcome']} without its judge")
    return check


def _stored(run: Run, entry: dict[str, Any]) -> dict[str, Any]:
    """Returns what the files of a scenario say now."""
    metrics, judged = run.read(entry, "metrics.json"), run.read(entry, "judge_result.json")
    return {
        "scoring": metrics.get("scoring"),
        **{
            key: metrics.get(key)
            for key in ("outcome", "not_run_kind", "success_breakdown", "db_state_match")
        },
        "score": judged.get("score"),
        "assertions": [
            (verdict["index"], verdict["assertion"], verdict["passed"], verdict["quote"])
            for verdict in judged.get("nl_assertion_verdicts") or []
        ],
    }


def _same(check: Check, name: str, left: Any, right: Any, one: Run, other: Run) -> None:
    check.compared += 1
    if left is None or right is None or left != right:
        parts = [
            f"{key} is {(left or {}).get(key)} and then {(right or {}).get(key)}"
            for key in {**(left or {}), **(right or {})}
            if (left or {}).get(key) != (right or {}).get(key)
        ]
        check.deviations.append(
            f"{name}: {'; '.join(parts)} (judge_result.json in {one.folder} and {other.folder})"
        )
