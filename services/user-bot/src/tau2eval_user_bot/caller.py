"""What the caller can do: talk."""

from __future__ import annotations

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_voice.tools import NoTools


def no_tools(setup: voice_pb2.Setup) -> NoTools:
    """Makes the tools of a session: none.

    Raises:
        InvalidInput: The Setup asks for tools or a database.
    """
    if setup.tool_names:
        raise InvalidInput(
            f"Setup.tool_names: the caller has no tools; got {', '.join(setup.tool_names)}",
            reason="TOOLS_REFUSED",
        )
    if setup.initialization.db_path:
        raise InvalidInput("Setup.initialization.db_path: the caller has no database")
    return NoTools()
