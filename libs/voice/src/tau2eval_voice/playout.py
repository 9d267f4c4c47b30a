"""Keeps the account of what is said: which utterances are on their way, and when all is said."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tau2eval.voice.v1 import voice_pb2
from tau2eval_voice.outbox import Outbox
from tau2eval_voice.utterances import Played, Utterance

CutCallback = Callable[[Utterance, str], None]


class Playout:
    """The utterances of one session, from their first written word to their last sound.

    An utterance is pending from `begin` until it was played (`finish`) or cut off (`interrupt`).
    An Exit waits until none is pending.

    Attributes:
        cuts: How often audible words were cut off.

    Args:
        outbox: Where events go.
        on_cut: Called with an utterance that was cut off and the words of it that were played.
    """

    def __init__(self, outbox: Outbox, on_cut: CutCallback) -> None:
        self._outbox = outbox
        self._on_cut = on_cut
        self._pending: list[Utterance] = []
        self._current: Utterance | None = None
        self._exit_reason: voice_pb2.ExitReason.ValueType | None = None
        self._spoken_forms: deque[tuple[str, str]] = deque(maxlen=200)
        self.cuts = 0

    @property
    def speaking(self) -> bool:
        """True while an utterance is audible."""
        return self._current is not None and self._current.audible

    @property
    def idle(self) -> bool:
        """True when nothing is waiting to be said."""
        return not self._pending

    def begin(self, utterance: Utterance) -> None:
        """The model has begun to write an utterance."""
        self._pending.append(utterance)

    def spoken(self, text: str, spoken_form: str) -> None:
        """The synthesizer was given `spoken_form` for a segment with this text."""
        self._spoken_forms.append((text.strip(), spoken_form.strip()))

    def play(self, utterance: Utterance) -> None:
        """The audio that comes next belongs to this utterance."""
        if not utterance.closed:
            self._current = utterance

    def played(self, seconds: float) -> None:
        """Audio of this length was just sent."""
        utterance = self._current
        if utterance is not None:
            utterance.played_seconds += seconds

    def about_to_play(self) -> None:
        """The first audio of an utterance makes it audible; call before that audio is sent."""
        utterance = self._current
        if utterance is not None and not utterance.audible:
            utterance.audible = True
            self._outbox.event(
                speech_started=voice_pb2.SpeechStarted(utterance_id=utterance.utterance_id)
            )

    def finish(self, utterance: Utterance) -> None:
        """All audio of an utterance was sent."""
        if utterance.closed:
            return
        self._fill_spoken_forms(utterance)
        if utterance.audible:
            said = Played(utterance.written.strip(), utterance.all_spoken_form(), "")
            self._tell(utterance, said, interrupted=False)
        self._close(utterance)

    def interrupt(self, *, by_other_side: bool = True) -> None:
        """The other side spoke, or else the session stops: what is pending is never said."""
        was_speaking = self.speaking
        for utterance in tuple(self._pending):
            self._fill_spoken_forms(utterance)
            said = utterance.played()
            if utterance.audible:
                self._tell(utterance, said, interrupted=by_other_side)
            self._on_cut(utterance, said.text)
            self._close(utterance)
        if was_speaking and by_other_side:
            self.cuts += 1
            self._outbox.event(interrupted=voice_pb2.Interrupted())

    def request_exit(self, reason: voice_pb2.ExitReason.ValueType) -> None:
        """Sends Exit as soon as nothing is pending."""
        self._exit_reason = reason
        self._maybe_exit()

    def _tell(self, utterance: Utterance, said: Played, *, interrupted: bool) -> None:
        self._outbox.event(
            utterance_said=voice_pb2.UtteranceSaid(
                utterance_id=utterance.utterance_id,
                text=said.text,
                spoken_form=said.spoken_form,
                interrupted=interrupted,
                unspoken=said.unspoken,
            )
        )
        self._outbox.event(
            speech_stopped=voice_pb2.SpeechStopped(utterance_id=utterance.utterance_id)
        )

    def _close(self, utterance: Utterance) -> None:
        utterance.closed = True
        if utterance in self._pending:
            self._pending.remove(utterance)
        if self._current is utterance:
            self._current = None
        self._maybe_exit()

    def _maybe_exit(self) -> None:
        if self._exit_reason is not None and not self._pending:
            reason, self._exit_reason = self._exit_reason, None
            self._outbox.event(exit=voice_pb2.Exit(reason=reason))

    def _fill_spoken_forms(self, utterance: Utterance) -> None:
        """Gives each segment the spoken form that was reported for its text, oldest first."""
        for segment in utterance.segments:
            text = segment.text.strip()
            for entry in self._spoken_forms:
                if entry[0] == text:
                    segment.spoken_form = entry[1]
                    self._spoken_forms.remove(entry)
                    break
