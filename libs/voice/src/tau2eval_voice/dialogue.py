"""The conversation of one bot: context, model calls, tools, and the end. No transport, no speech.

The loop is the project's own and serves voice and text alike. Pipecat's OpenAI service would drop
calls with malformed arguments, read one tool call per chunk, and record what was said behind the
tool calls of the same response.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tau2eval.voice.v1 import voice_pb2
from tau2eval_voice.chat_answers import RequestedCall
from tau2eval_voice.gateway_llm import Completion, ModelCallError, TextCallback
from tau2eval_voice.outbox import Outbox
from tau2eval_voice.tools import ToolBackend, ToolReply
from tau2eval_voice.utterances import Utterance

logger = logging.getLogger(__name__)

CUE_TEXT = "Hello"
"""What the model hears when the bot is to speak first, as in the reference evaluator."""

MAX_TOOL_CALLS = 30
"""Tool calls in a row without a word said or heard, before the bot counts as looping."""

TOOL_TIMEOUT_SECONDS = 60.0
FINISH_GRACE_SECONDS = 3.0
"""How long Finish waits for tool calls that are running."""


class ChatModel(Protocol):
    """A model, see `GatewayModel`."""

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        on_text: TextCallback,
    ) -> Completion:
        """Asks the model once; raises ModelCallError."""
        ...


class ResponseSink(Protocol):
    """Where the words of the model go: to a synthesizer, or out as text."""

    async def begin(self, utterance: Utterance) -> None:
        """The first words are about to come."""
        ...

    async def words(self, utterance: Utterance, text: str) -> None:
        """More words."""
        ...

    async def end(self, utterance: Utterance) -> None:
        """All words were written. Not called for a response that was cancelled."""
        ...


class Dialogue:
    """Context and loop of one session.

    Attributes:
        messages: The context: OpenAI chat messages, the system prompt first. Assistant messages
            hold what was said, which `retain` sets back to the words played.
        usage: Usage of each completed model call.
        ending: True from the moment the conversation is to end; nothing is asked or heard then.
        dead: True after a fatal error.

    Args:
        prompt: The system prompt, unchanged.
        model: The model to ask.
        tools: Tools with their state.
        outbox: Where events go.
        on_exit: Called once, when the model has said all and the bot ends the call; the words
            may still have to be played.
        max_tool_calls: See MAX_TOOL_CALLS.
    """

    def __init__(
        self,
        *,
        prompt: str,
        model: ChatModel,
        tools: ToolBackend,
        outbox: Outbox,
        on_exit: Callable[[voice_pb2.ExitReason.ValueType], None],
        max_tool_calls: int = MAX_TOOL_CALLS,
    ) -> None:
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": prompt}]
        self.usage: list[voice_pb2.Usage] = []
        self.ending = False
        self.dead = False
        self._model = model
        self._tools = tools
        self._tool_names = tuple(str(tool["function"]["name"]) for tool in tools.declarations)
        self._actions_seen = 0
        self._outbox = outbox
        self._on_exit = on_exit
        self._exit_reason = voice_pb2.EXIT_REASON_UNSPECIFIED
        self._hung_up = False
        self._max_tool_calls = max_tool_calls
        self._silent_tool_calls = 0
        self._tool_job: asyncio.Task[None] | None = None
        self._utterances = 0

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools as the model sees them."""
        return self._tool_names

    @property
    def owes_response(self) -> bool:
        """True when the context ends with something that the model has not answered."""
        return self.messages[-1]["role"] in ("user", "tool")

    def add_user(self, text: str) -> None:
        """Adds what the other side said."""
        self.messages.append({"role": "user", "content": text})

    def stop(self) -> None:
        """Ends the conversation from outside: no further model call."""
        self.ending = True

    async def respond(self, sink: ResponseSink) -> None:
        """Lets the model answer, with as many model and tool calls as that takes.

        Faults become BotError events. Cancelling (an interruption) keeps what was said so far and
        lets a running tool call end.

        Raises:
            asyncio.CancelledError: When cancelled.
        """
        if self.ending or self.dead:
            return
        self._silent_tool_calls = 0
        try:
            await self._settle_tools()
            # An interruption may have come between the goodbye's tool call and its end.
            while not self._hung_up and not self.ending and await self._step(sink):
                pass
        except ModelCallError as error:
            self._die(error.kind, error.message, error.code)
            return
        except Exception as error:
            logger.exception("the conversation loop failed")
            self._die(
                voice_pb2.ERROR_KIND_INTERNAL,
                f"unexpected {type(error).__name__} in the bot; its log has the details",
                "internal",
            )
            return
        if self._exit_reason and not self.ending:
            self.ending = True
            self._on_exit(self._exit_reason)

    async def settle(self, seconds: float = FINISH_GRACE_SECONDS) -> None:
        """Waits up to `seconds` for tool calls that are running."""
        if self._tool_job is not None and not self._tool_job.done():
            await asyncio.wait({self._tool_job}, timeout=seconds)

    def abandon(self) -> None:
        """Cancels what is still running, when the session is torn down."""
        if self._tool_job is not None and not self._tool_job.done():
            self._tool_job.cancel()

    def retain(self, utterance: Utterance, played: str) -> None:
        """Sets the message of an interrupted utterance back to the words that were played."""
        message = utterance.message
        if message is None:
            return
        if played or message.get("tool_calls"):
            message["content"] = played or None
            return
        for index, candidate in enumerate(self.messages):
            if candidate is message:
                del self.messages[index]
                return

    def summary(self) -> voice_pb2.Summary:
        """Returns the state at the end."""
        state = self._tools.state()
        return voice_pb2.Summary(
            db_hash=state.db_hash,
            changed_records=state.changed_records,
            actions_json=[json.dumps(action) for action in state.actions],
            context_history_json=json.dumps(self.messages),
            tools_json=json.dumps(list(self._tools.declarations)),
            usage=self.usage,
        )

    async def _step(self, sink: ResponseSink) -> bool:
        """Runs one model call and its tools; True when the model is to be asked again."""
        completion, message = await self._ask(sink)
        if completion.text.strip():
            self._silent_tool_calls = 0
        if not completion.tool_calls:
            return False
        self._silent_tool_calls += len(completion.tool_calls)
        if self._silent_tool_calls > self._max_tool_calls:
            raise ModelCallError(
                f"the model made {self._silent_tool_calls} tool calls in a row without a word",
                kind=voice_pb2.ERROR_KIND_MODEL_REQUEST,
                code="too_many_tool_calls",
            )
        assert message is not None
        self._tool_job = asyncio.create_task(self._run_tools(completion.tool_calls, message))
        await self._settle_tools()
        return not self._hung_up

    async def _ask(self, sink: ResponseSink) -> tuple[Completion, dict[str, Any] | None]:
        utterance: Utterance | None = None

        async def on_text(words: str) -> None:
            nonlocal utterance
            if utterance is None:
                self._utterances += 1
                utterance = Utterance(utterance_id=f"utterance-{self._utterances}")
                await sink.begin(utterance)
            utterance.written += words
            await sink.words(utterance, words)

        self._outbox.activity("llm", started=True)
        try:
            completion = await self._model.complete(
                list(self.messages), self._tools.declarations, on_text
            )
        except asyncio.CancelledError:
            # Interrupted: what was written up to now may have been played.
            if utterance is not None:
                self._record(utterance, utterance.written, [])
            raise
        except Exception:
            if utterance is not None:
                self._record(utterance, utterance.written, [])
                await sink.end(utterance)
            raise
        finally:
            self._outbox.activity("llm", started=False)
        self._report(completion.usage)
        message = self._record(utterance, completion.text, completion.tool_calls)
        if utterance is not None:
            await sink.end(utterance)
        return completion, message

    def _record(
        self, utterance: Utterance | None, text: str, calls: Sequence[RequestedCall]
    ) -> dict[str, Any] | None:
        """Appends the assistant message of a response, if it has anything in it."""
        if utterance is not None and utterance.closed:
            text = utterance.played().text
        if not text.strip() and not calls:
            return None
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments_json},
                }
                for call in calls
            ]
        if utterance is not None:
            utterance.message = message
        self.messages.append(message)
        return message

    def _report(self, usage: voice_pb2.Usage) -> None:
        self.usage.append(usage)
        self._outbox.event(usage=usage)
        if usage.first_token_seconds:
            self._outbox.latency("llm_first_token", usage.first_token_seconds)
        self._outbox.latency("llm", usage.latency_seconds)

    async def _settle_tools(self) -> None:
        """Waits for running tools; an interruption of the wait leaves them running."""
        job = self._tool_job
        if job is not None:
            await asyncio.shield(job)

    async def _run_tools(self, calls: Sequence[RequestedCall], message: dict[str, Any]) -> None:
        """Runs the calls of one response in order; results go right behind their message."""
        for offset, call in enumerate(calls, start=1):
            reply = await self._run_tool(call)
            at = next(index for index, entry in enumerate(self.messages) if entry is message)
            self.messages.insert(
                at + offset,
                {
                    "role": "tool",
                    "tool_call_id": call.call_id,
                    "content": json.dumps(reply.result),
                },
            )
            self._hung_up |= reply.exit_reason == voice_pb2.EXIT_REASON_AGENT_EXIT
            # The first reason stands: a handed-over call stays one when the bot then hangs up.
            if reply.exit_reason and not self._exit_reason:
                self._exit_reason = reply.exit_reason

    async def _run_tool(self, call: RequestedCall) -> ToolReply:
        self._outbox.event(
            tool_call=voice_pb2.ToolCall(
                call_id=call.call_id, name=call.name, arguments_json=call.arguments_json
            )
        )
        self._outbox.activity("tool", started=True)
        started = time.monotonic()
        try:
            reply = await self._reply(call)
        finally:
            self._outbox.activity("tool", started=False)
        seconds = time.monotonic() - started
        self._outbox.event(
            tool_result=voice_pb2.ToolResult(
                call_id=call.call_id,
                name=call.name,
                result_json=json.dumps(reply.result),
                is_error=reply.is_error,
                latency_seconds=seconds,
            )
        )
        self._outbox.latency("tool", seconds)
        if reply.action is not None:
            self._outbox.event(
                action_recorded=voice_pb2.ActionRecorded(action_json=json.dumps(reply.action))
            )
        return reply

    async def _reply(self, call: RequestedCall) -> ToolReply:
        """Runs a call. What the model got wrong goes back to it as data."""
        if call.name not in self._tool_names:
            return _refusal(
                "unknown_tool",
                f"There is no tool named {call.name!r}.",
                tools=list(self._tool_names),
            )
        try:
            arguments = json.loads(call.arguments_json)
        except (ValueError, RecursionError) as error:
            return _refusal("validation_error", f"The arguments are no JSON: {error}")
        if not isinstance(arguments, dict):
            return _refusal("validation_error", "The arguments are no JSON object.")
        try:
            return await asyncio.wait_for(
                self._tools.call(call.name, arguments), TOOL_TIMEOUT_SECONDS
            )
        except TimeoutError:
            return _refusal("timeout", f"{call.name} took over {TOOL_TIMEOUT_SECONDS:.0f} s.")

    def _die(self, kind: voice_pb2.ErrorKind.ValueType, message: str, code: str) -> None:
        self.dead = True
        self._outbox.error(kind, message, code=code)


def _refusal(error_type: str, message: str, **more: Any) -> ToolReply:
    return ToolReply(
        {"status": "error", "error_type": error_type, "message": message, **more}, is_error=True
    )
