from pathlib import Path

import pytest

from tau2eval_cli.environment import check_environment, child_environment
from tau2eval_cli.errors import WrongUse
from tau2eval_cli.services import AGENT_BOT, BRIDGE, GATEWAY, SCORER, SERVICES

SHELL = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
    "PYTHONPATH": "/lib",
    "SSL_CERT_FILE": "/certs",
    "OPENAI_API_KEY": "sk-1",
    "ANTHROPIC_API_KEY": "sk-2",
    "AWS_SECRET_ACCESS_KEY": "sk-3",
    "MODEL_API_KEYS": "sk-4",
    "MARINA_OPEN_API": "true",
    "DATABASE_URL": "sqlite://",
    "MY_TOKEN": "sk-5",
    "GITHUB_TOKEN": "sk-6",
    "https_proxy": "http://proxy:1",
    "NO_PROXY": "intranet",
    "EVAL_DATA_ROOT": "/data",
    "TAU2EVAL_AGENT_BOT_MAX_SESSIONS": "3",
    "TAU2EVAL_BRIDGE_STALL_SECONDS": "9",
    "TAU2EVAL_BRIDGE_ADDRESS": "127.0.0.1:1",
}


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"gateway"}))
def test_only_the_gateway_sees_keys_and_proxies(name: str) -> None:
    child = child_environment(SERVICES[name], SHELL)
    assert not any(value.startswith("sk-") for value in child.values())
    assert not {"https_proxy", "MODEL_API_KEYS", "MARINA_OPEN_API"} & set(child)
    # The scorer keeps the runs.
    assert ("DATABASE_URL" in child) == (name == "scorer")
    assert {"PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "SSL_CERT_FILE"} <= set(child)


def test_the_scorer_sees_the_keys_of_an_object_store_that_is_named() -> None:
    shell = {**SHELL, "TAU2EVAL_SCORER_ARTIFACTS_URL": "s3://bucket/runs"}
    child = child_environment(SCORER, shell)
    assert child["AWS_SECRET_ACCESS_KEY"] == "sk-3"
    assert not {"OPENAI_API_KEY", "MODEL_API_KEYS"} & set(child)
    assert "AWS_SECRET_ACCESS_KEY" not in child_environment(SCORER, SHELL)
    assert "AWS_SECRET_ACCESS_KEY" not in child_environment(BRIDGE, shell)


def test_the_gateway_sees_provider_keys_and_no_other_secret() -> None:
    child = child_environment(GATEWAY, SHELL)
    secrets = {value for value in child.values() if value.startswith("sk-")}
    assert secrets == {"sk-1", "sk-2", "sk-3", "sk-4"}
    assert child["https_proxy"] == "http://proxy:1"
    assert child["NO_PROXY"] == child["no_proxy"] == "intranet,127.0.0.1,localhost,::1"
    assert child["DATABASE_URL"] == "sqlite://"
    named = child_environment(GATEWAY, SHELL, gateway_names=["MY_TOKEN"])
    assert named["MY_TOKEN"] == "sk-5"


def test_the_gateway_sees_what_its_model_list_reads(tmp_path: Path) -> None:
    models = tmp_path / "models.yaml"
    models.write_text("model_list: [{litellm_params: {api_key: os.environ/MY_TOKEN}}]")
    shell = {**SHELL, "TAU2EVAL_GATEWAY_MODEL_CONFIG": str(models)}
    assert child_environment(GATEWAY, shell)["MY_TOKEN"] == "sk-5"
    assert "MY_TOKEN" not in child_environment(AGENT_BOT, shell)
    models.unlink()
    assert "MY_TOKEN" not in child_environment(GATEWAY, shell)


def test_a_service_gets_its_own_settings_and_no_one_elses() -> None:
    bot, bridge = child_environment(AGENT_BOT, SHELL), child_environment(BRIDGE, SHELL)
    assert {key for key in bot if key.startswith("TAU2EVAL_")} == {
        "TAU2EVAL_AGENT_BOT_MAX_SESSIONS"
    }
    # The address is for this command; the bridge itself would refuse it as unknown.
    assert {key for key in bridge if key.startswith("TAU2EVAL_")} == {
        "TAU2EVAL_BRIDGE_STALL_SECONDS"
    }


def test_fixtures_reach_those_that_read_them() -> None:
    with_fixtures = {
        name
        for name, spec in SERVICES.items()
        if "EVAL_DATA_ROOT" in child_environment(spec, SHELL)
    }
    assert with_fixtures == {"agent-bot", "scorer", "scripted-models"}


def test_the_person_overrides_defaults_and_not_what_must_be() -> None:
    child = child_environment(
        AGENT_BOT,
        {**SHELL, "TAU2EVAL_AGENT_BOT_GATEWAY_ADDRESS": "elsewhere:1"},
        defaults={"TAU2EVAL_AGENT_BOT_MAX_SESSIONS": "8", "TAU2EVAL_AGENT_BOT_PORT": "0"},
        forced={"TAU2EVAL_AGENT_BOT_GATEWAY_ADDRESS": "127.0.0.1:2"},
    )
    assert child["TAU2EVAL_AGENT_BOT_MAX_SESSIONS"] == "3"
    assert child["TAU2EVAL_AGENT_BOT_PORT"] == "0"
    assert child["TAU2EVAL_AGENT_BOT_GATEWAY_ADDRESS"] == "127.0.0.1:2"


def test_a_slip_in_a_prefix_is_refused() -> None:
    check_environment(SHELL)
    with pytest.raises(WrongUse, match="TAU2EVAL_AGENTBOT_PORT"):
        check_environment({"TAU2EVAL_AGENTBOT_PORT": "1"})
    assert child_environment(SCORER, {}) == {}
