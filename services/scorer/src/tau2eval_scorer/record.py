"""A conversation record as one immutable value, built from the parts that travel.

The parts come in the order of record.proto: header, events and audio, footer. What the bridge
itself writes (order, times, names) is refused when it is wrong; what a bot reports (its JSON) is
kept as it is and its faults are listed, because a broken report is a finding and not a reason to
lose the conversation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import CapacityExhausted, InvalidInput
from tau2eval_scorer.jsonio import parse_json, parse_object
from tau2eval_scorer.names import check_name
from tau2eval_scorer.protos import enum_name, to_dict

FORMAT_VERSION = 1
"""Newest record format that this reader understands."""

MAX_SECONDS = 86_400.0
"""No time in a record is later than a day."""

BYTES_PER_FRAME = 4
"""Two channels of signed 16-bit samples."""


class Role(StrEnum):
    """A side of the conversation."""

    AGENT = "agent"
    USER = "user"


class StopReason(StrEnum):
    """Why a conversation ended; the names of record.proto in lower case."""

    AGENT_EXIT = "agent_exit"
    TRANSFER = "transfer"
    TIMEOUT = "timeout"
    AGENT_STALLED = "agent_stalled"
    AGENT_ERROR = "agent_error"
    USER_STALLED = "user_stalled"
    AGENT_LOST = "agent_lost"
    USER_LOST = "user_lost"
    SPEECH_ERROR = "speech_error"
    GATEWAY_ERROR = "gateway_error"
    HARNESS_ERROR = "harness_error"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Header:
    """Identity and settings of a conversation; see RecordHeader."""

    run_id: str
    scenario: str
    trial: int
    attempt_id: str
    started_at: str
    settings: Mapping[str, Any]
    versions: Mapping[str, Any]
    agent_prompt: str
    user_prompt: str
    modality: str
    sample_rate_hz: int


@dataclass(frozen=True)
class TimedEvent:
    """Something that happened in a bot, at a time on the bridge's clock in seconds."""

    time_seconds: float
    role: Role
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """One utterance on the line; times in seconds on the bridge's clock."""

    role: Role
    text: str
    heard: str
    spoken_form: str
    start_seconds: float
    end_seconds: float
    interrupted: bool
    unspoken: str
    response_latency_seconds: float | None


@dataclass(frozen=True)
class Usage:
    """One model call of a bot."""

    model: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost_usd: float | None


@dataclass(frozen=True)
class Change:
    """A record that the bot reports as changed, still as JSON text."""

    table: str
    key: str
    record_json: str
    payment_operation_sizes: tuple[int, ...]


@dataclass(frozen=True)
class Summary:
    """What a bot reported at its end. `db_hash` is empty without a database."""

    db_hash: str
    changes: tuple[Change, ...]
    actions: tuple[Mapping[str, Any], ...]
    context: Any
    tools: Any
    usage: tuple[Usage, ...]


@dataclass(frozen=True)
class Side:
    """One bot. `summary` is None when it was lost before it could report."""

    role: Role
    summary: Summary | None
    ready: Mapping[str, Any]


@dataclass(frozen=True)
class Conversation:
    """A whole record without its audio.

    Attributes:
        audio_frames: Length of the recording in frames of `header.sample_rate_hz`.
        report_faults: What in the bots' reports could not be read, one line each.
    """

    header: Header
    events: tuple[TimedEvent, ...]
    turns: tuple[Turn, ...]
    sides: Mapping[Role, Side]
    stop_reason: StopReason
    stop_detail: str
    duration_seconds: float
    line_quality: Mapping[str, Any]
    min_agent_turns: int
    audio_frames: int
    report_faults: tuple[str, ...] = ()

    def summary(self, role: Role) -> Summary | None:
        """Returns what a side reported, or None."""
        side = self.sides.get(role)
        return side.summary if side else None

    def usage(self, role: Role) -> tuple[Usage, ...]:
        """Returns the model calls of a side: as reported, or from its events when it was lost."""
        summary = self.summary(role)
        if summary is not None:
            return summary.usage
        return tuple(
            _usage_from(event.data)
            for event in self.events
            if event.role is role and event.kind == "usage"
        )

    @property
    def agent_turns(self) -> int:
        """The agent's completed turns: utterances in which words were said, and in voice heard."""
        return sum(
            1
            for turn in self.turns
            if turn.role is Role.AGENT
            and turn.text.strip()
            and (self.header.modality != "voice" or turn.end_seconds > turn.start_seconds)
        )


@dataclass(frozen=True)
class RecordLimits:
    """Bounds of one record.

    Attributes:
        max_bytes: All parts together, audio included.
        max_text_bytes: All parts but the audio; these are held in memory.
    """

    max_bytes: int = 512 * 1024 * 1024
    max_text_bytes: int = 64 * 1024 * 1024


@dataclass
class RecordReader:
    """Takes the parts of one record in order; audio is only counted, never kept."""

    limits: RecordLimits = field(default_factory=RecordLimits)
    header: Header | None = None
    _events: list[TimedEvent] = field(default_factory=list)
    _footer: record_pb2.RecordFooter | None = None
    _bytes: int = 0
    _text_bytes: int = 0
    _audio_bytes: int = 0

    def feed(self, part: record_pb2.RecordPart) -> None:
        """Takes the next part.

        Raises:
            InvalidInput: When it is out of order or wrong.
            CapacityExhausted: When the record is larger than its limits.
        """
        kind = part.WhichOneof("part")
        if kind is None:
            raise _bad("a part is empty")
        if self._footer is not None:
            raise _bad(f"{kind} after the footer")
        if (kind == "header") != (self.header is None):
            raise _bad("the header must come first, and once")
        self._count(part.ByteSize(), kind == "audio")
        if kind == "header":
            self.header = _header(part.header)
        elif kind == "event":
            self._events.append(_event(part.event))
        elif kind == "audio":
            self._audio_bytes += len(part.audio)
        else:
            self._footer = part.footer

    def finish(self) -> Conversation:
        """Returns the conversation after the last part.

        Raises:
            InvalidInput: When the record is incomplete or its footer is wrong.
        """
        if self.header is None:
            raise _bad("the record is empty")
        footer = self._footer
        if footer is None:
            raise _bad("the footer is missing: the record was cut off")
        if self._audio_bytes % BYTES_PER_FRAME:
            raise _bad("the audio ends within a frame of two 16-bit samples")
        if self._audio_bytes and not self.header.sample_rate_hz:
            raise _bad("there is audio but recording_sample_rate_hz is 0")
        stop_reason = _stop_reason(footer.stop_reason)
        if footer.min_agent_turns < 0:
            raise _bad("min_agent_turns is negative")
        faults: list[str] = []
        return Conversation(
            header=self.header,
            events=tuple(sorted(self._events, key=lambda event: event.time_seconds)),
            turns=tuple(
                sorted(
                    (_turn(turn, at) for at, turn in enumerate(footer.turns)),
                    key=lambda turn: turn.start_seconds,
                )
            ),
            sides=_sides(footer.sides, faults),
            stop_reason=stop_reason,
            stop_detail=footer.stop_detail,
            duration_seconds=_seconds("duration_seconds", footer.duration_seconds),
            line_quality=_line_quality(footer.line_quality),
            min_agent_turns=footer.min_agent_turns,
            audio_frames=self._audio_bytes // BYTES_PER_FRAME,
            report_faults=tuple(faults),
        )

    def _count(self, size: int, audio: bool) -> None:
        self._bytes += size
        if not audio:
            self._text_bytes += size
        if self._bytes > self.limits.max_bytes or self._text_bytes > self.limits.max_text_bytes:
            raise CapacityExhausted(
                f"the record is larger than {self.limits.max_bytes} bytes in all or "
                f"{self.limits.max_text_bytes} bytes without audio",
                reason="RECORD_TOO_LARGE",
            )


def _bad(message: str) -> InvalidInput:
    return InvalidInput(f"conversation record: {message}", reason="BAD_RECORD")


def _seconds(what: str, value: float) -> float:
    if not math.isfinite(value) or not 0 <= value <= MAX_SECONDS:
        raise _bad(f"{what} is {value}, not a time of 0 to {MAX_SECONDS:.0f} s")
    return value


def _role(what: str, value: int) -> Role:
    if value == voice_pb2.ROLE_AGENT:
        return Role.AGENT
    if value == voice_pb2.ROLE_USER:
        return Role.USER
    raise _bad(f"{what} has no role")


def _stop_reason(value: int) -> StopReason:
    name = enum_name(record_pb2.StopReason.DESCRIPTOR, value, "STOP_REASON_")
    try:
        return StopReason(name)
    except ValueError:
        raise _bad(f"stop_reason {name} is not one") from None


def _object(what: str, text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except ValueError as error:
        raise _bad(f"{what}: {error}") from None


def _header(header: record_pb2.RecordHeader) -> Header:
    if not 1 <= header.format_version <= FORMAT_VERSION:
        raise _bad(
            f"format_version is {header.format_version}; this scorer reads 1 to {FORMAT_VERSION}"
        )
    if header.trial < 0:
        raise _bad("trial is negative")
    rate = header.recording_sample_rate_hz
    if rate and not 4_000 <= rate <= 192_000:
        raise _bad(f"recording_sample_rate_hz is {rate}")
    modality = enum_name(voice_pb2.Modality.DESCRIPTOR, header.modality, "MODALITY_")
    if modality not in ("voice", "text"):
        raise _bad("modality is neither voice nor text")
    return Header(
        run_id=check_name("run_id", header.run_id),
        scenario=check_name("scenario", header.scenario),
        trial=header.trial,
        attempt_id=check_name("attempt_id", header.attempt_id),
        started_at=header.started_at,
        settings=_object("settings_json", header.settings_json),
        versions=_object("versions_json", header.versions_json),
        agent_prompt=header.agent_prompt,
        user_prompt=header.user_prompt,
        modality=modality,
        sample_rate_hz=rate,
    )


def _event(event: record_pb2.TimedEvent) -> TimedEvent:
    kind = event.event.WhichOneof("event")
    if kind is None:
        raise _bad("an event says nothing")
    return TimedEvent(
        time_seconds=_seconds(f"time of a {kind} event", event.time_seconds),
        role=_role(f"a {kind} event", event.role),
        kind=kind,
        data=to_dict(getattr(event.event, kind)),
    )


def _turn(turn: record_pb2.Turn, at: int) -> Turn:
    what = f"turn {at}"
    start = _seconds(f"start of {what}", turn.start_seconds)
    end = _seconds(f"end of {what}", turn.end_seconds)
    if end < start:
        raise _bad(f"{what} ends before it starts")
    latency = None
    if turn.HasField("response_latency_seconds"):
        latency = _seconds(f"latency of {what}", turn.response_latency_seconds)
    return Turn(
        role=_role(what, turn.role),
        text=turn.text,
        heard=turn.heard,
        spoken_form=turn.spoken_form,
        start_seconds=start,
        end_seconds=end,
        interrupted=turn.interrupted,
        unspoken=turn.unspoken,
        response_latency_seconds=latency,
    )


def _line_quality(quality: record_pb2.LineQuality) -> Mapping[str, Any]:
    values = to_dict(quality)
    for name, value in values.items():
        if not math.isfinite(value) or value < 0:
            raise _bad(f"line_quality.{name} is {value}")
    return values


def _sides(sides: Any, faults: list[str]) -> dict[Role, Side]:
    found: dict[Role, Side] = {}
    for side in sides:
        role = _role("a side", side.role)
        if role in found:
            raise _bad(f"two sides are the {role}")
        summary = _summary(role, side.summary, faults) if side.HasField("summary") else None
        found[role] = Side(role, summary, to_dict(side.ready))
    return found


def _summary(role: Role, summary: voice_pb2.Summary, faults: list[str]) -> Summary:
    actions: list[Mapping[str, Any]] = []
    for at, text in enumerate(summary.actions_json):
        value = _reported(f"{role}: action {at}", text, faults)
        if isinstance(value, dict):
            actions.append(value)
        elif value is not None:
            faults.append(f"{role}: action {at} is not a JSON object")
    return Summary(
        db_hash=summary.db_hash.strip().lower(),
        changes=tuple(
            Change(
                change.table,
                change.key,
                change.record_json,
                tuple(change.payment_operation_sizes),
            )
            for change in summary.changed_records
        ),
        actions=tuple(actions),
        context=_reported(f"{role}: context history", summary.context_history_json, faults),
        tools=_reported(f"{role}: tools", summary.tools_json, faults),
        usage=tuple(_usage_from(to_dict(usage)) for usage in summary.usage),
    )


def _reported(what: str, text: str, faults: list[str]) -> Any:
    if not text:
        return None
    try:
        return parse_json(text)
    except ValueError as error:
        faults.append(f"{what} is not JSON: {error}")
        return None


def _usage_from(data: Mapping[str, Any]) -> Usage:
    cost = data.get("cost_usd")
    return Usage(
        model=str(data["model"]),
        prompt_tokens=max(0, int(data["prompt_tokens"])),
        completion_tokens=max(0, int(data["completion_tokens"])),
        cached_tokens=max(0, int(data["cached_tokens"])),
        cost_usd=cost if cost is not None and math.isfinite(cost) and cost >= 0 else None,
    )
