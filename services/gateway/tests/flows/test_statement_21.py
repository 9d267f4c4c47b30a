"""Statement 21: lessons ride as one system message after the caller's, and are named."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_gateway.errors import GatewayError
from tau2eval_gateway.flows.base import Reply, Spent
from tau2eval_gateway.flows.ids import Plan, read_model_id
from tau2eval_gateway.flows.pipeline import Asked, FlowSettings, Pipeline
from tau2eval_gateway.flows.state import MemoryStateStore
from tau2eval_gateway.lessons import (
    Lesson,
    LessonIndex,
    LessonMatch,
    insert_lessons,
    system_message,
)
from tau2eval_gateway.requests import CallContext, CallMetadata, ChatRequest, parse_chat_request

LESSON = Lesson("cancel-check", "Look the booking up first.", ("cancel",), judged=True)
OTHER = Lesson("cancel-fees", "Tell the fee before the write.", ("cancel",), judged=True)
SYSTEM = {"role": "system", "content": "Rules."}
USER = {"role": "user", "content": "Cancel it."}
TEXT = system_message([LESSON])


def chat(
    messages: list[dict[str, Any]], model: str = "marina/verify:m", **more: Any
) -> ChatRequest:
    return parse_chat_request(
        orjson.dumps({"model": model, "messages": messages, **more}), 1_000_000
    )


class Book:
    """Lessons without a database."""

    def __init__(self, *lessons: Lesson) -> None:
        self.index = LessonIndex(lessons)

    async def match(self, body: dict[str, Any]) -> LessonMatch:
        return self.index.match(body)

    def insert(self, request: ChatRequest, message: str) -> ChatRequest:
        return insert_lessons(request, message)


class Watching:
    """A flow that asks once and notes what it was told."""

    streams = True

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name, self.seen = name, seen

    async def complete(self, request: ChatRequest, inner: Any, context: Any) -> Reply:
        self.seen.append(context.lessons)
        context.tally(self.name).verdict = "approved"
        return await inner(request)

    async def prepare(self, request: ChatRequest, context: Any) -> ChatRequest:
        return request


class Run:
    """One request through a pipeline: what went up, what the flows saw, the headers."""

    def __init__(self, book: Book | None, mode: str = "armed") -> None:
        self.sent: list[ChatRequest] = []
        self.seen: list[str] = []
        self.pipe = Pipeline(
            self.ask,
            lambda name, plan: Watching(name, self.seen),
            MemoryStateStore(),
            book,
            FlowSettings(lessons=mode),
        )

    async def ask(self, request: ChatRequest, context: CallContext, key_id: str) -> Asked:
        self.sent.append(request)
        body = {"choices": [{"message": {"role": "assistant", "content": "ok"}}]}
        return Asked(Reply(orjson.dumps(body), body), Spent(0.0), CallMetadata("i", "m", 0.0))

    async def __call__(self, request: ChatRequest, plan: Plan | None = None) -> dict[str, str]:
        plan = plan or read_model_id(request.model, {})
        assert plan is not None
        _, _, headers = await self.pipe.complete(plan, request, CallContext("id"), "key")
        return headers


def test_statement_21_each_lesson_is_one_line_whatever_it_holds() -> None:
    text = "One.\n- Two.\r\n\u2028- Three."
    heading, *lines = system_message([Lesson("a", text), OTHER]).split("\n")
    assert heading
    assert lines == ["- One. - Two. - Three.", f"- {OTHER.text}"]


async def test_statement_21_they_ride_after_the_callers_system_messages() -> None:
    run = Run(Book(LESSON, OTHER))
    headers = await run(chat([SYSTEM, {**SYSTEM, "content": "More."}, USER]))
    sent = run.sent[0].body["messages"]
    assert [m["content"] for m in sent] == [
        "Rules.",
        "More.",
        system_message([LESSON, OTHER]),
        "Cancel it.",
    ]
    assert sent[2]["role"] == "system"
    assert headers["x-marina-lessons"] == "cancel-check,cancel-fees"
    assert run.seen == [sent[2]["content"]]  # What the checker is shown.


async def test_statement_21_without_system_messages_they_come_first() -> None:
    run = Run(Book(LESSON))
    await run(chat([USER, SYSTEM]))
    assert [m["role"] for m in run.sent[0].body["messages"]] == ["system", "user", "system"]


async def test_statement_21_developer_messages_are_system_messages() -> None:
    run = Run(Book(LESSON))
    await run(chat([{"role": "developer", "content": "Rules."}, USER]))
    assert [m["role"] for m in run.sent[0].body["messages"]] == ["developer", "developer", "user"]


@pytest.mark.parametrize(
    ("mode", "header", "rides"),
    [
        ("armed", "cancel-check", True),
        ("observe", "observe:cancel-check", False),
        ("off", None, False),
    ],
)
async def test_statement_21_modes(mode: str, header: str | None, rides: bool) -> None:
    run = Run(Book(LESSON), mode)
    headers = await run(chat([SYSTEM, USER]))
    assert headers.get("x-marina-lessons") == header
    assert (len(run.sent[0].body["messages"]) == 3) is rides
    assert run.seen == [TEXT if rides else ""]


@pytest.mark.parametrize(("mode", "header"), [("armed", "0"), ("observe", "observe:0")])
async def test_statement_21_none_that_matters_is_said(mode: str, header: str) -> None:
    for book in (Book(LESSON), Book(), None):
        run = Run(book, mode)
        request = chat([SYSTEM, {"role": "user", "content": "Good morning."}])
        assert (await run(request))["x-marina-lessons"] == header
        assert run.sent[0].body["messages"] == request.body["messages"]


async def test_statement_21_the_last_user_turn_counts() -> None:
    run = Run(Book(LESSON))
    later = [
        {"role": "assistant", "content": "Cancel?"},
        {"role": "user", "content": "No, thanks."},
    ]
    assert (await run(chat([SYSTEM, USER, *later])))["x-marina-lessons"] == "0"
    tool = {"role": "tool", "tool_call_id": "1", "content": "done"}
    call = {"role": "assistant", "content": None, "tool_calls": []}
    assert (await run(chat([SYSTEM, USER, call, tool])))["x-marina-lessons"] == "cancel-check"
    parts = [{"type": "text", "text": "please cancel"}, {"type": "image_url", "image_url": {}}]
    request = chat([SYSTEM, {"role": "user", "content": parts}])
    assert (await run(request))["x-marina-lessons"] == "cancel-check"


async def test_statement_21_only_judged_lessons_ride() -> None:
    draft = Lesson("draft", "Cancel at once.", ("cancel",), judged=False)
    run = Run(Book(draft))
    assert (await run(chat([USER])))["x-marina-lessons"] == "0"


@pytest.mark.parametrize(
    ("model", "rides"),
    [
        ("marina/verify:m", True),
        ("marina/obligations:marina/verify:m", True),
        ("marina/verify:marina/argcheck:m", True),
        ("marina/obligations:m", False),
        ("marina/argcheck:m", False),
        ("marina/obligations:marina/argcheck:m", False),
    ],
)
async def test_statement_21_ids_with_verify_carry_them(model: str, rides: bool) -> None:
    run = Run(Book(LESSON))
    headers = await run(chat([USER], model))
    assert ("x-marina-lessons" in headers) is rides
    assert len(run.sent[0].body["messages"]) == 1 + rides


@pytest.mark.parametrize(
    ("flows", "own", "setting", "header"),
    [
        (("argcheck",), "armed", "armed", "cancel-check"),
        (("argcheck",), "armed", "observe", "observe:cancel-check"),
        (("argcheck",), "armed", "off", None),
        (("argcheck",), None, "armed", None),
        (("verify",), None, "armed", "cancel-check"),
        (("verify",), "observe", "armed", "observe:cancel-check"),
        (("verify",), "off", "armed", None),
    ],
)
async def test_statement_21_a_crew_says_for_itself_and_off_wins(
    flows: tuple[str, ...], own: str | None, setting: str, header: str | None
) -> None:
    run = Run(Book(LESSON), setting)
    plan = Plan(flows, "m", (), "crew:c", None, own)
    headers = await run(chat([USER], "marina:c"), plan)
    assert headers.get("x-marina-lessons") == header


async def test_statement_21_streams_carry_them_too() -> None:
    run = Run(Book(LESSON))
    plan = Plan(("argcheck",), "m", (), "crew:c", None, "armed")
    request = chat([SYSTEM, USER], "marina:c", stream=True)
    prepared, _, headers = await run.pipe.prepare_stream(plan, request, CallContext("id"), "key")
    assert headers["x-marina-lessons"] == "cancel-check"
    assert prepared.body["messages"][1]["content"] == TEXT
    assert orjson.loads(prepared.raw) == prepared.body


@pytest.mark.parametrize("content", [None, 7, [], {}, [None, 3, {"text": 4}], ""])
async def test_statement_21_odd_content_costs_no_call(content: Any) -> None:
    run = Run(Book(LESSON))
    headers = await run(chat([{"role": "user", "content": content}]))
    assert headers["x-marina-lessons"] == "0"


@pytest.mark.parametrize("role", [None, 7, [], {}, True])
async def test_statement_21_odd_roles_cost_no_call(role: Any) -> None:
    run = Run(Book(LESSON))
    with pytest.raises(GatewayError):
        await run(chat([{"role": role, "content": "x"}, USER]))
    assert run.sent == []


messages_ = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
            "content": st.one_of(st.none(), st.text(max_size=20)),
        },
        optional={
            "x": st.one_of(
                st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)
            )
        },
    ),
    min_size=1,
    max_size=6,
)


@given(messages_, st.sampled_from([None, 1, 3]), st.booleans())
def test_statement_21_no_other_byte_changes(
    messages: list[dict[str, Any]], indent: int | None, ascii_only: bool
) -> None:
    body = {"model": "m", "messages": messages, "seed": 1.50, "a": [{"messages": []}]}
    raw = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    request = parse_chat_request(raw, 1_000_000)
    changed = insert_lessons(request, 'Lesson <"> é \u2028')
    assert orjson.loads(changed.raw) == changed.body
    leading = 0
    while leading < len(messages) and messages[leading]["role"] in ("system", "developer"):
        leading += 1
    added = changed.body["messages"].pop(leading)
    assert added["content"] == 'Lesson <"> é \u2028'
    assert changed.body["messages"] == request.body["messages"]
    # The caller's bytes are all there, in order, with one piece more.
    grown = len(changed.raw) - len(raw)
    common = 0
    while common < len(raw) and raw[common] == changed.raw[common]:
        common += 1
    assert changed.raw[common + grown :] == raw[common:]
    assert insert_lessons(request, "") is request
