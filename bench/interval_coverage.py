"""Checks by simulation that the scorer's intervals cover the truth as often as they say.

    .venv/bin/python bench/run.py intervals

Tasks are drawn from a population: each has its own chance of success, Beta-distributed with mean
`rate` and intraclass correlation `icc` (0: all tasks alike; 1: each task always passes or always
fails). Trials are drawn from the chances. The interval of pass^k must hold the population's pass^k
in at least 95 of 100 runs. Beside it stands a percentile bootstrap over tasks, the usual way.

Differences: two runs on the same tasks, whose chances are partly shared. Reported are the coverage
and how often B is called worse, which must be rare where the two are alike.

Prints one JSON object.
"""

from __future__ import annotations

import json
import math
import time

import numpy as np

from tau2eval_scorer import stats

RUNS = 2000
BOOTSTRAP_RUNS = 400
BOOTSTRAP_SAMPLES = 400
TASKS = (5, 10, 24, 50)
TRIALS = (1, 2, 4, 8)
RATES = (0.3, 0.5, 0.8, 0.95, 0.99)
CORRELATIONS = (0.0, 0.1, 0.3, 0.7, 1.0)


def chances(rng, rate, icc, shape):
    if icc == 0:
        return np.full(shape, rate)
    if icc == 1:
        return (rng.random(shape) < rate) * 1.0
    size = 1 / icc - 1
    return rng.beta(rate * size, (1 - rate) * size, shape)


def true_pass_hat(rate, icc, k):
    if icc == 0:
        return rate**k
    if icc == 1:
        return rate
    size = 1 / icc - 1
    return math.prod((rate * size + i) / (size + i) for i in range(k))


def percentile_bootstrap(rng, shares):
    """Coverage's rival: quantiles of the mean of tasks drawn with replacement."""
    count = shares.shape[1]
    drawn = rng.multinomial(count, np.full(count, 1 / count), (len(shares), BOOTSTRAP_SAMPLES))
    means = np.einsum("rbt,rt->rb", drawn, shares) / count
    return np.quantile(means, [0.025, 0.975], axis=1)


def covered(low, high, truth):
    return round(float(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).mean()), 4)


def rates(rng):
    """Coverage of pass^k for every design."""
    found = []
    for tasks in TASKS:
        for trials in TRIALS:
            for rate in RATES:
                for icc in CORRELATIONS if trials > 1 else (0.0,):
                    passed = rng.binomial(trials, chances(rng, rate, icc, (RUNS, tasks)))
                    for k in sorted({1, 2, trials} & set(range(1, trials + 1))):
                        table = np.array([stats.pass_hat(c, trials, k) for c in range(trials + 1)])
                        shares = table[passed]
                        truth = true_pass_hat(rate, icc, k)
                        size = stats.effective_size(
                            shares, np.ones_like(shares), tasks * trials / k
                        )
                        low, high = stats._beta_bounds(shares.mean(axis=1), size)
                        rival = percentile_bootstrap(rng, shares[:BOOTSTRAP_RUNS])
                        found.append(
                            {
                                "tasks": tasks, "trials": trials, "k": k, "rate": rate, "icc": icc,
                                "coverage": covered(low, high, truth),
                                "width": round(float((high - low).mean()), 4),
                                "bootstrap_coverage": covered(*rival, truth),
                                "bootstrap_width": round(float((rival[1] - rival[0]).mean()), 4),
                            }
                        )  # fmt: skip
    return found


def lowest(found):
    """The lowest coverage of each tasks, trials and k, over all rates and correlations."""
    designs = sorted({(item["tasks"], item["trials"], item["k"]) for item in found})
    result = []
    for tasks, trials, k in designs:
        those = [i for i in found if (i["tasks"], i["trials"], i["k"]) == (tasks, trials, k)]
        worst = min(those, key=lambda item: item["coverage"])
        result.append(
            {
                "tasks": tasks, "trials": trials, "k": k, "coverage": worst["coverage"],
                "at_rate": worst["rate"], "at_icc": worst["icc"],
                "bootstrap_coverage": min(item["bootstrap_coverage"] for item in those),
            }
        )  # fmt: skip
    return result


def differences(rng):
    """Coverage of the paired difference, and how often B is called worse."""
    found = []
    for tasks in (10, 24, 50):
        for trials in (1, 4):
            for first, second in ((0.5, 0.5), (0.9, 0.9), (0.98, 0.98), (0.9, 0.7), (0.98, 0.8)):
                level = rng.random((BOOTSTRAP_RUNS, tasks))
                sides = []
                for rate in (first, second):
                    # Half of the tasks are decided by how hard they are, the same in both runs.
                    hard = rng.random(level.shape) < 0.5
                    chance = np.where(hard, (level < rate) * 1.0, rate)
                    sides.append(rng.binomial(trials, chance) / trials)
                intervals = [
                    stats.difference_interval(list(row), 1000, seed)
                    for seed, row in enumerate(sides[1] - sides[0])
                ]
                low = np.array([interval.low for interval in intervals])
                high = np.array([interval.high for interval in intervals])
                found.append(
                    {
                        "tasks": tasks, "trials": trials, "rate_a": first, "rate_b": second,
                        "coverage": covered(low, high, second - first),
                        "called_worse": round(float((high < 0).mean()), 4),
                    }
                )  # fmt: skip
    return found


def main() -> None:
    """Simulates and prints."""
    start = time.perf_counter()
    rng = np.random.default_rng(2024)
    by_rate, by_difference = rates(rng), differences(rng)
    alike = [item for item in by_difference if item["rate_a"] == item["rate_b"]]
    print(
        json.dumps(
            {
                "runs_of_each_design": RUNS,
                "designs": len(by_rate),
                "lowest_coverage": min(by_rate, key=lambda item: item["coverage"]),
                "lowest_bootstrap_coverage": min(
                    by_rate, key=lambda item: item["bootstrap_coverage"]
                ),
                "designs_below_94_percent": {
                    "ours": sum(item["coverage"] < 0.94 for item in by_rate),
                    "percentile_bootstrap": sum(
                        item["bootstrap_coverage"] < 0.94 for item in by_rate
                    ),
                },
                "lowest_by_design": lowest(by_rate),
                "differences": by_difference,
                "most_often_called_worse_when_alike": max(item["called_worse"] for item in alike),
                "seconds": round(time.perf_counter() - start, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
