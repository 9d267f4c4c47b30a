from __future__ import annotations

import hashlib
import json
import re
from types import MappingProxyType

import pytest

from tau2eval_airline import ADOPTED_NL_ASSERTIONS, assertions, assertions_sha256, get_scenario

CLAIMS = [(task, claim) for task, claims in ADOPTED_NL_ASSERTIONS.items() for claim in claims]


def test_the_set_cannot_be_changed_in_place() -> None:
    assert isinstance(ADOPTED_NL_ASSERTIONS, MappingProxyType)
    assert all(isinstance(claims, tuple) for claims in ADOPTED_NL_ASSERTIONS.values())


def test_tasks_stand_in_numeric_order() -> None:
    numbers = [int(task) for task in ADOPTED_NL_ASSERTIONS]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(("task", "claim"), CLAIMS)
def test_a_claim_is_one_sentence_about_the_agent(task: str, claim: str) -> None:
    opening = (
        r"(The agent(?:'s)?|Once it has refused, the agent|If the user [^.]+, the agent(?:'s)?)"
    )
    assert re.fullmatch(rf"{opening} [^.;?!\n]+\.", claim)
    assert "  " not in claim
    assert len(claim) <= 175
    # "and not" and "in words, to" join no checks; a plain "and" would.
    assert " and " not in claim.replace(" and not of the others", "")


@pytest.mark.parametrize(("task", "claim"), CLAIMS)
def test_a_claim_is_about_words_and_lookups_not_about_writes(task: str, claim: str) -> None:
    predicate = re.split(r"he agent(?: |(?='s))", claim)[-1]
    acts = ("tells ", "declines, in words,", "looks up ", "searches ", "makes no offer ")
    finals = ("'s final answer is that ", "'s final answer to the user's request ")
    assert predicate.startswith((*acts, *finals)) or re.match(
        r"does not (tell|say|offer|agree|advise|state|name) ", predicate
    )


def test_silence_satisfies_no_task() -> None:
    for task, claims in ADOPTED_NL_ASSERTIONS.items():
        acts = ("The agent tells", "The agent declines", "The agent's final answer")
        spoken = [c for c in claims if c.startswith(acts)]
        banned = [c for c in claims if re.match(r"[^.]*he agent (does not|makes no)", c)]
        assert spoken, task
        assert banned, task


def test_a_scenario_takes_its_own_claims() -> None:
    assert get_scenario("tau2_airline__48").nl_assertions == ADOPTED_NL_ASSERTIONS["48"]
    assert get_scenario("tau2_airline__39").nl_assertions is None


def test_the_hash_is_that_of_the_canonical_json(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {task: list(claims) for task, claims in ADOPTED_NL_ASSERTIONS.items()}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = assertions_sha256()
    assert digest == hashlib.sha256(text.encode()).hexdigest()
    backwards = dict(reversed(ADOPTED_NL_ASSERTIONS.items()))
    monkeypatch.setattr(assertions, "ADOPTED_NL_ASSERTIONS", backwards)
    assert assertions_sha256() == digest
    for changed in (
        {**backwards, "48": backwards["48"][::-1]},
        {**backwards, "48": backwards["49"]},
        {**backwards, "39": ()},
    ):
        monkeypatch.setattr(assertions, "ADOPTED_NL_ASSERTIONS", changed)
        assert assertions_sha256() != digest
