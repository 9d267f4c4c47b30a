"""The helper tasks of the gateway's control flows, answered by simple rules.

Every scripted model answers them, because a flow asks the model itself where no other is named. The
answers follow from the request alone, as everything here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .completion import RequestError
from .conversation import SYSTEM_ROLES
from .helper_rules import RULES, read_material
from .lesson_rules import LESSON_RULES

STRICT = "scripted/checker-strict"
OUTAGE = "scripted/checker-outage"
BABBLE = "scripted/checker-babble"

_TASK = re.compile(r"\[tau2-eval:([a-z-]+)\]")
_RULES = MappingProxyType({**RULES, **LESSON_RULES})
_BABBLE = "On the whole this looks fine to me, but I would have to think about it."


def helper_task(body: Mapping[str, Any]) -> str | None:
    """Returns the task that a control flow asks for, or None for a turn of a conversation."""
    messages = body.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    if not isinstance(first, dict) or first.get("role") not in SYSTEM_ROLES:
        return None
    content = first.get("content")
    line = content.split("\n", 1)[0].strip() if isinstance(content, str) else ""
    match = _TASK.fullmatch(line)
    return match.group(1) if match else None


def helper_answer(model: str, task: str, body: Mapping[str, Any]) -> str:
    """Returns the text that answers a helper task.

    Raises:
        RequestError: The model is one that fails, or the task is not known.
    """
    if model == OUTAGE:
        raise RequestError(
            500, f"{OUTAGE} fails every time", "scripted_outage", type="server_error"
        )
    if model == BABBLE:
        return _BABBLE
    rules = _RULES.get(task)
    if rules is None:
        raise RequestError(
            400,
            f"there is no helper task {task!r}; the scripts know {', '.join(_RULES)}",
            "helper_task_unknown",
            param="messages",
        )
    return json.dumps(rules(read_material(body["messages"]), model == STRICT))
