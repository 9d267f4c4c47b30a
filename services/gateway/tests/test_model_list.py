import pytest

from tau2eval_gateway.errors import GatewayError, NotConfigured
from tau2eval_gateway.model_list import (
    Deployment,
    ModelListError,
    default_deployments,
    load_deployments,
)
from tau2eval_gateway.routes import Environment, Router

GOOD = """
model_list:
  - model_name: my-model
    litellm_params:
      model: openai/served-name
      api_base: http://127.0.0.1:9/v1/
      api_key: os.environ/MY_KEY
      input_cost_per_token: 0.000001
      output_cost_per_token: 0.000002
    model_info: {mode: chat, max_tokens: 4096}
  - model_name: scripted/*
    litellm_params: {model: openai/scripted/*, api_base: "http://127.0.0.1:1/v1"}
    model_info: {tau2eval_own: true}
  - model_name: claude
    litellm_params: {model: bedrock/claude, aws_region_name: eu-central-1}
litellm_settings: {drop_params: true}
"""


def test_good(tmp_path, caplog):
    path = tmp_path / "models.yaml"
    path.write_text(GOOD)
    mine, scripted, claude = load_deployments(path)
    assert (mine.model, mine.api_base) == ("openai/served-name", "http://127.0.0.1:9/v1")
    assert mine.direct
    assert mine.prices.output == 2e-6
    assert not mine.own
    assert scripted.own
    assert not claude.direct
    assert claude.params == {"aws_region_name": "eu-central-1"}
    assert "litellm_settings" in caplog.text
    assert "MY_KEY" not in repr(mine)


def entry(params="model: openai/a", info="", name="a"):
    return f"""
model_list:
  - model_name: "{name}"
    litellm_params: {{{params}}}
    model_info: {{{info}}}
"""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("model_lst: []", "model_lst"),
        ("model_list: []", "model_list"),
        ("[]", "model_list"),
        ("a: [", "line"),
        ("model_list: [{model_nam: a}]", "model_list[0].model_nam"),
        ("model_list: [{model_name: a}]", "model_list[0].litellm_params"),
        (entry("model: 1"), "litellm_params.model"),
        (entry("model: openai/a, temperature: 0.5"), "litellm_params.temperature"),
        (entry("model: openai/a, rpm: 5"), "litellm_params.rpm"),
        (entry("model: openai/a, api_base: 'ftp://x'"), "api_base"),
        (entry("model: openai/a, timeout: -1"), "timeout"),
        (entry("model: openai/a", "tau2eval_own: true"), "tau2eval_own"),
        (entry("model: openai/a", "tau2eval_own: maybe"), "tau2eval_own"),
        (entry("model: openai/a", "tau2evalown: true"), "tau2evalown"),
        (entry("model: openai/*"), "model_name"),
        (entry("model: openai/a", name="marina:x"), "marina"),
        (entry("model: openai/a, input_cost_per_token: 1.0"), "output_cost_per_token"),
        (entry("model: openai/a, api_base: 'http://x/v1', api_version: b"), "api_version"),
    ],
)
def test_faults_name_file_and_key(tmp_path, text, named):
    path = tmp_path / "models.yaml"
    path.write_text(text)
    with pytest.raises(ModelListError) as caught:
        load_deployments(path)
    assert "models.yaml" in str(caught.value)
    assert named in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(ModelListError, match="cannot be read"):
        load_deployments(tmp_path / "none.yaml")


def test_routes():
    router = Router(
        [
            Deployment("*", "*"),
            Deployment("openai/*", "azure/*"),
            Deployment("openai/gpt-4*", "openai/gpt-4*", "http://h/v1"),
            Deployment("exact", "openai/b", "http://one/v1"),
            Deployment("exact", "openai/b", "http://two/v1"),
            Deployment("fixed/*", "openai/always", "http://h/v1"),
        ]
    )
    assert router.find("openrouter/openai/x").model == "openrouter/openai/x"
    assert router.find("openai/o1").model == "azure/o1"
    found = router.find("openai/gpt-4o")
    assert (found.model, found.upstream_model) == ("openai/gpt-4o", "gpt-4o")
    assert router.find("fixed/x").upstream_model == "always"
    turns = [router.find("exact").deployment.api_base for _ in range(4)]
    assert turns == ["http://one/v1", "http://two/v1"] * 2
    assert router.names() == ["exact"]


def test_defaults():
    router = Router(default_deployments("127.0.0.1:5"))
    route = router.find("scripted/gold")
    assert route.upstream_model == "scripted/gold"
    assert route.deployment.own
    assert route.deployment.api_base == "http://127.0.0.1:5/v1"
    assert not router.find("openai/gpt-4o").deployment.own
    with pytest.raises(GatewayError):
        Router(default_deployments("")[:0]).find("a")


def test_environment_values():
    environment = Environment({"A": "value"})
    assert environment.resolve("os.environ/A") == "value"
    assert environment.resolve("plain") == "plain"
    assert environment.resolve(5) == 5
    with pytest.raises(NotConfigured, match="MISSING"):
        environment.resolve("os.environ/MISSING")
