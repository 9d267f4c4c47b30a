"""Statements 9 to 16: the write gate."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_gateway.flows.hold import Action, Conflict, citations, judge
from tau2eval_gateway.flows.hold_changes import Evidence, Rule
from tau2eval_gateway.flows.messages import declared_tools
from tau2eval_gateway.flows.quotes import said_in
from tau2eval_gateway.flows.verify_calls import adopt, calls_in
from tau2eval_gateway.flows.verify_paths import read_path

QUOTE = "please use order A1 instead"
OTHER = "and keep card_7 for paying"
SAID = [
    {"role": "system", "content": "Ask for confirmation before you cancel anything."},
    {"role": "user", "content": f"{QUOTE} of A2, {OTHER}, items i1 i2 i3 i4"},
]
BODY = {
    "messages": SAID,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "exchange",
                "description": "Exchanges items.",
                "parameters": {"properties": {"cabin": {"enum": ["basic_economy", "business"]}}},
            },
        },
        {
            "type": "function",
            "function": {"name": "peek"},
            "annotations": {"readOnlyHint": True},
        },
    ],
}


def call(name, arguments, call_id=""):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def message(*calls, text=None):
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def modify(name, path, quote=QUOTE):
    return Conflict(name, path, Action.MODIFY, quote)


def drop(name, quote=QUOTE):
    return Conflict(name, "", Action.DROP, quote)


def add(name, quote=QUOTE):
    return Conflict(name, "", Action.ADD, quote)


def ruling(draft, revision, *conflicts, reviews=None, messages=SAID):
    said = said_in(messages)
    cited, uncited = citations(reviews or [conflicts], said)
    evidence = Evidence(said, declared_tools(BODY))
    before = calls_in(message(*draft), BODY)
    after = calls_in(message(*revision), BODY)
    return judge(before, after, cited, evidence, uncited).broken


def change(old, new, *conflicts):
    return ruling([call("exchange", old, "c1")], [call("exchange", new)], *conflicts)


# 9: reads and text


def test_statement_09_reads_change_freely():
    write = call("exchange", {"order": "A2"}, "c1")
    one, two = call("peek", {"x": "made_up_77"}), call("get_user", {"id": "made_up_78"})
    assert ruling([one], [two]) is None
    assert ruling([one], []) is None
    assert ruling([], [one, two]) is None
    assert ruling([one, write], [write, two]) is None
    assert ruling([write], [two, write, one]) is None


def test_statement_09_what_cannot_be_read_is_a_write():
    strange = [
        {"tool_calls": [{"id": "x", "type": "unknown"}]},
        {"tool_calls": ["text"]},
        {"tool_calls": {"not": "a list"}},
        {"tool_calls": [{"type": "custom", "custom": {"name": "shell", "input": "rm"}}]},
        {"tool_calls": [{"function": {"name": None, "arguments": "{}"}}]},
        {"function_call": {"name": "exchange", "arguments": "{}"}},
        {"function_call": "exchange"},
    ]
    for odd in strange:
        after = calls_in(odd, BODY)
        assert [seen.write for seen in after] == [True]
        for conflicts in ([], [add("")], [add("exchange", "too short")]):
            cited, _ = citations([conflicts], said_in(SAID))
            assert not judge([], after, cited, Evidence(said_in(SAID))).passes
        assert judge(after, calls_in(odd, BODY), [], Evidence(())).passes


# 10: as drafted


@pytest.mark.parametrize(
    "again",
    [
        '{"order": "A2", "items": ["i1", "i2"], "n": 1}',
        '{"n":1,"items":["i1","i2"],\n "order":"\\u00412"}',
    ],
)
def test_statement_10_equal_canonical_json_is_as_drafted(again):
    assert change('{"order": "A2", "items": ["i1", "i2"], "n": 1}', again) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"order": "A2", "items": ["i2", "i1"], "n": 1},
        {"order": "a2", "items": ["i1", "i2"], "n": 1},
        {"order": "A2", "items": ["i1", "i2"], "n": True},
        {"order": "A2", "items": ["i1", "i2"], "n": "1"},
        {"order": "A2", "items": ["i1", "i2"]},
        {"order": "A2", "items": ["i1", "i2"], "n": 1, "more": None},
        "{}",
        '{"order": "A2"',
    ],
)
def test_statement_10_all_else_is_a_change(changed):
    assert change({"order": "A2", "items": ["i1", "i2"], "n": 1}, changed) is not None


def test_statement_10_malformed_arguments_compare_as_text():
    assert change("{not json", "{not json") is None
    assert change("{not json", "{not  json") is not None
    assert change("{not json", "{}") is not None
    # There is no argument in them that could be cited.
    assert change("{not json", '{"order": "A1"}', modify("c1", "order")) == Rule.MALFORMED
    assert change('{"order": "A2"}', "{not json", modify("c1", "order")) == Rule.MALFORMED
    assert ruling([], [call("exchange", "{bad")], add("exchange")) == Rule.MALFORMED


# 11: quotes


@pytest.mark.parametrize("name", ["c1", "exchange"])
def test_statement_11_a_change_with_a_quote_passes(name):
    assert change({"order": "A2"}, {"order": "A1"}, modify(name, "order")) is None


def test_statement_11_a_change_without_one_does_not():
    new = {"order": "A1"}
    assert change({"order": "A2"}, new) == Rule.UNCITED_CHANGE
    for bad in ("", "order A1", "please use order A3 instead", "{'order': 'A2'} of the draft"):
        assert change({"order": "A2"}, new, modify("c1", "order", bad)) == Rule.BAD_QUOTE
    joined = "before you cancel anything. please use order A1"
    assert change({"order": "A2"}, new, modify("c1", "order", joined)) == Rule.BAD_QUOTE


def test_statement_11_a_quote_for_another_call_or_action_does_not():
    new = {"order": "A1"}
    for other in (
        modify("c2", "order"),
        modify("cancel", "order"),
        modify("", "order"),
        modify("Exchange", "order"),
        drop("c1"),
        add("exchange"),
        drop("exchange"),
    ):
        assert change({"order": "A2"}, new, other) == Rule.UNCITED_CHANGE


# 12: one path


NESTED = {"ids": ["i1", "i2"], "a": {"b": [{"c": 1}, {"c": "x"}]}, "cabin": "business"}


def nested(**more):
    return {**json.loads(json.dumps(NESTED)), **more}


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("ids[1]", nested(ids=["i1", "i3"])),
        ("$.ids[1]", nested(ids=["i1", "i3"])),
        ("arguments.ids[1]", nested(ids=["i1", "i3"])),
        ("ids", nested(ids=["i3", "i4"])),
        ("a.b[1].c", nested(a={"b": [{"c": 1}, {"c": "i4"}]})),
        ('a["b"][1].c', nested(a={"b": [{"c": 1}, {"c": "i4"}]})),
        ("a.b[1]", nested(a={"b": [{"c": 1}, {"c": "i4"}]})),
        ("cabin", nested(cabin="basic_economy")),
        ("added", nested(added="card_7")),
        ("cabin", {key: NESTED[key] for key in ("ids", "a")}),
    ],
)
def test_statement_12_one_argument_may_change(path, changed):
    assert change(NESTED, changed, modify("c1", path)) is None


@pytest.mark.parametrize(
    ("path", "changed", "rule"),
    [
        ("ids[0]", nested(ids=["i1", "i3"]), Rule.SIBLING),
        ("ids[0]", nested(ids=["i3", "i4"]), Rule.SIBLING),
        ("ids[0]", nested(ids=["i3"]), Rule.ARRAY_LENGTH),
        ("ids[0]", nested(ids=["i3", "i2", "i4"]), Rule.ARRAY_LENGTH),
        ("ids[2]", nested(ids=["i1", "i2", "i3"]), Rule.ARRAY_LENGTH),
        ("ids", nested(ids=["i1"]), Rule.ARRAY_LENGTH),
        ("ids", nested(ids=["i1", "i2", "i3"]), Rule.ARRAY_LENGTH),
        ("ids", nested(ids="i3"), Rule.ARRAY_LENGTH),
        ("cabin", nested(cabin=["business"]), Rule.ARRAY_LENGTH),
        ("a", nested(a={"b": [{"c": 1}]}), Rule.ARRAY_LENGTH),
        ("a.b[1].c", nested(a={"b": [{"c": 2}, {"c": "i4"}]}), Rule.SIBLING),
        ("a.b[1].c", nested(a={"b": [{"c": 1}, {"c": "i4", "d": 1}]}), Rule.SIBLING),
        ("a.b[1].c", nested(a={"b": [{"c": 1}, {"c": "i4"}], "d": 1}), Rule.SIBLING),
        ("cabin", nested(cabin="basic_economy", ids=["i2", "i1"]), Rule.SIBLING),
        ("cabin", nested(cabin="basic_economy", more=1), Rule.SIBLING),
        ("a.x.y", nested(a={"b": NESTED["a"]["b"], "x": {"y": 1}}), Rule.SIBLING),
        ("", nested(cabin="basic_economy"), Rule.SIBLING),
        ("$", nested(cabin="basic_economy"), Rule.SIBLING),
        ("*", nested(cabin="basic_economy"), Rule.SIBLING),
        ("cabin, ids", nested(cabin="basic_economy"), Rule.SIBLING),
        ("ids[*]", nested(ids=["i1", "i3"]), Rule.SIBLING),
        ("ids[-1]", nested(ids=["i1", "i3"]), Rule.SIBLING),
        ("ids.1", nested(ids=["i1", "i3"]), Rule.SIBLING),
    ],
)
def test_statement_12_a_sibling_or_the_length_may_not(path, changed, rule):
    assert change(NESTED, changed, modify("c1", path)) == rule


def test_statement_12_two_arguments_need_two_citations():
    old, new = {"order": "A2", "pay": "card_8"}, {"order": "A1", "pay": "card_7"}
    one, two = modify("c1", "order"), modify("exchange", "pay", OTHER)
    assert change(old, new, one) == Rule.SIBLING
    assert change(old, new, two) == Rule.SIBLING
    assert change(old, new, one, two) is None


def test_statement_12_another_tool_is_no_change_of_an_argument():
    draft, revision = [call("exchange", {"o": "A1"}, "c1")], [call("cancel", {"o": "A1"})]
    assert ruling(draft, revision, modify("c1", "o")) is not None
    assert ruling(draft, revision, drop("c1")) == Rule.UNCITED_ADD
    assert ruling(draft, revision, drop("c1"), add("cancel")) is None


KEYS = st.text(st.sampled_from("ab"), min_size=1, max_size=2)
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.5, "i1", "i2", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def leaves(value, path=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{at}]")
    else:
        yield path, value


@given(st.dictionaries(KEYS, VALUES, max_size=3), st.dictionaries(KEYS, VALUES, max_size=3))
def test_statement_12_a_licensed_change_touches_no_other_leaf(old, new):
    before, after = dict(leaves(old)), dict(leaves(new))
    for path in {**before, **after}:
        if change(old, new, modify("c1", path)) is None:
            inside = (f"{path}.", f"{path}[")
            outside = [
                {k: repr(v) for k, v in found.items() if k != path and not k.startswith(inside)}
                for found in (before, after)
            ]
            assert outside[0] == outside[1]


@given(st.dictionaries(KEYS, VALUES, max_size=3), st.dictionaries(KEYS, VALUES, max_size=3))
def test_statement_12_without_a_citation_nothing_changes(old, new):
    same = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    assert (change(old, new) is None) == same


# 13: drop and add


def test_statement_13_a_drop_must_be_named():
    draft = [call("cancel", {"order": "A1"}, "c1")]
    assert ruling(draft, [], drop("c1")) is None
    assert ruling(draft, [], drop("cancel")) is None
    for other in (drop(""), drop("cancel_all"), drop("c2"), add("cancel"), modify("c1", "order")):
        assert ruling(draft, [], other) == Rule.UNCITED_DROP
    assert ruling(draft, []) == Rule.UNCITED_DROP
    assert ruling(draft, [], drop("c1", "not said by anyone")) == Rule.BAD_QUOTE


def test_statement_13_an_addition_must_be_named():
    new = [call("cancel", {"order": "A1"}, "c9")]
    assert ruling([], new, add("cancel")) is None
    for other in (add(""), add("cancel_all"), add("c9"), drop("cancel"), modify("cancel", "order")):
        assert ruling([], new, other) == Rule.UNCITED_ADD
    assert ruling([], new, add("cancel", "not said by anyone")) == Rule.BAD_QUOTE


def test_statement_13_deferring_a_write_to_ask_first():
    draft = [call("cancel", {"order": "A1"}, "c1")]
    assert ruling(draft, [], drop("c1", "Ask for confirmation before you cancel")) is None


def test_statement_13_a_read_turned_into_a_write_is_an_addition():
    draft = [call("call_tool", {"tool": "get_order", "arguments": {"id": "A1"}}, "c1")]
    revision = [call("call_tool", {"tool": "cancel_order", "arguments": {"id": "A1"}})]
    assert ruling(draft, revision) == Rule.UNCITED_ADD
    assert ruling(draft, revision, modify("c1", "tool")) == Rule.UNCITED_ADD
    assert ruling(draft, revision, add("call_tool")) == Rule.UNCITED_ADD
    assert ruling(draft, revision, add("cancel_order")) is None


# 14: parallel writes


TWO = [call("cancel", {"order": "A1"}, "c1"), call("cancel", {"order": "A2"}, "c2")]


@pytest.mark.parametrize("name", ["cancel", "c1"])
def test_statement_14_one_citation_does_not_license_two_drops(name):
    assert ruling(TWO, [], drop(name)) is not None
    assert ruling(TWO, [TWO[1]], drop(name)) is None
    assert ruling(TWO, [], drop("cancel"), drop("cancel", OTHER)) is None
    assert ruling(TWO, [], drop("c1"), drop("c2")) is None
    assert ruling(TWO, [], drop("c1"), drop("c1", OTHER)) == Rule.UNCITED_DROP


def test_statement_14_a_label_means_its_own_call():
    assert ruling(TWO, [TWO[0]], drop("c1")) is not None
    assert ruling(TWO, [TWO[0]], drop("c2")) is None


def test_statement_14_one_citation_does_not_license_two_changes():
    both = [call("cancel", {"order": "i1"}), call("cancel", {"order": "i2"})]
    first = [both[0], TWO[1]]
    assert ruling(TWO, both, modify("cancel", "order")) == Rule.CITED_ONCE
    assert ruling(TWO, both, modify("c1", "order")) == Rule.UNCITED_CHANGE
    assert ruling(TWO, first, modify("cancel", "order")) is None
    assert ruling(TWO, first, modify("c2", "order")) == Rule.UNCITED_CHANGE
    assert ruling(TWO, both, modify("c1", "order"), modify("c2", "order")) is None
    assert ruling(TWO, both, modify("cancel", "order"), modify("c2", "order")) is None


def test_statement_14_one_citation_does_not_license_two_additions():
    assert ruling([], TWO, add("cancel")) == Rule.CITED_ONCE
    assert ruling([], TWO, add("cancel"), add("cancel", OTHER)) is None
    twice = [TWO[0], TWO[0]]
    assert ruling([TWO[0]], twice) == Rule.UNCITED_ADD
    assert ruling([TWO[0]], twice, add("cancel")) is None


def test_statement_14_saying_it_twice_is_one_citation():
    again = QUOTE.upper().replace(" ", "\n ")
    assert ruling(TWO, [], drop("cancel"), drop("cancel", again)) is not None
    assert ruling(TWO, [], reviews=[[drop("cancel")], [drop("cancel", OTHER)]]) is not None
    assert ruling(TWO, [], reviews=[[drop("c1")], [drop("c2")]]) is None


def test_statement_14_reordering_is_a_change():
    assert ruling(TWO, TWO[::-1]) == Rule.ORDER
    # A swap laid side by side looks like two changes of one argument; one citation is not enough.
    assert ruling(TWO, TWO[::-1], modify("cancel", "order")) is not None
    assert ruling(TWO, TWO[::-1], drop("c1")) is not None
    assert ruling(TWO, TWO[::-1], drop("c1"), add("cancel")) is None
    others = [call("cancel", {"order": "A1"}, "c1"), call("book", {"order": "A2"}, "c2")]
    assert ruling(others, others[::-1]) == Rule.ORDER


def test_statement_14_reordering_hides_no_change():
    moved = [TWO[1], call("cancel", {"order": "i1"})]
    assert ruling(TWO, moved, modify("c1", "order")) is not None


def test_statement_14_labels_that_are_no_names():
    # Ids that occur twice, are empty, or are names of tools name no single call.
    calls = calls_in(
        message(
            call("cancel", {"n": 1}, "same"),
            call("cancel", {"n": 2}, "same"),
            call("cancel", {"n": 3}),
            call("book", {"n": 4}, "cancel"),
            call("book", {"n": 5}, " "),
            call("book", {"n": 6}, "fine"),
        ),
        BODY,
    )
    assert [seen.label for seen in calls] == [
        "draft-call-1",
        "draft-call-2",
        "draft-call-3",
        "draft-call-4",
        "draft-call-5",
        "fine",
    ]


WRITES = st.lists(
    st.sampled_from(
        [call("cancel", {"order": o}) for o in ("A1", "A2", "i1")] + [call("book", {"order": "A1"})]
    ),
    max_size=5,
)


@given(
    WRITES,
    WRITES,
    st.lists(
        st.sampled_from(
            [
                drop("cancel"),
                drop("cancel", OTHER),
                drop("book"),
                add("cancel"),
                add("book"),
                add("cancel", OTHER),
                modify("cancel", "order"),
                modify("cancel", "order", OTHER),
            ]
        ),
        max_size=4,
        unique=True,
    ),
)
def test_statement_14_no_more_changes_than_citations(draft, revision, conflicts):
    before = [json.dumps(c["function"], sort_keys=True) for c in draft]
    after = [json.dumps(c["function"], sort_keys=True) for c in revision]
    passes = ruling(draft, revision, *conflicts) is None
    # The fewest insertions, removals and replacements between the two sequences.
    cost = [[i + j for j in range(len(after) + 1)] for i in range(len(before) + 1)]
    for i in range(1, len(before) + 1):
        for j in range(1, len(after) + 1):
            cost[i][j] = min(
                cost[i - 1][j] + 1,
                cost[i][j - 1] + 1,
                cost[i - 1][j - 1] + (before[i - 1] != after[j - 1]),
            )
    if passes:
        assert cost[-1][-1] <= len(conflicts)
    if before == after:
        assert passes


def test_statement_14_very_many_calls_end_in_bounded_time():
    many = [call("cancel", {"order": "A1", "n": n % 2}, f"c{n}") for n in range(60)]
    turned = many[::-1] + many[:3]
    conflicts = [drop("cancel", OTHER), add("cancel", OTHER), drop("cancel"), add("cancel")]
    conflicts += [modify("cancel", "n", QUOTE), modify("cancel", "n", OTHER)]
    conflicts += [drop(f"c{n}") for n in range(20)]
    assert ruling(many, turned, *conflicts) is not None
    assert ruling(many * 3, many * 3) is None
    assert ruling(many * 3, many * 2) == Rule.TOO_MANY


# 15: ids


def test_statement_15_a_change_brings_in_no_id():
    for made_up in ("A", "A11", "A3", "QWERTZ", 123):
        new = {"order": made_up}
        assert change({"order": "A2"}, new, modify("c1", "order")) == Rule.UNKNOWN_ID
    # What only the draft holds was said by nobody.
    old, new = {"order": "A2", "spare": "X9"}, {"order": "X9", "spare": "X9"}
    assert change(old, new, modify("c1", "order")) == Rule.UNKNOWN_ID


def test_statement_15_an_added_call_brings_in_no_id():
    assert ruling([], [call("cancel", {"order": "A77"})], add("cancel")) == Rule.UNKNOWN_ID
    inner = {"tool": "cancel_order", "arguments": {"id": "A77"}}
    assert ruling([], [call("call_tool", inner)], add("cancel_order")) == Rule.UNKNOWN_ID


def test_statement_15_declared_options_may_come_in():
    new = {"cabin": "basic_economy"}
    assert change({"cabin": "business"}, new, modify("c1", "cabin")) is None
    new = {"cabin": "premium_economy"}
    assert change({"cabin": "business"}, new, modify("c1", "cabin")) == Rule.UNKNOWN_ID


# Dispatchers (statement 4 under this gate)


def passed_on(tool, **arguments):
    return call("call_tool", {"tool": tool, "arguments": arguments}, "c1")


def test_statement_12_a_dispatcher_is_held_like_the_call_it_passes_on():
    draft = [passed_on("cancel_order", id="A2", pay="card_8")]
    one = [passed_on("cancel_order", id="A1", pay="card_8")]
    two = [passed_on("cancel_order", id="A1", pay="card_7")]
    other = [passed_on("exchange", id="A2", pay="card_8")]
    assert ruling(draft, one, modify("c1", "arguments.id")) is None
    assert ruling(draft, one, modify("c1", "arguments")) is None
    assert ruling(draft, two, modify("c1", "arguments")) == Rule.DISPATCHED
    said = modify("c1", "tool", "we talked about an exchange of it")
    messages = [*SAID, {"role": "user", "content": said.quote}]
    assert ruling(draft, other, said, messages=messages) == Rule.DISPATCHED
    assert ruling(draft, [], drop("cancel_order")) is None


def test_statement_14_one_citation_adds_no_batch_of_calls():
    one = {"tool": "cancel_order", "arguments": {"id": "A1"}}
    two = {"tool": "book_order", "arguments": {"id": "A2"}}
    for batch in ([one, two], [one, one]):
        revision = [call("call_tools", {"calls": batch})]
        assert next(seen.inner for seen in calls_in(message(*revision), BODY))
        assert ruling([], revision, add("cancel_order")) == Rule.DISPATCHED
        assert ruling([], revision, add("call_tools")) is not None
    draft = [call("call_tools", {"calls": [one, two]}, "c1")]
    changed = json.loads(json.dumps({"calls": [one, two]}).replace("A1", "i1"))
    assert ruling(draft, [call("call_tools", changed)], modify("c1", "calls[0].arguments")) is None
    both = json.loads(json.dumps(changed).replace("A2", "i2"))
    assert ruling(draft, [call("call_tools", both)], modify("c1", "calls")) == Rule.DISPATCHED


def test_statement_14_an_id_that_is_also_a_tool_names_neither():
    draft = [
        call("call_tool", {"tool": "cancel_order", "arguments": {"id": "A1"}}, "c1"),
        call("book", {"id": "A2"}, "cancel_order"),
    ]
    assert [seen.label for seen in calls_in(message(*draft), BODY)] == ["c1", "draft-call-2"]
    assert ruling(draft, [draft[0]], drop("cancel_order")) is not None
    assert ruling(draft, [draft[1]], drop("cancel_order")) is None


# Paths


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("new_item_ids[0]", ("new_item_ids", 0)),
        ("a.b[2].c", ("a", "b", 2, "c")),
        (" $.a ", ("a",)),
        ("$['odd name'].x", ("odd name", "x")),
        ('["a.b"]', ("a.b",)),
        ("[0]", (0,)),
        ("", None),
        ("$", None),
        ("a..b", None),
        ("a.", None),
        ("a[", None),
        ("a[]", None),
        ("a[x]", None),
        ("a[0]b", None),
        ("a b", None),
        ("[0]" * 40, None),
    ],
)
def test_statement_12_paths(text, path):
    assert read_path(text) == path


# 20: ids of calls


def test_statement_20_a_repeated_call_is_the_drafted_one():
    draft = message(
        call("cancel", '{"a": 1,   "b": 2}', "keep"),
        call("peek", {"x": 1}, "look"),
        call("cancel", {"c": 3}, "third"),
    )
    revision = message(
        call("peek", {"x": 1}, "new1"),
        call("cancel", '{"b":2,"b":2,"a":1}', "new2"),
        call("cancel", {"c": 3}, "keep"),
        call("peek", {"y": 1}, "look"),
        call("peek", {"y": 2}, ""),
        call("peek", {"y": 3}, "own"),
        call("peek", {"y": 4}, "own"),
    )
    fresh = iter(["n1", "n2", "n3"])
    result = adopt(
        revision, calls_in(revision, BODY), draft, calls_in(draft, BODY), lambda: next(fresh)
    )
    ids = [entry["id"] for entry in result["tool_calls"]]
    assert ids == ["look", "keep", "third", "n1", "n2", "own", "n3"]
    assert result["tool_calls"][1]["function"]["arguments"] == '{"a": 1,   "b": 2}'


@given(
    st.lists(st.sampled_from(["", "a", "b", "c", " ", None, 3]), max_size=6),
    st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=6),
)
def test_statement_20_ids_are_never_empty_and_never_twice(drafted, revised):
    draft = message(*(call("peek", {"n": n % 3}, i) for n, i in enumerate(revised)))
    revision = message(*(call("peek", {"n": n % 2}, i) for n, i in enumerate(drafted)))
    counter = iter(range(100))
    result = adopt(
        revision,
        calls_in(revision, BODY),
        draft,
        calls_in(draft, BODY),
        lambda: f"n{next(counter)}",
    )
    ids = [entry["id"] for entry in result["tool_calls"]]
    assert len(set(ids)) == len(ids)
    assert all(isinstance(i, str) and i.strip() for i in ids)
