"""The caller's bot: it talks, and can do nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import grpc
import pytest

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import error_info
from tau2eval_common.interceptors import ErrorInterceptor
from tau2eval_user_bot.caller import no_tools
from tau2eval_user_bot.settings import UserBotSettings
from tau2eval_voice.bot import VoiceBot
from tau2eval_voice.servicer import BotService
from tau2eval_voice.testing import BotClient, Reply, ScriptedGateway


def setup_of(**changes) -> voice_pb2.Setup:
    values = {
        "session_id": "s",
        "role": voice_pb2.ROLE_USER,
        "prompt": "You are a caller.",
        "model": voice_pb2.ModelConfig(model="m"),
        "modality": voice_pb2.MODALITY_TEXT,
    }
    return voice_pb2.Setup(**{**values, **changes})


@pytest.fixture
async def line():
    async with ScriptedGateway().running() as gateway:
        settings = UserBotSettings(
            speech_preload=False, niceness=0, gateway_address=gateway.address, port=0
        )
        bot = VoiceBot(settings, role=voice_pb2.ROLE_USER, make_tools=no_tools, version="1")
        service = BotService(bot, "user-bot")
        await service.start()
        server = grpc.aio.server(interceptors=[ErrorInterceptor()])
        service.register(server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield gateway, channel
        await server.stop(0)
        await service.stop()


async def test_the_caller_answers_without_tools(line):
    gateway, channel = line
    gateway.script = [Reply(text="I want to change a flight.")]
    client = BotClient(channel)
    client.send(setup=setup_of())
    assert not (await client.ready()).tool_names
    client.text("How can I help you?")
    await client.wait_for(lambda: client.events("speech_stopped"))
    summary = await client.finish()
    assert "tools" not in gateway.bodies[0]
    assert gateway.contexts[0].role == "user"
    assert summary.db_hash == ""
    assert json.loads(summary.tools_json) == []
    assert [m["role"] for m in json.loads(summary.context_history_json)] == [
        "system", "user", "assistant",
    ]  # fmt: skip


async def test_a_tool_that_the_model_invents_is_refused(line):
    gateway, channel = line
    gateway.script = [
        Reply(calls=[("c", "end_conversation", "{}")]),
        Reply(text="Goodbye."),
    ]
    client = BotClient(channel)
    client.send(setup=setup_of())
    client.text("Anything else?")
    await client.wait_for(lambda: client.events("speech_stopped"))
    assert not client.events("exit")
    assert client.events("tool_result")[0].is_error


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"tool_names": ["EndConversationTool"]}, "tool_names"),
        ({"initialization": voice_pb2.Initialization(db_path="tau2_airline/db.json")}, "db_path"),
        ({"role": voice_pb2.ROLE_AGENT}, "role"),
    ],
)
async def test_what_a_caller_cannot_have_is_refused(line, changes, word):
    _, channel = line
    client = BotClient(channel)
    client.send(setup=setup_of(**changes))
    await client.ended()
    assert client.error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert word in client.error.details()
    assert error_info(client.error) is not None


def test_one_speech_setting_keeps_the_callers_voice(monkeypatch):
    monkeypatch.setenv("TAU2EVAL_USER_BOT_SPEECH__RECOGNIZER", "moonshine")
    settings = UserBotSettings()
    assert (settings.speech.recognizer, settings.speech.voice) == ("moonshine", "caller")


def test_help_and_wrong_use():
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tau2eval_user_bot", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=dict(os.environ),
        )

    shown = run("--help")
    assert shown.returncode == 0
    assert "TAU2EVAL_USER_BOT_GATEWAY_ADDRESS" in shown.stdout
    assert "(default: caller)" in shown.stdout
    assert run("now").returncode == 2
