"""A session in voice modality: one Pipecat pipeline per Converse stream."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pipecat.audio.vad.vad_analyzer import VADAnalyzer
from pipecat.frames.frames import ErrorFrame, LLMRunFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregator,
    LLMUserAggregatorParams,
)
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.services.stt_service import STTService
from pipecat.services.tts_service import TTSService
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_voice.dialogue import CUE_TEXT
from tau2eval_voice.dialogue_processor import DialogueProcessor
from tau2eval_voice.grpc_transport import PIPELINE_RATE_HZ, GrpcTransport
from tau2eval_voice.outbox import Outbox
from tau2eval_voice.session import Conversation, TurnSettings
from tau2eval_voice.speech.errors import SpeechError
from tau2eval_voice.speech.pipecat_stt import INAUDIBLE
from tau2eval_voice.speech_provider import SpeechServices
from tau2eval_voice.turns import BargeInStartStrategy
from tau2eval_voice.vad import VadModel

logger = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 5.0
_ACTIVITY_PERIOD_SECONDS = 0.1


class VoiceSession:
    """Takes Audio, answers with Audio.

    transport in -> voice activity -> recogniser -> turns -> dialogue -> synthesiser -> transport
    out. The context belongs to the dialogue; Pipecat's user aggregator adds what was heard to the
    same list of messages.
    """

    def __init__(
        self,
        conversation: Conversation,
        speech: SpeechServices,
        vad: VadModel,
        turns: TurnSettings,
    ) -> None:
        self._conversation = conversation
        self._speech = speech
        self._turns = turns
        self._transport = GrpcTransport(
            clock=conversation.clock,
            outbox=conversation.outbox,
            playout=conversation.playout,
            output_rate_hz=speech.output_rate_hz,
        )
        self._analyzer = vad.analyzer(
            start_seconds=turns.vad_start_seconds, stop_seconds=turns.vad_stop_seconds
        )
        self._started = asyncio.Event()
        self._over = False
        self._cuts_answered = 0
        self._worker = self._make_worker(self._analyzer)
        self._run: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def outbox(self) -> Outbox:
        """What the session sends."""
        return self._conversation.outbox

    async def start(self) -> voice_pb2.SpeechConfig:
        """Starts the pipeline.

        Raises:
            RuntimeError: It did not start in time.
        """
        runner = WorkerRunner(handle_sigint=False, handle_sigterm=False, check_dangling_tasks=False)
        await runner.add_workers(self._worker)
        self._run = asyncio.create_task(runner.run(), name="voice-session")
        self._run.add_done_callback(self._on_run_ended)
        started = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait(
                {started, self._run},
                timeout=START_TIMEOUT_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            started.cancel()
        if not self._started.is_set():
            raise RuntimeError("the voice pipeline did not start")
        return self._speech.config

    async def handle(self, request: voice_pb2.ConverseRequest) -> None:
        """Takes Audio or Cue.

        Raises:
            InvalidInput: It is something else, or cannot be audio.
        """
        match request.WhichOneof("message"):
            case "audio":
                await self._transport.input().feed(request.audio)
            case "cue":
                self._conversation.dialogue.add_user(CUE_TEXT)
                await self._worker.queue_frame(LLMRunFrame())
            case other:
                raise InvalidInput(
                    f"a session in voice modality takes no {other or 'empty'} message"
                )

    async def finish(self) -> None:
        """Stops, sends the Summary, and closes the outbox."""
        conversation = self._conversation
        conversation.dialogue.stop()
        self._transport.output().mute()
        conversation.playout.interrupt(by_other_side=False)
        await conversation.dialogue.settle()
        await self._stop_pipeline()
        # What the model was writing when the pipeline stopped was never heard.
        conversation.playout.interrupt(by_other_side=False)
        conversation.send_summary()

    async def close(self) -> None:
        """Releases everything."""
        self._conversation.dialogue.stop()
        await self._stop_pipeline()
        self._conversation.dialogue.abandon()
        self.outbox.close()

    def _make_worker(self, analyzer: VADAnalyzer) -> PipelineWorker:
        conversation = self._conversation
        aggregator = self._make_aggregator()
        pipeline = Pipeline(
            [
                self._transport.input(),
                VADProcessor(
                    vad_analyzer=analyzer,
                    speech_activity_period=_ACTIVITY_PERIOD_SECONDS,
                    # Silence on the line is sent as audio; a pause of the stream is no silence.
                    audio_idle_timeout=0,
                ),
                self._speech.recognizer(conversation.outbox),
                aggregator,
                DialogueProcessor(conversation.dialogue, conversation.playout),
                self._speech.synthesizer(conversation.outbox, conversation.playout),
                self._transport.output(),
            ]
        )
        worker = PipelineWorker(
            pipeline,
            params=PipelineParams(
                audio_in_sample_rate=PIPELINE_RATE_HZ,
                audio_out_sample_rate=self._speech.output_rate_hz,
            ),
            enable_rtvi=False,
            enable_turn_tracking=False,
            idle_timeout_secs=None,
            cancel_on_idle_timeout=False,
            cancel_timeout_secs=STOP_TIMEOUT_SECONDS,
            check_dangling_tasks=False,
        )
        worker.add_event_handler("on_pipeline_started", self._on_started)
        worker.add_event_handler("on_pipeline_error", self._on_error)
        return worker

    def _make_aggregator(self) -> LLMUserAggregator:
        conversation, turns = self._conversation, self._turns
        params = LLMUserAggregatorParams(
            user_turn_strategies=UserTurnStrategies(
                start=[
                    BargeInStartStrategy(
                        speaking=lambda: conversation.playout.speaking,
                        voiced_seconds=lambda: self._analyzer.voiced_seconds,
                        closed=lambda: conversation.dialogue.ending or conversation.dialogue.dead,
                        min_voiced_seconds=turns.barge_in_seconds,
                    )
                ],
                stop=[
                    SpeechTimeoutUserTurnStopStrategy(
                        user_speech_timeout=turns.user_speech_timeout_seconds
                    )
                ],
            ),
            user_turn_stop_timeout=turns.turn_stop_timeout_seconds,
            # Its answer to a turn without words is a message that the context must not have.
            empty_user_turn=None,
        )
        context: Any = LLMContext(messages=conversation.dialogue.messages)  # type: ignore[arg-type]
        aggregator = LLMContextAggregatorPair(context, user_params=params).user()
        aggregator.add_event_handler("on_user_turn_stopped", self._on_turn_stopped)
        return aggregator

    async def _on_started(self, worker: PipelineWorker, frame: Any) -> None:
        del worker, frame
        self._started.set()

    async def _on_turn_stopped(self, aggregator: Any, strategy: Any, message: Any) -> None:
        """Keeps the call going after a turn in which no word was recognised."""
        del aggregator, strategy
        dialogue = self._conversation.dialogue
        cut, self._cuts_answered = (
            self._conversation.playout.cuts > self._cuts_answered,
            self._conversation.playout.cuts,
        )
        if message.content or dialogue.ending or dialogue.dead:
            return
        if not dialogue.owes_response:
            if not cut:
                return
            dialogue.add_user(INAUDIBLE)
        await self._worker.queue_frame(LLMRunFrame())

    async def _on_error(self, worker: PipelineWorker, frame: ErrorFrame) -> None:
        del worker
        dialogue = self._conversation.dialogue
        if self._over or dialogue.dead:
            return
        speech = isinstance(frame.exception, SpeechError) or isinstance(
            frame.processor, (STTService, TTSService)
        )
        dialogue.dead = True
        if speech:
            code = frame.exception.kind if isinstance(frame.exception, SpeechError) else "speech"
            self.outbox.error(voice_pb2.ERROR_KIND_SPEECH, frame.error, code=code)
        else:
            logger.error("pipeline error: %s", frame.error, exc_info=frame.exception)
            self.outbox.error(
                voice_pb2.ERROR_KIND_INTERNAL, "unexpected error in the pipeline", code="internal"
            )

    def _on_run_ended(self, task: asyncio.Task[None]) -> None:
        """A pipeline that ends by itself is a fault."""
        error = None if task.cancelled() else task.exception()
        if self._over:
            return
        logger.error("the voice pipeline ended by itself", exc_info=error)
        self.outbox.error(
            voice_pb2.ERROR_KIND_INTERNAL, "the voice pipeline ended by itself", code="internal"
        )
        self.outbox.fail(RuntimeError("the voice pipeline ended by itself"))

    async def _stop_pipeline(self) -> None:
        """Stops the pipeline once, also when a caller of this is cancelled while it waits."""
        self._over = True
        if self._run is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(self._run), name="voice-stop")
        await asyncio.shield(self._stopping)

    async def _stop(self, run: asyncio.Task[None]) -> None:
        await self._worker.cancel()
        _, late = await asyncio.wait({run}, timeout=STOP_TIMEOUT_SECONDS)
        if late:
            logger.error("the voice pipeline did not stop within %.0f s", STOP_TIMEOUT_SECONDS)
            run.cancel()
            await asyncio.wait({run}, timeout=STOP_TIMEOUT_SECONDS)
