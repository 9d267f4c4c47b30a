"""What a speech back end is, and the registries of the ones that exist.

Nothing heavy is imported here: a back end's packages are loaded when it is created.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from tau2eval_voice.speech.errors import SpeechSetupError
from tau2eval_voice.speech.settings import SpeechSettings


@dataclass(frozen=True, slots=True)
class Pcm:
    """Audio.

    Attributes:
        samples: Mono signed 16-bit little-endian samples.
        sample_rate_hz: Rate in hertz.
    """

    samples: bytes
    sample_rate_hz: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return len(self.samples) / 2 / self.sample_rate_hz


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was recognised.

    Attributes:
        text: The words, stripped; empty when nothing was understood.
        seconds: Length of the audio in seconds.
    """

    text: str
    seconds: float


class Recognizer(Protocol):
    """Turns audio into words. Called from several threads at once."""

    def transcribe(self, pcm: bytes, sample_rate_hz: int) -> Transcript:
        """Returns the words in mono signed 16-bit little-endian PCM."""
        ...


class Synthesizer(Protocol):
    """Turns words into audio. Called from several threads at once."""

    @property
    def voices(self) -> tuple[str, ...]:
        """Names of the voices."""
        ...

    def synthesize(self, text: str, voice: str) -> Pcm:
        """Returns the audio of a spoken form, untrimmed.

        Raises:
            SpeechSetupError: There is no such voice.
        """
        ...


RecognizerFactory = Callable[[SpeechSettings], Recognizer]
SynthesizerFactory = Callable[[SpeechSettings], Synthesizer]

# Where each back end's factory is: "module:function".
_RECOGNIZERS = {
    "faster-whisper": "tau2eval_voice.speech.whisper:create",
    "moonshine": "tau2eval_voice.speech.moonshine:create",
}
_SYNTHESIZERS = {"hibari": "tau2eval_voice.speech.hibari_voices:create"}


def recognizer_names() -> tuple[str, ...]:
    """Names of the recognisers that can be configured."""
    return tuple(_RECOGNIZERS)


def synthesizer_names() -> tuple[str, ...]:
    """Names of the synthesisers that can be configured."""
    return tuple(_SYNTHESIZERS)


def create_recognizer(name: str, settings: SpeechSettings) -> Recognizer:
    """Loads a recogniser. Takes up to some seconds; not for an event loop's thread.

    Raises:
        SpeechSetupError: No such back end, or its package or model file is missing or altered.
    """
    return cast(RecognizerFactory, _factory("recogniser", name, _RECOGNIZERS))(settings)


def create_synthesizer(name: str, settings: SpeechSettings) -> Synthesizer:
    """Loads a synthesiser. Takes up to some seconds; not for an event loop's thread.

    Raises:
        SpeechSetupError: No such back end, or its package or model file is missing or altered.
    """
    return cast(SynthesizerFactory, _factory("synthesiser", name, _SYNTHESIZERS))(settings)


def _factory(what: str, name: str, registry: dict[str, str]) -> object:
    target = registry.get(name)
    if target is None:
        known = ", ".join(registry)
        raise SpeechSetupError(
            f"unknown speech {what} {name!r}; choose one of: {known}", backend=name
        )
    module, _, function = target.partition(":")
    return getattr(import_module(module), function)
