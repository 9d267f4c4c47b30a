"""A bot in this process, with tools that count, behind a real gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import grpc
import pytest

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.interceptors import ErrorInterceptor
from tau2eval_voice.bot import VoiceBot
from tau2eval_voice.bot_settings import BotSettings
from tau2eval_voice.servicer import BotService
from tau2eval_voice.testing import BotClient, Reply, ScriptedGateway
from tau2eval_voice.tools import NoTools, ToolReply, ToolState


class CounterTools:
    """Tools with a state: a counter that is the database."""

    declarations: ClassVar[list[dict[str, Any]]] = [
        {
            "type": "function",
            "function": {"name": name, "description": name, "parameters": {"type": "object"}},
        }
        for name in ("add", "end_conversation", "transfer_to_human_agents", "broken", "slow")
    ]

    def __init__(self, setup: voice_pb2.Setup) -> None:
        self.session_id = setup.session_id
        self.count = 0
        self.actions: list[Any] = []
        self.release = asyncio.Event()
        self.slow_started = asyncio.Event()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        if name == "broken":
            raise RuntimeError("a fault of the tool")
        if name == "slow":
            self.slow_started.set()
            await self.release.wait()
        if name == "end_conversation":
            return ToolReply({"status": "ok"}, exit_reason=voice_pb2.EXIT_REASON_AGENT_EXIT)
        self.count += int(arguments.get("n", 1))
        action = {"action_type": name, "name": name, "arguments": dict(arguments), "side": "agent"}
        self.actions.append(action)
        if name == "transfer_to_human_agents":
            return ToolReply(
                {"status": "ok"}, action=action, exit_reason=voice_pb2.EXIT_REASON_TRANSFER
            )
        return ToolReply({"count": self.count}, action=action)

    def state(self) -> ToolState:
        changed = voice_pb2.ChangedRecord(table="t", key="k", record_json=str(self.count))
        return ToolState(f"hash-{self.count}", [changed], self.actions)


class UnsetSettings(BotSettings):
    """Settings that the environment cannot touch."""

    model_config: ClassVar[Any] = {
        **BotSettings.model_config,
        "env_prefix": "TAU2EVAL_NO_SUCH_BOT_",
    }


class Bot:
    def __init__(self, gateway_address: str, **settings: Any) -> None:
        defaults = {"speech_preload": False, "niceness": 0, "gateway_address": gateway_address}
        self.tools: list[CounterTools] = []
        self.bot = VoiceBot(
            UnsetSettings(**{**defaults, **settings}),
            role=voice_pb2.ROLE_AGENT,
            make_tools=self._make_tools,
            version="9.9",
        )
        self.service = BotService(self.bot, "test-bot")
        self.clients: list[BotClient] = []

    def _make_tools(self, setup: voice_pb2.Setup) -> Any:
        if setup.tool_domain == "none":
            return NoTools()
        self.tools.append(CounterTools(setup))
        return self.tools[-1]

    async def start(self) -> None:
        await self.service.start()
        self._server = grpc.aio.server(interceptors=[ErrorInterceptor()])
        self.service.register(self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def stop(self) -> None:
        for client in self.clients:
            await client.cancel()
        await self.channel.close()
        await self._server.stop(1)
        await self.service.stop()

    def connect(self) -> BotClient:
        client = BotClient(self.channel)
        self.clients.append(client)
        return client

    def converse(self, **changes: Any) -> BotClient:
        """Opens a stream and sends a Setup."""
        client = self.connect()
        client.send(setup=make_setup(f"s{len(self.clients)}", **changes))
        return client

    async def released(self, count: int = 0) -> None:
        """Waits until no more than `count` sessions are held."""
        async with asyncio.timeout(15):
            while self.service.servicer.active_sessions > count:
                await asyncio.sleep(0.02)


def make_setup(session_id: str = "s", **changes: Any) -> voice_pb2.Setup:
    values: dict[str, Any] = {
        "session_id": session_id,
        "run_id": "run",
        "scenario": "scenario",
        "trial": 1,
        "role": voice_pb2.ROLE_AGENT,
        "prompt": "The prompt.",
        "model": voice_pb2.ModelConfig(model="scripted/test"),
        "audio_format": voice_pb2.AudioFormat(sample_rate_hz=16_000),
        "modality": voice_pb2.MODALITY_TEXT,
    }
    return voice_pb2.Setup(**{**values, **changes})


@pytest.fixture
def reply() -> type[Reply]:
    return Reply


@pytest.fixture
def setup_message() -> Callable[..., voice_pb2.Setup]:
    return make_setup


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    async with ScriptedGateway().running() as scripted:
        yield scripted


@pytest.fixture
async def make_bot(gateway: ScriptedGateway) -> AsyncIterator[Callable[..., Any]]:
    bots: list[Bot] = []

    async def make(**settings: Any) -> Bot:
        bot = Bot(gateway.address, **settings)
        await bot.start()
        bots.append(bot)
        return bot

    yield make
    for bot in bots:
        await bot.stop()
