"""A session in text modality: the same dialogue without speech and without Pipecat."""

from __future__ import annotations

import asyncio
import contextlib

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_voice.dialogue import CUE_TEXT
from tau2eval_voice.outbox import Outbox
from tau2eval_voice.session import Conversation
from tau2eval_voice.utterances import Utterance


class TextSession:
    """Takes Text, answers with Text: one message per utterance, with the events around it.

    What arrives while the bot is answering waits until it has answered. Media time is virtual:
    the bridge's, as its messages carry it.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._arrived = asyncio.Event()
        self._heard: list[str] = []
        self._worker: asyncio.Task[None] | None = None

    @property
    def outbox(self) -> Outbox:
        """What the session sends."""
        return self._conversation.outbox

    async def start(self) -> voice_pb2.SpeechConfig:
        """Gets ready; there is no speech."""
        self._worker = asyncio.create_task(self._work(), name="text-session")
        return voice_pb2.SpeechConfig()

    async def handle(self, request: voice_pb2.ConverseRequest) -> None:
        """Takes Text or Cue.

        Raises:
            InvalidInput: It is something else.
        """
        match request.WhichOneof("message"):
            case "text":
                self._conversation.clock.advance(request.text.media_time_seconds)
                self.outbox.event(
                    transcript_heard=voice_pb2.TranscriptHeard(text=request.text.text)
                )
                self._heard.append(request.text.text)
            case "cue":
                self._heard.append(CUE_TEXT)
            case other:
                raise InvalidInput(
                    f"a session in text modality takes no {other or 'empty'} message"
                )
        self._arrived.set()

    async def finish(self) -> None:
        """Stops, sends the Summary, and closes the outbox."""
        self._conversation.dialogue.stop()
        await self._conversation.dialogue.settle()
        await self._stop_worker()
        self._conversation.playout.interrupt(by_other_side=False)
        self._conversation.send_summary()

    async def close(self) -> None:
        """Releases everything."""
        self._conversation.dialogue.stop()
        await self._stop_worker()
        self._conversation.dialogue.abandon()
        self.outbox.close()

    async def begin(self, utterance: Utterance) -> None:
        """Opens an utterance."""
        self._conversation.playout.begin(utterance)

    async def words(self, utterance: Utterance, text: str) -> None:
        """Words are sent when the utterance is whole."""

    async def end(self, utterance: Utterance) -> None:
        """Sends a whole utterance."""
        playout = self._conversation.playout
        text = utterance.written.strip()
        if text:
            playout.play(utterance)
            playout.about_to_play()
            self.outbox.text(text)
        playout.finish(utterance)

    async def _work(self) -> None:
        dialogue = self._conversation.dialogue
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            heard, self._heard = self._heard, []
            for text in heard:
                dialogue.add_user(text)
            await dialogue.respond(self)

    async def _stop_worker(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker
            self._worker = None
