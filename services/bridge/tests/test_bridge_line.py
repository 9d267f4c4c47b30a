from __future__ import annotations

import numpy as np
import pytest
from bridge_fakes import ListSink, noise, stereo, tone
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval.scorer.v1 import record_pb2
from tau2eval_bridge.line import Line, LineFault, find_audible
from tau2eval_bridge.recorder import AUDIO_PART_BYTES, Recorder

CHUNK = st.tuples(
    st.sampled_from([8000, 16000, 22050, 24000, 48000]),
    st.integers(0, 3000),  # samples
    st.floats(0, 3, allow_nan=False),  # media time
    st.integers(0, 12),  # ticks before it arrives
)


@given(st.lists(CHUNK, max_size=25), st.lists(CHUNK, max_size=25), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_any_interleaving_gives_a_gapless_recording(
    agent: list[tuple], user: list[tuple], extra: int
) -> None:
    """Both channels grow by whole frames, positions only grow, nothing audible is lost."""
    sink = ListSink()
    recorder = Recorder(sink, 24000)
    lines = [Line(16000, 24000), Line(16000, 24000)]
    waiting = [list(user), list(agent)]
    pushed, heard, last = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    ticks = 0
    countdown = extra
    while countdown or any(waiting) or not all(line.idle for line in lines):
        frames = []
        for side, line in enumerate(lines):
            while waiting[side] and waiting[side][0][3] <= ticks % 13:
                rate, length, at, _ = waiting[side].pop(0)
                line.push(np.full(length, 5000, "<i2").tobytes(), rate, at)
                pushed[side] += length / rate
            frame = line.pull()
            assert len(frame.listener) == 320
            for piece in frame.audible:
                assert piece.start >= last[side] - 1e-4
                assert ticks / 50 - 1e-9 <= piece.start < piece.end <= (ticks + 1) / 50 + 1e-4
                last[side] = piece.end
                heard[side] += piece.end - piece.start
            frames.append(frame.recording)
        recorder.audio(frames[0], frames[1])
        ticks += 1
        countdown = max(countdown - 1, 0)
    recorder.end_audio(lines[0].drain_recording(), lines[1].drain_recording())
    assert stereo(sink.parts).shape == (ticks * 480, 2)
    for side in range(2):
        assert heard[side] == pytest.approx(pushed[side], abs=1e-6)


@pytest.mark.parametrize("rate", [16000, 24000, 48000])
def test_sound_arrives_sample_true(rate: int) -> None:
    line = Line(16000, 24000)
    wave = noise(0.5, rate)
    line.push(wave.astype("<i2").tobytes(), rate, 0.1)
    frames = [line.pull() for _ in range(40)]
    heard = np.concatenate([f.listener for f in frames]).astype(float)
    expected = noise_at(wave, rate, 16000)
    at, quality = best_match(heard, expected)
    assert at == pytest.approx(0.1 * 16000 + 64, abs=1)  # 4 ms of the resampler
    assert quality > 0.995


def noise_at(wave: np.ndarray, rate: int, out: int) -> np.ndarray:
    import soxr

    return soxr.resample(wave.astype("f4"), rate, out, quality="VHQ").astype(float)


def best_match(heard: np.ndarray, expected: np.ndarray) -> tuple[int, float]:
    """The place of the best match, and the correlation there."""
    correlation = np.correlate(heard, expected, "valid")
    at = int(correlation.argmax())
    piece = heard[at : at + len(expected)]
    return at, float(piece @ expected / np.linalg.norm(piece) / np.linalg.norm(expected))


def test_recording_keeps_the_place_of_every_sample() -> None:
    sink = ListSink()
    recorder = Recorder(sink, 24000)
    caller, agent = Line(16000, 24000), Line(16000, 24000)
    wave = noise(0.3, 24000)
    agent.push(wave.astype("<i2").tobytes(), 24000, 0.06)
    for _ in range(30):
        recorder.audio(caller.pull().recording, agent.pull().recording)
    recorder.end_audio(caller.drain_recording(), agent.drain_recording())
    sound = stereo(sink.parts)
    assert not sound[:, 0].any()
    start = round(0.06 * 24000)
    assert (sound[start : start + len(wave), 1] == wave).all()


def test_a_late_chunk_follows_without_overlap() -> None:
    line = Line(16000, 16000)
    for _ in range(10):
        line.pull()
    line.push(np.full(320, 5000, "<i2").tobytes(), 16000, 0.05)
    line.push(np.full(320, 5000, "<i2").tobytes(), 16000, 0.07)
    assert line.queued_until_seconds == pytest.approx(0.24)
    first, second, third = line.pull(), line.pull(), line.pull()
    assert [p.start for p in first.audible] == [0.2]
    assert [p.end for p in second.audible] == [0.24]
    assert not third.audible


def test_rounding_of_media_times_leaves_no_gap() -> None:
    line = Line(24000, 24000)
    for number in range(10):
        line.push(np.full(480, 5000, "<i2").tobytes(), 24000, number * 0.02 + 0.00004)
    frames = [line.pull().recording for _ in range(11)]
    sound = np.concatenate(frames)[96:]
    assert (np.diff(np.flatnonzero(sound)) == 1).all()


@pytest.mark.parametrize(
    ("pcm", "rate", "at"),
    [
        (b"\0", 16000, 0.0),
        (b"\0\0", 12345, 0.0),
        (b"\0\0", 0, 0.0),
        (b"\0\0", 16000, float("nan")),
        (b"\0\0", 16000, -1.0),
        (b"\0\0", 16000, 500.0),
    ],
)
def test_audio_against_the_contract_is_refused(pcm: bytes, rate: int, at: float) -> None:
    with pytest.raises(LineFault):
        Line(16000, 24000).push(pcm, rate, at)


def test_a_flood_is_refused() -> None:
    line = Line(16000, 24000)
    for _ in range(120):
        line.push(bytes(32000), 16000, 0.0)
    with pytest.raises(LineFault, match="wait to be played"):
        line.push(bytes(32000), 16000, 0.0)


def test_audible_ends_are_exact() -> None:
    samples = np.zeros(480, np.int16)
    samples[100:300] = tone(500, 200 / 24000, 24000)
    assert find_audible(samples) == (100, 300)
    click = np.zeros(480, np.int16)
    click[7] = 200
    assert find_audible(click) is None
    assert find_audible(np.zeros(480, np.int16)) is None
    assert find_audible(np.full(480, 50, np.int16)) is None


def test_audio_parts_stay_small_and_in_order() -> None:
    sink = ListSink()
    recorder = Recorder(sink, 24000)
    recorder.header(record_pb2.RecordHeader(format_version=1))
    for number in range(200):
        recorder.audio(np.full(480, number, np.int16), np.full(480, -number, np.int16))
    recorder.end_audio(np.full(480, 200, np.int16), np.zeros(480, np.int16))
    recorder.footer(record_pb2.RecordFooter())
    sizes = [len(p.audio) for p in sink.parts if p.WhichOneof("part") == "audio"]
    assert max(sizes) <= AUDIO_PART_BYTES + 1920 <= 256 * 1024
    assert sum(sizes) == 200 * 1920
    assert (np.diff(stereo(sink.parts)[:, 0]) >= 0).all()
    assert [sink.parts[0].WhichOneof("part"), sink.parts[-1].WhichOneof("part")] == [
        "header",
        "footer",
    ]
    with pytest.raises(ValueError, match="480 are expected"):
        recorder.audio(np.zeros(481, np.int16), np.zeros(480, np.int16))
