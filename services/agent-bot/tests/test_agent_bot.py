"""The agent's bot with the real airline tools, over a real stream with scripted model replies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys

import grpc
import pytest

from tau2eval.voice.v1 import voice_pb2
from tau2eval_agent_bot.airline_tools import AirlineTools
from tau2eval_agent_bot.settings import AgentBotSettings
from tau2eval_airline import SEED_DB_HASH, TAU2_AIRLINE_TOOL_NAME_TO_CLASS, get_scenario
from tau2eval_common.errors import InvalidInput
from tau2eval_common.interceptors import ErrorInterceptor
from tau2eval_voice.bot import VoiceBot
from tau2eval_voice.servicer import BotService
from tau2eval_voice.testing import BotClient, Reply, ScriptedGateway

TOOLS = [*TAU2_AIRLINE_TOOL_NAME_TO_CLASS, "EndConversationTool"]


def setup_of(session_id: str = "s", **changes) -> voice_pb2.Setup:
    values = {
        "session_id": session_id,
        "role": voice_pb2.ROLE_AGENT,
        "prompt": "Be helpful.",
        "tool_domain": "tau2_airline",
        "tool_names": TOOLS,
        "initialization": voice_pb2.Initialization(db_path="tau2_airline/db.json"),
        "model": voice_pb2.ModelConfig(model="m"),
        "modality": voice_pb2.MODALITY_TEXT,
    }
    return voice_pb2.Setup(**{**values, **changes})


@contextlib.asynccontextmanager
async def serving(gateway: ScriptedGateway):
    settings = AgentBotSettings(
        speech_preload=False, niceness=0, gateway_address=gateway.address, port=0
    )
    bot = VoiceBot(settings, role=voice_pb2.ROLE_AGENT, make_tools=AirlineTools, version="1")
    service = BotService(bot, "agent-bot")
    await service.start()
    server = grpc.aio.server(interceptors=[ErrorInterceptor()])
    service.register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(0)
    await service.stop()


async def test_gold_actions_give_the_expected_hash():
    scenario = get_scenario("tau2_airline__11")
    calls = [
        (f"c{index}", action["name"], json.dumps(action["arguments"]))
        for index, action in enumerate(scenario.reference_answer["actions"])
    ]
    assert calls
    async with ScriptedGateway().running() as gateway, serving(gateway) as channel:
        gateway.script = [Reply(calls=calls), Reply(text="That is done.")]
        client = BotClient(channel)
        client.send(setup=setup_of())
        ready = await client.ready()
        assert len(ready.tool_names) == 15
        assert "update_reservation_flights" in ready.tool_names
        client.text("Please do it.")
        await client.wait_for(lambda: client.events("speech_stopped"))
        summary = await client.finish()
    assert summary.db_hash == scenario.expected_db_hash
    assert summary.db_hash != SEED_DB_HASH
    assert summary.changed_records
    assert [json.loads(action) for action in summary.actions_json] == scenario.reference_answer[
        "actions"
    ]
    assert len(client.events("action_recorded")) == len(calls)


async def test_a_session_that_does_nothing_keeps_the_seed():
    async with ScriptedGateway().running() as gateway, serving(gateway) as channel:
        client = BotClient(channel)
        client.send(setup=setup_of())
        await client.ready()
        summary = await client.finish()
    assert summary.db_hash == SEED_DB_HASH
    assert not summary.changed_records
    assert not summary.actions_json


async def test_transfer_is_recorded_and_spoken():
    async with ScriptedGateway().running() as gateway, serving(gateway) as channel:
        gateway.script = [
            Reply(calls=[("c", "transfer_to_human_agents", '{"summary": "a wish"}')]),
            Reply(text="You are being transferred."),
        ]
        client = BotClient(channel)
        client.send(setup=setup_of())
        client.text("A human, please.")
        await client.wait_for(lambda: client.events("exit"))
        summary = await client.finish()
    assert client.events("exit")[0].reason == voice_pb2.EXIT_REASON_TRANSFER
    assert json.loads(summary.actions_json[0])["name"] == "transfer_to_human_agents"


async def test_refused_calls_go_back_to_the_model():
    async with ScriptedGateway().running() as gateway, serving(gateway) as channel:
        gateway.script = [
            Reply(calls=[("c", "get_user_details", '{"user_id": "nobody_1"}')]),
            Reply(text="I cannot find you."),
        ]
        client = BotClient(channel)
        client.send(setup=setup_of())
        client.text("I am nobody.")
        await client.wait_for(lambda: client.events("speech_stopped"))
    result = client.events("tool_result")[0]
    assert result.is_error
    assert json.loads(result.result_json)["error_type"] == "not_found"


async def test_two_sessions_have_databases_of_their_own():
    first, second = AirlineTools(setup_of("a")), AirlineTools(setup_of("b"))
    action = get_scenario("tau2_airline__11").reference_answer["actions"][0]
    await first.call(action["name"], action["arguments"])
    assert first.state().db_hash != SEED_DB_HASH
    assert second.state().db_hash == SEED_DB_HASH


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tool_names": ["NoSuchTool"]}, "UNKNOWN_TOOL"),
        (
            {"initialization": voice_pb2.Initialization(db_path="no_such/db.json")},
            "DATABASE_UNAVAILABLE",
        ),
    ],
)
def test_what_does_not_exist_is_refused(changes, reason):
    with pytest.raises(InvalidInput) as caught:
        AirlineTools(setup_of(**changes))
    assert caught.value.reason == reason


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tau2eval_agent_bot", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


def test_help_names_every_setting():
    result = run("--help")
    assert result.returncode == 0
    for name in AgentBotSettings.model_fields:
        if name not in ("turns", "speech"):
            assert f"TAU2EVAL_AGENT_BOT_{name.upper()} " in result.stdout
    assert "TAU2EVAL_AGENT_BOT_TURNS__VAD_STOP_SECONDS " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("--serve",), {}),
        ((), {"TAU2EVAL_AGENT_BOT_PROT": "1"}),
        ((), {"TAU2EVAL_AGENT_BOT_PORT": "many"}),
        ((), {"TAU2EVAL_AGENT_BOT_TURNS__BARGE_IN_SECONDS": "-1"}),
    ],
)
def test_wrong_use_exits_with_2(arguments, environment):
    result = run(*arguments, **environment)
    assert result.returncode == 2
    assert result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_fixture_exits_with_2(tmp_path):
    result = run(TAU2_DATA_DIR=str(tmp_path), TAU2EVAL_AGENT_BOT_PORT="0")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


async def test_the_process_serves_and_ends_on_sigterm():
    environment = {
        **os.environ,
        "TAU2EVAL_AGENT_BOT_PORT": "0",
        "TAU2EVAL_AGENT_BOT_SPEECH_PRELOAD": "false",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tau2eval_agent_bot", stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        assert process.stdout is not None
        line = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        assert line["service"] == "agent-bot"
        async with grpc.aio.insecure_channel(line["grpc"]) as channel:
            client = BotClient(channel)
            client.send(setup=setup_of())
            await client.ready()
            summary = await client.finish()
        assert summary.db_hash == SEED_DB_HASH
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
