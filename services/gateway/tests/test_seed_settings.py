"""The settings that the seed document names: names, defaults and what they may hold."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tau2eval_gateway.composition import FlowFactory
from tau2eval_gateway.crews import Crew
from tau2eval_gateway.flows.ids import read_model_id
from tau2eval_gateway.settings import GatewaySettings, SeedSettings

NAMES = (
    "MODEL_API_KEYS", "MARINA_OPEN_API", "DATABASE_URL", "MARINA_DAILY_SPEND_CAP_USD",
    "MARINA_VERIFY_CHECKER_MODEL", "MARINA_VERIFY_ROUNDS", "MARINA_OBLIGATIONS_MODEL",
    "MARINA_ARGCHECK_MODEL", "MARINA_ARGCHECK_TRIGGER", "MARINA_LESSONS",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_the_defaults_are_the_seeds():
    seed = SeedSettings()
    assert seed.model_api_keys.get_secret_value() == ""
    assert seed.marina_open_api is False
    assert seed.database_url.get_secret_value() == ""
    assert seed.daily_spend_cap_usd is None
    assert (seed.verify_checker_model, seed.verify_rounds) == ("", 1)
    assert seed.obligations_model == seed.argcheck_model == ""
    assert (seed.argcheck_trigger, seed.lessons) == ("flagged", "armed")


def test_the_defaults_of_our_own():
    ours = GatewaySettings()
    assert (ours.host, ours.http_port) == ("127.0.0.1", 3300)
    assert ours.state_url.get_secret_value() == ""
    assert (ours.helper_timeout_seconds, ours.rate_limit_per_minute) == (60.0, 0)
    assert ours.log_content is False
    assert ours.grpc_require_key is False


def test_they_are_read_from_the_environment(monkeypatch):
    given = {
        "MODEL_API_KEYS": "a,b",
        "MARINA_OPEN_API": "true",
        "DATABASE_URL": "sqlite:///x",
        "MARINA_DAILY_SPEND_CAP_USD": "2.5",
        "MARINA_VERIFY_CHECKER_MODEL": "c",
        "MARINA_VERIFY_ROUNDS": "2",
        "MARINA_OBLIGATIONS_MODEL": "o",
        "MARINA_ARGCHECK_MODEL": "j",
        "MARINA_ARGCHECK_TRIGGER": "all-writes",
        "MARINA_LESSONS": "observe",
    }
    assert given.keys() == set(NAMES)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    seed = SeedSettings()
    assert seed.model_api_keys.get_secret_value() == "a,b"
    assert seed.marina_open_api is True
    assert seed.database_url.get_secret_value() == "sqlite:///x"
    assert seed.daily_spend_cap_usd == 2.5
    assert (seed.verify_checker_model, seed.verify_rounds) == ("c", 2)
    assert (seed.obligations_model, seed.argcheck_model) == ("o", "j")
    assert (seed.argcheck_trigger, seed.lessons) == ("all-writes", "observe")


def test_an_empty_cap_is_none(monkeypatch):
    monkeypatch.setenv("MARINA_DAILY_SPEND_CAP_USD", "")
    assert SeedSettings().daily_spend_cap_usd is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MARINA_DAILY_SPEND_CAP_USD", "-1"),
        ("MARINA_DAILY_SPEND_CAP_USD", "nan"),
        ("MARINA_DAILY_SPEND_CAP_USD", "inf"),
        ("MARINA_DAILY_SPEND_CAP_USD", "much"),
        ("MARINA_VERIFY_ROUNDS", "two"),
        ("MARINA_ARGCHECK_TRIGGER", "all"),
        ("MARINA_LESSONS", "on"),
        ("MARINA_OPEN_API", "perhaps"),
    ],
)
def test_what_means_nothing_ends_the_start(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError):
        SeedSettings()


@pytest.mark.parametrize(("given", "rounds"), [(-7, 0), (0, 0), (1, 1), (3, 3), (4, 3), (99, 3)])
def test_statement_08_rounds_are_held_within_0_and_3(monkeypatch, given, rounds):
    monkeypatch.setenv("MARINA_VERIFY_ROUNDS", str(given))
    assert SeedSettings().verify_rounds == rounds


@pytest.mark.parametrize(("crew", "rounds"), [(None, 2), (0, 0), (3, 3)])
def test_statement_08_a_crew_may_have_rounds_of_its_own(monkeypatch, crew, rounds):
    monkeypatch.setenv("MARINA_VERIFY_ROUNDS", "2")
    crews = {"team": Crew("team", "m", ("verify",), rounds=crew)}
    plan = read_model_id("marina:team", crews)
    assert plan is not None
    assert FlowFactory(SeedSettings())("verify", plan)._rounds == rounds


@pytest.mark.parametrize(
    ("judge", "ledger", "asked"),
    [("j", "o", "j"), ("j", "", "j"), ("", "o", "o"), ("", "", "")],
)
def test_statement_38_the_judges_model(monkeypatch, judge, ledger, asked):
    """An empty one is the agent's own."""
    monkeypatch.setenv("MARINA_ARGCHECK_MODEL", judge)
    monkeypatch.setenv("MARINA_OBLIGATIONS_MODEL", ledger)
    plan = read_model_id("marina/argcheck:m", {})
    assert plan is not None
    assert FlowFactory(SeedSettings())("argcheck", plan)._model == asked
