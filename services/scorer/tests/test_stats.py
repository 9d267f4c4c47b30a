"""Intervals, pass^k and tests of differences, against scipy.stats and by their rules."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval_scorer.latency import percentile
from tau2eval_scorer.stats import (
    Interval,
    binomial_interval,
    clustered_interval,
    difference_interval,
    mean_interval,
    pass_hat,
    quantile_difference_interval,
    sign_test,
)

tasks = st.lists(
    st.integers(0, 8).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))), max_size=60
)


def width(interval):
    return interval.high - interval.low


@given(st.integers(0, 12), st.integers(1, 12), st.integers(1, 12))
def test_pass_hat_is_the_share_of_draws_that_all_pass(passed, of, k):
    if passed > of or k > of:
        with pytest.raises(ValueError, match="does not exist"):
            pass_hat(passed, of, k)
        return
    of, passed, k = min(of, 9), min(passed, of, 9), min(k, of, 9)
    draws = list(itertools.combinations([True] * passed + [False] * (of - passed), k))
    assert math.isclose(pass_hat(passed, of, k), sum(map(all, draws)) / len(draws))


def test_pass_hat_is_unbiased():
    chance, of, k = 0.7, 6, 3
    weights = [math.comb(of, c) * chance**c * (1 - chance) ** (of - c) for c in range(of + 1)]
    mean = sum(weight * pass_hat(c, of, k) for c, weight in enumerate(weights))
    assert math.isclose(mean, chance**k)


@given(st.integers(1, 60), st.data())
def test_the_binomial_interval_is_that_of_scipy(of, data):
    passed = data.draw(st.integers(0, of))
    exact = scipy.stats.binomtest(passed, of).proportion_ci(0.95, "exact")
    ours = binomial_interval(passed, of)
    assert math.isclose(ours.low, exact.low, abs_tol=1e-9)
    assert math.isclose(ours.high, exact.high, abs_tol=1e-9)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_one_trial_a_task_is_the_plain_binomial(passes):
    ours = clustered_interval([(int(passed), 1) for passed in passes])
    exact = binomial_interval(sum(passes), len(passes))
    assert math.isclose(ours.low, exact.low, abs_tol=1e-9)
    assert math.isclose(ours.high, exact.high, abs_tol=1e-9)
    mean = mean_interval([float(passed) for passed in passes], len(passes))
    assert math.isclose(ours.low, mean.low, abs_tol=1e-9)
    # One more pass never lowers a bound.
    if not all(passes):
        more = clustered_interval(
            [(1, 1)] * (sum(passes) + 1) + [(0, 1)] * (passes.count(False) - 1)
        )
        assert more.low >= ours.low
        assert more.high >= ours.high


@given(tasks, st.randoms())
def test_clustered_intervals_keep_their_rules(counts, random):
    interval = clustered_interval(counts)
    total = sum(of for _, of in counts)
    if not total:
        assert interval is None
        return
    rate = sum(passed for passed, _ in counts) / total
    assert 0 <= interval.low <= rate <= interval.high <= 1
    assert width(interval) > 0
    shuffled = random.sample(counts, len(counts))
    assert clustered_interval(shuffled) == interval
    # Clustering never narrows: trials tell at most as much as if they were independent.
    plain = binomial_interval(sum(passed for passed, _ in counts), total)
    assert width(interval) >= width(plain) - 1e-9
    # The mirror: failures counted in place of passes.
    mirror = clustered_interval([(of - passed, of) for passed, of in counts])
    assert math.isclose(mirror.low, 1 - interval.high, abs_tol=1e-9)
    assert math.isclose(mirror.high, 1 - interval.low, abs_tol=1e-9)


def test_no_interval_is_a_point():
    perfect = clustered_interval([(1, 1)] * 50)
    assert perfect.high == 1
    assert math.isclose(perfect.low, 0.0250 ** (1 / 50))
    # Four trials that all agree tell of no more tasks than one does.
    assert math.isclose(clustered_interval([(4, 4)] * 50).low, perfect.low)
    assert clustered_interval([(0, 4)] * 50).high == pytest.approx(1 - perfect.low)
    assert width(difference_interval([0.0] * 50)) > 0.02


def test_trials_that_agree_within_a_task_tell_less():
    alike = clustered_interval([(4, 4)] * 10 + [(0, 4)] * 10)
    mixed = clustered_interval([(2, 4)] * 20)
    assert width(alike) > 1.8 * width(mixed)
    assert math.isclose(width(mixed), width(binomial_interval(40, 80)), rel_tol=0.01)


@given(st.lists(st.floats(0, 1), max_size=40), st.randoms())
def test_the_interval_of_a_mean_keeps_its_rules(shares, random):
    interval = mean_interval(shares, 3.0 * len(shares))
    if not shares:
        assert interval is None
        return
    assert 0 <= interval.low <= math.fsum(shares) / len(shares) + 1e-12
    assert math.fsum(shares) / len(shares) - 1e-12 <= interval.high <= 1
    assert mean_interval(random.sample(shares, len(shares)), 3.0 * len(shares)) == interval


@given(st.integers(0, 80), st.integers(0, 80))
def test_the_sign_test_is_that_of_scipy(better, worse):
    ours = sign_test(better, worse)
    if better + worse == 0:
        assert ours is None
    else:
        exact = scipy.stats.binomtest(better, better + worse, 0.5).pvalue
        assert math.isclose(ours, exact, rel_tol=1e-9)
        assert ours == sign_test(worse, better)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), max_size=30), st.randoms())
def test_paired_differences_keep_their_rules(values, random):
    interval = difference_interval(values, 500)
    if not values:
        assert interval is None
        return
    mean = math.fsum(values) / len(values)
    assert -1 <= interval.low <= mean <= interval.high <= 1
    assert width(interval) > 0
    assert difference_interval(random.sample(values, len(values)), 500) == interval


def test_a_difference_is_seen_when_it_is_there():
    assert difference_interval([-1.0] * 8 + [0.0] * 42).high < 0
    assert difference_interval([-1.0] * 2 + [0.0] * 48).high > 0
    assert difference_interval([1.0] * 8 + [0.0] * 42).low > 0
    many = difference_interval([-1.0, 0.0, 1.0] * 5, 200_000)
    few = difference_interval([-1.0, 0.0, 1.0] * 5, 2000)
    assert many == Interval(pytest.approx(few.low, abs=0.08), pytest.approx(few.high, abs=0.08))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(*[st.lists(st.floats(0, 1e4), min_size=1, max_size=6)] * 2),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from([0.5, 0.95]),
)
def test_the_bootstrap_of_percentiles_is_the_plain_one(pairs, share):
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    ours = quantile_difference_interval(first, second, share, 200, seed=7)
    # The same draws, with the drawn values written out.
    ordered = sorted((sorted(a), sorted(b)) for a, b in pairs)
    drawn = np.random.default_rng(7).multinomial(
        len(ordered), np.full(len(ordered), 1 / len(ordered)), 200
    )
    differences = []
    for weights in drawn:
        sides = [
            percentile(
                [
                    value
                    for pair, weight in zip(ordered, weights, strict=True)
                    for value in pair[side] * int(weight)
                ],
                share,
            )
            for side in (0, 1)
        ]
        differences.append(sides[1] - sides[0])
    low, high = np.quantile(differences, [0.025, 0.975])
    assert math.isclose(ours.low, low, abs_tol=1e-6)
    assert math.isclose(ours.high, high, abs_tol=1e-6)


def test_percentiles_need_two_tasks():
    assert quantile_difference_interval([[1.0]], [[2.0]], 0.5) is None
    assert quantile_difference_interval([[1.0], []], [[2.0], [3.0]], 0.5) is None
