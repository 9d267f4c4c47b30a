"""Recognition by Moonshine, on the CPU with the model inside moonshine-voice 0.0.59."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tau2eval_voice.speech.backends import Transcript
from tau2eval_voice.speech.model_files import require_model_files, require_package
from tau2eval_voice.speech.settings import SpeechSettings

BACKEND = "moonshine"
# Later releases ship no weights.
PACKAGE = "moonshine-voice==0.0.59"
# SHA-256 of tiny-en as in the wheels of moonshine-voice 0.0.59.
DIGESTS = {
    "encoder_model.ort": "94e90a4654fc45cdfedb77c4c08e1739f48862998e58fada384b25118134f221",
    "decoder_model_merged.ort": "cf524c4862d36e9e5ab032eddc73637efd822d70e868ac575cf1a46e1e4708a0",
    "tokenizer.bin": "6884b35fd6377d4c4d32336a0bc152f36b64d1e45b6503683cdc238250a8472d",
}
_RATE_HZ = 16_000


class MoonshineRecognizer:
    """Native transcribers, lent to one call at a time: the library keeps state in each."""

    def __init__(self, transcribers: list[Any]) -> None:
        self._idle = transcribers
        self._available = threading.Semaphore(len(transcribers))

    def transcribe(self, pcm: bytes, sample_rate_hz: int) -> Transcript:
        """Returns the words in mono signed 16-bit little-endian PCM."""
        from tau2eval_voice.speech.audio import resample, to_float

        samples = to_float(pcm)
        seconds = samples.size / sample_rate_hz
        if samples.size == 0:
            return Transcript("", 0.0)
        audio = resample(samples, sample_rate_hz, _RATE_HZ).tolist()
        with self._available:
            transcriber = self._idle.pop()
            try:
                lines = transcriber.transcribe_without_streaming(audio, _RATE_HZ).lines
            finally:
                self._idle.append(transcriber)
        words = [line.text.strip() for line in lines]
        return Transcript(" ".join(word for word in words if word), seconds)


def create(settings: SpeechSettings) -> MoonshineRecognizer:
    """Loads the model.

    Raises:
        SpeechSetupError: The package or a model file is missing or altered.
    """
    package = require_package("moonshine_voice", backend=BACKEND, install=PACKAGE)
    require_package("soxr", backend=BACKEND, install="soxr")
    folder = settings.moonshine_model_dir
    digests = DIGESTS
    if folder is None:
        folder = Path(package.get_model_path("tiny-en"))
    else:
        digests = dict.fromkeys(DIGESTS, "")
    remedy = f"install {PACKAGE!r} (later releases ship no weights), or set moonshine_model_dir"
    require_model_files(folder, digests, backend=BACKEND, remedy=remedy)
    # Loads the native library.
    module = require_package("moonshine_voice.transcriber", backend=BACKEND, install=PACKAGE)
    return MoonshineRecognizer(
        [
            module.Transcriber(str(folder), package.ModelArch.TINY)
            for _ in range(settings.recognizer_threads)
        ]
    )
