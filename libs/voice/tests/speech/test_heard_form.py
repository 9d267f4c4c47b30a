import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_voice.speech import from_spoken, to_spoken

# As Whisper and Moonshine wrote them.
HEARD = {
    "It is D-A-I-K-I underscore M-U-L-L-E-R underscore 1116. I have": "It is daiki_muller_1116. "
    "I have",
    "G-I-F-T underscore C-A-R-D underscore 1-64-2-01-7, and": "gift_card_1642017, and",
    "d a i k i underscore m u l l e r underscore one one one six": "daiki_muller_1116",
    "D-a-i-k-i underscore m, u-l-l-e-r underscore one, one, one, six.": "daiki_muller_1116.",
    "R. A. J. underscore S. A. N. C. H. E. Z underscore seven, three": "raj_sanchez_73",
    "Mia underscore Lee underscore 3668. My": "mia_lee_3668. My",
    "flight H, A, T, 0, 0, 3.": "flight HAT003.",
    "code x, e, w, r, d, 9.": "code XEWRD9.",
    "6-0-R-X9-E.": "60RX9E.",
    "from J.F.K. to S.F.O. at 3 p.m.": "from JFK to SFO at 3 p.m.",
}
ORDINARY = [
    "I would like to change my flight to New York on May 20th, 2024.",
    "Is it A, B, C, or D?",
    "I have 1, 2, or 3 bags.",
    "one two three four",
    "We were in the U.S. I am a gold member.",
    "COVID-19, an F-16 and an e-mail",
    "I want to underscore that I need a refund.",
    "It leaves at 3 p.m. and costs $1,234.50.",
    "Seats 12A and 14C, gate B-12.",
    "I, a frequent flyer, and a friend",
    "It's a one-way, round-trip or multi-city ticket?",
    "The total is 1,642,017 miles - a lot - I think.",
    "A. I agree. B. I don't.",
    "basic_economy",
]


@pytest.mark.parametrize(("heard", "text"), HEARD.items())
def test_spelled_identifiers_are_joined(heard, text):
    assert from_spoken(heard) == text


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_sentences_stay(text):
    assert from_spoken(text) == text


WORDS = st.sampled_from(
    [
        "i",
        "a",
        "the",
        "flight",
        "to",
        "new",
        "york",
        "is",
        "my",
        "bag",
        "bags",
        "three",
        "3",
        "12",
        "may",
        "20th,",
        "$50",
        "p.m.",
        "please",
        "yes,",
        "no.",
        "that's",
        "one-way",
        "okay?",
        "Anderson",
        "I'd",
        "I",
        "A",
    ]
)


@given(st.lists(WORDS, max_size=3).flatmap(lambda w: st.just(" ".join([*w, "flight"]))))
def test_prose_stays(text):
    assert from_spoken(text) == text


@given(st.text(max_size=200))
def test_never_raises_and_never_grows(text):
    assert len(from_spoken(text)) <= len(text)


@given(
    st.from_regex(r"\A[a-z]{2,8}_[a-z]{2,8}_[0-9]{4}\Z"),
    st.sampled_from(["My user id is {}.", "It is {}, and I have two bags."]),
)
def test_spoken_user_ids_come_back(identifier, sentence):
    heard = to_spoken(sentence.format(identifier)).replace(": ", " ")
    assert identifier in from_spoken(heard)
