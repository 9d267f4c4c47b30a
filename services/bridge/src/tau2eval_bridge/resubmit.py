"""Submits a kept record to the scorer: `python -m tau2eval_bridge.resubmit FILE`.

A record without its end, of a bridge that was killed in mid-call, is closed as harness_error first.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import tempfile
from pathlib import Path

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval_bridge.scorer_client import ScorerClient, SubmitFailed
from tau2eval_bridge.settings import BridgeSettings
from tau2eval_bridge.spool import MAGIC, SpoolError, read_spool
from tau2eval_common.client import open_channel
from tau2eval_common.settings import load_settings_or_exit

_USAGE = """usage: python -m tau2eval_bridge.resubmit FILE

Submits a record that the bridge kept to the scorer at TAU2EVAL_BRIDGE_SCORER_ADDRESS, prints the
verdict as JSON, and removes the file. Exit codes: 0 submitted, 1 not submitted, 2 wrong use."""


def closed_record(path: Path) -> Path:
    """Returns the file itself, or one beside it that closes a record without a footer.

    Raises:
        SpoolError: When it is no record, or has no header.
        OSError: When it cannot be read.
    """
    header: record_pb2.RecordHeader | None = None
    complete = False
    audio = 0
    newest = 0.0
    for part in read_spool(path):
        kind = part.WhichOneof("part")
        if kind == "header":
            header = part.header
        elif kind == "audio":
            audio += len(part.audio)
        elif kind == "event":
            newest = max(newest, part.event.time_seconds)
        complete = kind == "footer"
    if header is None:
        raise SpoolError(f"{path} holds no header; nothing of the call was recorded")
    if complete:
        return path
    rate = header.recording_sample_rate_hz
    footer = record_pb2.RecordFooter(
        stop_reason=record_pb2.STOP_REASON_HARNESS_ERROR,
        stop_detail="the bridge ended before this record was complete",
        duration_seconds=audio / 4 / rate if rate else newest,
    )
    number, name = tempfile.mkstemp(prefix=f"{path.stem}-", suffix=".closed", dir=path.parent)
    with os.fdopen(number, "wb") as file:
        file.write(MAGIC)
        for part in (*read_spool(path), record_pb2.RecordPart(footer=footer)):
            data = part.SerializeToString()
            file.write(struct.pack(">I", len(data)))
            file.write(data)
    return Path(name)


async def resubmit(path: Path, settings: BridgeSettings) -> scorer_pb2.Verdict:
    """Submits a spool file and removes it once the scorer has it.

    Raises:
        SubmitFailed: When the scorer does not take it; the file stays.
        SpoolError: When the file is no record.
        OSError: When it cannot be read.
    """
    closed = await asyncio.to_thread(closed_record, path)
    try:
        async with open_channel(settings.scorer_address) as channel:
            scorer = ScorerClient(
                channel,
                submit_timeout=settings.submit_timeout_seconds,
                submit_retries=settings.submit_retries,
                submit_backoff=settings.submit_backoff_seconds,
            )
            verdict = await scorer.submit(closed)
    finally:
        if closed != path:
            await asyncio.to_thread(closed.unlink, missing_ok=True)
    await asyncio.to_thread(path.unlink, missing_ok=True)
    return verdict


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if arguments in (["--help"], ["-h"]):
        print(_USAGE)
        return 0
    if len(arguments) != 1:
        print(_USAGE, file=sys.stderr)
        return 2
    settings = load_settings_or_exit(BridgeSettings)
    try:
        verdict = asyncio.run(resubmit(Path(arguments[0]), settings))
    except (SubmitFailed, SpoolError, OSError) as error:
        print(f"resubmit: {error}", file=sys.stderr)
        return 1
    outcome = scorer_pb2.Outcome.Name(verdict.outcome).removeprefix("OUTCOME_").lower()
    print(
        json.dumps(
            {
                "run_id": verdict.run_id,
                "scenario": verdict.scenario,
                "trial": verdict.trial,
                "outcome": outcome,
                "kind": verdict.not_run_kind,
                "explanation": verdict.explanation,
            }
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
