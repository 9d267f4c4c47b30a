"""One recogniser and one synthesiser per process, shared by all its sessions."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from loguru import logger

from tau2eval_voice.speech.backends import (
    Pcm,
    Recognizer,
    Synthesizer,
    Transcript,
    create_recognizer,
    create_synthesizer,
)
from tau2eval_voice.speech.errors import SpeechError, SpeechErrorKind, SpeechSetupError
from tau2eval_voice.speech.settings import SpeechSettings

__all__ = ["SpeechRuntime", "split_for_synthesis"]

T = TypeVar("T")


class SpeechRuntime:
    """Runs speech jobs of any number of sessions on few threads, first come, first served.

    Jobs wait in one queue for recognition and one for synthesis. A caller that is cancelled while
    its job waits takes the job out of the queue; a job that already runs ends by itself and its
    result is dropped, and only then is its thread free again. Models are loaded at the first job,
    or by `warm_up`, on a worker thread.

    Use `aclose` (or `async with`) at the end. All methods belong to one event loop's thread,
    except `close`.
    """

    def __init__(
        self,
        settings: SpeechSettings,
        *,
        recognizer_factory: Callable[[str, SpeechSettings], Recognizer] = create_recognizer,
        synthesizer_factory: Callable[[str, SpeechSettings], Synthesizer] = create_synthesizer,
    ) -> None:
        """Starts nothing yet.

        Args:
            settings: Back ends, threads and limits.
            recognizer_factory: Makes the recogniser; for tests and back ends of your own.
            synthesizer_factory: Makes the synthesiser.
        """
        self.settings = settings
        niceness = settings.worker_niceness
        self._recognition = _Workers(
            "recognition",
            settings.recognizer,
            settings.recognizer_threads,
            niceness,
            lambda: recognizer_factory(settings.recognizer, settings),
        )
        self._synthesis = _Workers(
            "synthesis",
            settings.synthesizer,
            settings.synthesizer_threads,
            niceness,
            lambda: synthesizer_factory(settings.synthesizer, settings),
        )

    async def __aenter__(self) -> SpeechRuntime:
        """Returns itself; nothing is loaded yet."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Closes the runtime."""
        await self.aclose()

    async def warm_up(self) -> None:
        """Loads both models and runs each once, so that the first call meets them ready.

        Raises:
            SpeechSetupError: A package or model file is missing or altered, or there is no such
                back end or voice.
            SpeechError: A model does not run.
        """
        await asyncio.gather(self._recognition.load(), self._synthesis.load())
        audio = await self.synthesize("Ready.")
        await self.transcribe(audio.samples, audio.sample_rate_hz)

    async def voices(self) -> tuple[str, ...]:
        """Names of the synthesiser's voices; loads it if it is not loaded yet."""
        return (await self._synthesis.load()).voices

    async def transcribe(self, pcm: bytes, sample_rate_hz: int) -> Transcript:
        """Recognises the words of one segment.

        Args:
            pcm: Mono signed 16-bit little-endian samples. Of audio longer than
                `max_utterance_seconds` the end is used.
            sample_rate_hz: Its rate in hertz.

        Raises:
            SpeechError: It failed, took too long, or the runtime is closed.
        """
        limit = int(self.settings.max_utterance_seconds * sample_rate_hz) * 2
        if len(pcm) > limit:
            logger.warning(
                "segment of {:.0f} s cut to its last {:.0f} s",
                len(pcm) / 2 / sample_rate_hz,
                self.settings.max_utterance_seconds,
            )
            pcm = pcm[-limit:]
        return await self._recognition.run(
            lambda recognizer: recognizer.transcribe(pcm, sample_rate_hz),
            self.settings.job_timeout_seconds,
        )

    async def synthesize(
        self, text: str, voice: str | None = None, sample_rate_hz: int | None = None
    ) -> Pcm:
        """Synthesises a spoken form, as one piece of audio with trimmed edges.

        Args:
            text: What to say, as `to_spoken` returns it. Nothing to say gives no samples.
            voice: Name of the voice; None: the configured one.
            sample_rate_hz: Wanted rate; None: the synthesiser's own.

        Raises:
            SpeechError: It failed, took too long, or the runtime is closed.
            SpeechSetupError: There is no such voice.
        """
        pieces = [piece async for piece in self.stream(text, voice, sample_rate_hz)]
        rate = pieces[0].sample_rate_hz if pieces else sample_rate_hz or 24_000
        return Pcm(b"".join(piece.samples for piece in pieces), rate)

    async def stream(
        self, text: str, voice: str | None = None, sample_rate_hz: int | None = None
    ) -> AsyncIterator[Pcm]:
        """Like `synthesize`, in pieces as soon as each is ready; long text is split first."""
        chosen = voice or self.settings.voice
        for part in split_for_synthesis(text, self.settings.max_characters):
            pcm = await self._synthesis.run(
                lambda synthesizer, part=part: self._say(  # type: ignore[misc]
                    synthesizer, part, chosen, sample_rate_hz
                ),
                self.settings.job_timeout_seconds,
            )
            if pcm.samples:
                yield pcm

    async def aclose(self) -> None:
        """Refuses new jobs, drops waiting ones, and waits for the running ones."""
        self.close(wait=False)
        await asyncio.to_thread(self.close)

    def close(self, *, wait: bool = True) -> None:
        """Refuses new jobs and drops waiting ones; may be called again.

        Args:
            wait: Block until the running jobs are done.
        """
        self._recognition.close(wait=wait)
        self._synthesis.close(wait=wait)

    def _say(
        self, synthesizer: Synthesizer, text: str, voice: str, sample_rate_hz: int | None
    ) -> Pcm:
        """Synthesises, trims and resamples, on a worker thread."""
        from tau2eval_voice.speech.audio import resample, to_float, to_pcm, trim_silence

        raw = synthesizer.synthesize(text, voice)
        samples = trim_silence(
            to_float(raw.samples), raw.sample_rate_hz, self.settings.edge_silence_seconds
        )
        rate = sample_rate_hz or raw.sample_rate_hz
        return Pcm(to_pcm(resample(samples, raw.sample_rate_hz, rate)), rate)


B = TypeVar("B")


class _Workers(Generic[B]):
    """The threads of one back end, and the back end, loaded on one of them."""

    def __init__(
        self,
        what: SpeechErrorKind,
        backend: str,
        threads: int,
        niceness: int,
        create: Callable[[], B],
    ) -> None:
        self._what: SpeechErrorKind = what
        self._backend_name = backend
        self._create = create
        self._lock = threading.Lock()
        self._backend: B | None = None
        self._setup_error: SpeechError | None = None
        self._closed = False
        self._executor = ThreadPoolExecutor(
            threads, thread_name_prefix=f"speech-{what}", initializer=_lower_priority,
            initargs=(niceness,),
        )  # fmt: skip

    async def load(self) -> B:
        """Loads the back end unless it is loaded, and returns it."""
        return await self.run(lambda backend: backend, None)

    async def run(self, job: Callable[[B], T], timeout: float | None) -> T:
        """Runs a job on a worker thread and waits for it."""
        if self._closed:
            raise self._error("the speech runtime is closed", "closed")
        try:
            future: Future[T] = self._executor.submit(self._on_thread, job)
        except RuntimeError as error:
            raise self._error("the speech runtime is closed", "closed") from error
        try:
            # Cancelling the waiting side cancels the job unless it has begun.
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout)
        except TimeoutError as error:
            message = f"{self._what} took more than {timeout:g} s, waiting included"
            raise self._error(message, "timeout") from error
        except asyncio.CancelledError as error:
            # The runtime's closing cancels the job; the caller's own cancellation goes on.
            task = asyncio.current_task()
            if self._closed and (task is None or not task.cancelling()):
                raise self._error("the speech runtime is closed", "closed") from error
            raise

    def close(self, *, wait: bool) -> None:
        self._closed = True
        self._executor.shutdown(wait=wait, cancel_futures=True)

    def _on_thread(self, job: Callable[[B], T]) -> T:
        backend = self._loaded()
        try:
            return job(backend)
        except SpeechError:
            raise
        except Exception as error:
            message = f"{self._what} by {self._backend_name!r} failed: {error}"
            raise self._error(message, self._what) from error

    def _loaded(self) -> B:
        with self._lock:
            if self._backend is None:
                # The native libraries' own threads inherit this thread's priority.
                if self._setup_error is not None:
                    raise self._setup_error
                try:
                    self._backend = self._create()
                except SpeechError as error:
                    self._setup_error = error
                    raise
                except Exception as error:
                    self._setup_error = SpeechSetupError(
                        f"the speech back end {self._backend_name!r} cannot be loaded: {error}",
                        backend=self._backend_name,
                    )
                    raise self._setup_error from error
            return self._backend

    def _error(self, message: str, kind: SpeechErrorKind) -> SpeechError:
        return SpeechError(message, kind=kind, backend=self._backend_name)


def split_for_synthesis(text: str, max_characters: int) -> list[str]:
    """Parts of a spoken form for one synthesiser call each.

    Text within the limit stays whole. Longer text is cut behind sentences, else behind clauses,
    else between words, else anywhere.
    """
    parts: list[str] = []
    rest = text.strip()
    while len(rest) > max_characters:
        cut = _cut(rest, max_characters)
        parts.append(rest[:cut].strip())
        rest = rest[cut:].strip()
    return [part for part in [*parts, rest] if any(map(str.isalnum, part))]


_CUTS = (re.compile(r"[.?!]\s"), re.compile(r"[,;:]\s"), re.compile(r"\s"))


def _cut(text: str, limit: int) -> int:
    head = text[:limit]
    for pattern in _CUTS:
        ends = [match.end() for match in pattern.finditer(head)]
        if ends:
            return ends[-1]
    return limit


def _lower_priority(niceness: int) -> None:
    """Lets the audio loops go first. Linux only, where a thread has a niceness of its own."""
    if sys.platform != "linux" or niceness == 0:
        return
    thread = threading.get_native_id()
    try:
        current = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(19, current + niceness))
    except OSError as error:
        logger.debug("cannot lower the priority of a speech thread: {}", error)
