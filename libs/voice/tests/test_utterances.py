"""What was played of an utterance, and the account that the playout keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tau2eval.voice.v1 import voice_pb2
from tau2eval_voice.media_clock import MediaClock
from tau2eval_voice.outbox import Outbox
from tau2eval_voice.playout import Playout
from tau2eval_voice.utterances import Segment, Utterance, words_within


def utterance(*texts: str, played: float = 0.0) -> Utterance:
    segments = [Segment(text, text.upper(), 1.0) for text in texts]
    return Utterance("u", written=" ".join(texts), segments=segments, played_seconds=played)


def kinds_of(outbox: Outbox) -> list[str]:
    return [
        outbox._queue.get_nowait().event.WhichOneof("event") for _ in range(outbox._queue.qsize())
    ]


def make_playout():
    outbox = Outbox(MediaClock())
    cuts: list[tuple[str, str]] = []
    playout = Playout(outbox, lambda u, played: cuts.append((u.utterance_id, played)))
    return outbox, cuts, playout


def test_whole_words_count_as_played():
    assert words_within("one two three", 0.0) == ""
    assert words_within("one two three", 0.5) == "one"
    assert words_within("one two three", 0.6) == "one two"
    assert words_within("one two three", 1.0) == "one two three"


def test_played_ends_within_a_segment():
    said = utterance("Good morning.", "How can I help?", played=1.5).played()
    assert said.text == "Good morning. How can"
    assert said.unspoken == "I help?"
    assert said.spoken_form == "GOOD MORNING. HOW CAN"


def test_what_was_never_synthesised_is_unspoken():
    found = utterance("Good morning.", played=1.0)
    found.written += " And more"
    said = found.played()
    assert (said.text, said.unspoken) == ("Good morning.", "And more")


def test_white_space_of_the_model_is_kept():
    found = utterance("One.", "Two.", played=2.0)
    found.written = "One.\n\nTwo.  Three."
    said = found.played()
    assert (said.text, said.unspoken) == ("One.\n\nTwo.", "Three.")


words = st.lists(st.text("abc.", min_size=1, max_size=6), min_size=1, max_size=8).map(" ".join)


@given(st.lists(words, min_size=1, max_size=5), st.floats(0, 6))
def test_played_and_unspoken_are_all_that_was_written(texts, played):
    found = utterance(*texts, played=played)
    said = found.played()
    assert (said.text.split() + said.unspoken.split()) == found.written.split()


@given(st.lists(words, min_size=1, max_size=5), st.floats(0, 6), st.floats(0, 6))
def test_more_time_never_means_fewer_words(texts, first, second):
    lesser, greater = sorted((first, second))
    shorter = utterance(*texts, played=lesser).played().text
    assert utterance(*texts, played=greater).played().text.startswith(shorter)


def test_an_exit_waits_for_all_that_is_pending():
    outbox, _, playout = make_playout()
    first, second = utterance("One."), utterance("Two.")
    playout.begin(first)
    playout.begin(second)
    playout.request_exit(voice_pb2.EXIT_REASON_AGENT_EXIT)
    for current in (first, second):
        playout.play(current)
        playout.about_to_play()
        playout.finish(current)
    assert kinds_of(outbox) == [
        "speech_started", "utterance_said", "speech_stopped",
        "speech_started", "utterance_said", "speech_stopped", "exit",
    ]  # fmt: skip


def test_an_interruption_cuts_everything_pending():
    outbox, cuts, playout = make_playout()
    first, second = utterance("One two."), utterance("Three.")
    playout.begin(first)
    playout.begin(second)
    playout.play(first)
    playout.about_to_play()
    playout.played(0.5)
    playout.interrupt()
    assert cuts == [("u", "One"), ("u", "")]
    assert kinds_of(outbox) == ["speech_started", "utterance_said", "speech_stopped", "interrupted"]
    playout.finish(first)
    playout.interrupt()
    assert outbox._queue.empty()


def test_an_exit_is_not_lost_by_an_interruption():
    outbox, _, playout = make_playout()
    only = utterance("Goodbye.")
    playout.begin(only)
    playout.request_exit(voice_pb2.EXIT_REASON_AGENT_EXIT)
    playout.interrupt()
    assert kinds_of(outbox) == ["exit"]


def test_spoken_forms_go_to_their_segments_in_order():
    outbox, _, playout = make_playout()
    found = utterance("Yes.", "Yes.")
    for segment in found.segments:
        segment.spoken_form = ""
    playout.begin(found)
    playout.spoken("Yes.", "first")
    playout.spoken(" Yes.", "second")
    playout.play(found)
    playout.about_to_play()
    playout.finish(found)
    outbox._queue.get_nowait()
    assert outbox._queue.get_nowait().event.utterance_said.spoken_form == "first second"
