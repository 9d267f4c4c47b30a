"""One scenario from its request to its verdict."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import dataclass

import grpc

from tau2eval.bridge.v1 import bridge_pb2
from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge import stop as stops
from tau2eval_bridge.bot_session import BotSession, BotUnreachable, OpenChannel
from tau2eval_bridge.client_feed import ClientFeed
from tau2eval_bridge.conversation import Conversation, Limits
from tau2eval_bridge.header import make_header
from tau2eval_bridge.recorder import Recorder
from tau2eval_bridge.scorer_client import ScorerClient, SubmitFailed
from tau2eval_bridge.settings import BridgeSettings, check_frame_rate
from tau2eval_bridge.spool import SUFFIX, Spool
from tau2eval_bridge.stop import Stop
from tau2eval_bridge.text_call import TextConversation
from tau2eval_bridge.voice_call import VoiceConversation
from tau2eval_common.errors import CapacityExhausted, InvalidInput, Tau2EvalError

logger = logging.getLogger(__name__)

_STREAM_SLACK_SECONDS = 120.0
_ENDING_SECONDS = 0.5
"""When a command is killed, its services end within milliseconds of each other, in any order."""
_MAY_BE_THE_END = frozenset(
    {
        record_pb2.STOP_REASON_AGENT_LOST,
        record_pb2.STOP_REASON_USER_LOST,
        record_pb2.STOP_REASON_GATEWAY_ERROR,
        record_pb2.STOP_REASON_SPEECH_ERROR,
    }
)


@dataclass(frozen=True)
class _Plan:
    """What a request comes to."""

    attempt_id: str
    modality: voice_pb2.Modality.ValueType
    recording_rate: int
    agent_address: str
    user_address: str


def plan(request: bridge_pb2.RunScenarioRequest, settings: BridgeSettings) -> _Plan:
    """Checks a request and fills in the defaults.

    Raises:
        InvalidInput: With what to change.
    """
    if not request.run_id or not request.scenario:
        raise InvalidInput("run_id and scenario must be given")
    if request.trial < 0:
        raise InvalidInput("trial counts from 0")
    if request.max_duration_seconds < 0 or request.min_agent_turns < 0:
        raise InvalidInput("max_duration_seconds and min_agent_turns must not be negative")
    rate = request.recording_sample_rate_hz or settings.recording_sample_rate_hz
    try:
        check_frame_rate(rate)
    except ValueError as error:
        raise InvalidInput(f"recording_sample_rate_hz: {error}") from error
    return _Plan(
        attempt_id=request.attempt_id or uuid.uuid4().hex,
        modality=request.modality or voice_pb2.MODALITY_VOICE,
        recording_rate=rate,
        agent_address=request.agent_address or settings.agent_address,
        user_address=request.user_address or settings.user_address,
    )


class Call:
    """Holds one scenario. `run` may outlive the client: `cancel` ends the call in order.

    Attributes:
        feed: Events for the client.
    """

    def __init__(
        self,
        request: bridge_pb2.RunScenarioRequest,
        settings: BridgeSettings,
        open_channel: OpenChannel,
    ) -> None:
        """Checks the request.

        Raises:
            InvalidInput: With what to change.
        """
        self._request = request
        self._settings = settings
        self._plan = plan(request, settings)
        self._open_channel = open_channel
        self._cancelled = asyncio.Event()
        self._conversation: Conversation | None = None
        self.feed = ClientFeed(settings.client_queue, settings.heartbeat_seconds, self._now)

    def _now(self) -> float:
        return self._conversation.now if self._conversation is not None else 0.0

    def cancel(self) -> None:
        """Ends the conversation as cancelled; one that has ended already is still submitted."""
        self._cancelled.set()
        if self._conversation is not None:
            self._conversation.cancel()

    async def run(self) -> None:
        """Holds the scenario; the feed's last event is Finished.

        Raises:
            Tau2EvalError: When nothing was started: no free session, no such scenario, a bot that
                refuses the setup, a scorer that cannot be reached.
        """
        channels = [
            self._open_channel(self._settings.scorer_address),
            self._open_channel(self._plan.agent_address),
            self._open_channel(self._plan.user_address),
        ]
        try:
            await self._run(*channels)
        finally:
            self.feed.close()
            await asyncio.gather(*(channel.close() for channel in channels))

    async def _run(
        self, to_scorer: grpc.aio.Channel, to_agent: grpc.aio.Channel, to_user: grpc.aio.Channel
    ) -> None:
        settings = self._settings
        scorer = ScorerClient(
            to_scorer,
            scenario_timeout=settings.scenario_timeout_seconds,
            submit_timeout=settings.submit_timeout_seconds,
            submit_retries=settings.submit_retries,
            submit_backoff=settings.submit_backoff_seconds,
        )
        scenario = await scorer.get_scenario(self._request.scenario)
        limits = Limits(
            max_duration_seconds=self._request.max_duration_seconds
            or scenario.max_duration_seconds
            or settings.max_duration_seconds,
            stall_seconds=settings.stall_seconds,
            activity_limit_seconds=settings.activity_limit_seconds,
            exit_tail_seconds=settings.exit_tail_seconds,
            finish_timeout_seconds=settings.finish_timeout_seconds,
        )
        agent = BotSession(voice_pb2.ROLE_AGENT, self._plan.agent_address, to_agent)
        user = BotSession(voice_pb2.ROLE_USER, self._plan.user_address, to_user)
        try:
            failed, ready = await self._open(agent, user, scenario, limits)
            verdict = await self._hold(scorer, scenario, limits, agent, user, ready, failed)
        finally:
            await asyncio.gather(agent.close(), user.close())
        self._emit(finished=bridge_pb2.Finished(verdict=verdict))

    async def _open(
        self,
        agent: BotSession,
        user: BotSession,
        scenario: scorer_pb2.GetScenarioResponse,
        limits: Limits,
    ) -> tuple[Stop | None, dict[str, voice_pb2.Ready]]:
        """Opens both streams; what cannot be a call at all is raised, a lost bot is returned."""
        timeout = self._settings.ready_timeout_seconds
        whole = limits.max_duration_seconds + timeout + limits.finish_timeout_seconds
        opening = [
            asyncio.create_task(
                bot.open(self._setup(bot.role, scenario), timeout, whole + _STREAM_SLACK_SECONDS)
            )
            for bot in (agent, user)
        ]
        cancelled = asyncio.create_task(self._cancelled.wait())
        try:
            # The first failure settles it: the other bot is not kept waiting.
            pending: set[asyncio.Task[voice_pb2.Ready] | asyncio.Task[bool]] = {*opening}
            while pending and not cancelled.done():
                done, _ = await asyncio.wait(
                    {*pending, cancelled}, return_when=asyncio.FIRST_COMPLETED
                )
                pending -= done
                if any(task.exception() for task in done if not task.cancelled()):
                    break
        finally:
            cancelled.cancel()
            for task in opening:
                task.cancel()
            results = await asyncio.gather(*opening, return_exceptions=True)
        errors = [r for r in results if isinstance(r, Exception)]
        for kind in (CapacityExhausted, Tau2EvalError):
            for error in errors:
                if isinstance(error, kind):
                    raise error
        ready = {
            name: result
            for name, result in zip(("agent", "user"), results, strict=True)
            if isinstance(result, voice_pb2.Ready)
        }
        for bot, result in zip((agent, user), results, strict=True):
            if isinstance(result, BotUnreachable):
                return stops.lost(bot.role, str(result)), ready
            if isinstance(result, Exception):
                raise result
        if len(ready) < len(results):
            return (
                Stop(
                    record_pb2.STOP_REASON_CANCELLED,
                    "the client cancelled the call before it began",
                ),
                ready,
            )
        return None, ready

    def _setup(
        self, role: voice_pb2.Role.ValueType, scenario: scorer_pb2.GetScenarioResponse
    ) -> voice_pb2.Setup:
        request = self._request
        agent = role == voice_pb2.ROLE_AGENT
        setup = voice_pb2.Setup(
            session_id=f"{self._plan.attempt_id}-{'agent' if agent else 'user'}",
            run_id=request.run_id,
            scenario=request.scenario,
            trial=request.trial,
            role=role,
            prompt=scenario.agent_prompt if agent else scenario.user_prompt,
            model=request.agent_model if agent else request.user_model,
            speech=request.agent_speech if agent else request.user_speech,
            audio_format=voice_pb2.AudioFormat(sample_rate_hz=self._settings.input_sample_rate_hz),
            modality=self._plan.modality,
        )
        if agent:
            setup.tool_domain = scenario.agent_tool_domain
            setup.tool_names.extend(scenario.agent_tool_names)
            setup.initialization.db_path = scenario.agent_db_path
        return setup

    async def _hold(
        self,
        scorer: ScorerClient,
        scenario: scorer_pb2.GetScenarioResponse,
        limits: Limits,
        agent: BotSession,
        user: BotSession,
        ready: dict[str, voice_pb2.Ready],
        failed: Stop | None,
    ) -> scorer_pb2.Verdict:
        started = time.monotonic()
        name = f"{int(time.time())}-{uuid.uuid4().hex}{SUFFIX}"
        spool = await asyncio.to_thread(Spool, self._settings.spool_folder() / name)
        recorder = Recorder(spool, self._plan.recording_rate)
        recorder.header(
            make_header(
                self._request,
                scenario,
                self._settings,
                limits,
                attempt_id=self._plan.attempt_id,
                modality=self._plan.modality,
                recording_rate=self._plan.recording_rate,
                addresses={
                    "agent": self._plan.agent_address,
                    "user": self._plan.user_address,
                },
                ready=ready,
            )
        )
        conversation = self._make(agent, user, limits, recorder)
        self._conversation = conversation
        self._emit(
            started=bridge_pb2.Started(
                attempt_id=self._plan.attempt_id,
                max_duration_seconds=int(limits.max_duration_seconds),
            )
        )
        if failed is not None:
            stop = failed
        else:
            if self._cancelled.is_set():
                conversation.cancel()
            stop = await self._converse(conversation)
        stop = await self._unless_ending(stop)
        footer = conversation.footer(stop, self._request.min_agent_turns)
        for entry, side in zip(footer.sides, ("agent", "user"), strict=True):
            if side in ready:
                entry.ready.CopyFrom(ready[side])
        self._emit(stopped=bridge_pb2.Stopped(stop_reason=stop.reason, detail=footer.stop_detail))
        quality = footer.line_quality
        logger.info(
            "%s trial %d: %s after %.1f s of media, %.1f s of wall clock; frame lateness p50 %.1f, "
            "p99 %.1f, max %.1f ms",
            self._request.scenario,
            self._request.trial,
            record_pb2.StopReason.Name(stop.reason),
            footer.duration_seconds,
            time.monotonic() - started,
            quality.frame_lateness_p50_ms,
            quality.frame_lateness_p99_ms,
            quality.frame_lateness_max_ms,
        )
        return await self._submit(scorer, spool, recorder, footer)

    def _make(
        self, agent: BotSession, user: BotSession, limits: Limits, recorder: Recorder
    ) -> Conversation:
        settings = self._settings
        if self._plan.modality == voice_pb2.MODALITY_TEXT:
            return TextConversation(
                agent,
                user,
                limits,
                recorder,
                self.feed.emit,
                words_per_minute=settings.text_words_per_minute,
                thinking_seconds=settings.text_thinking_seconds,
                settle_seconds=settings.text_settle_seconds,
                grace_seconds=settings.text_grace_seconds,
                unanswered_seconds=settings.text_unanswered_seconds,
            )
        return VoiceConversation(
            agent,
            user,
            limits,
            recorder,
            self.feed.emit,
            input_rate=settings.input_sample_rate_hz,
            recording_rate=self._plan.recording_rate,
        )

    async def _converse(self, conversation: Conversation) -> Stop:
        """Runs and finishes a conversation; a fault of the bridge itself is a reason to stop."""
        try:
            stop = await conversation.run()
        except Exception as error:
            logger.exception("the bridge failed during %s", self._request.scenario)
            stop = _harness(error)
        try:
            return await conversation.finish(stop)
        except Exception as error:
            logger.exception("the bridge failed at the end of %s", self._request.scenario)
            return _harness(error)

    async def _unless_ending(self, stop: Stop) -> Stop:
        """Returns a loss as cancelled when the call was being ended from outside at that moment.

        Otherwise a killed command would be charged to the bot whose stream broke first.
        """
        if stop.reason not in _MAY_BE_THE_END:
            return stop
        try:
            await asyncio.wait_for(self._cancelled.wait(), _ENDING_SECONDS)
        except TimeoutError:
            return stop
        return Stop(
            record_pb2.STOP_REASON_CANCELLED,
            f"the call was ended from outside while a part of it went away: {stop.detail}",
        )

    async def _submit(
        self,
        scorer: ScorerClient,
        spool: Spool,
        recorder: Recorder,
        footer: record_pb2.RecordFooter,
    ) -> scorer_pb2.Verdict:
        why: str
        try:
            recorder.footer(footer)
            await asyncio.to_thread(spool.close)
            verdict = await scorer.submit(spool.path)
        except (OSError, SubmitFailed) as error:
            why = str(error)
        else:
            await asyncio.to_thread(spool.path.unlink, missing_ok=True)
            return verdict
        logger.error("the record of %s is kept in %s: %s", self._request.scenario, spool.path, why)
        return scorer_pb2.Verdict(
            run_id=self._request.run_id,
            scenario=self._request.scenario,
            trial=self._request.trial,
            attempt_id=self._plan.attempt_id,
            outcome=scorer_pb2.OUTCOME_NOT_RUN,
            not_run_kind="harness_error",
            stop_reason=footer.stop_reason,
            duration_seconds=footer.duration_seconds,
            explanation=(
                f"the scorer did not take the record ({why}); it is kept in {spool.path}: "
                f"`python -m tau2eval_bridge.resubmit {spool.path}` on the bridge's machine "
                "submits it again"
            ),
        )

    def _emit(
        self,
        *,
        started: bridge_pb2.Started | None = None,
        stopped: bridge_pb2.Stopped | None = None,
        finished: bridge_pb2.Finished | None = None,
    ) -> None:
        self.feed.emit(
            bridge_pb2.ScenarioEvent(
                time_seconds=self._now(), started=started, stopped=stopped, finished=finished
            )
        )


def _harness(error: Exception) -> Stop:
    return Stop(
        record_pb2.STOP_REASON_HARNESS_ERROR,
        f"a fault of the bridge: {type(error).__name__}: {error}",
    )
