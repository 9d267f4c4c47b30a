"""What voice sessions of a process share. Importing this loads Pipecat; text needs none of it."""

from __future__ import annotations

from tau2eval.voice.v1 import voice_pb2
from tau2eval_voice.session import Conversation, TurnSettings
from tau2eval_voice.speech.settings import SpeechSettings
from tau2eval_voice.speech_provider import LocalSpeech, SpeechProvider
from tau2eval_voice.vad import VadModel
from tau2eval_voice.voice_session import VoiceSession


class VoiceStack:
    """Speech and voice activity detection, loaded once.

    Args:
        turns: Turn-taking of the sessions.
        speech: Makes their speech services.
    """

    def __init__(self, turns: TurnSettings, speech: SpeechProvider) -> None:
        self._turns = turns
        self._speech = speech
        self._vad = VadModel()

    async def load(self) -> None:
        """Loads the configured speech models."""
        await self._speech.load()

    async def session(
        self, conversation: Conversation, config: voice_pb2.SpeechConfig
    ) -> VoiceSession:
        """Makes a session.

        Raises:
            InvalidInput: There is no such speech back end or voice.
        """
        services = await self._speech.services(config)
        return VoiceSession(conversation, services, self._vad, self._turns)

    async def aclose(self) -> None:
        """Releases the models."""
        await self._speech.aclose()


def local_voice_stack(turns: TurnSettings, speech: SpeechSettings) -> VoiceStack:
    """Makes the stack with speech on this machine."""
    return VoiceStack(turns, LocalSpeech(speech))
