"""Voice activity detection: Pipecat's Silero model, loaded once for all sessions of a process."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
from pipecat.audio.vad.silero import SileroOnnxModel, SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADAnalyzer, VADParams, VADState

SAMPLE_RATE_HZ = 16_000


class VadModel:
    """The weights, shared by any number of analyzers. Each analyzer keeps a state of its own."""

    def __init__(self) -> None:
        path = resources.files("pipecat.audio.vad.data").joinpath("silero_vad.onnx")
        self.session: Any = SileroOnnxModel(str(path), True).session  # type: ignore[no-untyped-call]

    def analyzer(self, *, start_seconds: float, stop_seconds: float) -> SharedVadAnalyzer:
        """Makes the analyzer of a session."""
        return SharedVadAnalyzer(
            self.session,
            VADParams(confidence=0.7, start_secs=start_seconds, stop_secs=stop_seconds),
        )


class _SharedModel(SileroOnnxModel):
    def __init__(self, session: Any) -> None:
        self.session = session
        self.sample_rates = [8000, 16000]
        self.reset_states()  # type: ignore[no-untyped-call]


class SharedVadAnalyzer(SileroVADAnalyzer):
    """Silero over shared weights, on the event loop's thread.

    A window of 32 ms costs about 0.1 ms, less than the way to a thread and back. Loudness is not
    looked at: a line between two bots has no background, and measuring it costs more than the
    model.
    """

    def __init__(self, session: Any, params: VADParams) -> None:
        # Not SileroVADAnalyzer's own: that loads the model again.
        VADAnalyzer.__init__(self, sample_rate=SAMPLE_RATE_HZ, params=params)
        self._model = _SharedModel(session)
        self._windows_since_reset = 0
        self._low_confidence_windows = 0
        self._voiced_windows = 0

    @property
    def voiced_seconds(self) -> float:
        """Voiced time since the other side began to speak, pauses not counted, in seconds."""
        return self._voiced_windows * self.num_frames_required() / self.sample_rate

    def voice_confidence(self, buffer: bytes) -> float:
        """Returns the probability of speech in a window."""
        # An array of one, or plain 0 after a fault.
        confidence = float(np.asarray(super().voice_confidence(buffer)).item())
        if self._vad_state is VADState.QUIET:
            self._voiced_windows = 0
        if confidence >= self._params.confidence:
            self._voiced_windows += 1
        return confidence

    def _get_smoothed_volume(self, audio: bytes) -> float:
        del audio
        return 1.0

    async def analyze_audio(self, buffer: bytes) -> VADState:
        """Takes audio and returns whether the other side speaks."""
        return self._run_analyzer(buffer)
