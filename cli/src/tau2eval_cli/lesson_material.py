"""What a failed conversation teaches from: its evidence, and what of it no lesson may repeat."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tau2eval_cli.results import parse_object
from tau2eval_cli.trials import Trial

MAX_MESSAGE_CHARS: Final = 3_000
MAX_CONVERSATION_CHARS: Final = 60_000
MAX_POLICY_CHARS: Final = 30_000
_MAX_VALUE_CHARS: Final = 120
_SYSTEM: Final = frozenset({"system", "developer"})
_WORD: Final = re.compile(r"[^\W_]+")
_TOKEN: Final = re.compile(r"[^\W_]+(?:[-_.@:/+#']+[^\W_]+)*")
_THOUSANDS: Final = re.compile(r"(?<=\d)[,\u2009\u202f](?=\d{3}(?:\D|$))")


@dataclass(frozen=True)
class Failure:
    """One scored conversation that failed.

    Attributes:
        trial: Scenario and number.
        explanation: The verdict's line for a person.
        signals: Failed signals, {name, detail} each.
        differences: Where the end state differs from the expected one.
        policy: The agent's instructions.
        tools: {name, description} each.
        messages: The agent's conversation without its instructions.
    """

    trial: Trial
    explanation: str
    signals: Sequence[Mapping[str, Any]] = ()
    differences: Sequence[Any] = ()
    policy: str = ""
    tools: Sequence[Mapping[str, str]] = ()
    messages: Sequence[Mapping[str, Any]] = field(default=())


def read_failure(
    trial: Trial, explanation: str, metrics_json: str, context_json: bytes, tools_json: bytes
) -> Failure | None:
    """Reads a failure from the verdict and the artifacts of its conversation.

    Args:
        trial: Scenario and number.
        explanation: Of the verdict.
        metrics_json: The metrics.json; may be empty.
        context_json: bot_logs_agent/llm_context.json.
        tools_json: scenario_config/agent_tools.json; may be empty.

    Returns:
        The failure; None when the agent's conversation is not recorded.
    """
    context = _parse(context_json)
    if not isinstance(context, list):
        return None
    messages = [message for message in context if isinstance(message, dict)]
    spoken = [message for message in messages if message.get("role") not in _SYSTEM]
    if not any(message.get("role") == "assistant" for message in spoken):
        return None
    metrics = parse_object(metrics_json)
    signals = metrics.get("signals")
    differences = metrics.get("db_differences")
    return Failure(
        trial=trial,
        explanation=explanation,
        signals=[
            {"name": name, "detail": signal.get("detail")}
            for name, signal in (signals.items() if isinstance(signals, dict) else ())
            if isinstance(signal, dict) and signal.get("status") == "failed"
        ],
        differences=differences[:50] if isinstance(differences, list) else [],
        policy="\n\n".join(_text(m) for m in messages if m.get("role") in _SYSTEM),
        tools=_tools(_parse(tools_json)),
        messages=spoken,
    )


def shown_messages(failure: Failure) -> list[dict[str, Any]]:
    """Returns the conversation as a model reads it; long parts are cut and say so."""
    shown: list[dict[str, Any]] = []
    for message in failure.messages:
        item: dict[str, Any] = {"role": message.get("role"), "content": _cut(_text(message))}
        if calls := list(_calls(message)):
            item["tool_calls"] = [
                {"name": name, "arguments": _cut(arguments)} for name, arguments in calls
            ]
        shown.append(item)
    return _both_ends(shown)


def repeated(failure: Failure, texts: Sequence[str]) -> list[str]:
    """Returns what texts repeat of the scenario: such a lesson would tell the answer.

    That is every token with a digit that stands in the conversation or in what was expected, and
    every name that stands in the data of tool calls and results and not in the agent's
    instructions.
    """
    numbers, names = _numbers(failure), _names(failure)
    found: dict[str, None] = {}
    for text in texts:
        for token in _tokens(text):
            folded = token.casefold()
            if folded in numbers or folded in names:
                found[token] = None
    return list(found)


def _both_ends(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns messages within the bound, as many from the start as from the end."""
    sizes = [len(json.dumps(message)) for message in messages]
    if sum(sizes) <= MAX_CONVERSATION_CHARS:
        return messages
    front, back, left = 0, len(messages), MAX_CONVERSATION_CHARS
    while front < back:
        at = front if front <= len(messages) - back else back - 1
        left -= sizes[at]
        if left < 0:
            break
        front, back = (front + 1, back) if at == front else (front, at)
    note = {"role": "note", "content": f"[{back - front} messages left out]"}
    return [*messages[:front], note, *messages[back:]]


def _numbers(failure: Failure) -> set[str]:
    said = [_text(message) for message in failure.messages]
    said += [arguments for message in failure.messages for _, arguments in _calls(message)]
    said.append(json.dumps(list(failure.differences), ensure_ascii=False))
    said.append(json.dumps(list(failure.signals), ensure_ascii=False))
    said.append(failure.trial.scenario)
    return {
        token.casefold()
        for text in said
        for token in _tokens(text)
        if any(letter.isdigit() for letter in token)
    }


def _names(failure: Failure) -> set[str]:
    known = _instructed(failure)
    values: list[str] = []
    for message in failure.messages:
        for _, arguments in _calls(message):
            values += _leaves(_parse(arguments))
        if message.get("role") == "tool":
            values += _leaves(_parse(_text(message)))
    values += _leaves(list(failure.differences))
    return {
        word.casefold()
        for value in values
        if len(value) <= _MAX_VALUE_CHARS
        for word in _WORD.findall(_fold(value))
        if len(word) > 2 and word[0].isupper() and word.casefold() not in known
    }


def _instructed(failure: Failure) -> set[str]:
    texts = [failure.policy, *(f"{tool['name']} {tool['description']}" for tool in failure.tools)]
    return {word.casefold() for text in texts for word in _WORD.findall(_fold(text))}


def _tokens(text: str) -> Iterator[str]:
    """Yields tokens as wholes and in their parts: raj_1234, raj and 1234."""
    for token in _TOKEN.findall(_THOUSANDS.sub("", _fold(text))):
        yield token
        parts = _WORD.findall(token)
        if len(parts) > 1:
            yield from parts


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _leaves(value: Any, depth: int = 0) -> list[str]:
    if depth > 50:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item, depth + 1)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item, depth + 1)]
    return []


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            yield str(function.get("name")), text


def _tools(value: Any) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for tool in value if isinstance(value, list) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            found.append(
                {
                    "name": function["name"],
                    "description": _cut(str(function.get("description") or ""), 400),
                }
            )
    return found


def _cut(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]} [{len(text) - limit} characters left out] {text[-(limit // 2) :]}"


def _parse(data: bytes | str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
