"""What is kept of conversations: whichever way they part, repeat and meet (statements 28, 29)."""

import asyncio
import itertools

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval_gateway.flows.state import (
    CHECKPOINTS,
    MAX_VALUE_CHARS,
    MemoryStateStore,
    open_state,
    read_history,
)
from tau2eval_gateway.flows.state_store import MAX_FACTS
from tau2eval_gateway.requests import parse_chat_request

ROLES = ("user", "assistant", "tool")


def request(messages, system="P", **more):
    body = {"model": "m", "messages": [{"role": "system", "content": system}, *messages], **more}
    return parse_chat_request(orjson.dumps(body), 10_000_000)


def history(words):
    """A conversation that says these words, in turn."""
    return [{"role": ROLES[n % 2], "content": word} for n, word in enumerate(words)]


async def opened(store, words, flow="f", caller="c", session="", **more):
    return await open_state(store, flow, caller, session, request(history(words), **more))


def names(state, kind="k"):
    return [(fact.name, fact.length, fact.current) for fact in state.facts(kind)]


def test_statement_28_checkpoints():
    assert list(CHECKPOINTS) == [1, 2, 3, 4, 5, 6, 7, 8, *range(12, 129, 4)]


async def test_statement_28_a_conversation_finds_its_facts_at_any_length():
    store = MemoryStateStore()
    words = [f"w{n}" for n in range(300)]
    for length in range(1, 301):
        state = await opened(store, words[:length])
        assert names(state) == [(str(n), n, False) for n in range(1, length)]
        await state.add("k", str(length), length)
        assert names(state)[-1] == (str(length), length, True)


async def test_statement_28_facts_outlive_the_keys_under_which_they_were_found():
    store = MemoryStateStore(max_keys=2)
    words = [f"w{n}" for n in range(60)]
    await (await opened(store, words[:1])).add("k", "first", 1)
    for length in range(2, 61):
        state = await opened(store, words[:length])
        assert names(state) == [("first", 1, False)]


@pytest.mark.parametrize("length", [1, 3, 8, 9, 11, 12, 30, 128, 131, 200])
async def test_statement_28_conversations_part_at_any_length(length):
    store = MemoryStateStore()
    words = [f"w{n}" for n in range(length)]
    await (await opened(store, words)).add("k", "shared", 1)
    one, two = [*words, "one"], [*words, "two"]
    await (await opened(store, one)).add("k", "own", 1)
    assert names(await opened(store, two)) == [("shared", length, False)]
    await (await opened(store, two)).add("k", "own", 2)
    (_, fact) = (await opened(store, one)).facts("k")
    assert (fact.value, fact.current) == (1, True)
    edited = ["edited", *one[1:]]
    assert names(await opened(store, edited)) == []


async def test_statement_28_what_makes_a_key():
    store = MemoryStateStore()
    tools = [{"type": "function", "function": {"name": "a"}}]
    base = {"flow": "f", "caller": "c", "system": "P", "tools": tools}
    await (await opened(store, ["x"], **base)).add("k", "n", 1)
    assert names(await opened(store, ["x"], **base)) == [("n", 1, True)]
    for other in (
        {"flow": "g"},
        {"caller": "d"},
        {"system": "Q"},
        {"tools": []},
        {"tools": [*tools, *tools]},
        {"session": "s"},
    ):
        assert names(await opened(store, ["x"], **{**base, **other})) == []
    # What does not change the conversation.
    same = {"temperature": 1, "tool_choice": "auto", "stream": False}
    assert names(await opened(store, ["x"], **base, **same)) == [("n", 1, True)]


async def test_statement_28_callers_do_not_share_a_session():
    store = MemoryStateStore()
    await (await opened(store, ["x"], session="s")).add("k", "n", 1)
    longer = ["x", "y"]
    assert names(await opened(store, longer, session="s")) == [("n", 1, False)]
    for other in ({"caller": "d"}, {"session": "t"}, {"session": ""}, {"flow": "g"}):
        assert names(await opened(store, longer, **{"session": "s", **other})) == []


async def test_statement_28_what_is_known_is_copied_to_the_key_where_a_history_goes_on():
    """Others are busy meanwhile, so that older keys are forgotten."""
    store = MemoryStateStore(max_keys=3)
    words = [f"w{n}" for n in range(8)]
    await (await opened(store, words[:1])).add("k", "first", 1)
    for length in range(2, 9):
        state = await opened(store, words[:length])
        assert names(state) == [("first", 1, False)]
        await (await opened(store, [f"other {length}"])).add("k", "n", 1)


async def test_statement_28_marks_of_a_cache_and_trailing_notes_are_no_edit():
    store = MemoryStateStore()
    user = {"role": "user", "content": "Hello"}
    base = [user, {"role": "assistant", "content": "Hi"}]
    state = await open_state(store, "f", "c", "", request(base))
    await state.add("k", "n", 1)
    part = {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}
    note = {"role": "system", "content": "Now it is noon."}
    assistant = {**base[1], "reasoning_content": "hm", "tool_calls": None, "refusal": None}
    for messages in ([{**user, "content": [part]}, base[1]], [user, assistant], [*base, note]):
        assert names(await open_state(store, "f", "c", "", request(messages))) == [("n", 2, True)]
    # In the middle a system message is a part of the history.
    middle = [user, note, base[1]]
    assert names(await open_state(store, "f", "c", "", request(middle))) == []


async def test_statement_28_a_history_that_is_nested_too_deeply_has_a_key_too():
    deep = "[" * 5000 + "]" * 5000
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": deep}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    nested = b'{"x":' * 1000 + b"1" + b"}" * 1000
    raw = b'{"model":"m","messages":[%s],"tools":[%s]}' % (orjson.dumps(message), nested)
    tags = read_history("c", parse_chat_request(raw, 1_000_000).body)
    assert len(set(tags)) == 2


async def test_a_fact_can_hold_from_an_earlier_point():
    store = MemoryStateStore()
    state = await opened(store, ["a", "b", "c", "d"])
    assert await state.add("k", "n", {"x": 1}, at=2) == {"x": 1}
    assert await state.add("k", "n", {"x": 2}, at=2) == {"x": 1}
    assert names(await opened(store, ["a", "b"])) == [("n", 2, True)]
    assert names(await opened(store, ["a", "b", "other"])) == [("n", 2, False)]
    assert names(await opened(store, ["a"])) == []
    for wrong in (-1, 5):
        with pytest.raises(ValueError, match="messages"):
            await state.add("k", "n", 1, at=wrong)


async def test_the_first_of_two_gateways_wins():
    store = MemoryStateStore()
    one, two = await opened(store, ["a"]), await opened(store, ["a"])
    assert await one.add("k", "n", 1) == 1
    assert await two.add("k", "n", 2) == 1
    assert [fact.value for fact in two.facts("k")] == [1]


async def test_what_a_store_holds_of_others_is_left_out():
    store = MemoryStateStore()
    state = await opened(store, ["a"])
    await state.add("k", "n", 1)
    (key,) = store._kept
    (field,) = store._kept[key].fields
    tag = orjson.loads(field)[1]
    for name, value in [
        ("junk", "1"),
        ("[1]", "[0,1]"),
        (f'[1,"{tag}","k","m"]', "not json"),
        (f'[1,"{tag}","k","m2"]', "7"),
        (f'[1e400,"{tag}","k","m3"]', "[0,1]"),
        (f'[-1,"{tag}","k","m4"]', "[0,1]"),
        (f'[true,"{tag}","k","m5"]', "[0,1]"),
        (f'[1,"{tag}",["k"],"m6"]', "[0,1]"),
        (f'[1,"{tag}","k","m7"]', '["x",1]'),
        ("[" * 9999, "[0,1]"),
    ]:
        await store.add(key, {name: value})
    assert names(await opened(store, ["a"])) == [("n", 1, True)]


async def test_values_and_facts_are_bounded():
    store = MemoryStateStore()
    state = await opened(store, ["a"])
    big = "x" * MAX_VALUE_CHARS
    assert await state.add("k", "big", big) == big
    assert state.facts("k")[0].value == big
    assert names(await opened(store, ["a"])) == []
    for number in range(MAX_FACTS + 50):
        await state.add("k", str(number), number)
    assert len((await opened(store, ["a"])).facts("k")) == MAX_FACTS


async def test_memory_is_bounded_in_number_age_and_size():
    now = 0.0
    store = MemoryStateStore(3, 10.0, clock=lambda: now, max_chars=100)
    for key in "abcd":
        await store.add(key, {"f": key})
    assert await store.load(["a", "b"]) == [{}, {"f": "b"}]
    now = 6.0
    await store.add("b", {"f": "x", "g": "y"})
    now = 11.0
    assert await store.load(["b", "c", "d"]) == [{"f": "b", "g": "y"}, {}, {}]
    await store.add("e", {"f": "v" * 60})
    assert len(store) == 2
    await store.add("g", {"f": "v" * 60})
    assert await store.load(["b", "e", "g"]) == [{}, {}, {"f": "v" * 60}]
    await store.add("h", {"f": "v" * 200})
    assert len(store) == 0
    assert store._chars == 0
    now = 30.0
    # What is too old is not brought back by a write.
    await store.add("i", {"f": "1"})
    now = 41.0
    assert await store.add("i", {"f": "2"}) == {"f": "2"}


async def test_what_is_loaded_cannot_change_what_is_kept():
    store = MemoryStateStore()
    await store.add("k", {"f": "1"})
    (fields,) = await store.load(["k"])
    fields["f"] = "2"
    assert await store.load(["k"]) == [{"f": "1"}]


words = st.lists(st.sampled_from("ab"), min_size=1, max_size=14)


async def play(store, conversations, order, session=""):
    """Lets conversations go on in an order; each request keeps a fact of its own history.

    Returns what each request found.
    """
    found = {}
    at = [0] * len(conversations)
    for number in order:
        said = conversations[number]
        at[number] = min(at[number] + 1, len(said))
        history_so_far = tuple(said[: at[number]])
        state = await opened(store, history_so_far, session=session and f"{session}{number}")
        facts = tuple((f.name, f.length, f.current) for f in state.facts("k"))
        found.setdefault((number, history_so_far), []).append(facts)
        await state.add("k", "".join(history_so_far), 1)
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(words, min_size=1, max_size=3), st.data())
def test_statement_29_any_interleaving_finds_the_facts_of_its_own_history_only(said, data):
    order = data.draw(
        st.permutations([n for n, one in enumerate(said) for _ in range(len(one) + 1)])
    )
    found = asyncio.run(play(MemoryStateStore(), said, order))
    for (_, so_far), views in found.items():
        for facts in views:
            for name, length, current in facts:
                assert name == "".join(so_far[:length])
                assert current == (length == len(so_far))
            # Each request of this history before this one has left its fact.
            earlier = [length for _, length, _ in facts if length < len(so_far)]
            assert earlier == list(range(1, len(so_far)))


@settings(max_examples=40, deadline=None)
@given(st.lists(words, min_size=2, max_size=3), st.data())
def test_statement_29_sessions_are_apart_whatever_is_said(said, data):
    order = data.draw(st.permutations([n for n, one in enumerate(said) for _ in one]))
    found = asyncio.run(play(MemoryStateStore(), said, order, session="s"))
    for (number, so_far), views in found.items():
        alone = asyncio.run(play(MemoryStateStore(), said, [number] * len(so_far), session="s"))
        assert views[0] == alone[number, so_far][0]


@settings(max_examples=40, deadline=None)
@given(words, st.data(), st.sampled_from(["", "s"]))
def test_statement_29_a_request_that_is_sent_again_finds_what_it_found(said, data, session):
    async def run():
        store = MemoryStateStore()
        firsts = {}
        for length in range(1, len(said) + 1):
            repeats = data.draw(st.lists(st.integers(1, length), max_size=3))
            for at in itertools.chain([length], repeats):
                so_far = said[:at]
                state = await opened(store, so_far, session=session)
                not_current = [fact for fact in names(state) if not fact[2]]
                assert firsts.setdefault(at, not_current) == not_current
                await state.add("k", "fact", at)

    asyncio.run(run())


async def test_statement_29_parallel_requests_of_a_session_keep_all_facts():
    store = MemoryStateStore()

    async def one(number):
        state = await opened(store, ["a", str(number)], session="s")
        await asyncio.sleep(0)
        await state.add("k", str(number), number)

    await asyncio.gather(*(one(number) for number in range(30)))
    state = await opened(store, ["a", "b", "c"], session="s")
    assert sorted(fact.value for fact in state.facts("k")) == list(range(30))
