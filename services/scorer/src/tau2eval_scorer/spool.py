"""Where a record lies while it arrives: its parts on disk, its audio as a WAV file.

Nothing here is visible to a reader of the artifacts: the folder is below artifacts_dir/.incoming,
on the same file system, and is moved into place when the record is whole.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from google.protobuf import proto
from google.protobuf.message import DecodeError

from tau2eval.scorer.v1 import record_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_scorer.jsonio import dump_line, parse_object, redact
from tau2eval_scorer.record import BYTES_PER_FRAME, Conversation, RecordLimits, RecordReader

INCOMING = ".incoming"
RECORD_FILE = "record.pb"
WAV_FILE = "conversation_log.wav"
STALE_SECONDS = 6 * 3600.0
_WAV_HEADER_BYTES = 44


class Spool:
    """Takes a record part by part; a context manager that leaves nothing behind.

    Args:
        artifacts_dir: The folder of the runs.
        limits: Bounds of the record.
    """

    def __init__(self, artifacts_dir: Path, limits: RecordLimits) -> None:
        self.folder = artifacts_dir / INCOMING / uuid.uuid4().hex
        self.reader = RecordReader(limits)
        self._record: BinaryIO | None = None
        self._wav: BinaryIO | None = None
        self._audio_bytes = 0

    def __enter__(self) -> Spool:
        self.folder.mkdir(parents=True)
        self._record = (self.folder / RECORD_FILE).open("wb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._close()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def feed(self, part: record_pb2.RecordPart) -> None:
        """Takes the next part.

        Raises:
            InvalidInput: When it is out of order or wrong.
            CapacityExhausted: When the record is larger than its limits.
        """
        self.reader.feed(part)
        if part.WhichOneof("part") == "audio":
            self._feed_audio(part.audio)
            return
        if part.WhichOneof("part") == "header" and part.header.settings_json:
            kept = record_pb2.RecordPart()
            kept.CopyFrom(part)
            settings = redact(parse_object(part.header.settings_json))
            kept.header.settings_json = dump_line(settings).decode().strip()
            part = kept
        assert self._record is not None
        # The generated stubs and protobuf's own type of a stream do not know each other.
        proto.serialize_length_prefixed(part, self._record)  # type: ignore[arg-type]

    def finish(self) -> Conversation:
        """Closes the files and returns the conversation.

        Raises:
            InvalidInput: When the record is incomplete or its footer is wrong.
        """
        conversation = self.reader.finish()
        if conversation.header.modality == "voice" and conversation.header.sample_rate_hz:
            self._open_wav()
        self._close()
        return conversation

    def _feed_audio(self, pcm: bytes) -> None:
        self._open_wav()
        assert self._wav is not None
        self._wav.write(pcm)
        self._audio_bytes += len(pcm)

    def _open_wav(self) -> None:
        if self._wav is None:
            self._wav = (self.folder / WAV_FILE).open("wb")
            self._wav.write(bytes(_WAV_HEADER_BYTES))

    def _close(self) -> None:
        if self._wav is not None:
            header = self.reader.header
            rate = header.sample_rate_hz if header else 0
            with contextlib.closing(self._wav):
                self._wav.seek(0)
                self._wav.write(wav_header(rate, self._audio_bytes))
            self._wav = None
        if self._record is not None:
            self._record.close()
            self._record = None


def wav_header(rate_hz: int, data_bytes: int) -> bytes:
    """Returns the 44-byte header of a stereo 16-bit PCM file."""
    return b"".join(
        (
            b"RIFF",
            struct.pack("<I", 36 + data_bytes),
            b"WAVEfmt ",
            struct.pack(
                "<IHHIIHH", 16, 1, 2, rate_hz, rate_hz * BYTES_PER_FRAME, BYTES_PER_FRAME, 16
            ),
            b"data",
            struct.pack("<I", data_bytes),
        )
    )


def read_record(path: Path, wav_bytes: int, limits: RecordLimits | None = None) -> Conversation:
    """Reads a stored record again, so that it can be scored again.

    Args:
        path: The record.pb.
        wav_bytes: Size of the recording beside it; 0 without one.
        limits: Bounds; the defaults when None.

    Raises:
        InvalidInput: When the stored record is damaged.
        OSError: When it is not there.
    """
    reader = RecordReader(limits or RecordLimits())
    with path.open("rb") as stream:
        for part in _stored_parts(stream):
            reader.feed(part)
    conversation = reader.finish()
    frames = max(0, wav_bytes - _WAV_HEADER_BYTES) // BYTES_PER_FRAME
    return replace(conversation, audio_frames=frames)


def remove_stale(artifacts_dir: Path, older_than_seconds: float = STALE_SECONDS) -> int:
    """Removes what a killed process left in .incoming, and returns how many folders that were."""
    removed = 0
    incoming = artifacts_dir / INCOMING
    if not incoming.is_dir():
        return 0
    for folder in incoming.iterdir():
        files = [folder, *(folder.iterdir() if folder.is_dir() else ())]
        with contextlib.suppress(OSError):
            newest = max(file.stat().st_mtime for file in files)
            if time.time() - newest > older_than_seconds:
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
    return removed


def _stored_parts(stream: BinaryIO) -> Iterator[record_pb2.RecordPart]:
    while True:
        try:
            part: Any = proto.parse_length_prefixed(record_pb2.RecordPart, stream)  # type: ignore[arg-type]
        except (DecodeError, ValueError, IndexError) as error:
            raise InvalidInput(f"stored record: {error}", reason="BAD_RECORD") from None
        if part is None:
            return
        yield part
