"""Packages and model files of the back ends: imported late, checked by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tau2eval_voice.speech.errors import SpeechSetupError


def require_package(module: str, *, backend: str, install: str) -> ModuleType:
    """Imports a back end's package.

    Args:
        module: Import name.
        backend: The back end that needs it.
        install: Requirement to install when it is missing, "hibari-tts==0.2.1" for instance.

    Raises:
        SpeechSetupError: It is missing or cannot be loaded on this machine.
    """
    try:
        return import_module(module)
    except ImportError as error:
        missing = getattr(error, "name", None) or module
        raise SpeechSetupError(
            f"the speech back end {backend!r} needs the package {missing!r}, which cannot be "
            f"imported ({error}); install {install!r} (pip install '{install}'), or configure "
            "another back end",
            backend=backend,
        ) from error
    except OSError as error:
        raise SpeechSetupError(
            f"the speech back end {backend!r} cannot load the libraries of the package "
            f"{module!r} on this machine ({error}); configure another back end",
            backend=backend,
        ) from error


def require_model_files(
    folder: Path, digests: Mapping[str, str], *, backend: str, remedy: str
) -> None:
    """Checks that model files are there and are the pinned ones.

    Args:
        folder: Where the files are.
        digests: SHA-256 in hex by path below the folder; an empty digest only asks for the file.
        backend: The back end that needs them.
        remedy: What to install or configure, for the error.

    Raises:
        SpeechSetupError: A file is missing, cannot be read or differs.
    """
    for name, expected in digests.items():
        path = folder / name
        if not path.is_file():
            raise SpeechSetupError(
                f"the speech back end {backend!r} needs the model file {path}, which does not "
                f"exist; {remedy}",
                backend=backend,
            )
        if not expected:
            continue
        try:
            actual = sha256_of(path)
        except OSError as error:
            raise SpeechSetupError(
                f"the speech back end {backend!r} cannot read the model file {path} ({error})",
                backend=backend,
            ) from error
        if actual != expected:
            raise SpeechSetupError(
                f"the model file {path} of the speech back end {backend!r} is not the pinned "
                f"one: SHA-256 is {actual}, expected {expected}; {remedy}",
                backend=backend,
            )


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
