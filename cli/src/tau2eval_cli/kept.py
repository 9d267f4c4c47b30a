"""Records that a bridge of ours kept since the scorer did not take them.

The bridge's spool file is a mark of eight bytes and then RecordParts, each behind its length (4
bytes, big endian).
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from google.protobuf.message import DecodeError

from tau2eval.scorer.v1 import record_pb2
from tau2eval_cli.environment import child_environment
from tau2eval_cli.services import BRIDGE
from tau2eval_cli.trials import Trial

MAGIC = b"t2erec\x00\x01"
SUBMIT_SECONDS = 600.0
_LENGTH = struct.Struct(">I")
_MAX_PART_BYTES = 32 * 1024 * 1024


def whole_record(path: Path) -> record_pb2.RecordHeader | None:
    """Returns the header of a spool file; None when it is not one, or its end is missing."""
    header: record_pb2.RecordHeader | None = None
    last = ""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return None
            while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
                (length,) = _LENGTH.unpack(head)
                if length > _MAX_PART_BYTES or len(data := file.read(length)) < length:
                    return None
                part = record_pb2.RecordPart.FromString(data)
                last = part.WhichOneof("part") or ""
                if last == "header":
                    header = part.header
    except (OSError, DecodeError):
        return None
    return header if last == "footer" else None


class SpoolFolder:
    """The kept records of one run; whoever asks for a trial's must hold the claim on it.

    Args:
        folder: The bridge's folder of records.
        run_id: The run.
        scorer_address: Where they are submitted.
        environ: Environment of this command.
        say: Told what was submitted.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        scorer_address: str,
        environ: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._run_id = run_id
        self._scorer_address = scorer_address
        self._environ = environ
        self._say = say
        self._known: dict[Path, Trial | None] = {}

    async def submit(self, trial: Trial) -> int:
        """Submits the whole records of a trial again and returns how many were taken."""
        taken = 0
        for path in await asyncio.to_thread(self._of, trial):
            taken += await self._resubmit(path, trial)
        return taken

    def _of(self, trial: Trial) -> list[Path]:
        found = []
        for path in sorted(self._folder.glob("*.record")):
            if self._known.get(path) is None:
                header = whole_record(path)
                mine = header is not None and header.run_id == self._run_id
                self._known[path] = (
                    Trial(header.scenario, header.trial) if header and mine else None
                )
            if self._known[path] == trial:
                found.append(path)
        return found

    async def _resubmit(self, path: Path, trial: Trial) -> bool:
        environment = child_environment(
            BRIDGE,
            self._environ,
            forced={
                BRIDGE.key("scorer_address"): self._scorer_address,
                BRIDGE.key("submit_retries"): "1",
            },
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{BRIDGE.module}.resubmit", os.fspath(path)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(SUBMIT_SECONDS):
                code = await process.wait()
        except TimeoutError:
            code = 1
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code == 0:
            self._say(
                f"{trial.label(True)}: a record that had been kept was submitted ({path.name})"
            )
        return code == 0
