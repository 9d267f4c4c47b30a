"""Calls for the pages' tests: records that are scored by the scorer's own code."""

import json

import numpy as np

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_scorer.artifacts import attempt_files
from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.judge import AssertionVerdict, JudgeResult
from tau2eval_scorer.rates import Row
from tau2eval_scorer.record import RecordReader
from tau2eval_scorer.report import MemoryFiles, render_scenario
from tau2eval_scorer.scoring import score
from tau2eval_scorer.spool import wav_header
from tau2eval_scorer.store import Plan, Run
from tau2eval_scorer.summary import summarize

AGENT, USER = voice_pb2.ROLE_AGENT, voice_pb2.ROLE_USER
RATE = 8000
GOLD, REFUSAL = "tau2_airline__11", "tau2_airline__41"
HOSTILE = (
    '</script><script>window.pwned = 1</script><img src=x onerror="window.pwned = 2"> \' " & '
    "{{ 7 * 7 }} --> ]]> <!--<script>"
)
CATALOG = Catalog()


def stereo(seconds, turns=(), rate=RATE):
    """A WAV file in which the caller (left) and the agent (right) sound during their turns."""
    frames = int(seconds * rate)
    samples = np.zeros((frames, 2), dtype="<i2")
    for turn in turns:
        first, last = int(turn.start_seconds * rate), int(turn.end_seconds * rate)
        at = np.arange(max(last - first, 0))
        sound = 9000 * np.sin(at * 0.3) * np.abs(np.sin(at / 900))
        room = samples[first:last, 0 if turn.role == USER else 1]
        room[:] = sound[: len(room)]
    return wav_header(rate, samples.nbytes) + samples.tobytes()


def turn(role, start, end, text, heard=None, **fields):
    return record_pb2.Turn(
        role=role, start_seconds=start, end_seconds=end, text=text, spoken_form=text,
        heard=text if heard is None else heard, **fields,
    )  # fmt: skip


def parts(call, seconds=14.0, sound=False):
    """The parts of a call's record, of this length and with or without its recording."""
    header = call.header()
    yield record_pb2.RecordPart(header=header)
    for item in call.events:
        yield record_pb2.RecordPart(event=item)
    if sound and call.modality == voice_pb2.MODALITY_VOICE:
        yield record_pb2.RecordPart(audio=stereo(seconds, call.turns)[44:])
    footer = call.footer()
    footer.duration_seconds = seconds
    yield record_pb2.RecordPart(footer=footer)


def event(seconds, role=AGENT, **kind):
    return record_pb2.TimedEvent(
        time_seconds=seconds, role=role, event=voice_pb2.Event(media_time_seconds=seconds, **kind)
    )


def stage(seconds, name, took):
    return event(seconds, stage_latency=voice_pb2.StageLatency(stage=name, seconds=took))


def judged(assertions, broken=(), quote="Hello", found=True, **fields):
    verdicts = tuple(
        AssertionVerdict(
            index, text, index not in broken, f"reason {index}", quote, found, (True,) * 3
        )
        for index, text in enumerate(assertions, 1)
    )
    values = {
        "status": "judged", "score": 0.75, "reason": "all of it", "verdicts": verdicts,
        "model": "scripted/judge", "prompt_version": 1, "prompt_sha256": "0" * 64,
        "assertions_sha256": "1" * 64, "votes": 3, "agreement": 1.0,
    }  # fmt: skip
    return JudgeResult(**{**values, **fields})


class Calls:
    """Makes records, scores them, and hands out their files."""

    def __init__(self, builder):
        self._builder = builder

    async def gold(self, scenario=GOLD, **fields):
        return await self._builder.gold(scenario, **fields)

    async def rich(self, scenario=GOLD, **fields):
        """A call with everything that a page shows: misheard, cut off, tools, stages, an error."""
        call = await self.gold(scenario, **fields)
        call.audio_seconds = 0
        call.turns = [
            turn(AGENT, 0.2, 2.0, "Hello, how can I help you?"),
            turn(USER, 3.0, 6.0, "My reservation is GV1N64 on May 26.",
                 "My reservation is G V 1 and 6 4 on May 26th"),
            turn(AGENT, 7.2, 9.0, "Let me look", unspoken="that up for you.", interrupted=True,
                 response_latency_seconds=1.2),
            turn(USER, 8.8, 10.0, "Please hurry."),
            turn(AGENT, 11.5, 13.0, "Done, goodbye.", "", response_latency_seconds=1.5),
        ]  # fmt: skip
        tools = [item.event for item in call.events if item.event.HasField("tool_call")]
        call.events = [stage(6.5, "stt", 0.5), stage(6.8, "llm", 0.2)]
        for at, tool in enumerate(tools):
            call.events.append(event(6.8 + at / 10, tool_call=tool.tool_call))
            result = voice_pb2.ToolResult(
                call_id=tool.tool_call.call_id, name=tool.tool_call.name,
                result_json=json.dumps({"status": "ok", "at": at}), latency_seconds=0.01,
            )  # fmt: skip
            call.events.append(event(6.85 + at / 10, tool_result=result))
        call.events += [
            stage(7.1, "tts_first_audio", 0.1),
            event(7.3, tool_call=voice_pb2.ToolCall(call_id="x", name="think", arguments_json="{")),
            event(13.0, exit=voice_pb2.Exit(reason=voice_pb2.EXIT_REASON_AGENT_EXIT)),
        ]
        return call

    async def hostile(self):
        """A call in which every text is an attack on the page."""
        call = await self.rich()
        call.stop_detail = HOSTILE
        for item in call.turns:
            item.text = item.heard = item.spoken_form = item.unspoken = HOSTILE
        call.turns[1].heard = f"x {HOSTILE} y"
        for item in call.events:
            kind = item.event.WhichOneof("event")
            if kind == "tool_call":
                item.event.tool_call.name = f"tool{HOSTILE}"
                item.event.tool_call.arguments_json = json.dumps({HOSTILE: HOSTILE})
            elif kind == "tool_result":
                item.event.tool_result.result_json = json.dumps({HOSTILE: [HOSTILE]})
        call.events.append(event(9.0, error=voice_pb2.BotError(message=HOSTILE)))
        call.settings = {"agent_model": HOSTILE, HOSTILE: HOSTILE}
        return call

    def long(self, call, turns=200, seconds=900.0):
        """The same call with many turns and long tool results."""
        step = seconds / turns
        words = "word " * 40
        call.turns = [
            turn(AGENT if at % 2 else USER, at * step, (at + 0.8) * step, words, words + "more")
            for at in range(turns)
        ]
        result = json.dumps([{"flight": "HAT001", "seats": list(range(300))}] * 30)
        call.events = []
        for at in range(turns):
            made = voice_pb2.ToolCall(call_id="same", name="search", arguments_json='{"a": 1}')
            call.events.append(event(at * step, tool_call=made))
            answer = voice_pb2.ToolResult(call_id="same", name="search", result_json=result)
            call.events.append(event(at * step + 0.1, tool_result=answer))
        return call

    def scored(self, call, judgement=None, seconds=14.0):
        reader = RecordReader()
        for part in parts(call, seconds):
            reader.feed(part)
        path = call.scenario
        return score(reader.finish(), CATALOG, path, judgement)

    def files(self, call, judgement=None, seconds=14.0):
        """The files of an attempt, its recording included where it has one."""
        files = attempt_files(self.scored(call, judgement, seconds))
        if call.modality == voice_pb2.MODALITY_VOICE:
            files["conversation_log.wav"] = stereo(seconds, call.turns)
        return files

    def page(self, files):
        return render_scenario(MemoryFiles(files))

    def summary(self, scored, trials=1, missing=(), finished_at="2026-01-01T01:00:00Z"):
        """all_metrics.json of a run of these scored calls."""
        rows = [
            Row(item.card.name, item.conversation.header.trial, item.verdict_dict(), item.metrics)
            for item in scored
        ]
        names = tuple(dict.fromkeys([*(row.scenario for row in rows), *missing]))
        plan = Plan("run-1", names, trials, {"agent_model": "scripted/gold"})
        return summarize(Run(plan, "2026-01-01T00:00:00Z", finished_at), rows)

    @staticmethod
    def cut(files, name):
        return {key: value for key, value in files.items() if key != name}

    @staticmethod
    def assertions(scenario):
        return CATALOG.card(scenario).nl_assertions
