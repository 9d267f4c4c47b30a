"""Pipecat and the speech package log through loguru; here that becomes ordinary logging."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from loguru import logger as loguru_logger

if TYPE_CHECKING:
    from loguru import Message, Record

_logger = logging.getLogger("pipecat")
# Pipecat quotes the words of the conversation in brackets.
_QUOTED = re.compile(r"\[.*\]", re.DOTALL)
_EXPECTED = (
    # The reference measured 0.8 s, and the recogniser declares its own latency for it.
    "differs from the recommended default",
    # Sessions report errors of their pipeline themselves, once.
    "Something went wrong: ErrorFrame",
)


def route_pipecat_logs() -> None:
    """Sends loguru's warnings and errors to logging, without the words of conversations."""
    loguru_logger.remove()
    # Says at "info" that it is about to do its work, for every segment.
    logging.getLogger("faster_whisper").setLevel(logging.WARNING)
    loguru_logger.add(_forward, level="WARNING", filter=_wanted, format="{message}")


def _wanted(record: Record) -> bool:
    return not any(part in record["message"] for part in _EXPECTED)


def _forward(message: Message) -> None:
    record = message.record
    level = logging.ERROR if record["level"].no >= logging.ERROR else logging.WARNING
    error = record["exception"]
    _logger.log(
        level,
        "%s: %s",
        record["name"],
        _QUOTED.sub("[...]", record["message"]),
        exc_info=error.value if error else None,
    )
