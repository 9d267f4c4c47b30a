"""The outline of a recording, computed in bounded memory."""

from __future__ import annotations

import wave
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

PEAKS = 1200
"""Steps of an outline; more than a wide screen shows of a call at once."""
_BLOCK_FRAMES = 1 << 20
"""Frames read at once: 4 MiB of a stereo recording."""
_FULL_SCALE = 32768
_QUIETEST = 0.02
"""A recording that never gets louder is not blown up to look loud."""


@dataclass(frozen=True)
class Peaks:
    """The outline of a stereo recording: left the caller, right the agent.

    Attributes:
        seconds: Length of what was read, which is less than the header says for a cut-off file.
        user: (lowest, highest) sample of each step, -1 to 1.
        agent: The same for the other channel.
    """

    seconds: float
    user: tuple[tuple[float, float], ...]
    agent: tuple[tuple[float, float], ...]

    @property
    def loudest(self) -> float:
        """The largest deflection in both channels, 0 to 1."""
        both = (*self.user, *self.agent)
        return max((max(-low, high) for low, high in both), default=0.0)

    def path(self, side: str) -> str:
        """Returns an SVG path for a view box of `len(user)` by 200, silence in its middle.

        Both channels have one scale, so that one can see which side is louder.
        """
        steps = self.user if side == "user" else self.agent
        if not steps:
            return ""
        scale = 98 / max(self.loudest, _QUIETEST)
        top = [f"{at},{100 - round(high * scale)}" for at, (_, high) in enumerate(steps)]
        bottom = [f"{at},{101 - round(low * scale)}" for at, (low, _) in enumerate(steps)]
        return "M" + "L".join([*top, *reversed(bottom)]) + "Z"


def read_peaks(stream: BinaryIO, steps: int = PEAKS) -> Peaks:
    """Returns the outline of a stereo 16-bit WAV file.

    Args:
        stream: The file; read once from where it stands, at most 4 MiB at a time.
        steps: Steps of the outline; a shorter recording has one a frame.

    Raises:
        ValueError: When it is no such file.
    """
    try:
        with wave.open(stream, "rb") as wav:
            if (wav.getnchannels(), wav.getsampwidth()) != (2, 2) or wav.getframerate() <= 0:
                raise ValueError("the recording is not 16-bit stereo")
            return _read(wav, steps)
    except (wave.Error, EOFError) as error:
        raise ValueError(f"the recording cannot be read: {error}") from None


def _read(wav: wave.Wave_read, steps: int) -> Peaks:
    frames = wav.getnframes()
    per_step = max(1, -(-frames // steps))
    # Whole steps a block, so that no step is split between two blocks.
    block = max(1, _BLOCK_FRAMES // per_step) * per_step
    sides: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    total = 0
    while total < frames:
        data = wav.readframes(min(block, frames - total))
        samples = np.frombuffer(data[: len(data) // 4 * 4], dtype="<i2").reshape(-1, 2)
        if not len(samples):
            break
        total += len(samples)
        starts = np.arange(0, len(samples), per_step)
        for channel, side in enumerate(sides):
            values = samples[:, channel]
            low = np.minimum.reduceat(values, starts) / _FULL_SCALE
            high = np.maximum.reduceat(values, starts) / _FULL_SCALE
            side += zip(low.tolist(), high.tolist(), strict=True)
    return Peaks(total / wav.getframerate(), tuple(sides[0]), tuple(sides[1]))
