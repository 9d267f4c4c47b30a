"""Speech on the CPU: recognition, synthesis, and what is spoken and heard as text.

Importing this package loads no speech library; back ends load theirs when they are created.
"""

from tau2eval_voice.speech.backends import (
    Pcm,
    Recognizer,
    Synthesizer,
    Transcript,
    create_recognizer,
    create_synthesizer,
    recognizer_names,
    synthesizer_names,
)
from tau2eval_voice.speech.errors import SpeechError, SpeechErrorKind, SpeechSetupError
from tau2eval_voice.speech.heard_form import from_spoken
from tau2eval_voice.speech.runtime import SpeechRuntime
from tau2eval_voice.speech.settings import SpeechSettings, WhisperSettings
from tau2eval_voice.speech.spoken_form import spell, to_spoken

__all__ = [
    "Pcm",
    "Recognizer",
    "SpeechError",
    "SpeechErrorKind",
    "SpeechRuntime",
    "SpeechSettings",
    "SpeechSetupError",
    "Synthesizer",
    "Transcript",
    "WhisperSettings",
    "create_recognizer",
    "create_synthesizer",
    "from_spoken",
    "recognizer_names",
    "spell",
    "synthesizer_names",
    "to_spoken",
]
