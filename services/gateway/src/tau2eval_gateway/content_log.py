"""What may stand in the log: never keys, and prompts and answers only when that is switched on."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any, Final

import orjson

from tau2eval_gateway.redaction import Redactor
from tau2eval_gateway.requests import ChatRequest

logger = logging.getLogger(__name__)

_MAX_CHARS: Final = 100_000


class ContentLog:
    """Writes prompts and answers to the log, without keys; TAU2EVAL_GATEWAY_LOG_CONTENT.

    Args:
        redactor: Knows the keys.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def asked(self, request_id: str, request: ChatRequest) -> None:
        """Writes what a model is asked."""
        text = request.raw[:_MAX_CHARS].decode("utf-8", "replace")
        logger.info("call %s asks %s", request_id, self._redactor.clean(text))

    def answered(self, request_id: str, body: Mapping[str, Any]) -> None:
        """Writes an answer, or a piece of one."""
        text = orjson.dumps(body)[:_MAX_CHARS].decode("utf-8", "replace")
        logger.info("call %s is answered %s", request_id, self._redactor.clean(text))


class ExceptionTextFilter(logging.Filter):
    """Keeps the texts of exceptions out of the log: they may hold anything that was being handled.

    Their kinds and places stay.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Takes the text of its exception out of a record."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            record.msg = f"{_first_line(record)}\n{kinds_and_places(error)}"
            record.args = None
            record.exc_info = None
            record.exc_text = None
        return True


def kinds_and_places(error: BaseException) -> str:
    """Returns a traceback without the texts of the exceptions, the causes first."""
    parts: list[str] = []
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        frames = "".join(
            f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n'
            for frame in traceback.extract_tb(one.__traceback__)
        )
        parts.append(f"{frames}{type(one).__qualname__}")
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "\nthen:\n".join(reversed(parts))


def _first_line(record: logging.LogRecord) -> str:
    # asyncio writes the exception's repr into further lines of its messages.
    return record.getMessage().partition("\n")[0]
