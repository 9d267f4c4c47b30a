"""scripted/judge: decides the adopted assertions by the table of evidence.

It reads the judge's input as services/scorer makes it (docs/judge.md): sections of JSON between
tags. What is said or returned in a call is inside that JSON, so it never passes for a section.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .completion import RequestError
from .conversation import words
from .evidence import Evidence
from .evidence_table import EVIDENCE

_SECTION = re.compile(r"^<(\w+)>\n(.*)\n</\1>$", re.MULTILINE)
_NEEDED = ("nl_assertions", "agent_context_history", "user_context_history")


@dataclass(frozen=True)
class Material:
    """What a verdict may rest on, from the judge's input.

    Attributes:
        assertions: Number and text of each.
        agent_said: The agent's played utterances.
        calls: The agent's tool calls that did not end in an error.
        before_user: For each of the agent's utterances as the caller heard them, what the caller
            had said before.
        user_said: All that the caller said.
    """

    assertions: tuple[tuple[int, str], ...]
    agent_said: tuple[str, ...]
    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    before_user: tuple[tuple[str, str], ...]
    user_said: str


@dataclass(frozen=True)
class Finding:
    """One decision and the words or the call that it rests on."""

    passed: bool
    reason: str
    quote: str


def judgement(body: Mapping[str, Any]) -> str:
    """Returns the judge's JSON for a request.

    Raises:
        RequestError: When the input is not of the known form, or an assertion is not in the table.
    """
    material = read(_content(body.get("messages")))
    verdicts = []
    for index, assertion in material.assertions:
        evidence = EVIDENCE.get(assertion)
        if evidence is None:
            raise RequestError(
                400,
                f"scripted/judge has no evidence for the assertion {assertion!r}: it judges the "
                "adopted assertions of tau2_airline and no others",
                "assertion_unknown",
                param="messages",
            )
        found = decide(evidence, material)
        verdicts.append(
            {
                "index": index,
                "passed": found.passed,
                "reason": found.reason,
                "quote": found.quote,
            }
        )
    passed = sum(bool(verdict["passed"]) for verdict in verdicts)
    return json.dumps(
        {
            "score": round(passed / len(verdicts), 6) if verdicts else 1.0,
            "reason": f"{passed} of {len(verdicts)} assertions hold by the table of evidence",
            "nl_assertion_verdicts": verdicts,
        }
    )


def read(content: str) -> Material:
    """Reads the judge's input.

    Raises:
        RequestError: When it is not of the known form.
    """
    try:
        sections = {name: json.loads(text) for name, text in _SECTION.findall(content)}
        assertions = tuple(
            (int(item["index"]), str(item["assertion"])) for item in sections[_NEEDED[0]]
        )
        agent, user = sections[_NEEDED[1]], sections[_NEEDED[2]]
        return Material(
            assertions=assertions,
            agent_said=tuple(_said(agent, "assistant")),
            calls=tuple(_calls(agent)),
            before_user=tuple(_before(user)),
            user_said=" ".join(" ".join(words(text)) for text in _said(user, "assistant")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestError(
            400,
            f"the last user message is not a judge's input: {error!r}. It needs the sections "
            + ", ".join(_NEEDED),
            "not_a_judgement",
            param="messages",
        ) from None


def decide(evidence: Evidence, material: Material) -> Finding:
    """Decides one assertion."""
    if evidence.if_user and not re.search(evidence.if_user, material.user_said):
        return Finding(True, "the caller never said what the claim is conditional on", "")
    if evidence.called is not None:
        return _called(evidence.called, material.calls)
    if evidence.until_user:
        return _not_before(evidence, material.before_user)
    utterances = material.agent_said
    if evidence.said:
        at = _places(evidence.said, utterances)
        if not at:
            return Finding(False, "no played words of the agent say so", "")
        # A final answer is the last one.
        finding = Finding(True, "the agent said so", utterances[at[-1]])
        utterances = utterances[at[-1] :]
    else:
        finding = Finding(True, "the agent never said it", "")
        if evidence.once_said:
            at = _places(evidence.once_said, utterances)
            utterances = utterances[at[0] :] if at else ()
    for utterance in utterances if evidence.never else ():
        if _says(evidence.never, utterance):
            return Finding(False, "the agent said it", utterance)
    return finding


def _places(pattern: str, utterances: Sequence[str]) -> list[int]:
    return [at for at, text in enumerate(utterances) if re.search(pattern, _plain(text))]


def _not_before(evidence: Evidence, before_user: Sequence[tuple[str, str]]) -> Finding:
    for heard, before in before_user:
        if re.search(evidence.until_user, before):
            break
        if _says(evidence.never, heard):
            return Finding(False, "the agent said it before the caller had", heard)
    return Finding(True, "the agent did not say it before the caller had", "")


def _says(pattern: str, utterance: str) -> bool:
    """Whether a sentence matches; two sentences make no claim together."""
    return any(re.search(pattern, _plain(part)) for part in re.split(r"(?<=[.!?])\s", utterance))


def _called(
    wanted: tuple[str, Mapping[str, Any]], calls: Sequence[tuple[str, Mapping[str, Any]]]
) -> Finding:
    name, arguments = wanted
    for called, given in calls:
        if called == name and all(
            str(given.get(key, "")).casefold() == str(value).casefold()
            for key, value in arguments.items()
        ):
            return Finding(True, f"the agent called {name}", ", ".join(map(str, given.values())))
    return Finding(False, f"the agent never called {name} with {dict(arguments)}", "")


def _content(messages: Any) -> str:
    """The first user message is the input; later ones are repairs of an answer."""
    if isinstance(messages, list):
        for message in messages:
            if isinstance(message, dict) and message.get("role") == "user":
                content = message.get("content")
                if isinstance(content, str):
                    return content
    raise RequestError(
        400, "there is no user message of text", "invalid_messages", param="messages"
    )


def _said(history: Any, role: str) -> list[str]:
    return [
        str(entry["content"])
        for entry in history
        if entry["role"] == role and str(entry.get("content") or "").strip()
    ]


def _before(history: Any) -> list[tuple[str, str]]:
    """The agent's words as the caller heard them, each with all that the caller had said before."""
    found: list[tuple[str, str]] = []
    said = ""
    for entry in history:
        text = str(entry.get("content") or "")
        if entry["role"] == "assistant":
            said = f"{said} {_plain(text)}"
        elif entry["role"] == "user":
            found.append((text, said))
    return found


def _calls(history: Any) -> list[tuple[str, Mapping[str, Any]]]:
    failed = {entry["id"] for entry in history if entry["role"] == "tool" and entry.get("is_error")}
    returned = {entry["id"] for entry in history if entry["role"] == "tool"}
    calls = [entry["tool_call"] for entry in history if "tool_call" in entry]
    return [
        (str(call["name"]), call["arguments"])
        for call in calls
        if isinstance(call["arguments"], dict)
        and call["id"] in returned
        and call["id"] not in failed
    ]


def _plain(text: str) -> str:
    return " ".join(words(text))
