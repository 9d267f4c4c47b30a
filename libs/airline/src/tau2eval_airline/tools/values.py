"""Brings what a model sends as tool arguments into the one form that is looked up and stored.

Speech recognition returns ids in any case, and models send a count as 2, 2.0 or "2". Upstream
stores what it gets, so that equal bookings hash differently; here every value is made canonical
first. A parameter's JSON schema says its type, its name says its meaning: the same name means
the same thing in all tools.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tau2eval_airline.errors import AirlineError

MAX_NUMBER = 10**9
"""Bound on the size of every integer argument: counts and whole dollars."""

MAX_TEXT = 10_000
"""Bound on the characters of every string argument."""

MAX_ITEMS = 100
"""Bound on the elements of every list argument."""

_DATE = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})", re.ASCII)
_WHOLE = re.compile(r"\$?\s*([+-]?\d{1,12})(?:\.0*)?", re.ASCII)


class ToolError(AirlineError):
    """Becomes the error data that a model sees instead of a result.

    Attributes:
        error_type: not_found, value_error, validation_error, db_not_initialized or unknown_tool.
        message: What is wrong and what would be right.
        details: Anything machine-readable that helps, or None.
    """

    def __init__(self, error_type: str, message: str, details: Any = None) -> None:
        self.error_type = error_type
        self.message = message
        self.details = details
        super().__init__(message)

    def as_data(self) -> dict[str, Any]:
        """Returns {status, error_type, message[, details]}."""
        data = {"status": "error", "error_type": self.error_type, "message": self.message}
        return data if self.details is None else {**data, "details": self.details}


class _Problem(ValueError):
    """Why one value was refused."""


def _upper_code(value: str) -> str:
    return "".join(value.split()).upper()


def _lower_id(value: str) -> str:
    return "".join(value.split()).lower()


def _choice(value: str) -> str:
    return re.sub(r"[\s_-]+", "_", value.strip().lower())


def _words(value: str) -> str:
    return " ".join(value.split())


def _date(value: str) -> str:
    match = _DATE.fullmatch(value.strip())
    if match:
        try:
            return datetime.date(*map(int, match.groups())).isoformat()
        except ValueError:
            pass
    raise _Problem(f"{_short(value)} is no date of the form YYYY-MM-DD")


_BY_NAME: dict[str, Callable[[str], str]] = {
    "user_id": _lower_id,
    "payment_id": _lower_id,
    "reservation_id": _upper_code,
    "flight_number": _upper_code,
    "origin": _upper_code,
    "destination": _upper_code,
    "cabin": _choice,
    "flight_type": _choice,
    "insurance": _choice,
    "date": _date,
    "dob": _date,
    "first_name": _words,
    "last_name": _words,
}


def canonical_arguments(
    properties: Mapping[str, Any], required: Sequence[str], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Checks a call's arguments and brings them into canonical form.

    Args:
        properties: The tool's parameters, as the "properties" of a JSON schema.
        required: Names of the parameters that must be there.
        arguments: What the caller sent.

    Returns:
        The canonical arguments, in the order of `properties`.

    Raises:
        ToolError: validation_error, with every problem found under "details".
    """
    problems: list[dict[str, str]] = []
    schema = {"type": "object", "properties": properties, "required": list(required)}
    value = _convert(schema, "", dict(arguments), "", problems)
    if problems:
        text = "; ".join(f"{item['parameter']}: {item['problem']}" for item in problems)
        raise ToolError("validation_error", text, problems)
    assert isinstance(value, dict)
    return value


def parse_arguments(arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Reads a call's arguments as a model sends them.

    Args:
        arguments: JSON text of an object, an object, or nothing.

    Returns:
        The arguments by name.

    Raises:
        ToolError: validation_error, if it is no JSON object.
    """
    if arguments is None:
        return {}
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if not isinstance(arguments, str):
        raise ToolError("validation_error", "the arguments must be one JSON object")
    if not arguments.strip():
        return {}
    if len(arguments) > 10 * MAX_TEXT:
        raise ToolError("validation_error", "the arguments are too long")
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "not readable"
        raise ToolError("validation_error", f"the arguments are not JSON: {reason}") from None
    if not isinstance(value, dict):
        raise ToolError("validation_error", "the arguments must be one JSON object")
    return value


def _convert(
    schema: Mapping[str, Any], name: str, value: Any, path: str, problems: list[dict[str, str]]
) -> Any:
    """Returns the canonical value; what is wrong goes into `problems`."""
    kind = schema["type"]
    try:
        if kind == "object":
            return _object(schema, value, path, problems)
        if kind == "array":
            return _array(schema, name, value, path, problems)
        if kind == "integer":
            return _integer(schema, value)
        return _string(schema, name, value)
    except _Problem as problem:
        problems.append({"parameter": path or "arguments", "problem": str(problem)})
        return None


def _object(
    schema: Mapping[str, Any], value: Any, path: str, problems: list[dict[str, str]]
) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Problem("must be an object")
    properties: Mapping[str, Any] = schema["properties"]
    dot = f"{path}." if path else ""
    for key in value:
        if key not in properties:
            known = ", ".join(properties) or "none"
            problems.append(
                {
                    "parameter": f"{dot}{_short(key, bare=True)}",
                    "problem": f"unknown; known: {known}",
                }
            )
    result: dict[str, Any] = {}
    for key, below in properties.items():
        if key in value:
            result[key] = _convert(below, key, value[key], f"{dot}{key}", problems)
        elif key in schema.get("required", ()):
            problems.append({"parameter": f"{dot}{key}", "problem": "is missing"})
    return result


def _array(
    schema: Mapping[str, Any], name: str, value: Any, path: str, problems: list[dict[str, str]]
) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _Problem("must be a list")
    if len(value) < schema.get("minItems", 0):
        raise _Problem("must not be empty")
    if len(value) > MAX_ITEMS:
        raise _Problem(f"has more than {MAX_ITEMS} elements")
    return [
        _convert(schema["items"], name, item, f"{path}[{index}]", problems)
        for index, item in enumerate(value)
    ]


def _integer(schema: Mapping[str, Any], value: Any) -> int:
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and math.isfinite(value) and value.is_integer():
        number = int(value)
    elif isinstance(value, str) and len(value) < 100 and (m := _WHOLE.fullmatch(value.strip())):
        number = int(m.group(1))
    if number is None:
        raise _Problem(f"must be a whole number, not {_short(value)}")
    if abs(number) > MAX_NUMBER:
        raise _Problem("is too large")
    if number < schema.get("minimum", -MAX_NUMBER):
        raise _Problem(f"must be at least {schema['minimum']}")
    return number


def _string(schema: Mapping[str, Any], name: str, value: Any) -> str:
    if isinstance(value, bool) and name == "insurance":
        value = "yes" if value else "no"
    if not isinstance(value, str):
        raise _Problem(f"must be text, not {_short(value)}")
    if len(value) > MAX_TEXT:
        raise _Problem("is too long")
    text = _BY_NAME.get(name, str.strip)(value)
    if not text:
        raise _Problem("must not be empty")
    if any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        raise _Problem("holds characters that are not text")
    choices = schema.get("enum")
    if choices and text not in choices:
        raise _Problem(f"must be one of {', '.join(choices)}, not {_short(value)}")
    return text


def _short(value: Any, bare: bool = False) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "such a number"
    text = str(value) if bare else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
