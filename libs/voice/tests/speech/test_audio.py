import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_voice.speech.audio import resample, to_float, to_pcm, trim_silence

RATE = 16_000


@given(st.integers(0, 20_000), st.integers(1, 8_000), st.integers(0, 20_000), st.floats(0, 0.5))
def test_trimming_keeps_all_sound_and_at_most_the_asked_silence(before, loud, after, keep):
    sound = np.full(loud, 0.5, np.float32)
    samples = np.concatenate([np.zeros(before, np.float32), sound, np.zeros(after, np.float32)])
    trimmed = trim_silence(samples, RATE, keep)
    assert np.count_nonzero(trimmed) == loud
    edges = np.flatnonzero(trimmed)
    # Cut at whole frames of 10 ms.
    assert edges[0] <= round(keep * RATE) + RATE // 100
    assert trimmed.size - 1 - edges[-1] <= round(keep * RATE) + RATE // 100
    assert edges[0] >= min(before, round(keep * RATE))
    assert trimmed.size - 1 - edges[-1] >= min(after, round(keep * RATE))


def test_silence_trims_to_nothing():
    assert trim_silence(np.zeros(1000, np.float32), RATE).size == 0


def test_pcm_conversion():
    assert to_pcm(np.array([0.0, 2.0, -2.0], np.float32)) == b"\0\0\xff\x7f\x01\x80"
    assert to_float(b"\0\0\0\x40\xff").tolist() == [0.0, 0.5]
    assert resample(np.zeros(2400, np.float32), 24_000, 16_000).size == 1600
