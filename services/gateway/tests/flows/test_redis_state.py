"""State in Redis: what is kept, by two gateways, and when Redis is away."""

import asyncio
import logging

import pytest
from redis_server import PASSWORD, RedisServer

from tau2eval_gateway.flows.redis_state import Patience, RedisAddress, RedisStateStore
from tau2eval_gateway.flows.state_factory import StateUrlError, make_state_store, read_redis_url
from tau2eval_gateway.flows.state_store import MAX_FACTS, MemoryStateStore


@pytest.fixture
def server(tmp_path):
    running = RedisServer(tmp_path)
    running.start()
    yield running
    running.stop()


async def closing(*stores):
    for store in stores:
        await store.aclose()


async def test_of_two_values_the_first_stays_whichever_gateway_came_first(server):
    one, two = server.store(), server.store()
    assert await one.load(["k", "l"]) == [{}, {}]
    assert await one.add("k", {"f": "1"}) == {"f": "1"}
    assert await two.add("k", {"f": "2", "g": "é\n\u2028"}) == {"f": "1", "g": "é\n\u2028"}
    assert await two.load(["l", "k"]) == [{}, {"f": "1", "g": "é\n\u2028"}]
    answers = await asyncio.gather(
        *(store.add("r", {"f": str(n)}) for n in range(50) for store in (one, two))
    )
    assert len({answer["f"] for answer in answers}) == 1
    assert await one.add("k", {}) == {}
    await closing(one, two)


async def test_fields_are_bounded(server):
    store = server.store()
    await store.add("k", {str(n): "v" for n in range(MAX_FACTS - 1)})
    assert await store.add("k", {"0": "w", "a": "1", "b": "2"}) == {"0": "v", "a": "1"}
    (kept,) = await store.load(["k"])
    assert len(kept) == MAX_FACTS
    await store.aclose()


async def test_keys_are_bounded_and_the_oldest_go(server):
    store = server.store(max_keys=3)
    for key in "abc":
        await store.add(key, {"f": key})
        # Redis orders them by the millisecond.
        await asyncio.sleep(0.003)
    await store.add("a", {"g": "1"})
    await asyncio.sleep(0.003)
    await store.add("d", {"f": "d"})
    found = await store.load(list("abcd"))
    assert [bool(fields) for fields in found] == [True, False, True, True]
    async with server.client() as client:
        assert len(await client.keys("*")) == 4
    await store.aclose()


async def test_keys_have_an_age_that_a_write_renews(server):
    store = server.store(max_age_seconds=1000)
    await store.add("k", {"f": "1"})
    async with server.client() as client:
        key = "{tau2eval-state}:k"
        assert 990_000 < await client.pttl(key) <= 1_000_000
        await client.pexpire(key, 5_000)
        await store.add("k", {"f": "1"})
        assert await client.pttl(key) > 990_000
        assert await client.pttl("{tau2eval-state}:index") > 990_000
        await client.pexpire(key, 1)
        while await client.exists(key):
            await asyncio.sleep(0.005)
    assert await store.load(["k"]) == [{}]
    await store.aclose()


async def test_a_key_of_another_kind_and_a_full_redis_take_nothing_else_away(server, caplog):
    store = server.store()
    async with server.client() as client:
        await client.set("{tau2eval-state}:bad", "text")
        await store.add("k", {"f": "1"})
        assert await store.load(["bad", "k"]) == [{}, {"f": "1"}]
        assert await store.add("bad", {"f": "here"}) == {"f": "here"}
        assert await store.load(["bad", "k"]) == [{"f": "here"}, {"f": "1"}]
        await client.config_set("maxmemory", "1")
        assert await store.add("new", {"f": "here"}) == {"f": "here"}
        assert await store.load(["new", "k"]) == [{"f": "here"}, {"f": "1"}]
        await client.config_set("maxmemory", "0")
        await client.hset("{tau2eval-state}:k", "raw", b"\xff\xfe")
        assert isinstance(await store.load(["k"]), list)
    assert 0 < len(caplog.records) < 8
    await store.aclose()


async def test_killed_in_mid_run_and_back_again(server, caplog):
    caplog.set_level(logging.INFO)
    store = server.store(
        patience=Patience(total_seconds=10.0, first_pause_seconds=0.01, longest_pause_seconds=0.01)
    )
    await store.add("k", {"f": "1"})
    server.stop()
    # The pause lasts at least as long as one wait: a clock that does not move keeps it.
    assert await store.load(["k"]) == [{}]
    assert await store.add("k", {"g": "2"}) == {"g": "2"}
    assert await store.load(["k"]) == [{"g": "2"}]
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert f"127.0.0.1:{server.port}/0" in warnings[0].getMessage()
    server.start()
    store._again_at = 0.0
    assert await store.load(["k"]) == [{"g": "2"}]
    assert await store.add("k", {"f": "3"}) == {"f": "3"}
    assert "answers again" in caplog.records[-1].getMessage()
    assert PASSWORD not in caplog.text
    other = server.store()
    assert await other.load(["k"]) == [{"f": "3"}]
    await closing(store, other)


async def test_a_connection_that_redis_closed_meanwhile_costs_nothing(server):
    store = server.store()
    await store.add("k", {"f": "1"})
    server.stop()
    server.start()
    assert await store.add("k", {"f": "2"}) == {"f": "2"}
    async with server.client() as client:
        assert await client.hgetall("{tau2eval-state}:k") == {"f": "2"}
    await store.aclose()


async def test_a_redis_that_never_answers_is_asked_now_and_then_only():
    asked = 0

    async def hole(reader, writer):
        nonlocal asked
        asked += 1
        try:
            await reader.read()
        finally:
            writer.close()

    listener = await asyncio.start_server(hole, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    now = 0.0
    patience = Patience(total_seconds=0.05, first_pause_seconds=1.0, longest_pause_seconds=3.0)
    store = RedisStateStore(RedisAddress("127.0.0.1", port), patience=patience, clock=lambda: now)
    async with asyncio.timeout(30):
        await asyncio.gather(*(store.load(["k"]) for _ in range(20)))
        assert 0 < asked <= 32
        pauses = []
        for number in range(4):
            asked = 0
            assert await store.load(["k"]) == [{"f": "1"} if number else {}]
            assert await store.add("k", {"f": "1"}) == {"f": "1"}
            assert asked == 0
            pauses.append(store._again_at - now)
            now = store._again_at
            # One tries, the others go on.
            found = await asyncio.gather(*(store.load(["k"]) for _ in range(20)))
            assert found == [[{"f": "1"}]] * 20
            assert 1 <= asked <= 2
        assert pauses == [1.0, 2.0, 3.0, 3.0]
        await store.aclose()
    listener.close()
    await listener.wait_closed()


async def test_a_wrong_password_is_an_outage_and_is_not_shown(server, caplog):
    store = make_state_store(f"redis://:wrong-{PASSWORD}@127.0.0.1:{server.port}")
    assert await store.load(["k"]) == [{}]
    assert await store.add("k", {"f": "1"}) == {"f": "1"}
    assert len(caplog.records) == 1
    assert PASSWORD not in caplog.text
    await store.aclose()


async def test_cancelling_a_call_leaves_the_connections_sound(server):
    store = server.store()
    for _ in range(40):
        task = asyncio.create_task(store.add("k", {"f": "1"}))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    for number in range(40):
        assert await store.add(f"n{number}", {"f": str(number)}) == {"f": str(number)}
        assert await store.load([f"n{number}"]) == [{"f": str(number)}]
    await store.aclose()


def test_what_an_url_says():
    address = read_redis_url(" rediss://me:p%2F%40x@host.example:7000/3?ssl_ca_certs=/ca.pem ")
    assert address == RedisAddress(
        "host.example", 7000, 3, "me", "p/@x", tls=True, ca_file="/ca.pem"
    )
    assert str(address) == "host.example:7000/3"
    assert "p/@x" not in repr(address)
    assert read_redis_url("redis://h") == RedisAddress("h")
    assert read_redis_url("redis://[::1]:1/").host == "::1"


def test_without_an_url_the_memory_is_used():
    assert isinstance(make_state_store("", 5, 60.0), MemoryStateStore)
    assert isinstance(make_state_store(" "), MemoryStateStore)


@pytest.mark.parametrize(
    "url",
    [
        "http://h:1",
        "unix:///tmp/s3cret.sock",
        "redis://",
        "redis://:s3cret@",
        "redis://h:s3cret",
        "redis://u:s3cret/pa@h:1/0",
        "redis://u:pa@h:1/s3cret",
        "redis://u:s3#cret@h:1/0",
        "redis://u:pa@h:1/0#s3cret",
        "redis://h?socket_timeout=99&x=s3cret",
        "redis://h?s3cret",
        "redis://h:99999?s3cret=1",
        "redis://h/0?ssl_ca_certs=s3cret",
        "redis://[s3cret",
        "s3cret",
        "redis://h/\u0661",
        "redis://h/-1",
    ],
)
def test_a_wrong_url_is_refused_without_showing_it(url):
    with pytest.raises(StateUrlError) as caught:
        make_state_store(url)
    assert "s3" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
