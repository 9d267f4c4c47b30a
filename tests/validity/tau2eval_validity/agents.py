"""Part B: every scripted agent on every scenario in text modality, held to the one table.

What must come out is `EXPECTED_OUTCOMES` of the scripted models, and for three kinds of agents more
than that: gold passes everything, do-nothing fails for what it did not do and for nothing else, and
a crash of the model's provider is never scored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import tau2eval_airline as airline
from tau2eval_scripted.models import EXPECTED_OUTCOMES

from .services import Run, Services

GOLD = "scripted/gold"
DO_NOTHING = "scripted/do-nothing"
JUDGE = "scripted/judge"
CALLER = "scripted/caller"
SIGNALS = ("DB_STATE_MATCH", "NL_ASSERTION", "CLEAN_EXIT")
PARALLEL = 8
LIMITS = {"scripted/never-hangs-up": 240}
"""Virtual seconds of a call where the scenario's 900 would only be more of the same."""


def agents() -> tuple[str, ...]:
    """Returns the ids of the scripted agents."""
    return tuple(name for name, model in EXPECTED_OUTCOMES.items() if model.role == "agent")


@dataclass
class AgentResult:
    """What one agent came to.

    Attributes:
        agent: Its model id.
        run: The run.
        deviations: What is not as the table says, in words; empty if all is.
        expected: Outcomes by the table.
        found: Outcomes as they came.
        signals: How many scenarios failed each signal.
        kinds: How many were not run, by kind.
        stops: Stop reasons.
    """

    agent: str
    run: Run
    deviations: list[str] = field(default_factory=list)
    expected: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    signals: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)


def expectation(agent: str, name: str, judge: bool) -> dict[str, Any]:
    """Returns what the table says of an agent in a scenario."""
    scenario = airline.get_scenario(name)
    actions = [action["name"] for action in scenario.reference_answer["actions"]]
    row = EXPECTED_OUTCOMES[agent].expectation(
        gold_writes=scenario.gold_mutates,
        gold_transfers="transfer_to_human_agents" in actions,
        asserted=bool(scenario.nl_assertions),
        judge=judge,
    )
    return {
        "outcome": row.outcome,
        "kind": row.not_run_kind or None,
        "failed": sorted(row.failing_signals),
        "stop_reason": row.stop_reason,
    }


def observation(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns the same facts of a scenario's result."""
    return {
        "outcome": entry["outcome"],
        "kind": entry["kind"],
        "failed": sorted(entry["success_breakdown"]["failed"]),
        "stop_reason": entry["stop_reason"],
    }


def run_agent(
    services: Services, agent: str, judge: bool, *options: str, names: tuple[str, ...] = ()
) -> Run:
    """Holds all scenarios with one agent.

    Args:
        services: The running services.
        agent: The agent's model id.
        judge: Whether scripted/judge judges.
        *options: Further options of the run.
        names: Scenarios; all of the airline by default.
    """
    which = ("--scenarios", *names) if names else ("--domain", "tau2_airline")
    judged = ("--judge-model", JUDGE) if judge else ("--no-judge",)
    limit = ("--duration", str(LIMITS[agent])) if agent in LIMITS else ()
    return services.run(
        *("--modality", "text", "--parallel", str(PARALLEL), "--user-model", CALLER),
        *("--agent-model", agent, *judged, *limit, *options, *which),
    )


def check_agent(agent: str, run: Run, judge: bool, names: tuple[str, ...] = ()) -> AgentResult:
    """Holds a run to the table.

    Args:
        agent: The agent's model id.
        run: Its run.
        judge: Whether the run was judged.
        names: The scenarios it had to hold; all of the airline by default.
    """
    wanted = names or tuple(airline.list_scenarios())
    result = AgentResult(agent, run)
    say = result.deviations.append
    entries = run.scenarios()
    if len(run.result["scenarios"]) != len(wanted) or set(entries) != set(wanted):
        missing, more = sorted({*wanted} - {*entries}), sorted({*entries} - {*wanted})
        say(f"the run holds {len(run.result['scenarios'])} results; missing {missing}, more {more}")
    for name in wanted:
        if name not in entries:
            continue
        entry, expected = entries[name], expectation(agent, name, judge)
        found = observation(entry)
        where = f"{name} (look at {run.folder / (entry['artifacts_path'] or '')})"
        if found != expected:
            differing = [key for key in expected if found[key] != expected[key]]
            words = "; ".join(f"{key} is {found[key]}, not {expected[key]}" for key in differing)
            say(f"{where}: {words}. {entry['explanation']}")
        for problem in _further(agent, name, entry, run, judge):
            say(f"{where}: {problem}")
        result.expected[expected["outcome"]] += 1
        result.found[found["outcome"]] += 1
        result.signals.update(found["failed"])
        result.stops[found["stop_reason"]] += 1
        if found["kind"]:
            result.kinds[found["kind"]] += 1
    code = 3 if result.found["not_run"] else 0
    if run.code != code:
        say(f"the run exited with {run.code}, not {code}: {run.stderr[-500:]}")
    return result


def _further(agent: str, name: str, entry: dict[str, Any], run: Run, judge: bool) -> list[str]:
    """Returns what else is wrong with one scenario."""
    problems = []
    breakdown, metrics = entry["success_breakdown"], run.read(entry, "metrics.json")
    signals = {str(signal) for signal in airline.get_scenario(name).success_signals}
    if entry["outcome"] in ("passed", "failed"):
        gated = {*breakdown["passed"], *breakdown["failed"]}
        if metrics.get("insufficient_agent_turns"):
            signals -= {"NL_ASSERTION"} - gated  # The judge is not asked where nothing was said.
        if gated != signals:
            problems.append(f"decided by {sorted(gated)}, its signals are {sorted(signals)}")
        if bool(breakdown["failed"]) != (entry["outcome"] == "failed"):
            problems.append(f"{entry['outcome']} with failed signals {breakdown['failed']}")
        if metrics.get("outcome") != entry["outcome"]:
            problems.append(f"metrics.json says {metrics.get('outcome')}")
        clean = entry["stop_reason"] in ("agent_exit", "transfer")
        if clean and metrics.get("insufficient_agent_turns"):
            problems.append("it failed by too few turns, so it proves nothing about its acts")
    elif metrics.get("is_successful") is not None:
        problems.append(f"not run, and yet is_successful is {metrics['is_successful']}")
    if agent == GOLD:
        missing = {"DB_STATE_MATCH", "CLEAN_EXIT"} - {*breakdown["passed"]}
        if missing:
            problems.append(f"gold does not pass {sorted(missing)}")
        if judge and entry["outcome"] != "passed":
            problems.append("gold does not pass")
    if agent == DO_NOTHING:
        if entry["outcome"] == "passed":
            problems.append("an agent that does nothing passes")
        if judge and not {*breakdown["failed"]} & {"DB_STATE_MATCH", "NL_ASSERTION"}:
            problems.append("it does not fail by a missing act")
        if "CLEAN_EXIT" not in breakdown["passed"]:
            problems.append("it does not end cleanly, so more than its acts is missing")
    if EXPECTED_OUTCOMES[agent].not_run_kind and entry["outcome"] in ("passed", "failed"):
        problems.append("a fault of the infrastructure was scored")
    return problems
