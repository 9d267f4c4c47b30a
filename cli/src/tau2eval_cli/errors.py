"""Faults that end the command with a message and an exit code, never with a traceback."""

from __future__ import annotations

from typing import Final

EXIT_DONE: Final = 0
EXIT_GATE_FAILED: Final = 1
EXIT_WRONG_USE: Final = 2
EXIT_NOT_VALID: Final = 3
EXIT_INTERRUPTED: Final = 130


class CommandError(Exception):
    """An expected fault of a command.

    Attributes:
        message: What happened and what to do next, for a person.
        exit_code: What the process ends with.
    """

    exit_code: int = EXIT_NOT_VALID

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class WrongUse(CommandError):
    """The command was asked for something that cannot be; asking again will not help."""

    exit_code = EXIT_WRONG_USE


class NotValid(CommandError):
    """What was asked for is right and could not be done: no result."""

    exit_code = EXIT_NOT_VALID


class Interrupted(CommandError):
    """A person or the system ended the command before its end."""

    exit_code = EXIT_INTERRUPTED
