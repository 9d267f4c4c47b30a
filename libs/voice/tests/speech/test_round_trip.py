"""The models themselves: words in, words out."""

import itertools

import numpy as np
import pytest

from tau2eval_common.wer import score
from tau2eval_voice.speech import SpeechRuntime, SpeechSettings, from_spoken, to_spoken
from tau2eval_voice.speech.audio import to_float

pytestmark = pytest.mark.voice

ORDINARY = [
    "Hello, I would like to change my flight to New York on 2024-05-20, after 3:00 p.m.",
    "Your total is $1,234.50. Do you want me to proceed, yes or no?",
    "Basic economy flights cannot be modified, but I can offer you a certificate for $150.",
    "The cheapest direct flight leaves at 06:00 and costs 20% less.",
]
IDENTIFIERS = ["daiki_muller_1116", "GV1N64", "HAT003", "gift_card_1642017"]
PAD = bytes(16_000)
TAIL = bytes(2 * 12_800)  # The 0.8 s of silence that end a turn.


@pytest.fixture(params=["faster-whisper", "moonshine"])
async def runtime(request):
    if request.param == "moonshine":
        pytest.importorskip("moonshine_voice")
    async with SpeechRuntime(SpeechSettings(recognizer=request.param)) as runtime:
        await runtime.warm_up()
        yield runtime


async def hear(runtime, text, voice):
    audio = await runtime.synthesize(text, voice, 16_000)
    return (await runtime.transcribe(PAD + audio.samples + PAD, 16_000)).text


async def test_ordinary_sentences_and_identifiers(runtime):
    said, heard = [], []
    for index, sentence in enumerate(ORDINARY):
        said.append(to_spoken(sentence))
        heard.append(await hear(runtime, said[-1], ("agent", "caller")[index % 2]))
    result = score(said, heard)
    assert result["words"] > 50
    assert result["ordinary_wer"] < 0.2, list(zip(said, heard, strict=True))

    said, heard = [], []
    for index, identifier in enumerate(IDENTIFIERS):
        said.append(to_spoken(f"It is {identifier}."))
        heard.append(await hear(runtime, said[-1], ("agent", "caller")[index % 2]))
    result = score(said, heard)
    assert result["identifiers"] == len(IDENTIFIERS)
    assert result["identifier_wer"] < 0.3, list(zip(said, heard, strict=True))
    joined = sum(
        identifier.lower() in from_spoken(text).lower()
        for identifier, text in zip(IDENTIFIERS, heard, strict=True)
    )
    as_heard = sum(
        identifier.lower() in text.lower()
        for identifier, text in zip(IDENTIFIERS, heard, strict=True)
    )
    assert joined > as_heard
    # Silence is no words.
    assert (await runtime.transcribe(bytes(32_000), 16_000)).text == ""
    assert (await runtime.transcribe(b"", 16_000)).text == ""


def fundamental_hz(samples, rate):
    """Median of the pitch of the voiced frames, by autocorrelation."""
    pitches = []
    frame = rate // 25
    low, high = rate // 400, rate // 70
    for start in range(0, samples.size - frame, frame):
        part = samples[start : start + frame] - samples[start : start + frame].mean()
        if np.sqrt((part**2).mean()) < 0.02:
            continue
        correlation = np.correlate(part, part, "full")[frame - 1 :]
        lag = low + int(correlation[low:high].argmax())
        if correlation[lag] > 0.6 * correlation[0]:
            pitches.append(rate / lag)
    return float(np.median(pitches))


async def test_the_two_voices_differ_in_pitch_and_are_reproducible():
    async with SpeechRuntime(SpeechSettings()) as runtime:
        assert await runtime.voices() == ("agent", "caller")
        pitch = {}
        for voice in ("agent", "caller"):
            audio = await runtime.synthesize("Hello, how may I help you today?", voice)
            again = await runtime.synthesize("Hello, how may I help you today?", voice)
            assert audio == again
            assert audio.sample_rate_hz == 24_000
            assert 1 < audio.seconds < 4
            pitch[voice] = fundamental_hz(to_float(audio.samples), audio.sample_rate_hz)
    assert pitch["caller"] / pitch["agent"] == pytest.approx(0.86, abs=0.06)


async def test_long_speech_is_heard_to_its_end_after_any_silence():
    # Whisper without time stamps stopped after the second of these sentences, now and then.
    texts = [
        "Here is what I will do: I will change reservation XEHM4B to business class and cancel "
        "reservations XEHM4B and 59XX6W. Shall I go ahead?",
        "I have cancelled reservation K1NW8N. You get $2,613 back. Is there anything else?",
    ]
    async with SpeechRuntime(SpeechSettings()) as runtime:
        for text, voice in itertools.product(texts, ("agent", "caller")):
            audio = await runtime.synthesize(to_spoken(text), voice, 16_000)
            for silence_seconds in (0.0, 0.2, 0.7):
                silence = bytes(2 * int(16_000 * silence_seconds))
                heard = (await runtime.transcribe(silence + audio.samples + TAIL, 16_000)).text
                last_word = text.rstrip("?").rsplit(" ", 1)[1]
                assert heard.rstrip(" .?").endswith(last_word), heard
                assert len(heard) > 0.7 * len(text), heard
