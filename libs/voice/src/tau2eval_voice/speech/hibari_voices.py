"""Synthesis by hibari-tts 0.2.1: one small model, from which two voices are made.

Source of the figures: the project's speech reference. Pitching down (faster speech, then stretched
by resampling) gives a voice that a listener tells apart from the first and that recognisers
understand as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tau2eval_voice.speech.backends import Pcm
from tau2eval_voice.speech.errors import SpeechSetupError
from tau2eval_voice.speech.model_files import require_model_files, require_package
from tau2eval_voice.speech.settings import SpeechSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BACKEND = "hibari"
PACKAGE = "hibari-tts==0.2.1"
# SHA-256 of what shapes the voice, as in the wheel of hibari-tts 0.2.1.
DIGESTS = {
    "hibari.onnx": "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8",
    "oov.onnx": "d3cfd8122c5f172a98c8de38268bf1213ee09f2c2ae4df6e055fc6532590fe76",
    "lexicon_us_gold.json.gz": "63ae94f8ef0e906d5b24fe9b59ffcbd1529aca5686a774610e43973cbaa86ad2",
    "lexicon_us_silver.json.gz": "c4c2546ebf1eb07010331e7ef785a431aa17ba8e7bfb6b4af8d654ee96a71fd3",
    "tagger.json.gz": "d2da7502284bbbe45d49e0b7ce3ce67bdab82254150f4317f1b8559b4d38d0eb",
}
# The noise in the model's output: fixed, so that the same words give the same bytes.
_SEED = 0


@dataclass(frozen=True, slots=True)
class _Voice:
    speed: float
    pitch: float


_VOICES = {"agent": _Voice(speed=1.0, pitch=1.0), "caller": _Voice(speed=1.12, pitch=0.86)}


class HibariSynthesizer:
    """The voices "agent" and "caller"; 24 kHz."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._rate_hz = int(engine.sample_rate)

    @property
    def voices(self) -> tuple[str, ...]:
        """Names of the voices."""
        return tuple(_VOICES)

    def synthesize(self, text: str, voice: str) -> Pcm:
        """Returns the audio of a spoken form at 24 kHz, untrimmed.

        Raises:
            SpeechSetupError: There is no such voice.
        """
        from tau2eval_voice.speech.audio import resample, to_pcm

        chosen = _VOICES.get(voice)
        if chosen is None:
            known = ", ".join(_VOICES)
            raise SpeechSetupError(
                f"the speech back end {BACKEND!r} has no voice {voice!r}; choose one of: {known}",
                backend=BACKEND,
            )
        samples: NDArray[np.float32] = self._engine(text, speed=chosen.speed, seed=_SEED)
        if chosen.pitch != 1.0:
            samples = resample(samples, self._rate_hz * chosen.pitch, self._rate_hz)
        return Pcm(to_pcm(samples), self._rate_hz)


def create(settings: SpeechSettings) -> HibariSynthesizer:
    """Loads the model and its pronunciation tables.

    Raises:
        SpeechSetupError: The package or a model file is missing or altered.
    """
    del settings  # The model has no options of its own.
    package = require_package("hibari", backend=BACKEND, install=PACKAGE)
    for needed in ("soxr", "onnxruntime"):
        require_package(needed, backend=BACKEND, install=needed)
    assets = Path(str(package.__file__)).parent / "assets"
    require_model_files(assets, DIGESTS, backend=BACKEND, remedy=f"reinstall {PACKAGE!r}")
    engine = package.Hibari(threads=1)
    # The pronunciation tables and the net for unknown words load at the first use; that would
    # race if two threads came first.
    engine("Ready, zzyqtl.", seed=_SEED)
    return HibariSynthesizer(engine)
