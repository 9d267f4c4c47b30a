"""Putting chunks together: parallel tool calls of servers that number them well, badly or not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_voice.chat_answers import Answer, UnreadableAnswer


def delta(name=None, arguments=None, **more):
    function = {"name": name, "arguments": arguments}
    return {**more, "function": {k: v for k, v in function.items() if v is not None}}


def merged(*chunks):
    answer = Answer()
    for calls in chunks:
        body = {"choices": [{"delta": {"tool_calls": list(calls)}}]}
        answer.add_chunk(json.dumps(body).encode())
    return [(call.call_id, call.name, call.arguments_json) for call in answer.calls()]


TWO = [("a", "f", '{"n":1}'), ("b", "g", '{"n":2}')]


@pytest.mark.parametrize(
    "chunks",
    [
        # As OpenAI does it: one call after the other, and both at once.
        [
            [delta("f", "", index=0, id="a")],
            [delta(arguments='{"n"', index=0)],
            [delta(arguments=":1}", index=0)],
            [delta("g", "", index=1, id="b")],
            [delta(arguments='{"n":2}', index=1)],
        ],
        [
            [delta("f", "", index=0, id="a"), delta("g", "", index=1, id="b")],
            [delta(arguments='{"n":2}', index=1), delta(arguments='{"n":1}', index=0)],
        ],
        # Without an index.
        [[delta("f", '{"n":1}', id="a")], [delta("g", '{"n":2}', id="b")]],
        [[delta("f", '{"n":1}', id="a"), delta("g", '{"n":2}', id="b")]],
        [
            [delta("f", "", id="a")],
            [delta(arguments='{"n":1}')],
            [delta("g", "", id="b")],
            [delta(arguments='{"n"')],
            [delta(arguments=":2}")],
        ],
        # All with the same index.
        [[delta("f", '{"n":1}', index=0, id="a")], [delta("g", '{"n":2}', index=0, id="b")]],
        [
            [delta("f", "", index=0, id="a")],
            [delta(arguments='{"n":1}', index=0)],
            [delta("g", "", index=0, id="b")],
            [delta(arguments='{"n":2}', index=0)],
        ],
        # Interleaved by id.
        [
            [delta("f", "", id="a"), delta("g", "", id="b")],
            [delta(arguments='{"n":1}', id="a"), delta(arguments='{"n":2}', id="b")],
        ],
        # Id and name again with every delta.
        [
            [delta("f", '{"n"', index=0, id="a")],
            [delta("f", ":1}", index=0, id="a")],
            [delta("f", "", index=0, id="a")],
            [delta("g", '{"n"', index=1, id="b")],
            [delta("g", ":2}", index=1, id="b")],
        ],
        # An index that is none.
        [
            [delta("f", '{"n":1}', index=None, id="a")],
            [delta("g", '{"n":2}', index="1", id="b")],
        ],
    ],
)
def test_two_calls_stay_two(chunks):
    assert merged(*chunks) == TWO


def test_the_id_may_come_after_the_name():
    assert merged([delta("f", "", index=0)], [delta(arguments="{}", index=0, id="a")]) == [
        ("a", "f", "{}")
    ]


@pytest.mark.parametrize("place", [{}, {"index": 0}])
def test_whole_calls_without_ids_or_numbers_are_told_apart(place):
    assert merged([delta("f", '{"n":1}', **place)], [delta("f", '{"n":2}', **place)]) == [
        ("call_0", "f", '{"n":1}'),
        ("call_1", "f", '{"n":2}'),
    ]


def test_two_calls_of_one_id_get_ids_of_their_own():
    calls = merged(
        [delta("f", '{"n":1}', index=0, id="x")], [delta("f", '{"n":2}', index=1, id="x")]
    )
    assert [arguments for _, _, arguments in calls] == ['{"n":1}', '{"n":2}']
    assert calls[0][0] == "x"
    assert len({call_id for call_id, _, _ in calls}) == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["f", "g"]),
            st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=4), max_size=2),
        ),
        max_size=5,
    ),
    st.sampled_from(["index", "same index", "none"]),
    st.integers(1, 4),
)
def test_calls_with_ids_survive_any_numbering_and_any_cut(calls, numbering, size):
    chunks = []
    for at, (name, arguments) in enumerate(calls):
        place = {"index": {"index": at, "same index": 0}[numbering]} if numbering != "none" else {}
        chunks.append([delta(name, "", id=f"id-{at}", **place)])
        text = json.dumps(arguments)
        chunks += [
            [delta(arguments=text[cut : cut + size], **place)] for cut in range(0, len(text), size)
        ]
    assert [
        (call_id, name, json.loads(arguments)) for call_id, name, arguments in merged(*chunks)
    ] == [(f"id-{at}", name, arguments) for at, (name, arguments) in enumerate(calls)]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_whatever_comes_is_an_answer_or_unreadable(value):
    for make in (
        lambda: Answer().add_completion(json.dumps(value).encode()),
        lambda: Answer().add_chunk(json.dumps({"choices": [{"delta": value}]}).encode()),
        lambda: merged([delta("f", value, index=value, id=value)]),
        lambda: merged([{"function": value}]),
    ):
        try:
            make()
        except UnreadableAnswer:
            continue


def test_a_whole_answer_of_parts_and_objects():
    answer = Answer()
    message = {
        "content": [{"type": "text", "text": "One "}, {"type": "text", "text": "two."}],
        "tool_calls": [
            {"id": "", "function": {"name": "f", "arguments": {"n": 1}}},
            {"id": "b", "function": {"name": "f", "arguments": ""}},
        ],
    }
    words = answer.add_completion(json.dumps({"choices": [{"message": message}]}).encode())
    assert words == answer.text == "One two."
    assert [(c.call_id, c.arguments_json) for c in answer.calls()] == [
        ("call_0", '{"n": 1}'),
        ("b", "{}"),
    ]
