"""OpenAI's bodies: a reply as a chat.completion, as chunks, and errors.

Nothing here depends on the clock or on chance: the same request gets the same bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from .agents import Reply

CREATED = 1_715_799_600
"""The "created" of every object: the domain's frozen clock, 2024-05-15 15:00 Eastern (UTC-4)."""

_CHARACTERS_PER_TOKEN = 4


class RequestError(Exception):
    """A request that is answered by an OpenAI-shaped error.

    Attributes:
        status: The HTTP status.
        message: For people: what is wrong and what to do.
        code: For machines.
        type: OpenAI's class of the error.
        param: The member of the body that is wrong, if one is.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.type = type
        self.param = param

    def body(self) -> bytes:
        """Returns the error as OpenAI's JSON."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return orjson.dumps({"error": error})


@dataclass(frozen=True)
class Completion:
    """One answer.

    Attributes:
        id: Its id, from the request.
        model: The model asked.
        text: What is said; empty for none.
        tool_calls: OpenAI's tool calls; at most one.
        usage: Token counts and cost.
    """

    id: str
    model: str
    text: str
    tool_calls: list[dict[str, Any]]
    usage: dict[str, Any]

    @property
    def finish_reason(self) -> str:
        """Why the answer ends: "tool_calls" or "stop"."""
        return "tool_calls" if self.tool_calls else "stop"

    def body(self) -> bytes:
        """Returns the chat.completion object."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message = {**message, "content": self.text or None, "tool_calls": self.tool_calls}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self.finish_reason,
        }
        return orjson.dumps(
            {
                "id": self.id,
                "object": "chat.completion",
                "created": CREATED,
                "model": self.model,
                "choices": [choice],
                "usage": self.usage,
            }
        )

    def events(self, *, include_usage: bool) -> Iterator[bytes]:
        """Yields the server-sent events of a stream, the last one "[DONE]".

        Args:
            include_usage: Whether a last chunk without choices tells the usage.
        """
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": part} for part in re.findall(r"\S+\s*", self.text)]
        for index, call in enumerate(self.tool_calls):
            function = call["function"]
            start = {**call, "function": {**function, "arguments": ""}, "index": index}
            arguments = {"index": index, "function": {"arguments": function["arguments"]}}
            deltas += [{"tool_calls": [start]}, {"tool_calls": [arguments]}]
        for delta in deltas:
            yield self._chunk([_choice(delta, None)], include_usage)
        yield self._chunk([_choice({}, self.finish_reason)], include_usage)
        if include_usage:
            yield self._chunk([], include_usage, self.usage)
        yield b"data: [DONE]\n\n"

    def _chunk(
        self,
        choices: list[dict[str, Any]],
        include_usage: bool,
        usage: Mapping[str, Any] | None = None,
    ) -> bytes:
        chunk: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": self.model,
            "choices": choices,
        }
        if include_usage:
            chunk["usage"] = usage
        return b"data: " + orjson.dumps(chunk) + b"\n\n"


def complete(model: str, body: Mapping[str, Any], identity: str, reply: Reply) -> Completion:
    """Makes the completion of a reply.

    Args:
        model: The model asked.
        body: The request's body.
        identity: What else tells this conversation from others: session, scenario, trial.
        reply: What the script says and calls.
    """
    asked = orjson.dumps([body["messages"], body.get("tools")], option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(f"{identity}\n{model}\n".encode() + asked).hexdigest()
    calls = []
    if reply.call:
        name, arguments = reply.call
        # The messages before it are its position, so no call of a conversation has another's id.
        function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
        calls.append({"id": f"call_{digest[-24:]}", "type": "function", "function": function})
    prompt = len(asked) // _CHARACTERS_PER_TOKEN
    spoken = len(reply.text) + sum(len(orjson.dumps(call["function"])) for call in calls)
    completion = -(-spoken // _CHARACTERS_PER_TOKEN)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "cost": 0.0,
    }
    return Completion(f"chatcmpl-{digest[:24]}", model, reply.text, calls, usage)


def _choice(delta: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
