"""What all tools have in common: names, schemas, validation, records, and the two ways in.

`invoke` is the synchronous way for gold replay, `_execute` the asynchronous one for live calls;
both validate and then run the tool's one `_do_work`. A new tool implements only `_do_work`,
`properties`, `required_properties` and `DESCRIPTION`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from tau2eval_airline.database import OverlayDatabase, Record, clone

from .values import ToolError, canonical_arguments

ExitReason = Literal["agent_exit", "transfer"]
"""Why a tool ends the call: the agent said goodbye, or handed the caller to a human."""

Properties = dict[str, dict[str, Any]]
"""The "properties" of a JSON schema: parameter name to its schema."""

_CAMEL = re.compile(r"(?<!^)(?=[A-Z])")


def action_name(class_name: str) -> str:
    """Returns tau2's method name for a tool class: BookReservationTool -> book_reservation."""
    return _CAMEL.sub("_", class_name.removesuffix("Tool")).lower()


class Tool(ABC):
    """A function that a model can call within one session.

    Args:
        state: The session's state. `state["db"]` is its OverlayDatabase, `state["actions"]` the
            list of what it recorded, `state["side"]` who calls ("agent" by default).
    """

    DESCRIPTION: ClassVar[str]
    """What the model is told about the tool."""

    MUTATES: ClassVar[bool] = False
    """Whether a successful call may change the database."""

    EXIT_REASON: ClassVar[ExitReason | None] = None
    """Set where a successful call ends the conversation."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    @property
    def class_name(self) -> str:
        """The registry key."""
        return type(self).__name__

    @property
    def name(self) -> str:
        """The name that the model and the records see; tau2's method name."""
        return action_name(self.class_name)

    @property
    def description(self) -> str:
        """What the model is told about the tool."""
        return self.DESCRIPTION

    @property
    def mutates(self) -> bool:
        """Whether a successful call may change the database."""
        return self.MUTATES

    @property
    @abstractmethod
    def properties(self) -> Properties:
        """The parameters, as the "properties" of a JSON schema."""

    @property
    @abstractmethod
    def required_properties(self) -> list[str]:
        """Names of the parameters that a call must give."""

    @abstractmethod
    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        """Does the work of one call.

        Args:
            p: The canonical arguments.

        Returns:
            The result, as JSON data.

        Raises:
            ToolError: If the call is refused; nothing was changed then.
        """

    def openai_schema(self) -> dict[str, Any]:
        """Returns the tool as OpenAI's API takes it; a new object at each call.

        `annotations.readOnlyHint` says that a call changes nothing and ends nothing (the name is
        that of the Model Context Protocol).
        """
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": clone(self.properties),
                    "required": list(self.required_properties),
                    "additionalProperties": False,
                },
            },
            "annotations": {"readOnlyHint": not self.mutates and self.EXIT_REASON is None},
        }

    @property
    def db(self) -> OverlayDatabase:
        """The session's database.

        Raises:
            ToolError: db_not_initialized, if apply_initialization has not run.
        """
        db = self.state.get("db")
        if not isinstance(db, OverlayDatabase):
            raise ToolError("db_not_initialized", "the airline database is not loaded yet")
        return db

    def get_user(self, user_id: str) -> Mapping[str, Any]:
        """Returns a shared user record, or refuses with not_found."""
        return self._find("users", user_id, "user")

    def get_reservation(self, reservation_id: str) -> Mapping[str, Any]:
        """Returns a shared reservation record, or refuses with not_found."""
        return self._find("reservations", reservation_id, "reservation")

    def get_flight(self, flight_number: str) -> Mapping[str, Any]:
        """Returns a shared flight record, or refuses with not_found."""
        return self._find("flights", flight_number, "flight")

    def get_flight_date(self, flight_number: str, date: str) -> Mapping[str, Any]:
        """Returns what is known of a flight on one date, shared, or refuses with not_found."""
        dates: Mapping[str, Mapping[str, Any]] = self.get_flight(flight_number)["dates"]
        if date not in dates:
            raise ToolError("not_found", f"flight {flight_number} does not fly on {date}")
        return dates[date]

    def _find(self, table: str, key: str, what: str) -> Mapping[str, Any]:
        record = self.db.view(table, key)
        if record is None:
            raise ToolError("not_found", f"there is no {what} {key}")
        return record


class _Tau2InvokeMixin(Tool, ABC):
    """The two ways into `_do_work`, with validation before and errors as data after."""

    def invoke(self, /, **kwargs: Any) -> dict[str, Any]:
        """Runs the tool now; for gold replay.

        Args:
            **kwargs: The arguments by name, as the caller sent them.

        Returns:
            The result, or {status: "error", error_type, message[, details]}.
        """
        try:
            return self._do_work(
                canonical_arguments(self.properties, self.required_properties, kwargs)
            )
        except ToolError as error:
            return error.as_data()

    async def _execute(self, /, **kwargs: Any) -> dict[str, Any]:
        """Runs the tool in a live call. It never waits, so calls of one session stay in order."""
        return self.invoke(**kwargs)


class _RecordingMixin(_Tau2InvokeMixin, ABC):
    """Keeps a record of successful calls for the scorer."""

    def _record_action(self, p: Mapping[str, Any], result: Mapping[str, Any]) -> Record:
        """Appends {action_type, name, arguments, result, side} to the session's actions.

        Args:
            p: The canonical arguments.
            result: The short result of the record.

        Returns:
            A copy of `result`, for the model.
        """
        record = {
            "action_type": self.name,
            "name": self.name,
            "arguments": clone(p),
            "result": clone(result),
            "side": self.state.get("side", "agent"),
        }
        self.state.setdefault("actions", []).append(record)
        copy: Record = clone(result)
        return copy


class _Tau2ReadTool(_Tau2InvokeMixin, ABC):
    """A tool that changes nothing and records nothing."""


class _Tau2WriteTool(_RecordingMixin, ABC):
    """A tool that changes the database and records that it did."""

    MUTATES = True


def text(description: str, enum: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the schema of a string parameter."""
    schema: dict[str, Any] = {"type": "string", "description": description}
    return {**schema, "enum": list(enum)} if enum else schema


def whole(description: str, minimum: int) -> dict[str, Any]:
    """Returns the schema of an integer parameter with its least value."""
    return {"type": "integer", "description": description, "minimum": minimum}


def objects(description: str, properties: Properties) -> dict[str, Any]:
    """Returns the schema of a list, not empty, of objects that have all of `properties`."""
    return {
        "type": "array",
        "description": description,
        "minItems": 1,
        "items": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
    }
