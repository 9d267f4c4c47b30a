"""Helper tasks of the control flows: every script answers them, and gold stays gold under them."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_airline import get_scenario, list_scenarios
from tau2eval_scripted.conversation import without_note
from tau2eval_scripted.helpers import helper_answer, helper_task
from tau2eval_scripted.models import EXPECTED_OUTCOMES

NAME = "tau2_airline__11"
CHECKERS = {"strict", "outage", "babble"}
SENSIBLE = [name for name in EXPECTED_OUTCOMES if not any(name.endswith(bad) for bad in CHECKERS)]
WRITES = ("cancel_reservation", "update_reservation_flights", "update_reservation_baggages")


def section(name, value):
    text = json.dumps(value)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f"<{name}>\n{text}\n</{name}>"


def asked(task, model="scripted/checker", **sections):
    """A helper request as the gateway makes it."""
    return {
        "model": model,
        "messages": [
            {"role": "system", "content": f"[tau2-eval:{task}]\nAnswer in JSON."},
            {
                "role": "user",
                "content": "\n".join(section(name, value) for name, value in sections.items()),
            },
        ],
    }


async def answered(client, body, headers=None):
    status, data = await client.raw(body, headers or {"x-tau2eval-role": "checker"})
    assert status == 200, data
    return json.loads(json.loads(data)["choices"][0]["message"]["content"])


@pytest.mark.parametrize("model", SENSIBLE)
async def test_every_script_approves_drafts(client, tools, model):
    body = asked("verify-review", model, conversation=[], draft={"text": "Hello."})
    for headers in ({}, {"x-tau2eval-role": "checker"}, tools.headers_of(NAME, "checker")):
        assert await answered(client, body, headers) == {
            "verdict": "approve", "note": "", "conflicts": [],
        }  # fmt: skip


async def test_requests_are_read_from_new_user_messages(client):
    conversation = [
        {"message": 1, "role": "user", "text": "Cancel ABC123."},
        {"message": 2, "role": "assistant", "text": "Shall I book a flight?", "new": True},
        {
            "message": 3,
            "role": "user",
            "new": True,
            "text": "Please cancel my reservation K1NW8N, it is booked for HAT023. Thank you! "
            "And change Q69X3R and ZFA04Y to business. </conversation>",
        },
        {"message": 4, "role": "user", "text": "Yes, please go ahead.", "new": True},
    ]
    body = asked(
        "obligations-read",
        tools=[{"name": name} for name in WRITES],
        conversation=conversation,
        open=[],
    )
    assert await answered(client, body) == {
        "obligations": [
            {"request": "Please cancel my reservation K1NW8N, it is booked for HAT023",
             "tools": ["cancel_reservation"], "identifiers": ["K1NW8N"], "message": 3},
            {"request": "And change Q69X3R and ZFA04Y to business",
             "tools": ["update_reservation_flights"], "identifiers": ["Q69X3R", "ZFA04Y"],
             "message": 3},
        ],
        "withdrawn": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("draft", "calls", "status"),
    [
        ("Shall I go ahead?", [], "waiting"),
        ("I am sorry, it cannot be cancelled. Is there anything else I can help you with?", [],
         "declined"),
        ("That is done. Is there anything else?", ["cancel_reservation"], "done"),
        ("That is done. Is there anything else?", [], "owed"),
        ("Nice weather today.", ["get_user_details"], "owed"),
    ],
)  # fmt: skip
async def test_open_requests_are_judged_by_the_draft(client, draft, calls, status):
    body = asked(
        "obligations-judge",
        open=[{"id": 1, "request": "cancel", "tools": ["cancel_reservation"]}],
        conversation=[{"role": "assistant", "text": "", "calls": [{"tool": c} for c in calls]}],
        draft=draft,
    )
    answer = await answered(client, body)
    assert [(one["id"], one["status"]) for one in answer["open"]] == [(1, status)]


async def test_values_that_nobody_said_are_unsupported(client):
    values = ["credit_card_999", "Smith", "2024-05-26", 1786, "$12.50", "gift_card_1"]
    body = asked(
        "argcheck-judge",
        conversation=[{"role": "user", "text": "My gift card is GIFT_CARD_1."}],
        drafted_calls=[
            {"call": 0, "tool": "t", "not_found": [{"path": "p", "value": v} for v in values]},
            {"call": 2, "tool": "t", "not_found": []},
        ],
    )
    answer = await answered(client, body)
    assert [(c["call"], c["supported"], c["values"]) for c in answer["calls"]] == [
        (0, False, ["credit_card_999", "Smith"]),
        (2, True, []),
    ]


async def test_lessons_are_drawn_and_judged(client):
    body = asked(
        "lesson-learn",
        failure={"failed_signals": [{"name": "DB_STATE_MATCH"}]},
        conversation=[{"role": "user", "content": "Please cancel it."}],
    )
    lesson = await answered(client, body)
    assert lesson["triggers"] == ["cancel"]
    assert await answered(client, asked("lesson-judge", lesson=lesson)) == {
        "sound": True, "reason": "It is general and follows from the failure.",
    }  # fmt: skip
    strict = asked("lesson-judge", "scripted/checker-strict", lesson=lesson)
    assert (await answered(client, strict))["sound"] is False


async def test_the_bad_checkers_are_bad(client):
    sections = {
        "open": [{"id": 7, "tools": []}],
        "drafted_calls": [{"call": 0, "not_found": [{"value": "said"}]}],
        "conversation": [{"role": "user", "text": "said"}],
        "draft": "Shall I?",
    }
    strict = "scripted/checker-strict"
    review = await answered(client, asked("verify-review", strict, **sections))
    assert (review["verdict"], review["conflicts"]) == ("revise", [])
    assert review["note"]
    judged = await answered(client, asked("obligations-judge", strict, **sections))
    assert [(one["id"], one["status"]) for one in judged["open"]] == [(7, "owed")]
    checked = await answered(client, asked("argcheck-judge", strict, **sections))
    assert [(one["supported"], one["values"]) for one in checked["calls"]] == [(False, ["said"])]
    for task in ("verify-review", "obligations-read", "argcheck-judge"):
        status, data = await client.raw(asked(task, "scripted/checker-outage", **sections))
        assert (status, json.loads(data)["error"]["code"]) == (500, "scripted_outage")
        status, data = await client.raw(asked(task, "scripted/checker-babble", **sections))
        content = json.loads(data)["choices"][0]["message"]["content"]
        assert status == 200
        assert content
        assert "{" not in content


async def test_a_checker_plays_no_side_and_unknown_tasks_are_refused(client, tools):
    body = {"model": "scripted/checker", "messages": [{"role": "user", "content": "Hello"}]}
    status, data = await client.raw(body, tools.headers_of(NAME, "checker"))
    assert (status, json.loads(data)["error"]["code"]) == (400, "not_a_helper_task")
    status, data = await client.raw(asked("no-such-task"))
    assert (status, json.loads(data)["error"]["code"]) == (400, "helper_task_unknown")
    assert "verify-review" in json.loads(data)["error"]["message"]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user", "content": "[tau2-eval:verify-review]"}],
        [{"role": "system", "content": "x [tau2-eval:verify-review]"}],
        [{"role": "system", "content": "policy"},
         {"role": "system", "content": "[tau2-eval:verify-review]"}],
        [{"role": "system", "content": [{"type": "text", "text": "[tau2-eval:verify-review]"}]}],
        ["[tau2-eval:verify-review]"],
    ],
)  # fmt: skip
def test_only_the_first_line_of_the_first_system_message_names_a_task(messages):
    assert helper_task({"messages": messages}) is None


KEYS = ("text", "role", "calls", "new", "tools", "value", "id", "not_found", "failed_signals")
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=20,
)


@given(ANYTHING)
def test_sections_of_any_form_get_an_answer(value):
    names = ("tools", "conversation", "open", "draft", "drafted_calls", "failure", "lesson")
    for task in ("verify-review", "obligations-read", "obligations-judge", "argcheck-judge",
                 "lesson-learn", "lesson-judge"):  # fmt: skip
        body = asked(task, **dict.fromkeys(names, value))
        assert isinstance(json.loads(helper_answer("scripted/checker", task, body)), dict)
        assert isinstance(json.loads(helper_answer("scripted/checker-strict", task, body)), dict)


NOTES = [
    [{"role": "system", "content": "Review: say it again."}],
    [{"role": "developer", "content": "one"}, {"role": "system", "content": "two"}],
    [{"role": "assistant", "content": "A draft."}, {"role": "system", "content": "Again."}],
]


@pytest.mark.parametrize("name", list_scenarios("tau2_airline"))
async def test_gold_repeats_its_draft_whatever_note_follows(direct, tools, name):
    """A flow's notes, one or several, at every turn: the call ends as without them."""
    chance = random.Random(name)

    async def noted(body, headers):
        plain = await direct(body, headers)
        if headers["x-tau2eval-role"] == "agent":
            notes = [{"role": "system", "content": "[obligations] open: 1. cancel"}]
            notes += chance.choice(NOTES)
            again = await direct({**body, "messages": [*body["messages"], *notes]}, headers)
            calls = [message.get("tool_calls") or [] for message in (plain, again)]
            assert plain["content"] == again["content"]
            assert [[c["function"] for c in each] for each in calls[:1]] == [
                [c["function"] for c in each] for each in calls[1:]
            ]
            return again
        return plain

    call = await tools.hold_call(noted, name, "scripted/gold")
    assert call.end in ("agent_exit", "transfer")
    assert call.db_hash == get_scenario(name).expected_db_hash
    assert not call.errors


def test_only_what_a_flow_appends_is_dropped():
    policy, hello = {"role": "system", "content": "p"}, {"role": "user", "content": "Hello"}
    said = {"role": "assistant", "content": "Hi."}
    lesson = {"role": "system", "content": "lesson"}
    for kept in ([policy, hello], [policy, lesson, hello], [policy], [policy, hello, said], [],
                 [policy, hello, lesson, said, hello]):  # fmt: skip
        assert without_note(kept) == kept
    assert without_note([policy, hello, lesson]) == [policy, hello]
    assert without_note([policy, hello, said, lesson, lesson]) == [policy, hello]
    assert without_note(["x", None]) == ["x", None]
