"""The two tasks around lessons."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_scripted.helpers import helper_answer


def asked(task, **sections):
    inside = "\n".join(
        f"<{name}>\n{json.dumps(value)}\n</{name}>" for name, value in sections.items()
    )
    return {
        "messages": [
            {"role": "system", "content": f"[tau2-eval:{task}]\nAnswer in JSON."},
            {"role": "user", "content": inside},
        ]
    }


def answered(task, model="scripted/checker", **sections):
    return json.loads(helper_answer(model, task, asked(task, **sections)))


@pytest.mark.parametrize(
    ("signals", "said", "name"),
    [
        (["DB_STATE_MATCH"], "I want to cancel my booking", "settle-cancel"),
        (["NL_ASSERTION", "DB_STATE_MATCH"], "add a suitcase", "tell-baggage"),
        (["CLEAN_EXIT"], "hello", "finish-request"),
        ([], "please upgrade me", "finish-upgrade"),
    ],
)
def test_a_lesson_follows_from_signal_and_topic(signals, said, name):
    lesson = answered(
        "lesson-learn",
        failure={"failed_signals": [{"name": signal} for signal in signals]},
        conversation=[{"role": "user", "content": said}, {"role": "tool", "content": "cancel"}],
    )
    assert lesson["name"] == name
    assert lesson["triggers"] == [name.split("-")[1]]
    assert len(lesson["text"].encode()) <= 800
    assert not any(letter.isdigit() for letter in json.dumps(lesson))
    assert answered("lesson-judge", lesson=lesson)["sound"] is True


def test_the_judge_refuses_values_and_emptiness_and_strictly_all():
    assert answered("lesson-judge", lesson={"text": "Cancel AB12."})["sound"] is False
    assert answered("lesson-judge", lesson={"text": ""})["sound"] is False
    assert answered("lesson-judge")["sound"] is False
    lesson = {"text": "Look it up."}
    assert answered("lesson-judge", "scripted/checker-strict", lesson=lesson)["sound"] is False


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=9,
)


@given(json_values, json_values, json_values)
def test_odd_material_is_answered_too(failure, conversation, lesson):
    given_lesson = answered("lesson-learn", failure=failure, conversation=conversation)
    assert set(given_lesson) == {"name", "text", "triggers", "kind"}
    assert isinstance(answered("lesson-judge", lesson=lesson)["sound"], bool)
