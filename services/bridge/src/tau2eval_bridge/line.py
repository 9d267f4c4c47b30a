"""One direction of the line: a bot's audio in, frames of 20 ms out, positions in samples."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from tau2eval_bridge.clock import TICKS_PER_SECOND, tick_time
from tau2eval_bridge.resample import Float, Pcm, ResamplerBank, check_rate, samples_before

AUDIBLE_AMPLITUDE = 104
"""Samples at least this large are audible: -50 dB of full scale."""

AUDIBLE_RMS = 33.0
"""A piece of up to 20 ms below this energy is inaudible whatever its peaks: -60 dB."""

MAX_AHEAD_SECONDS = 120.0
"""A bot that sends audio further ahead than this does not keep to media time."""

_SNAP_SAMPLES = 2


class LineFault(ValueError):
    """A bot sent audio that breaks the contract."""


@dataclass(frozen=True)
class AudiblePiece:
    """Part of one chunk in one tick, from its first to behind its last audible sample (seconds)."""

    start: float
    end: float


@dataclass(frozen=True)
class LineFrame:
    """What one tick takes from the line.

    Attributes:
        listener: 20 ms for the other bot, at the listener's rate.
        recording: 20 ms for the recording, at the recording's rate.
        audible: What could be heard in the source of this tick, in order.
    """

    listener: Pcm
    recording: Pcm
    audible: tuple[AudiblePiece, ...]


@dataclass
class _Chunk:
    start: int
    rate: int
    samples: Pcm

    @property
    def end(self) -> int:
        return self.start + len(self.samples)


def find_audible(samples: Pcm) -> tuple[int, int] | None:
    """Returns the first audible sample and the one behind the last, or None."""
    values = samples.astype(np.float32)
    loud = np.abs(values) >= AUDIBLE_AMPLITUDE
    if not loud.any() or float(np.sqrt(np.mean(values * values))) < AUDIBLE_RMS:
        return None
    return int(loud.argmax()), len(loud) - int(loud[::-1].argmax())


class Line:
    """Schedules a bot's chunks at max(their media time, now), in order, and fills with silence.

    Both outputs of a tick are `resample.DELAY_SECONDS` later than the source; the recorder takes
    that out again, so positions of audible samples are positions in the recording.
    """

    def __init__(self, listener_rate: int, recording_rate: int) -> None:
        self.ticks = 0
        self._chunks: deque[_Chunk] = deque()
        self._last: tuple[int, int] = (0, listener_rate)
        self._listener = ResamplerBank(listener_rate)
        self._recording = ResamplerBank(recording_rate)
        self._rates: set[int] = set()

    @property
    def cursor_seconds(self) -> float:
        """Media time up to which audio was taken."""
        return tick_time(self.ticks)

    @property
    def queued_until_seconds(self) -> float:
        """Media time at which all audio received so far will have been taken."""
        position, rate = self._last
        return max(position / rate, self.cursor_seconds)

    @property
    def idle(self) -> bool:
        """True when nothing is queued."""
        return not self._chunks

    def push(self, pcm: bytes, rate: int, media_time: float) -> None:
        """Queues audio of the bot.

        Args:
            pcm: Mono s16le samples.
            rate: Their rate in hertz.
            media_time: Where the bot wants the first sample, in seconds.

        Raises:
            LineFault: For audio that cannot be carried.
        """
        try:
            check_rate(rate)
        except ValueError as error:
            raise LineFault(str(error)) from error
        if len(pcm) % 2:
            raise LineFault(f"audio of {len(pcm)} bytes is not 16-bit PCM")
        if not math.isfinite(media_time) or media_time < 0:
            raise LineFault(f"audio with media time {media_time}")
        self._rates.add(rate)
        if len(self._rates) > ResamplerBank.MAX_RATES:
            raise LineFault(f"more than {ResamplerBank.MAX_RATES} sample rates in one call")
        if not pcm:
            return
        samples = np.frombuffer(pcm, dtype="<i2").astype(np.int16, copy=False)
        if media_time + len(samples) / rate > self.cursor_seconds + MAX_AHEAD_SECONDS:
            raise LineFault(
                f"audio for {media_time:.1f} s was sent at {self.cursor_seconds:.1f} s: more than "
                f"{MAX_AHEAD_SECONDS:.0f} s ahead of media time"
            )
        last, last_rate = self._last
        behind_last = last if rate == last_rate else -(-last * rate // last_rate)
        earliest = max(samples_before(self.ticks, rate), behind_last)
        wanted = round(media_time * rate)
        start = earliest if wanted <= earliest + _SNAP_SAMPLES else wanted
        chunk = _Chunk(start, rate, samples)
        if chunk.end / rate > self.cursor_seconds + MAX_AHEAD_SECONDS:
            raise LineFault(f"more than {MAX_AHEAD_SECONDS:.0f} s of audio wait to be played")
        self._chunks.append(chunk)
        self._last = (chunk.end, rate)

    def pull(self) -> LineFrame:
        """Takes the next tick from the line."""
        tick = self.ticks
        self.ticks += 1
        sources: dict[int, Float] = {}
        audible: list[AudiblePiece] = []
        while self._chunks:
            chunk = self._chunks[0]
            start = samples_before(tick, chunk.rate)
            end = samples_before(tick + 1, chunk.rate)
            if chunk.start >= end:
                break
            piece = chunk.samples[: end - chunk.start]
            frame = sources.get(chunk.rate)
            if frame is None:
                frame = sources[chunk.rate] = np.zeros(end - start, np.float32)
            frame[chunk.start - start : chunk.start - start + len(piece)] = piece
            bounds = find_audible(piece)
            if bounds is not None:
                audible.append(
                    AudiblePiece(
                        (chunk.start + bounds[0]) / chunk.rate,
                        (chunk.start + bounds[1]) / chunk.rate,
                    )
                )
            if chunk.end <= end:
                self._chunks.popleft()
            else:
                chunk.samples = chunk.samples[end - chunk.start :]
                chunk.start = end
        return LineFrame(
            self._listener.frame(sources), self._recording.frame(sources), tuple(audible)
        )

    def drain_recording(self) -> Pcm:
        """Returns one more frame of the recording, for what the resampler still holds."""
        return self._recording.frame({})


def frame_samples(rate: int) -> int:
    """Returns the samples of a 20 ms frame."""
    return rate // TICKS_PER_SECOND
