"""Arithmetic on PCM: conversion, resampling, and the silence at the edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Below this amplitude (-46 dBFS) a frame of synthesised audio is silence.
SILENCE_AMPLITUDE = 0.005
_FRAME_SECONDS = 0.01


def to_float(pcm: bytes) -> NDArray[np.float32]:
    """Mono signed 16-bit little-endian PCM as floats in [-1, 1). Drops an odd last byte."""
    usable = len(pcm) - len(pcm) % 2
    samples = np.frombuffer(pcm, dtype="<i2", count=usable // 2)
    return samples.astype(np.float32) / 32768.0


def to_pcm(samples: NDArray[np.float32]) -> bytes:
    """Floats as mono signed 16-bit little-endian samples, clipped at full scale."""
    return (np.clip(samples, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()


def resample(samples: NDArray[np.float32], from_hz: float, to_hz: float) -> NDArray[np.float32]:
    """Samples at another rate; a whole utterance at once, so no state is kept."""
    if from_hz == to_hz or samples.size == 0:
        return samples
    import soxr

    result: NDArray[np.float32] = soxr.resample(samples, from_hz, to_hz, quality="HQ")
    return result


def rms(samples: NDArray[np.float32]) -> float:
    """Root mean square amplitude; 0 of no samples."""
    return float(np.sqrt(np.mean(np.square(samples)))) if samples.size else 0.0


def trim_silence(
    samples: NDArray[np.float32], sample_rate_hz: int, keep_seconds: float = 0.1
) -> NDArray[np.float32]:
    """Leaves at most `keep_seconds` of silence at both ends.

    Words at the starts of sentences were lost when the synthesiser's own gaps stayed in. Audio
    that is silent throughout becomes empty.
    """
    frame = max(1, round(sample_rate_hz * _FRAME_SECONDS))
    loud = np.flatnonzero(np.abs(samples) >= SILENCE_AMPLITUDE)
    if loud.size == 0:
        return samples[:0]
    keep = round(sample_rate_hz * keep_seconds)
    # Whole frames, so that a soft onset just before the first loud sample is kept.
    start = max(0, int(loud[0]) // frame * frame - keep)
    end = min(samples.size, (int(loud[-1]) // frame + 1) * frame + keep)
    return samples[start:end]
