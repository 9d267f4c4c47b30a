"""Errors of the airline domain.

The domain imports no framework: a service maps these types to its own status codes.
"""

from __future__ import annotations


class AirlineError(Exception):
    """Base of every error that this package raises on purpose."""


class FixtureError(AirlineError):
    """A fixture is missing or is not the pinned one.

    Attributes:
        file: Name of the file or folder that was asked for, as a path.
        expected: The pinned SHA-256 (of the file, or of the database for a sharded folder).
        actual: The SHA-256 found, or "missing".
        how_to_get: What to do about it.
    """

    def __init__(self, file: str, expected: str, actual: str, how_to_get: str) -> None:
        self.file = file
        self.expected = expected
        self.actual = actual
        self.how_to_get = how_to_get
        found = "it is missing" if actual == "missing" else f"its SHA-256 is {actual}"
        super().__init__(
            f"airline fixture {file}: {found}, expected SHA-256 {expected}. {how_to_get}"
        )


class _LookupError(AirlineError, KeyError):
    """A KeyError whose text is its message, not the message's repr."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownScenarioError(_LookupError):
    """No scenario has the name that was asked for; the message suggests near ones."""


class UnknownToolError(_LookupError):
    """No tool class is registered under the key, neither in the domain nor in the default."""


class DuplicateScenarioError(AirlineError, ValueError):
    """Two scenario classes claim the same name."""


class GoldReplayError(AirlineError):
    """A gold action did not succeed, so there is no expected database to score against."""
