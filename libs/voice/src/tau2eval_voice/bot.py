"""A bot process without its transport: builds sessions from Setups."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import grpc

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.client import open_channel
from tau2eval_voice.bot_settings import BotSettings
from tau2eval_voice.gateway_llm import DEFAULT_TIMEOUT_SECONDS, GatewayModel
from tau2eval_voice.session import Conversation, Session
from tau2eval_voice.setup_check import ROLE_NAMES, check_setup
from tau2eval_voice.text_session import TextSession
from tau2eval_voice.tools import ToolBackendFactory

if TYPE_CHECKING:
    from tau2eval_voice.voice_stack import VoiceStack


class VoiceBot:
    """Builds the sessions of one bot process.

    Args:
        settings: Settings of the process.
        role: The role that it plays.
        make_tools: Makes the tools of a session.
        version: Version of the bot, for Ready.
    """

    def __init__(
        self,
        settings: BotSettings,
        *,
        role: voice_pb2.Role.ValueType,
        make_tools: ToolBackendFactory,
        version: str,
    ) -> None:
        self.settings = settings
        self._role = role
        self._make_tools = make_tools
        self._version = version
        self._channel: grpc.aio.Channel | None = None
        self._voice: VoiceStack | None = None
        self._voice_loading = asyncio.Lock()

    async def start(self) -> None:
        """Lowers the priority, opens the gateway's channel, and loads speech by setting.

        Raises:
            tau2eval_voice.speech.SpeechSetupError: A speech model cannot be loaded.
        """
        if self.settings.niceness:
            os.nice(self.settings.niceness)
        self._channel = open_channel(self.settings.gateway_address)
        if self.settings.speech_preload:
            await (await self._voice_stack()).load()

    async def session(self, setup: voice_pb2.Setup) -> tuple[Session, voice_pb2.Ready]:
        """Builds a session, ready to converse.

        Raises:
            InvalidInput: The Setup is wrong.
        """
        check_setup(setup, self._role)
        assert self._channel is not None
        conversation = Conversation(
            prompt=setup.prompt,
            model=GatewayModel(self._channel, self._call_context(setup), setup.model),
            tools=self._make_tools(setup),
        )
        session: Session
        if setup.modality == voice_pb2.MODALITY_TEXT:
            session = TextSession(conversation)
        else:
            stack = await self._voice_stack()
            session = await stack.session(conversation, setup.speech)
        try:
            speech = await session.start()
        except BaseException:
            await session.close()
            raise
        model = voice_pb2.ModelConfig()
        model.CopyFrom(setup.model)
        model.timeout_seconds = setup.model.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        ready = voice_pb2.Ready(
            version=self._version,
            speech=speech,
            model=model,
            tool_names=conversation.dialogue.tool_names,
        )
        return session, ready

    async def stop(self) -> None:
        """Releases everything."""
        if self._voice is not None:
            await self._voice.aclose()
        if self._channel is not None:
            await self._channel.close()

    def _call_context(self, setup: voice_pb2.Setup) -> gateway_pb2.CallContext:
        return gateway_pb2.CallContext(
            run_id=setup.run_id,
            scenario=setup.scenario,
            trial=setup.trial,
            role=ROLE_NAMES[setup.role],
            session_id=setup.session_id,
        )

    async def _voice_stack(self) -> VoiceStack:
        async with self._voice_loading:
            if self._voice is None:
                # Importing Pipecat takes seconds, in which other sessions go on.
                self._voice = await asyncio.to_thread(_load_voice_stack, self.settings)
            return self._voice


def _load_voice_stack(settings: BotSettings) -> VoiceStack:
    # Before the import: Pipecat greets in the log when it is imported.
    from tau2eval_voice.pipecat_logs import route_pipecat_logs

    route_pipecat_logs()
    from tau2eval_voice.voice_stack import local_voice_stack

    return local_voice_stack(settings.turns, settings.speech)
