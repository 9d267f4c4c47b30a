"""What a scenario's page shows, as plain values; the template only writes it down."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_scorer.accuracy import HEARING_SECONDS
from tau2eval_scorer.judge.quotes import plain
from tau2eval_scorer.report import events as call_events
from tau2eval_scorer.report import files as names
from tau2eval_scorer.report.events import STAGES, Moment, ToolCall
from tau2eval_scorer.report.files import AttemptFiles, as_object
from tau2eval_scorer.report.formats import clock, pretty, sentence, share_of, words
from tau2eval_scorer.report.peaks import Peaks, read_peaks
from tau2eval_scorer.report.words import Comparison, compare

MAX_RESULT_CHARS = 20_000
MAX_RESULTS_CHARS = 1_500_000
"""Longest tool result, and all of them together; events.jsonl has the rest."""
MAX_DIFFERENCES = 500
NOT_RUN = {
    "agent_lost": "the agent's bot was lost",
    "user_lost": "the caller's bot was lost",
    "user_stalled": "the caller fell silent",
    "speech_error": "recognition or synthesis failed",
    "gateway_error": "the gateway or its provider failed",
    "judge_error": "the judge failed",
    "judge_off": "no judge was asked",
    "harness_error": "the harness failed",
    "cancelled": "the call was cancelled",
}
"""What kinds of not_run mean, where a verdict says no more."""
SPEAKERS = {"agent": "Agent", "user": "Caller"}


@dataclass(frozen=True)
class TurnView:
    """A turn on the page.

    Attributes:
        number: From 1.
        played: False for words without a sound on the line.
        comparison: None in text modality, where nothing is recognised, and for words that were
            not played.
        at_the_end: The call ended before a recogniser was asked.
        stages: (name, seconds) as the agent's bot reported them.
    """

    number: int
    role: str
    speaker: str
    start: float
    end: float
    text: str
    heard: str
    unspoken: str
    interrupted: bool
    played: bool
    latency_ms: float | None
    comparison: Comparison | None
    at_the_end: bool
    stages: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Line:
    """One entry of the time line: exactly one of its three members is there."""

    seconds: float
    turn: TurnView | None = None
    call: ToolCall | None = None
    moment: Moment | None = None


def scenario_page(files: AttemptFiles) -> dict[str, Any]:
    """Returns everything that the template of a scenario's page needs.

    Raises:
        ValueError: When there is no readable metrics.json.
    """
    metrics = as_object(files.read(names.METRICS))
    if metrics is None:
        raise ValueError("there is no metrics.json")
    events = call_events.read_events(files.read(names.EVENTS))
    metadata = as_object(files.read(names.METADATA)) or {}
    reference = as_object(files.read(names.REFERENCE)) or {}
    peaks, problem = _peaks(files)
    turns = _turns(metrics, events)
    calls = call_events.tool_calls(events)
    lines = _lines(turns, calls, events)
    length = max(
        [
            float(metrics["duration_seconds"]),
            peaks.seconds if peaks else 0.0,
            *(turn.end for turn in turns),
            *(call.seconds for call in calls),
        ]
    )
    return {
        "metrics": metrics,
        "text_modality": metrics["modality"] == "text",
        "why": why(metrics),
        "notes": list(_notes(metrics)),
        "signals": _signals(metrics),
        "peaks": peaks,
        "peaks_width": share_of(peaks.seconds, length) if peaks else "0%",
        "audio_problem": problem,
        "has_audio": files.size(names.RECORDING) is not None,
        "length": length,
        "ticks": list(_ticks(length)),
        "turns": turns,
        "calls": calls,
        "lines": lines,
        "results": _results(calls),
        "diff": as_object(files.read(names.DIFFERENCES)),
        "max_differences": MAX_DIFFERENCES,
        "reference": reference.get("actions") or [],
        "judge": _judge(files, turns, calls),
        "unjudged": metadata.get("nl_assertions") or [],
        "latencies": _latencies(turns),
        "stages": STAGES,
        "sides": [("Agent", "agent"), ("Caller", "user"), ("Judge", "judge")],
        "metadata": metadata,
        "files": [(name, files.size(name)) for name in sorted(files.names())],
    }


def why(metrics: Mapping[str, Any]) -> str:
    """Returns in one sentence why a conversation passed, failed or was not run."""
    text, kind = str(metrics["explanation"]), str(metrics["not_run_kind"] or "")
    for start in ("passed, ", "failed, ", f"not run, {kind}: ", f"not run, {kind}"):
        text = text.removeprefix(start)
    return sentence(text or NOT_RUN.get(kind, "nobody noted why"))


def _notes(metrics: Mapping[str, Any]) -> Iterator[str]:
    if metrics["insufficient_agent_turns"]:
        yield (
            f"The agent completed {metrics['agent_turns']} of at least "
            f"{metrics['min_agent_turns']} turns: a failure that the rates of the signals skip."
        )
    if metrics["outcome"] == "not_run":
        yield "Not a score: it counts neither as passed nor as failed."
    if metrics["caused_by_agent"]:
        yield "The agent can bring this about itself; one of the run's rates takes it as a failure."
    if not metrics["fully_judged"] and metrics["outcome"] != "not_run":
        yield (
            "Not fully judged: the right end changes nothing in the database, and nothing judged "
            "what had to be said."
        )
    for fault in metrics.get("report_faults", ()):
        yield f"A bot's report could not be read: {fault}"


def _signals(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    buckets = {
        name: bucket for bucket, many in metrics["success_breakdown"].items() for name in many
    }
    return [
        {
            "name": name,
            "status": str(signal["status"]),
            "detail": sentence(str(signal["detail"])),
            "part": "diagnostic only" if buckets.get(name) == "excluded" else "part of the verdict",
        }
        for name, signal in metrics["signals"].items()
    ]


def _peaks(files: AttemptFiles) -> tuple[Peaks | None, str]:
    stream = files.open(names.RECORDING)
    if stream is None:
        return None, ""
    with stream:
        try:
            return read_peaks(stream), ""
        except ValueError as error:
            return None, sentence(str(error))


def _turns(metrics: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> list[TurnView]:
    turns = metrics["turns"]
    agent_starts = [float(turn["timestamp"]) for turn in turns if turn["role"] == "agent"]
    stages = iter(call_events.stages_by_turn(events, agent_starts))
    return [
        _turn(turn, number, metrics, next(stages) if turn["role"] == "agent" else {})
        for number, turn in enumerate(turns, 1)
    ]


def _turn(
    turn: Mapping[str, Any], number: int, metrics: Mapping[str, Any], stages: Mapping[str, float]
) -> TurnView:
    start, end = float(turn["timestamp"]), float(turn["end_seconds"])
    text, heard = str(turn["text"]).strip(), str(turn["heard"]).strip()
    voice = metrics["modality"] != "text"
    played = end > start if voice else bool(heard) or not turn["interrupted"]
    return TurnView(
        number=number,
        role=str(turn["role"]),
        speaker=SPEAKERS.get(str(turn["role"]), str(turn["role"])),
        start=start,
        end=end,
        text=text,
        heard=heard,
        unspoken=str(turn["unspoken"]).strip(),
        interrupted=bool(turn["interrupted"]),
        played=played,
        latency_ms=turn["latency_ms"],
        comparison=compare(text, heard) if voice and played and heard else None,
        at_the_end=not heard and end > float(metrics["duration_seconds"]) - HEARING_SECONDS,
        stages=tuple((stage, stages[stage]) for stage in STAGES if stage in stages),
    )


def _lines(
    turns: Sequence[TurnView], calls: Sequence[ToolCall], events: Sequence[Mapping[str, Any]]
) -> list[Line]:
    lines = [
        *(Line(turn.start, turn=turn) for turn in turns),
        *(Line(call.seconds, call=call) for call in calls),
        *(Line(moment.seconds, moment=moment) for moment in call_events.moments(events)),
    ]
    return sorted(lines, key=lambda line: line.seconds)


def _ticks(length: float) -> Iterator[tuple[str, str]]:
    """Yields (place, label) of some round times."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200)
    step = next((step for step in steps if length / step <= 6), 86400)
    for at in range(math.floor(length / step) + 1):
        if length and at * step / length < 0.95:
            minutes, seconds = divmod(at * step, 60)
            yield share_of(at * step, length), f"{minutes}:{seconds:02d}"


def _results(calls: Sequence[ToolCall]) -> dict[int, tuple[str, bool]]:
    """Returns each result's text by the number of its call, and whether it was cut."""
    left = MAX_RESULTS_CHARS
    found = {}
    for call in calls:
        text = pretty(call.result)
        limit = min(MAX_RESULT_CHARS, max(left, 200))
        found[call.number] = (text[:limit], len(text) > limit)
        left -= min(len(text), limit)
    return found


def _judge(
    files: AttemptFiles, turns: Sequence[TurnView], calls: Sequence[ToolCall]
) -> dict[str, Any] | None:
    """Returns judge_result.json with each verdict's place in the call; None without one."""
    result = as_object(files.read(names.JUDGE))
    if result is None:
        return None
    index = _Places(turns, calls)
    verdicts = [
        {
            **verdict,
            "place": index.find(str(verdict.get("quote") or "")),
            "for": sum(vote == verdict["passed"] for vote in verdict["votes"]),
        }
        for verdict in result.get("nl_assertion_verdicts") or ()
    ]
    return {**result, "verdicts": verdicts}


class _Places:
    """Where in the call some words are."""

    def __init__(self, turns: Sequence[TurnView], calls: Sequence[ToolCall]) -> None:
        self._texts = [
            *(
                (f" {plain(text)} ", f"turn-{turn.number}", f"{turn.speaker}, {clock(turn.start)}")
                for turn in turns
                if turn.played
                for text in (turn.text, turn.heard)
            ),
            *(
                (f" {plain(pretty(text))} ", f"call-{call.number}", f"{call.name}, {at}")
                for call in calls
                for at in (clock(call.seconds),)
                for text in (f"{call.name} {pretty(call.arguments)}", call.result)
            ),
        ]

    def find(self, quote: str) -> dict[str, str] | None:
        """Returns the first turn, else the first tool call, that has the beginning of a quote."""
        part = plain(quote.replace("…", "...").split("...")[0])
        for text, anchor, label in self._texts if part else ():
            if f" {part} " in text:
                return {"anchor": anchor, "label": label}
        return None


def _latencies(turns: Sequence[TurnView]) -> dict[str, Any]:
    """Returns the answers that have a latency, and the longest bar's length in milliseconds."""
    timed = [turn for turn in turns if turn.role == "agent" and turn.latency_ms is not None]
    values = [turn.latency_ms or 0.0 for turn in timed]
    values += [1000 * seconds for turn in timed for _, seconds in turn.stages]
    return {"turns": timed, "scale": max(values, default=0.0) or 1.0}


def title(metrics: Mapping[str, Any]) -> str:
    """Returns the heading of a page."""
    return f"{metrics['scenario_name']}, trial {metrics['trial']}"


def outcome_label(outcome: str, kind: str | None) -> str:
    """Returns "Passed", "Failed" or "Not run: agent lost"."""
    label = words(outcome).capitalize()
    return f"{label}: {words(kind)}" if kind else label
