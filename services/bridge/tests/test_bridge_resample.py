from __future__ import annotations

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval_bridge.resample import (
    DELAY_SECONDS,
    ResamplerBank,
    StreamResampler,
    check_rate,
    samples_before,
)

RATES = [8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000]
OUT_RATES = [8000, 16000, 24000, 48000]


@given(st.lists(st.sampled_from([*RATES, 0]), min_size=1, max_size=120), st.sampled_from(OUT_RATES))
@settings(max_examples=40, deadline=None)
def test_counts_are_exact_whatever_the_rates(rates: list[int], out: int) -> None:
    bank = ResamplerBank(out)
    total = 0
    for tick, rate in enumerate(rates):
        sources = {}
        if rate:
            length = samples_before(tick + 1, rate) - samples_before(tick, rate)
            sources[rate] = np.full(length, 1000, np.float32)
        total += len(bank.frame(sources))
        assert total == samples_before(tick + 1, out) == (tick + 1) * out // 50


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("out", [16000, 24000])
def test_no_drift_over_ten_minutes(rate: int, out: int) -> None:
    """A click after ten minutes comes out at its exact place."""
    stream = StreamResampler(rate, out)
    ticks = 30_000
    produced = 0
    for tick in range(ticks):
        if tick == ticks - 5:
            frame = np.zeros(samples_before(tick + 1, rate) - samples_before(tick, rate), "f4")
            frame[0] = 20000
            place = samples_before(tick, rate) / rate
            peak_frames = [stream.frame(frame)] + [stream.frame(None) for _ in range(3)]
            block = np.concatenate([f for f in peak_frames if f is not None])
            peak = (samples_before(tick, out) + int(np.abs(block).argmax())) / out
            assert abs(peak - DELAY_SECONDS - place) <= 1 / out
            return
        got = stream.frame(None)
        produced += 0 if got is None else len(got)


def speech_like(rate: int, seconds: float) -> np.ndarray:
    t = np.arange(round(rate * seconds)) / rate
    wave = sum(np.sin(2 * np.pi * f * t + f) for f in (210, 430, 1310, 2730, 3350))
    return (2500 * wave * (1 + np.sin(2 * np.pi * 3 * t)) / 2).astype(np.float32)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("out", [8000, 16000, 24000])
def test_agrees_with_soxr(rate: int, out: int) -> None:
    wave = speech_like(rate, 1.0)
    ticks = 50
    stream = StreamResampler(rate, out)
    frames = [
        stream.frame(wave[samples_before(i, rate) : samples_before(i + 1, rate)])
        for i in range(ticks)
    ]
    ours = np.concatenate([f for f in frames if f is not None])
    reference = soxr.resample(wave, rate, out, quality="VHQ")
    delay = round(DELAY_SECONDS * out)
    inner = slice(delay + out // 20, len(ours) - out // 20)
    difference = ours[inner] - reference[inner.start - delay : inner.stop - delay]
    signal = np.sqrt(np.mean(reference**2))
    assert np.sqrt(np.mean(difference**2)) < signal * 0.01  # -40 dB


@given(st.lists(st.sampled_from(RATES), min_size=20, max_size=20), st.sampled_from([16000, 24000]))
@settings(max_examples=25, deadline=None)
def test_a_change_of_rate_makes_no_click(rates: list[int], out: int) -> None:
    """A tone whose rate changes from frame to frame stays the tone."""
    bank = ResamplerBank(out)
    hz, amplitude = 300.0, 10000.0
    frames = []
    for tick, rate in enumerate(rates[: ResamplerBank.MAX_RATES * 2]):
        positions = np.arange(samples_before(tick, rate), samples_before(tick + 1, rate)) / rate
        frames.append(
            bank.frame({rate: (amplitude * np.sin(2 * np.pi * hz * positions)).astype("f4")})
        )
    ours = np.concatenate(frames).astype(np.float64)
    times = np.arange(len(ours)) / out - DELAY_SECONDS
    expected = amplitude * np.sin(2 * np.pi * hz * times)
    inner = slice(out // 50 + 1, len(ours) - out // 50)
    # Where 11,025 Hz has half a sample too many in a frame, neighbours share it.
    assert np.abs(ours[inner] - expected[inner]).max() < amplitude * 0.15
    if 11025 not in rates:
        assert np.abs(ours[inner] - expected[inner]).max() < amplitude * 0.06


def test_same_rate_is_bit_exact() -> None:
    bank = ResamplerBank(24000)
    wave = np.random.default_rng(1).integers(-32768, 32767, 4800).astype(np.int16)
    frames = [bank.frame({24000: wave[i * 480 : (i + 1) * 480].astype("f4")}) for i in range(10)]
    ours = np.concatenate([*frames, bank.frame({})])
    delay = round(DELAY_SECONDS * 24000)
    assert (ours[delay : delay + 4800] == wave).all()
    assert not ours[:delay].any()


@pytest.mark.parametrize("rate", [0, -16000, 7999, 48001, 16001, 96000])
def test_odd_rates_are_refused(rate: int) -> None:
    with pytest.raises(ValueError, match="not supported"):
        check_rate(rate)
