"""Makes the suite's modules importable, and starts the services once for its tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The real services, without speech models."""
    from tau2eval_validity.services import Services

    with Services(tmp_path_factory.mktemp("validity")) as running:
        yield running
