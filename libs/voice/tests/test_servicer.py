"""The servicer: what a stream must be, how many there are, and what is left of them."""

from __future__ import annotations

import asyncio
import gc
import threading

import grpc
import pytest

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import error_info


async def failure(client) -> grpc.aio.AioRpcError:
    await client.ended()
    assert client.error is not None
    return client.error


async def test_the_first_message_must_be_setup(make_bot):
    client = (await make_bot()).connect()
    client.send(cue=voice_pb2.Cue())
    error = await failure(client)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(error).reason == "NO_SETUP"
    assert "cue" in error.details()


async def test_a_stream_without_a_message(make_bot):
    client = (await make_bot()).connect()
    client.half_close()
    assert (await failure(client)).code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_no_setup_in_time(make_bot):
    client = (await make_bot(setup_timeout_seconds=0.1)).connect()
    assert (await failure(client)).code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"session_id": ""}, "session_id"),
        ({"role": voice_pb2.ROLE_USER}, "role"),
        ({"role": voice_pb2.ROLE_UNSPECIFIED}, "role"),
        ({"prompt": ""}, "prompt"),
        ({"modality": voice_pb2.MODALITY_UNSPECIFIED}, "modality"),
        ({"modality": voice_pb2.MODALITY_VOICE, "audio_format": None}, "sample_rate_hz"),
        ({"model": voice_pb2.ModelConfig()}, "model"),
        ({"model": voice_pb2.ModelConfig(model="m", parameters_json="[1]")}, "parameters_json"),
        ({"model": voice_pb2.ModelConfig(model="m", parameters_json="{")}, "parameters_json"),
        ({"model": voice_pb2.ModelConfig(model="m", parameters_json='{"n": 2}')}, "sets n"),
        ({"model": voice_pb2.ModelConfig(model="m", timeout_seconds=-1)}, "timeout_seconds"),
        ({"trial": -1}, "trial"),
    ],
)  # fmt: skip
async def test_a_bad_setup_is_refused_with_its_reason(make_bot, setup_message, changes, word):
    bot = await make_bot()
    client = bot.connect()
    client.send(setup=setup_message(**changes))
    error = await failure(client)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert word in error.details()
    assert bot.service.servicer.active_sessions == 0


async def test_capacity(make_bot):
    bot = await make_bot(max_sessions=2)
    first = bot.converse()
    await first.ready()
    second = bot.converse()
    await second.ready()
    error = await failure(bot.converse())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await first.finish()
    await bot.released(1)
    await bot.converse().ready()


async def test_a_session_id_is_used_once_at_a_time(make_bot, setup_message):
    bot = await make_bot()
    first = bot.connect()
    first.send(setup=setup_message("same"))
    await first.ready()
    second = bot.connect()
    second.send(setup=setup_message("same"))
    error = await failure(second)
    assert error_info(error).reason == "SESSION_ID_IN_USE"
    await first.finish()
    await bot.released(0)
    third = bot.connect()
    third.send(setup=setup_message("same"))
    await third.ready()


@pytest.mark.parametrize("member", ["setup", "audio"])
async def test_a_message_that_does_not_fit(make_bot, setup_message, member):
    client = (await make_bot()).converse()
    await client.ready()
    client.send(**{member: setup_message() if member == "setup" else voice_pb2.Audio()})
    error = await failure(client)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert member in error.details()


async def test_a_stream_closed_without_finish(make_bot):
    bot = await make_bot()
    client = bot.converse()
    await client.ready()
    client.half_close()
    assert error_info(await failure(client)).reason == "NO_FINISH"
    await bot.released(0)


async def test_a_silent_stream_is_given_up(make_bot):
    bot = await make_bot(idle_timeout_seconds=0.2)
    client = bot.converse()
    assert (await failure(client)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await bot.released(0)


async def test_a_fault_is_told_and_ends_the_stream(make_bot):
    bot = await make_bot()
    client = bot.converse()
    await client.ready()
    bot.tools[0].actions.append(object())  # Cannot become JSON.
    client.send(finish=voice_pb2.Finish())
    error = await failure(client)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "TypeError" in error.details()
    told = client.events("error")[0]
    assert (told.kind, told.fatal) == (voice_pb2.ERROR_KIND_INTERNAL, True)
    await bot.released(0)


async def test_a_client_that_goes_away_leaves_nothing(gateway, make_bot, reply):
    gateway.choose = lambda context, body: reply(text="Never.", wait=asyncio.Event())
    bot = await make_bot(max_sessions=30)
    warm = bot.converse()
    await warm.ready()
    await warm.finish()
    await bot.released(0)
    before, threads = tasks(), threading.active_count()
    for index in range(20):
        client = bot.converse()
        await client.ready()
        client.text("Hello?")
        await client.wait_for(lambda client=client: client.events("activity"))
        if index % 2:
            await client.finish()
        else:
            await client.cancel()
    await bot.released(0)
    async with asyncio.timeout(10):
        while tasks() > before:
            gc.collect()
            await asyncio.sleep(0.05)
    assert threading.active_count() <= threads + 1


def tasks() -> int:
    return len(asyncio.all_tasks())
