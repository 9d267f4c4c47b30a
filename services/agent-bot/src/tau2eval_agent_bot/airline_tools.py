"""The airline's tools as the voice library wants them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from tau2eval.voice.v1 import voice_pb2
from tau2eval_airline import ChangedRecord as AirlineChangedRecord
from tau2eval_airline import (
    FixtureError,
    Tool,
    UnknownToolError,
    apply_initialization,
    call_tool,
    resolve_tools,
    session_summary,
)
from tau2eval_common.errors import InvalidInput
from tau2eval_voice.tools import ToolReply, ToolState

EXIT_REASONS: Mapping[str | None, voice_pb2.ExitReason.ValueType] = {
    None: voice_pb2.EXIT_REASON_UNSPECIFIED,
    "agent_exit": voice_pb2.EXIT_REASON_AGENT_EXIT,
    "transfer": voice_pb2.EXIT_REASON_TRANSFER,
}


class AirlineTools:
    """Tools and database of one session.

    Args:
        setup: Names the tools and the database.

    Raises:
        InvalidInput: There is no such tool or database.
    """

    def __init__(self, setup: voice_pb2.Setup) -> None:
        initialization = setup.initialization
        self._state: dict[str, Any] = {}
        try:
            apply_initialization(
                self._state,
                initialization.db_path,
                json_format.MessageToDict(initialization.shared_state),
            )
            self._tools: Mapping[str, Tool] = resolve_tools(
                setup.tool_domain, list(setup.tool_names), self._state
            )
        except UnknownToolError as error:
            raise InvalidInput(f"Setup.tool_names: {error}", reason="UNKNOWN_TOOL") from error
        except FixtureError as error:
            raise InvalidInput(
                f"Setup.initialization.db_path: {error}", reason="DATABASE_UNAVAILABLE"
            ) from error
        self._declarations = [tool.openai_schema() for tool in self._tools.values()]

    @property
    def declarations(self) -> Sequence[Mapping[str, Any]]:
        """The tools as OpenAI declares them."""
        return self._declarations

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        """Runs a tool. What the model did wrong comes back as data."""
        outcome = await call_tool(self._tools, name, arguments)
        return ToolReply(
            result=outcome.result,
            is_error=outcome.is_error,
            action=outcome.action,
            exit_reason=EXIT_REASONS[outcome.exit_reason],
        )

    def state(self) -> ToolState:
        """Hash, changed records and actions of the session."""
        summary = session_summary(self._state)
        return ToolState(
            db_hash=summary.db_hash or "",
            changed_records=[_to_message(record) for record in summary.changed_records],
            actions=summary.actions,
        )


def _to_message(record: AirlineChangedRecord) -> voice_pb2.ChangedRecord:
    return voice_pb2.ChangedRecord(
        table=record.table,
        key=record.key,
        record_json=json.dumps(record.record),
        payment_operation_sizes=record.payment_operation_sizes,
    )
