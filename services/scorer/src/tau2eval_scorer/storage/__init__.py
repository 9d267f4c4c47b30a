"""Artifacts of runs: in a folder, or in an object store."""

from __future__ import annotations

from pathlib import Path

from tau2eval_scorer.storage.base import Artifacts, Place, StoredFile, StoredRecord
from tau2eval_scorer.storage.folder import FolderArtifacts
from tau2eval_scorer.storage.objects import ObjectArtifacts

__all__ = [
    "Artifacts",
    "FolderArtifacts",
    "ObjectArtifacts",
    "Place",
    "StoredFile",
    "StoredRecord",
    "open_artifacts",
]


def open_artifacts(url: str, folder: Path) -> Artifacts:
    """Returns the artifacts at a URL, or in a folder when there is none.

    Args:
        url: Empty, or "s3://bucket/prefix".
        folder: The folder of the runs, or what is on its way to the URL.
    """
    return ObjectArtifacts(url, folder) if url else FolderArtifacts(folder)
