"""Records as the bridge would send them, and a scorer to send them to."""

import asyncio
import contextlib
import json
import math
import os
import sys
from array import array
from dataclasses import dataclass, field

import pytest

from tau2eval.scorer.v1 import record_pb2, scorer_pb2, scorer_pb2_grpc
from tau2eval.voice.v1 import voice_pb2
from tau2eval_airline import (
    apply_initialization,
    call_tool,
    get_scenario,
    gold_walk,
    resolve_tools,
    session_summary,
)
from tau2eval_common.client import open_channel

AGENT, USER = voice_pb2.ROLE_AGENT, voice_pb2.ROLE_USER
RATE = 8000


def tone(seconds):
    """Stereo PCM with another tone in each channel."""
    samples = array("h")
    for at in range(int(RATE * seconds)):
        samples.append(int(8000 * math.sin(at * 0.2)))
        samples.append(int(4000 * math.sin(at * 0.5)))
    return samples.tobytes()


async def play(scenario, calls):
    """Returns (session summary, events) of an agent that makes these tool calls."""
    resources = get_scenario(scenario).agent_resources
    state = {"side": "agent", "actions": []}
    apply_initialization(state, "tau2_airline/db.json")
    tools = resolve_tools(resources.tool_domain, resources.tools, state)
    events = []
    for at, (name, arguments) in enumerate(calls):
        result = await call_tool(tools, name, arguments)
        assert not result.is_error, result.result
        events.append(
            voice_pb2.Event(
                tool_call=voice_pb2.ToolCall(
                    call_id=f"c{at}", name=name, arguments_json=json.dumps(arguments)
                )
            )
        )
        if result.action is not None:
            events.append(
                voice_pb2.Event(
                    action_recorded=voice_pb2.ActionRecorded(action_json=json.dumps(result.action))
                )
            )
    return session_summary(state), events


@dataclass
class RecordBuilder:
    """One conversation; a test changes what it is about before `parts`."""

    run_id: str = "run-1"
    scenario: str = "tau2_airline__11"
    trial: int = 0
    attempt_id: str = "attempt-1"
    stop_reason: int = record_pb2.STOP_REASON_AGENT_EXIT
    stop_detail: str = ""
    min_agent_turns: int = 2
    audio_seconds: float = 0.25
    modality: int = voice_pb2.MODALITY_VOICE
    events: list = field(default_factory=list)
    turns: list = field(default_factory=list)
    agent: voice_pb2.Summary | None = None
    user: voice_pb2.Summary | None = None
    settings: dict = field(default_factory=lambda: {"agent_model": "scripted/gold"})

    @classmethod
    async def gold(cls, scenario="tau2_airline__11", calls=None, **fields):
        """A conversation in which the agent acts as the gold list does (or makes `calls`)."""
        session, events = await play(scenario, gold_walk(scenario) if calls is None else calls)
        builder = cls(scenario=scenario, **fields)
        builder.events = [
            record_pb2.TimedEvent(time_seconds=1.0 + at / 10, role=AGENT, event=event)
            for at, event in enumerate(events)
        ]
        builder.agent = voice_pb2.Summary(
            db_hash=session.db_hash,
            changed_records=[
                voice_pb2.ChangedRecord(
                    table=change.table,
                    key=change.key,
                    record_json=json.dumps(change.record),
                    payment_operation_sizes=change.payment_operation_sizes,
                )
                for change in session.changed_records
            ],
            actions_json=[json.dumps(action) for action in session.actions],
            context_history_json='[{"role": "system", "content": "p"}]',
            tools_json="[]",
            usage=[
                voice_pb2.Usage(model="m", prompt_tokens=100, completion_tokens=10, cost_usd=0.25),
                voice_pb2.Usage(model="m", prompt_tokens=50, completion_tokens=5),
            ],
        )
        builder.user = voice_pb2.Summary(context_history_json="[]")
        builder.turns = [
            record_pb2.Turn(
                role=AGENT,
                text="Hello, how can I help you?",
                spoken_form="Hello, how can I help you?",
                heard="Hello how can I help you",
                start_seconds=0.5,
                end_seconds=2.0,
            ),
            record_pb2.Turn(
                role=USER,
                text="My reservation is GV1N64.",
                spoken_form="My reservation is G, V, one, N, six, four.",
                heard="My reservation is G V 1 and 6 4.",
                start_seconds=3.0,
                end_seconds=5.0,
            ),
            record_pb2.Turn(
                role=AGENT,
                text="Done, goodbye.",
                spoken_form="Done, goodbye.",
                heard="Done goodbye",
                start_seconds=6.25,
                end_seconds=7.0,
                response_latency_seconds=1.25,
            ),
        ]
        return builder

    def header(self):
        return record_pb2.RecordHeader(
            format_version=1,
            run_id=self.run_id,
            scenario=self.scenario,
            trial=self.trial,
            attempt_id=self.attempt_id,
            started_at="2026-01-01T00:00:00Z",
            settings_json=json.dumps(self.settings),
            versions_json='{"bridge": "0.1.0"}',
            agent_prompt="be helpful",
            user_prompt="call",
            modality=self.modality,
            recording_sample_rate_hz=RATE,
        )

    def footer(self):
        footer = record_pb2.RecordFooter(
            stop_reason=self.stop_reason,
            stop_detail=self.stop_detail,
            duration_seconds=7.5,
            turns=self.turns,
            line_quality=record_pb2.LineQuality(frames=10, frame_lateness_p99_ms=3.0),
            min_agent_turns=self.min_agent_turns,
        )
        for role, summary in ((AGENT, self.agent), (USER, self.user)):
            side = footer.sides.add(role=role, ready=voice_pb2.Ready(version="1"))
            if summary is not None:
                side.summary.CopyFrom(summary)
        return footer

    def parts(self):
        audio = tone(self.audio_seconds)
        yield record_pb2.RecordPart(header=self.header())
        middle = len(audio) // 2 + 1  # Within a sample: parts need not end on frames.
        if audio:
            yield record_pb2.RecordPart(audio=audio[:middle])
        for event in self.events:
            yield record_pb2.RecordPart(event=event)
        if audio:
            yield record_pb2.RecordPart(audio=audio[middle:])
        yield record_pb2.RecordPart(footer=self.footer())


class ScorerProcess:
    """`python -m tau2eval_scorer` and stubs to call it."""

    def __init__(self, folder, **env):
        self.folder = folder
        self._env = {
            **os.environ,
            "TAU2EVAL_SCORER_PORT": "0",
            "TAU2EVAL_SCORER_HTTP_PORT": "0",
            # Nothing listens there: a test that judges names its own gateway.
            "TAU2EVAL_SCORER_GATEWAY_ADDRESS": "127.0.0.1:1",
            "TAU2EVAL_SCORER_ARTIFACTS_DIR": str(folder),
            "TAU2EVAL_SCORER_EXIT_WITH_PARENT": "true",
            **env,
        }

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tau2eval_scorer",
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        line = await asyncio.wait_for(self.process.stdout.readline(), 60)
        self.addresses = json.loads(line)
        self.channel = open_channel(self.addresses["grpc"])
        self.runs = scorer_pb2_grpc.RunServiceStub(self.channel)
        self.scenarios = scorer_pb2_grpc.ScenarioServiceStub(self.channel)
        return self

    async def kill(self):
        self.process.kill()
        await self.process.wait()

    async def __aexit__(self, *_):
        await self.channel.close()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), 30)
            except TimeoutError:
                await self.kill()

    async def create(
        self, run_id="run-1", scenarios=("tau2_airline__11",), trials=1, judge=None, **settings
    ):
        plan = scorer_pb2.RunPlan(
            run_id=run_id,
            scenarios=scenarios,
            trials=trials,
            settings_json=json.dumps(settings),
            judge=judge,
        )
        return await self.runs.CreateRun(scorer_pb2.CreateRunRequest(plan=plan), timeout=30)

    async def submit(self, parts):
        requests = (scorer_pb2.SubmitConversationRequest(part=part) for part in parts)
        response = await self.runs.SubmitConversation(requests, timeout=60)
        return response.verdict

    async def get(self, run_id="run-1"):
        return await self.runs.GetRun(scorer_pb2.GetRunRequest(run_id=run_id), timeout=30)

    async def finish(self, run_id="run-1"):
        return await self.runs.FinishRun(scorer_pb2.FinishRunRequest(run_id=run_id), timeout=30)

    async def artifacts(self, run_id="run-1", scenario="", trial=0, attempt_id=""):
        files, open_path = {}, None
        request = scorer_pb2.GetArtifactsRequest(
            run_id=run_id, scenario=scenario, trial=trial, attempt_id=attempt_id
        )
        async for message in self.runs.GetArtifacts(request, timeout=30):
            assert open_path in (None, message.path)
            files[message.path] = files.get(message.path, b"") + message.chunk
            assert len(message.chunk) <= 256 * 1024
            open_path = None if message.last else message.path
        assert open_path is None
        return files


@pytest.fixture
def builder():
    return RecordBuilder


@pytest.fixture
def scorer(tmp_path):
    """Makes scorer processes over one folder: `async with scorer() as s`."""
    return lambda **env: ScorerProcess(tmp_path / "runs", **env)
