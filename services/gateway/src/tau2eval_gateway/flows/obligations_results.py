"""Whether a tool's result says that the call failed (statement 24).

No protocol says how a tool reports a failure, so the shapes in use are recognised: words at the
start of a text, members of an object, MCP's isError, and what frameworks wrap around them. A word
in the middle of a text is no failure, nor is {"error": null}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tau2eval_gateway.flows.messages import text_of

_MAX_DEPTH = 12
_MAX_LEAD_CHARS = 400

_LEADING = re.compile(
    r"""
    (?:[\w.]*(?:error|exception)(?:s)?\ *(?:\[[^\]]*\]|\]|\(|:|-\ |\u2013|\u2014|\#|=)
    |errors?\ (?:while|when|in|on|at|executing|calling|running|during|occurred|processing|code|from
        |invoking|for|the|\d)\b
    |error(?:ed)?\s*[.!]?\s*$
    |(?:an?|the)\ (?:[\w-]+\ ){0,3}(?:error|exception)\ (?:has\ )?(?:occurred|happened|was)\b
    |traceback\ \(most\ recent
    |(?:tool|function|call|request|operation|execution|action|transaction|payment|command|query|api)
        \ (?:[\w-]+\ ){0,4}?(?:failed|errored|timed\ out|was\ (?:rejected|denied|not\ executed))\b
    |fail(?:ed|ure)?\b(?=\s*(?:[:!.]|-\ |$|to\b|with\b|because\b|due\b|while\b|when\b|in\b|:))
    |(?:unable|not\ able)\ to\b | (?:could\ ?n[o']t|cannot|can't|can\ not|could\ not|did\ not)\b
    |(?:permission|access|request|authorization)\ (?:was\ |is\ )?denied | unauthori[sz]ed\b
    |forbidden\b | not\ found\b | timed\ out\b | time-?out\b | bad\ request\b
    |internal\ server\ error | service\ unavailable | rate\ limit(?:ed|\ exceeded)
    |(?:http\ (?:status\ )?|status\ (?:code\ )?)?[45]\d\d\b(?=\s*(?:[:-]|error|bad|not\ found
        |forbidden|unauthori|internal|service|gateway|too\ many|conflict|method|request|payment
        |unprocessable))
    |\w{1,12}\ error\ -?\d | something\ went\ wrong\b | [\w'#\ -]{1,60}\bnot\ found\s*[.!]?\s*$
    |no\ such\b | unknown\ (?:tool|function|method|argument|parameter)\b
    |invalid\ [\w'-]+ | validation\ (?:failed|error) | missing\ required\b | aborted\b
    |<(?:[\w:-]*error|exception)\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NO_FAILURE = re.compile(
    r"errors?\s*[-\u2013]?\s*free\b"
    r"|(?:errors?|error[ _]?(?:code|count|message)?|exceptions?|failures?)\s*[:=]\s*"
    r"(?:0+|none|null|nil|no|false|n/?a|\[\]|\{\}|''|\"\"|-|ok|success)\s*(?:[.,;\n]|$)",
    re.IGNORECASE,
)
_MEMBER = re.compile(
    r"""\s*'([^'\\]*)'\s*:\s*
    (?:(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([\w.+-]+))\s*([,}]) | ([\[{(]))""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"None": None, "True": True, "False": False}
_MARK = re.compile(r"^[\s\W]*", re.UNICODE)
_OPENERS = "<"

_ERROR_KEYS = frozenset(
    (
        "error",
        "errors",
        "err",
        "exception",
        "exceptions",
        "errormessage",
        "errormsg",
        "errorcode",
        "errortype",
        "errordetail",
        "errordetails",
        "fault",
        "failure",
        "failurereason",
        "traceback",
        "stacktrace",
    )
)
_FAILED_KEYS = frozenset(("iserror", "haserror", "haserrors", "failed", "isfailed", "errored"))
_SUCCESS_KEYS = frozenset(("success", "successful", "succeeded", "issuccess", "ok"))
_STATUS_KEYS = frozenset(
    ("status", "state", "result", "outcome", "resultstatus", "callstatus", "executionstatus")
)
_CODE_KEYS = frozenset(("status", "statuscode", "httpstatus", "httpstatuscode", "httpcode"))
_TYPE_KEYS = frozenset({"type", "kind", "object"})
_ENVELOPES = frozenset(
    (
        "result",
        "results",
        "response",
        "data",
        "output",
        "content",
        "body",
        "value",
        "payload",
        "message",
        "detail",
        "details",
        "text",
        "structuredcontent",
        "toolresult",
        "toolresponse",
    )
)
_FAILED_WORDS = frozenset(
    (
        "error",
        "errored",
        "failed",
        "failure",
        "fail",
        "exception",
        "rejected",
        "denied",
        "declined",
        "timeout",
        "timedout",
        "unauthorized",
        "forbidden",
        "notfound",
        "invalid",
        "aborted",
        "badrequest",
        "internalerror",
    )
)
_NOTHING = frozenset(
    {"", "none", "null", "nil", "false", "no", "n/a", "na", "0", "-", "ok", "success", "noerror"}
)


def result_failed(message: Mapping[str, Any]) -> bool:
    """Returns whether a tool message is error-shaped.

    Args:
        message: With role "tool" (or "function"), as the client sent it.
    """
    flags = {name: value for name, value in message.items() if name not in ("content", "role")}
    if _object_failed(flags, _MAX_DEPTH):
        return True
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping):
            about = {name: value for name, value in part.items() if name != "text"}
            text = part.get("text")
            if _object_failed(about, _MAX_DEPTH):
                return True
            if isinstance(text, str) and _text_failed(text, _MAX_DEPTH):
                return True
    if isinstance(content, Mapping):
        return _object_failed(content, _MAX_DEPTH)
    return _text_failed(text_of(message), _MAX_DEPTH)


def _failed(value: Any, depth: int) -> bool:
    if depth <= 0:
        return False
    if isinstance(value, str):
        return _text_failed(value, depth - 1)
    if isinstance(value, Mapping):
        return _object_failed(value, depth - 1)
    if isinstance(value, list):
        # A batch of which one item failed was not done.
        return any(_failed(item, depth - 1) for item in value if isinstance(item, (Mapping, str)))
    return False


def _text_failed(text: str, depth: int) -> bool:
    stripped = text.strip()
    if not stripped or depth <= 0:
        return False
    if stripped[0] in "{[\"'(":
        known, value = _parsed(stripped)
        if known:
            return _failed(value, depth)
    # Marks before the words: an emoji, [, ** and so on.
    start = stripped[:_MAX_LEAD_CHARS]
    words = start if start[0] in _OPENERS else _MARK.sub("", start, count=1)
    return _LEADING.match(words) is not None and _NO_FAILURE.match(words) is None


def _parsed(text: str) -> tuple[bool, Any]:
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        members = _python_members(text)
        return bool(members), members


def _python_members(text: str) -> dict[str, Any]:
    """Returns the first members of what str() makes of a dict, up to one that is nested.

    Python's own reader is not used: texts can be made that end the process.
    """
    members: dict[str, Any] = {}
    at = 1 if text[0] == "{" else len(text)
    while (found := _MEMBER.match(text, at)) is not None:
        name, single, double, word, end, opening = found.groups()
        if opening:
            # Of what is inside, it counts only whether there is anything.
            members[name] = text[found.end() : found.end() + 1] not in ("]", "}", ")")
            break
        plain = single if single is not None else double
        members[name] = _WORDS.get(word, word) if plain is None else plain
        if end != ",":
            break
        at = found.end()
    return members


def _object_failed(value: Mapping[Any, Any], depth: int) -> bool:
    members = {_plain(name): member for name, member in value.items() if isinstance(name, str)}
    for name, member in members.items():
        if name in _ERROR_KEYS and _says_something(member):
            return True
        if name in _FAILED_KEYS and _flag(member) is True:
            return True
        if name in _SUCCESS_KEYS and _flag(member) is False:
            return True
        if name in _STATUS_KEYS and isinstance(member, str) and _plain(member) in _FAILED_WORDS:
            return True
        if (
            name in _TYPE_KEYS
            and isinstance(member, str)
            and _plain(member)
            in (
                "error",
                "toolerror",
                "toolexecutionerror",
                "exception",
            )
        ):
            return True
        if name in _CODE_KEYS and _http_error(member):
            return True
    return any(
        name in _ENVELOPES and isinstance(member, (Mapping, list, str)) and _failed(member, depth)
        for name, member in members.items()
    )


def _says_something(member: Any) -> bool:
    """Returns whether the value of an "error" member tells of an error."""
    if isinstance(member, str):
        return member.strip().lower() not in _NOTHING and _plain(member) not in _NOTHING
    if isinstance(member, list):
        return any(_says_something(item) for item in member)
    if isinstance(member, Mapping):
        # {"code": 0, "message": ""} says that there was none.
        return any(_says_something(item) for item in member.values())
    return bool(member)


def _flag(member: Any) -> bool | None:
    if isinstance(member, bool):
        return member
    if isinstance(member, str) and (word := member.strip().lower()) in ("true", "false"):
        return word == "true"
    return None


def _http_error(member: Any) -> bool:
    if isinstance(member, bool):
        return False
    if isinstance(member, str):
        return re.fullmatch(r"[45]\d\d(\s.*)?", member.strip()) is not None
    return isinstance(member, (int, float)) and 400 <= member < 600


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word).lower()
