import pytest
from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from tau2eval_common.settings import (
    ServiceSettings,
    UnknownSettingError,
    load_settings,
    load_settings_or_exit,
)


class Example(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="TAU2EVAL_EXAMPLE_", extra="forbid", frozen=True)

    scorer_address: str = "127.0.0.1:3314"


def test_values_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("TAU2EVAL_EXAMPLE_SCORER_ADDRESS", "127.0.0.1:9")
    monkeypatch.setenv("TAU2EVAL_EXAMPLE_MAX_SESSIONS", "3")
    settings = load_settings(Example)
    assert (settings.scorer_address, settings.max_sessions) == ("127.0.0.1:9", 3)
    assert settings.host == "127.0.0.1"


def test_unknown_key_is_refused_with_the_nearest_names(monkeypatch):
    monkeypatch.setenv("TAU2EVAL_EXAMPLE_SCORER_ADRESS", "127.0.0.1:9")
    with pytest.raises(UnknownSettingError, match="TAU2EVAL_EXAMPLE_SCORER_ADDRESS"):
        load_settings(Example)


def test_keys_of_another_service_are_left_alone(monkeypatch):
    monkeypatch.setenv("TAU2EVAL_EXAMPLEX_WHATEVER", "1")
    assert load_settings(Example) == Example()


def test_settings_cannot_change_later():
    with pytest.raises(ValidationError):
        Example().port = 1


def test_bad_value_exits_with_two_and_names_the_variable(monkeypatch, capsys):
    monkeypatch.setenv("TAU2EVAL_EXAMPLE_PORT", "99999")
    with pytest.raises(SystemExit) as exit_info:
        load_settings_or_exit(Example)
    assert exit_info.value.code == 2
    assert "TAU2EVAL_EXAMPLE_PORT" in capsys.readouterr().err


def test_a_setting_that_names_its_own_variable(monkeypatch):
    class Named(ServiceSettings):
        model_config = SettingsConfigDict(env_prefix="NAMED_", extra="forbid", frozen=True)
        list_file: str = Field(default="", validation_alias="NAMED_LIST")

    monkeypatch.setenv("NAMED_LIST", "a")
    assert load_settings(Named).list_file == "a"
    monkeypatch.setenv("NAMED_LIST_FILE", "b")
    with pytest.raises(UnknownSettingError, match="NAMED_LIST_FILE"):
        load_settings(Named)
