"""Streaming resampling with state, exact in position and without drift.

soxr's stream holds back 20 to 118 ms of output, depending on the rates; on a line that would be
heard as delay. A windowed-sinc filter evaluated at each output sample's exact place needs 4 ms, and
its state is nothing but the last few input samples.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np
import numpy.typing as npt

from tau2eval_bridge.clock import TICKS_PER_SECOND

Float = npt.NDArray[np.float32]
Pcm = npt.NDArray[np.int16]

DELAY_SECONDS = 0.004
"""By how much the output of a bank is later than its input, at all rates."""

_ZERO_CROSSINGS = 32
_KAISER_BETA = 8.0
_CUTOFF = 0.95
_MIN_RATE, _MAX_RATE, _RATE_STEP = 8_000, 48_000, 25


def check_rate(rate: int) -> int:
    """Returns the rate when audio of this rate can be carried.

    Raises:
        ValueError: Outside 8,000 to 48,000 Hz, or when it is no multiple of 25 Hz.
    """
    if not _MIN_RATE <= rate <= _MAX_RATE or rate % _RATE_STEP:
        raise ValueError(
            f"a sample rate of {rate} Hz is not supported: use a multiple of {_RATE_STEP} from "
            f"{_MIN_RATE} to {_MAX_RATE}"
        )
    return rate


def samples_before(tick: int, rate: int) -> int:
    """Returns how many samples of a rate begin before a tick: the position of its first one."""
    return -(-tick * rate // TICKS_PER_SECOND)


@lru_cache(maxsize=64)
def _kernel(rate_in: int, rate_out: int) -> tuple[int, Float]:
    """Returns the filter's half width in input samples and one row of taps for each phase."""
    lower = min(rate_in, rate_out)
    half = -(-_ZERO_CROSSINGS * rate_in // lower)
    phases = rate_out // gcd(rate_in, rate_out)
    # The output of phase p lies between two input samples, p / phases after the left one.
    offsets = np.arange(-half + 1, half + 1)[None, :] - (np.arange(phases) / phases)[:, None]
    scale = lower / rate_in * _CUTOFF
    window = np.i0(_KAISER_BETA * np.sqrt(np.clip(1 - (offsets / half) ** 2, 0, None)))
    taps = scale * np.sinc(scale * offsets) * window / np.i0(_KAISER_BETA)
    taps /= taps.sum(axis=1, keepdims=True)
    result = taps.astype(np.float32)
    result.flags.writeable = False
    return half, result


class StreamResampler:
    """One source rate to one output rate, frame by frame.

    Output sample m is the source at time m / rate_out - DELAY_SECONDS; after input up to tick n has
    come in, exactly the output up to tick n has come out.
    """

    def __init__(self, rate_in: int, rate_out: int, first_tick: int = 0) -> None:
        self._in, self._out = check_rate(rate_in), check_rate(rate_out)
        self._tick = first_tick
        self._delay = round(DELAY_SECONDS * rate_out)
        self._identity = rate_in == rate_out
        if self._identity:
            self._history = np.zeros(self._delay, np.float32)
        else:
            self._half, self._taps = _kernel(rate_in, rate_out)
            self._keep = -(-self._delay * rate_in // rate_out) + self._half + 1
            self._history = np.zeros(self._keep, np.float32)
        self._silent = True

    def frame(self, samples: Float | None) -> Float | None:
        """Takes the source of the next tick and returns the output of that tick.

        Args:
            samples: `samples_before(n + 1, rate_in) - samples_before(n, rate_in)` samples, or None
                for silence.

        Returns:
            The output of the tick, or None for silence.
        """
        tick = self._tick
        self._tick += 1
        if samples is None:
            if self._silent:
                return None
            start, end = samples_before(tick, self._in), samples_before(tick + 1, self._in)
            samples = np.zeros(end - start, np.float32)
        buffer = np.concatenate([self._history, samples])
        keep = len(self._history)
        self._history = buffer[len(buffer) - keep :]
        self._silent = not self._history.any()
        if self._identity:
            return buffer[: len(samples)]
        out_start, out_end = samples_before(tick, self._out), samples_before(tick + 1, self._out)
        positions = (np.arange(out_start, out_end, dtype=np.int64) - self._delay) * self._in
        left, remainder = np.divmod(positions, self._out)
        phase = remainder * len(self._taps) // self._out
        # Index of the first tap's sample in the buffer, whose sample 0 is `keep` before the frame.
        first = left - self._half + 1 - (samples_before(tick, self._in) - keep)
        windows = np.lib.stride_tricks.sliding_window_view(buffer, 2 * self._half)[first]
        result: Float = np.einsum("ij,ij->i", windows, self._taps[phase])
        return result


class ResamplerBank:
    """Brings sources of any rates, one after another or at once, to one output rate.

    Each rate has its own stream in which the others' time is silence, and the outputs are added:
    the filters are linear, so a change of rate in mid-word is no edge.
    """

    MAX_RATES = 8

    def __init__(self, rate_out: int) -> None:
        self.rate_out = rate_out
        self._tick = 0
        self._streams: dict[int, StreamResampler] = {}

    def frame(self, sources: dict[int, Float]) -> Pcm:
        """Returns the output of the next tick.

        Args:
            sources: By rate, the samples of this tick; a rate that is not there is silent.

        Raises:
            ValueError: For a rate that cannot be carried, or for too many different ones.
        """
        for rate in sources:
            if rate not in self._streams:
                if len(self._streams) >= self.MAX_RATES:
                    raise ValueError(f"more than {self.MAX_RATES} sample rates on one line")
                self._streams[rate] = StreamResampler(rate, self.rate_out, self._tick)
        length = samples_before(self._tick + 1, self.rate_out) - samples_before(
            self._tick, self.rate_out
        )
        self._tick += 1
        total: Float | None = None
        for rate, stream in self._streams.items():
            out = stream.frame(sources.get(rate))
            if out is not None:
                total = out if total is None else total + out
        if total is None:
            return np.zeros(length, np.int16)
        return np.clip(np.rint(total), -32768, 32767).astype(np.int16)
