"""Compares two runs, paired by task; docs/schemas/comparison.schema.json describes the result.

A task is comparable when both runs have a score for it. The difference of the success rates is the
mean over these tasks of B's share of passes minus A's, so a task weighs the same whatever its
number of trials. Beside it stands the same difference with the agent's own not_run taken as
failures, which tasks enter that the agent made unscorable.

B is *worse* when the 95 % interval of either difference lies below zero. Both intervals come from
bootstraps over tasks, see `stats`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_common.errors import InvalidInput
from tau2eval_scorer.latency import latency_stats, percentile
from tau2eval_scorer.rates import Row, TaskTally, faulted_places, tally
from tau2eval_scorer.stats import (
    DEFAULT_SAMPLES,
    MAX_SAMPLES,
    SEED,
    Interval,
    difference_interval,
    quantile_difference_interval,
    sign_test,
)
from tau2eval_scorer.store import Run
from tau2eval_scorer.summary import summarize

COMPARISON_VERSION = 1
MIN_SAMPLES = 100
MAX_LATENCY_SAMPLES = 2000
"""Resamples for the latencies at most: each one is over all turns of both runs."""
WORSE_RULE = (
    "worse: the 95 % interval of the difference lies below 0, with or without the agent's own "
    "not_run taken as failures"
)
JUDGING = {
    "assertions": "the set of assertions",
    "judge_model": "the judge",
    "judge_prompt_sha256": "the judge's prompt",
    "scorer": "the scorer",
}
"""Versions that two comparable runs have in common, and what they are of."""


@dataclass(frozen=True)
class _Side:
    run: Run
    rows: Sequence[Row]
    tasks: Mapping[str, TaskTally]
    summary: Mapping[str, Any]

    @staticmethod
    def of(run: Run, rows: Sequence[Row], others: Sequence[Row]) -> _Side:
        faulted = faulted_places([*rows, *others])
        tasks = tally(run.plan.scenarios, run.plan.trials, rows, faulted)
        return _Side(
            run, rows, {task.scenario: task for task in tasks}, summarize(run, rows, others)
        )

    def share(self, scenario: str, strict: bool) -> float | None:
        """Share of passes of a task; None without a score."""
        task = self.tasks.get(scenario)
        passed, of = task.counts(strict) if task else (0, 0)
        return passed / of if of else None


def compare_runs(
    run_a: Run,
    rows_a: Sequence[Row],
    run_b: Run,
    rows_b: Sequence[Row],
    samples: int = DEFAULT_SAMPLES,
    seed: int = SEED,
    others_a: Sequence[Row] = (),
    others_b: Sequence[Row] = (),
) -> dict[str, Any]:
    """Returns the comparison of two runs, B against A.

    Args:
        run_a: The run that was before: the base line.
        rows_a: Its counting verdicts.
        run_b: The run that is judged.
        rows_b: Its counting verdicts.
        samples: Resamples of the bootstraps; the latencies take at most 2,000.
        seed: Of the bootstraps.
        others_a: The verdicts of A's attempts that do not count.
        others_b: Those of B's.

    Raises:
        InvalidInput: When `samples` is out of range.
    """
    if not MIN_SAMPLES <= samples <= MAX_SAMPLES:
        raise InvalidInput(
            f"bootstrap samples must be {MIN_SAMPLES} to {MAX_SAMPLES}, not {samples}",
            reason="BAD_SAMPLES",
        )
    a, b = _Side.of(run_a, rows_a, others_a), _Side.of(run_b, rows_b, others_b)
    names = list(dict.fromkeys([*run_a.plan.scenarios, *run_b.plan.scenarios]))
    plain = _difference(a, b, names, samples, seed, strict=False)
    strict = _difference(a, b, names, samples, seed, strict=True)
    result = {
        "comparison_version": COMPARISON_VERSION,
        "run_a": _side(a),
        "run_b": _side(b),
        "bootstrap": {"samples": samples, "seed": seed},
        "verdict": _verdict(plain, strict),
        "worse": _verdict(plain, strict) == "worse",
        "worse_rule": WORSE_RULE,
        "any_drop": any((entry["difference"] or 0) < 0 for entry in (plain, strict)),
        "difference": plain,
        "difference_with_agent_faults_failed": strict,
        "mcnemar": _mcnemar(a, b, names),
        "trial_pairs": _trial_pairs(a, b),
        "flipped": _flipped(a, b, names),
        "not_comparable": _not_comparable(a, b, names),
        "tasks": [_task(a, b, name) for name in names],
        "latency": _latency(a, b, names, min(samples, MAX_LATENCY_SAMPLES), seed),
        "cost": _cost(a, b, names),
        "settings_differences": _settings_differences(run_a, run_b),
        "version_differences": _version_differences(a.summary, b.summary),
    }
    return {**result, "warnings": _warnings(a, b, result)}


def _difference(
    a: _Side, b: _Side, names: Iterable[str], samples: int, seed: int, strict: bool
) -> dict[str, Any]:
    shares = [(a.share(name, strict), b.share(name, strict)) for name in names]
    pairs = [
        (first, second) for first, second in shares if first is not None and second is not None
    ]
    return {
        "tasks": len(pairs),
        "rate_a": _mean([first for first, _ in pairs]),
        "rate_b": _mean([second for _, second in pairs]),
        "difference": _mean([second - first for first, second in pairs]),
        "interval_95": _bounds(
            difference_interval([second - first for first, second in pairs], samples, seed)
        ),
    }


def _verdict(plain: Mapping[str, Any], strict: Mapping[str, Any]) -> str:
    intervals = [entry["interval_95"] for entry in (plain, strict) if entry["interval_95"]]
    if not intervals:
        return "not_comparable"
    if any(high < 0 for _, high in intervals):
        return "worse"
    if all(low > 0 for low, _ in intervals):
        return "better"
    return "no_difference_shown"


def _comparable(a: _Side, b: _Side, name: str) -> bool:
    return a.share(name, False) is not None and b.share(name, False) is not None


def _mcnemar(a: _Side, b: _Side, names: Iterable[str]) -> dict[str, Any]:
    """One pair a task: several trials of a task are no independent pairs."""
    better = worse = same = 0
    for name in names:
        if not _comparable(a, b, name):
            continue
        (passed_a, of_a), (passed_b, of_b) = a.tasks[name].counts(), b.tasks[name].counts()
        # Whole numbers: shares as floats could differ where they are equal.
        first, second = passed_a * of_b, passed_b * of_a
        better += second > first
        worse += second < first
        same += second == first
    single = a.run.plan.trials == b.run.plan.trials == 1
    p_value = sign_test(better, worse)
    return {
        "pairing": "trials" if single else "task_rates",
        "only_b_better": better,
        "only_a_better": worse,
        "same": same,
        "p_value": None if p_value is None else round(p_value, 6),
    }


def _trial_pairs(a: _Side, b: _Side) -> dict[str, int]:
    """Counts trial n of A beside trial n of B; for reading, the pairs of a task are not alike."""
    outcomes = [{row.place: row.outcome for row in side.rows} for side in (a, b)]
    places = {
        (name, trial)
        for side in (a, b)
        for name in side.run.plan.scenarios
        for trial in range(side.run.plan.trials)
    }
    counts = dict.fromkeys(
        ("both_passed", "both_failed", "only_a_passed", "only_b_passed", "not_comparable"), 0
    )
    for place in places:
        first, second = (side.get(place, "missing") for side in outcomes)
        if not {first, second} <= {"passed", "failed"}:
            counts["not_comparable"] += 1
        elif first == second:
            counts[f"both_{first}"] += 1
        else:
            counts["only_a_passed" if first == "passed" else "only_b_passed"] += 1
    return counts


def _flipped(a: _Side, b: _Side, names: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    flipped: dict[str, list[dict[str, Any]]] = {"worse": [], "better": []}
    for name in names:
        if not _comparable(a, b, name):
            continue
        (passed_a, of_a), (passed_b, of_b) = a.tasks[name].counts(), b.tasks[name].counts()
        if passed_a * of_b != passed_b * of_a:
            flipped["worse" if passed_b * of_a < passed_a * of_b else "better"].append(
                {
                    "scenario": name,
                    "a": {"passed": passed_a, "of": of_a},
                    "b": {"passed": passed_b, "of": of_b},
                }
            )
    return flipped


def _not_comparable(a: _Side, b: _Side, names: Iterable[str]) -> list[dict[str, Any]]:
    return [
        {
            "scenario": name,
            "a": _why_unscored(a.tasks.get(name)),
            "b": _why_unscored(b.tasks.get(name)),
            "in_strict_comparison": a.share(name, True) is not None
            and b.share(name, True) is not None,
        }
        for name in names
        if not _comparable(a, b, name)
    ]


def _why_unscored(task: TaskTally | None) -> str | None:
    """Why a side has no score; None when it has one."""
    if task is None:
        return "not planned"
    if task.scored:
        return None
    parts = [f"{kind} {count}" for kind, count in sorted(task.kinds.items())]
    if task.missing:
        parts.append(f"missing {task.missing}")
    return ", ".join(parts)


def _task(a: _Side, b: _Side, name: str) -> dict[str, Any]:
    sides = {}
    for label, side in (("a", a), ("b", b)):
        task = side.tasks.get(name)
        passed, of = task.counts() if task else (0, 0)
        sides[label] = {"passed": passed, "of": of}
    first, second = a.share(name, False), b.share(name, False)
    return {
        "scenario": name,
        **sides,
        "difference": None if first is None or second is None else round(second - first, 6),
    }


def _latency(a: _Side, b: _Side, names: Sequence[str], samples: int, seed: int) -> dict[str, Any]:
    by_task = [_latencies(side) for side in (a, b)]
    shared = [name for name in names if by_task[0].get(name) and by_task[1].get(name)]
    first, second = ([values[name] for name in shared] for values in by_task)
    pooled_a, pooled_b = ([value for task in side for value in task] for side in (first, second))
    result: dict[str, Any] = {
        "tasks": len(shared),
        "a": latency_stats(pooled_a),
        "b": latency_stats(pooled_b),
    }
    for label, share in (("p50_ms", 0.5), ("p95_ms", 0.95)):
        difference = (
            round(percentile(pooled_b, share) - percentile(pooled_a, share), 3) if shared else None
        )
        interval = quantile_difference_interval(first, second, share, samples, seed)
        result[f"{label}_difference"] = {
            "difference": difference,
            "interval_95": [round(interval.low, 3), round(interval.high, 3)] if interval else None,
        }
    return result


def _latencies(side: _Side) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in side.rows:
        if row.scored:
            found.setdefault(row.scenario, []).extend(
                sample["latency_ms"] for sample in row.metrics["latencies"]
            )
    return found


def _cost(a: _Side, b: _Side, names: Sequence[str]) -> dict[str, Any]:
    sides = {label: _spent(side) for label, side in (("a", a), ("b", b))}
    means = [_call_costs(side) for side in (a, b)]
    shared = [name for name in names if name in means[0] and name in means[1]]
    pairs = [(means[0][name], means[1][name]) for name in shared]
    return {
        **sides,
        "paired_tasks": len(shared),
        "usd_a_conversation_of_a": _mean([first for first, _ in pairs], 9),
        "usd_a_conversation_of_b": _mean([second for _, second in pairs], 9),
        "usd_a_conversation_difference": _mean([second - first for first, second in pairs], 9),
    }


def _spent(side: _Side) -> dict[str, Any]:
    usage = side.summary["token_usage"]
    return {
        "cost_usd": side.summary["cost_usd"],
        "conversations": len(side.rows),
        "roles": {
            role: {
                name: usage[role][name]
                for name in ("n_calls", "prompt", "completion", "cost_usd", "unpriced_calls")
            }
            for role in usage
        },
    }


def _call_costs(side: _Side) -> dict[str, float]:
    """Mean dollars of agent and caller for a conversation, of the tasks with known prices."""
    found: dict[str, list[float | None]] = {}
    for row in side.rows:
        if row.scored:
            found.setdefault(row.scenario, []).append(_call_cost(row))
    return {
        name: sum(cost for cost in costs if cost is not None) / len(costs)
        for name, costs in found.items()
        if None not in costs
    }


def _call_cost(row: Row) -> float | None:
    usages = [row.metrics["token_usage"][role] for role in ("agent", "user")]
    if any(usage["unpriced_calls"] for usage in usages):
        return None
    return sum(usage["cost_usd"] or 0.0 for usage in usages)


def _settings_differences(run_a: Run, run_b: Run) -> list[dict[str, Any]]:
    a, b = (_flat(_settings(run)) for run in (run_a, run_b))
    return [
        {"name": name, "a": a.get(name), "b": b.get(name)}
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]


def _settings(run: Run) -> Mapping[str, Any]:
    plan = run.plan
    return {**plan.settings, "trials": plan.trials, "judge": plan.judge.to_dict()}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = item
    return flat


def _version_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    first, second = a["versions"], b["versions"]
    return [
        {"name": name, "a": first.get(name, {}), "b": second.get(name, {})}
        for name in sorted(first.keys() | second.keys())
        if first.get(name, {}).keys() != second.get(name, {}).keys()
    ]


def _side(side: _Side) -> dict[str, Any]:
    names = (
        "run_id",
        "created_at",
        "finished_at",
        "trials",
        "mixed_settings",
        "counts",
        "not_run_kinds",
        "success_rate",
        "success_rate_with_agent_faults_failed",
        "short_of_trials",
    )
    return {name: side.summary[name] for name in names}


def _warnings(a: _Side, b: _Side, result: Mapping[str, Any]) -> list[str]:
    warnings = []
    run_a, run_b = a.run.plan.run_id, b.run.plan.run_id
    differing = [item["name"] for item in result["version_differences"] if item["name"] in JUDGING]
    if differing:
        warnings.append(
            f"The two runs were not scored alike, by: {', '.join(JUDGING[n] for n in differing)}. "
            f"Score both in the same way, without calling again: `tau2-eval score {run_a} "
            f"--judge-model MODEL`, and the same for {run_b}."
        )
    votes = [item for item in result["settings_differences"] if item["name"] in _JUDGE_SETTINGS]
    if votes:
        warnings.append(
            "The two judges had other settings: "
            + "; ".join(f"{item['name']} {item['a']!r} and {item['b']!r}" for item in votes)
            + "."
        )
    for side in (a, b):
        if side.summary["mixed_settings"]:
            warnings.append(f"{side.run.plan.run_id} was resumed with other settings: it is mixed.")
        if side.summary["counts"]["missing"]:
            warnings.append(
                f"{side.run.plan.run_id} is not whole: {side.summary['counts']['missing']} of "
                f"{side.summary['counts']['planned']} conversations are missing."
            )
        if len(side.summary["versions"].get("judge_model", {})) > 1:
            warnings.append(f"{side.run.plan.run_id} was judged by more than one judge.")
    if a.run.plan.trials != b.run.plan.trials:
        warnings.append(
            f"The runs have {a.run.plan.trials} and {b.run.plan.trials} trials a task; a task "
            "weighs the same in both."
        )
    if result["not_comparable"]:
        warnings.append(
            f"{len(result['not_comparable'])} of {len(result['tasks'])} tasks have a score in one "
            "run at most and are left out of the difference."
        )
    return warnings


_JUDGE_SETTINGS = frozenset(
    f"judge.{name}" for name in ("votes", "include_conversation", "compact_context")
)


def _mean(values: Sequence[float], places: int = 6) -> float | None:
    return round(sum(values) / len(values), places) if values else None


def _bounds(interval: Interval | None) -> list[float] | None:
    return interval.to_list() if interval else None
