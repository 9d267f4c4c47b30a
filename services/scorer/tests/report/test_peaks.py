"""The outline of a recording."""

import io
import tracemalloc

import numpy as np
import pytest
from report_calls import stereo

from tau2eval_scorer.report.peaks import PEAKS, read_peaks
from tau2eval_scorer.spool import wav_header


def wav(samples, rate=8000):
    data = np.asarray(samples, dtype="<i2").tobytes()
    return wav_header(rate, len(data)) + data


def test_the_left_channel_is_the_caller_and_the_right_one_the_agent():
    samples = np.zeros((8000, 2), dtype="<i2")
    samples[:4000, 0] = 16384
    samples[4000:, 1] = -32768
    peaks = read_peaks(io.BytesIO(wav(samples)), steps=4)
    assert peaks.seconds == 1
    assert [high for _, high in peaks.user] == [0.5, 0.5, 0, 0]
    assert [low for low, _ in peaks.agent] == [0, 0, -1, -1]
    assert peaks.loudest == 1


@pytest.mark.parametrize("frames", [0, 1, 3, PEAKS - 1, PEAKS, PEAKS + 1, 3 * PEAKS + 7])
def test_every_frame_is_in_exactly_one_step(frames):
    rng = np.random.default_rng(frames)
    samples = rng.integers(-32768, 32767, (frames, 2), dtype="<i2")
    peaks = read_peaks(io.BytesIO(wav(samples)))
    assert len(peaks.user) == len(peaks.agent) <= PEAKS
    assert bool(peaks.user) == bool(frames)
    if frames:
        assert max(high for _, high in peaks.user) == samples[:, 0].max() / 32768
        assert min(low for low, _ in peaks.agent) == samples[:, 1].min() / 32768
    path = peaks.path("user")
    assert (path == "") == (not frames)


def test_a_file_that_was_cut_off_gives_what_it_has():
    data = stereo(1.0)
    peaks = read_peaks(io.BytesIO(data[: len(data) // 2 + 1]))
    assert 0.4 < peaks.seconds < 0.51


@pytest.mark.parametrize(
    "data", [b"", b"RIFF", b"not a recording at all", wav_header(8000, 0)[:20]]
)
def test_what_is_no_recording_is_refused_with_a_reason(data):
    with pytest.raises(ValueError, match="recording"):
        read_peaks(io.BytesIO(data))


def test_a_silent_recording_is_flat():
    path = read_peaks(io.BytesIO(stereo(1.0)), steps=2).path("agent")
    assert path == "M0,100L1,100L1,101L0,101Z"


def test_a_long_recording_is_read_in_bounded_memory():
    class Silence(io.RawIOBase):
        """900 s at 48 kHz, 173 MB that are never all there."""

        def __init__(self):
            self._header = io.BytesIO(wav_header(48000, 900 * 48000 * 4))

        def read(self, size=-1):
            assert 0 <= size <= 1 << 23
            return self._header.read(size) or bytes(size)

        def tell(self):
            raise OSError

    tracemalloc.start()
    try:
        peaks = read_peaks(Silence())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peaks.seconds == 900
    assert most < 32 * 1024 * 1024
