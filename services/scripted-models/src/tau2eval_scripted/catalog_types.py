"""A step of a script, which several modules name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Step = tuple[str, Mapping[str, Any]]
"""A tool's name and arguments."""
