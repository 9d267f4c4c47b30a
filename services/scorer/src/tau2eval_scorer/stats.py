"""Statistics of rates: intervals clustered by task, pass^k, and tests of a paired difference.

A run's conversations are no independent sample: trials of one task resemble each other. So the task
is the unit of sampling here, always.

**Interval of a rate.** The exact binomial interval of Clopper and Pearson at the effective sample
size, as Korn and Graubard (Survey Methodology 24, 1998) do it for clustered surveys. The effective
size comes from the variance between the tasks. That variance is nought when every task agrees,
and wild when tasks are few, so it is estimated with two tasks added in thought, one that passes and
one that fails (the "plus four" idea of Agresti and Coull, by whole tasks). The rate itself is not
moved. With one trial a task the effective size is the number of tasks, and the interval is the
plain binomial one; 50 of 50 gives [0.929, 1], not [1, 1]. bench/interval_coverage.py checks the
coverage by simulation, beside that of a percentile bootstrap over tasks, which is far too low.

**pass^k.** C(c, k) / C(n, k) for a task with c passes in n trials: the unbiased estimate of the
chance that k trials all pass. The interval treats these as shares of tasks.

**Paired difference.** A bootstrap over tasks, smoothed by two tasks' weight added in thought: half
of one that is won, half of one that is lost, one that is the same (after Agresti and Min,
Statistics in Medicine 24, 2005). So two runs that agree everywhere still have an interval with a
width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, betaincinv

LEVEL = 0.95
"""Two-sided confidence of every interval."""
SEED = 20_240_515
"""Seed of every bootstrap: the same rows give the same interval."""
DEFAULT_SAMPLES = 10_000
MAX_SAMPLES = 1_000_000
_TAIL = (1 - LEVEL) / 2
_CHUNK_CELLS = 4_000_000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A two-sided 95 % confidence interval."""

    low: float
    high: float

    def to_list(self) -> list[float]:
        """Returns [low, high], rounded to six places."""
        return [round(self.low, 6), round(self.high, 6)]


def pass_hat(passed: int, of: int, k: int) -> float:
    """Returns the unbiased estimate of the chance that k trials of a task all pass.

    Args:
        passed: Trials that passed.
        of: Trials with a score.
        k: At least 1 and at most `of`.

    Raises:
        ValueError: When the numbers are out of range.
    """
    if not 0 <= passed <= of or not 1 <= k <= of:
        raise ValueError(f"pass^{k} of {passed} passes in {of} trials does not exist")
    return math.comb(passed, k) / math.comb(of, k)


def binomial_interval(passed: float, of: float) -> Interval:
    """Returns the interval of Clopper and Pearson; the numbers need not be whole.

    Raises:
        ValueError: When `of` is not positive or `passed` is not within it.
    """
    if not 0 <= passed <= of or of <= 0:
        raise ValueError(f"{passed} of {of} is no rate")
    low, high = _beta_bounds(np.asarray(passed / of), np.asarray(float(of)))
    return Interval(float(low), float(high))


def clustered_interval(counts: Sequence[tuple[int, int]]) -> Interval | None:
    """Returns the interval of a rate over all trials, with the tasks as clusters.

    Args:
        counts: Passes and trials of each task; tasks without trials are left out.

    Returns:
        None when there is no trial.
    """
    used = sorted((passed, of) for passed, of in counts if of)
    if not used:
        return None
    shares = np.array([passed / of for passed, of in used])
    weights = np.array([float(of) for _, of in used])
    total = sum(of for _, of in used)
    rate = sum(passed for passed, _ in used) / total
    return _interval(rate, effective_size(shares, weights, total))


def mean_interval(shares: Sequence[float], most: float) -> Interval | None:
    """Returns the interval of the mean of shares, one a task, each from 0 to 1.

    Args:
        shares: One for each task.
        most: Bound on the effective size: how many independent looks the shares rest on.

    Returns:
        None without shares.
    """
    if not shares:
        return None
    values = np.array(sorted(shares))
    size = effective_size(values, np.ones_like(values), most)
    return _interval(math.fsum(shares) / len(shares), size)


def effective_size(shares: Floats, weights: Floats, most: float) -> Floats:
    """Returns how many independent trials tell as much as these tasks do.

    Args:
        shares: Share of passes of each task, on the last axis.
        weights: Weight of each task in the rate, in the same shape.
        most: Bound from above: trials can tell less than their number, never more.

    Returns:
        At least 1; one number for each row of `shares`.
    """
    weight = weights.mean(axis=-1)
    total = weights.sum(axis=-1)
    # With the two tasks that are added in thought, one with the share 1 and one with 0.
    mean = ((shares * weights).sum(axis=-1) + weight) / (total + 2 * weight)
    spread = (weights**2 * (shares - mean[..., None]) ** 2).sum(axis=-1)
    spread = spread + weight**2 * ((1 - mean) ** 2 + mean**2)
    whole = mean * (1 - mean) * ((weights**2).sum(axis=-1) + 2 * weight**2)
    # Kish's number of tasks, and how much less than all-or-nothing tasks these vary.
    tasks = total**2 / (weights**2).sum(axis=-1)
    size: Floats = np.clip(tasks * whole / spread, 1.0, np.maximum(most, 1.0))
    return size


def sign_test(better: int, worse: int) -> float | None:
    """Returns the exact two-sided p-value of McNemar's test; None without a discordant pair.

    Args:
        better: Pairs in which only the second side passed.
        worse: Pairs in which only the first did.
    """
    discordant = better + worse
    if not discordant:
        return None
    return min(1.0, 2 * float(bdtr(min(better, worse), discordant, 0.5)))


def difference_interval(
    differences: Sequence[float], samples: int = DEFAULT_SAMPLES, seed: int = SEED
) -> Interval | None:
    """Returns the interval of the mean of paired differences, one a task, each from -1 to 1.

    Returns:
        None without differences.
    """
    if not differences:
        return None
    # Sorted, so that the order of the tasks does not change the result.
    values = np.array([*sorted(differences), 1.0, -1.0, 0.0])
    chances = np.ones_like(values)
    chances[-3:] = 0.5, 0.5, 1.0
    size = len(differences) + 2
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK_CELLS // len(values))
    means = [
        rng.multinomial(size, chances / chances.sum(), min(rows, samples - at)) @ values / size
        for at in range(0, samples, rows)
    ]
    low, high = np.quantile(np.concatenate(means), [_TAIL, 1 - _TAIL])
    mean = math.fsum(differences) / len(differences)
    return Interval(max(-1.0, min(float(low), mean)), min(1.0, max(float(high), mean)))


def quantile_difference_interval(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    share: float,
    samples: int = DEFAULT_SAMPLES,
    seed: int = SEED,
) -> Interval | None:
    """Returns the interval of the difference of a percentile, second side minus first.

    A percentile bootstrap: tasks are drawn, the same on both sides, and the percentile is taken
    over all values of the tasks drawn.

    Args:
        first: The first side's values, task by task.
        second: The second side's, of the same tasks in the same order.
        share: 0.95 for the 95th percentile.
        samples: Resamples.
        seed: Of the random numbers.

    Returns:
        None with fewer than two tasks that have values on both sides.
    """
    pairs = sorted(
        (sorted(a), sorted(b)) for a, b in zip(first, second, strict=True) if len(a) and len(b)
    )
    if len(pairs) < 2:
        return None
    sides = [_pooled([pair[side] for pair in pairs]) for side in (0, 1)]
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK_CELLS // max(len(values) for values, _ in sides))
    chances = np.full(len(pairs), 1 / len(pairs))
    found = []
    for at in range(0, samples, rows):
        drawn = rng.multinomial(len(pairs), chances, min(rows, samples - at))
        a, b = (_weighted_quantile(values, drawn[:, task], share) for values, task in sides)
        found.append(b - a)
    low, high = np.quantile(np.concatenate(found), [_TAIL, 1 - _TAIL])
    return Interval(float(low), float(high))


def _interval(rate: float, size: Floats) -> Interval:
    low, high = _beta_bounds(np.asarray(rate), size)
    return Interval(min(float(low), rate), max(float(high), rate))


def _beta_bounds(rate: Any, size: Any) -> tuple[Any, Any]:
    """Clopper and Pearson's bounds from quantiles of the Beta distribution."""
    passed = rate * size
    failed = size - passed
    tiny = 1e-12
    low = betaincinv(np.maximum(passed, tiny), failed + 1, _TAIL)
    high = betaincinv(passed + 1, np.maximum(failed, tiny), 1 - _TAIL)
    return np.where(passed <= tiny, 0.0, low), np.where(failed <= tiny, 1.0, high)


def _pooled(tasks: Sequence[Sequence[float]]) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Returns all values in order, and the task of each."""
    values = np.concatenate([np.asarray(task, dtype=float) for task in tasks])
    owner = np.repeat(np.arange(len(tasks)), [len(task) for task in tasks])
    order = np.argsort(values, kind="stable")
    return values[order], owner[order]


def _weighted_quantile(values: Floats, weights: npt.NDArray[np.int64], share: float) -> Floats:
    """Type 7 percentiles of values that count as often as each row of weights says."""
    ends = weights.cumsum(axis=1)
    position = (ends[:, -1] - 1) * share
    low = np.floor(position)
    # The value at rank r, from 0, is the first one whose running count exceeds r.
    lower = values[(ends > low[:, None]).argmax(axis=1)]
    high = np.minimum(low + 1, ends[:, -1] - 1)
    upper = values[(ends > high[:, None]).argmax(axis=1)]
    result: Floats = lower + (upper - lower) * (position - low)
    return result
