import json

import pytest

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli.errors import WrongUse
from tau2eval_cli.fingerprint import service_settings, versions
from tau2eval_cli.judging import JudgeFlags, describe_judge, same_judge
from tau2eval_cli.plan import RunOptions

REAL = RunOptions(agent_model="a/b")


@pytest.mark.parametrize(
    ("flags", "options", "model"),
    [
        (JudgeFlags(), RunOptions(), "scripted/judge"),
        (JudgeFlags(), RunOptions(agent_model="scripted/liar"), "scripted/judge"),
        (JudgeFlags(off=True), RunOptions(), ""),
        (JudgeFlags(), REAL, ""),
        (JudgeFlags(), RunOptions(agent_url="h:1"), ""),
        (JudgeFlags(model="c/d"), REAL, "c/d"),
        (JudgeFlags(model="c/d"), RunOptions(), "c/d"),
    ],
)
def test_the_judge_of_a_run(flags: JudgeFlags, options: RunOptions, model: str) -> None:
    flags.check()
    assert flags.for_run(options).model == model


@pytest.mark.parametrize(
    ("flags", "options", "told"),
    [
        (JudgeFlags(model="scripted/judge"), REAL, "scripted agents only"),
        (JudgeFlags(model="scripted/judge"), RunOptions(agent_url="h:1"), "scripted agents only"),
        (JudgeFlags(votes=3), REAL, "--judge-votes needs a judge"),
        (JudgeFlags(votes=2), RunOptions(), "odd"),
        (JudgeFlags(votes=17), RunOptions(), "odd"),
        (JudgeFlags(off=True, model="c/d"), RunOptions(), "exclude each other"),
        (JudgeFlags(model=" "), RunOptions(), "--no-judge"),
        (JudgeFlags(threshold=1.1), RunOptions(), "--judge-threshold"),
        (JudgeFlags(timeout=0), RunOptions(), "--judge-timeout"),
        (JudgeFlags(params='{"messages": []}'), RunOptions(), "cannot set messages"),
        (JudgeFlags(params='{"api_key": "x"}'), RunOptions(), "must not hold api_key"),
        (JudgeFlags(params='{"seed": 1}', seed=2), RunOptions(), "give it once"),
    ],
)
def test_a_judge_that_cannot_be(flags: JudgeFlags, options: RunOptions, told: str) -> None:
    def ask() -> None:
        flags.check()
        flags.for_run(options)

    with pytest.raises(WrongUse, match=told):
        ask()


def test_flags_become_the_contracts_judge() -> None:
    flags = JudgeFlags(
        model="c/d",
        params='{"reasoning_effort": "low"}',
        votes=3,
        threshold=0.5,
        timeout=60,
        max_tokens=900,
        temperature=0.0,
        top_p=0.9,
        seed=7,
        include_conversation=True,
        compact_context=True,
        all_scenarios=True,
    )
    flags.check()
    config = flags.for_run(REAL)
    assert json.loads(config.parameters_json) == {
        "reasoning_effort": "low",
        "max_tokens": 900,
        "temperature": 0.0,
        "top_p": 0.9,
        "seed": 7,
    }
    assert (config.votes, config.threshold, config.timeout_seconds) == (3, 0.5, 60)
    assert config.include_conversation
    assert config.compact_context
    assert config.all_scenarios


def test_flags_go_over_the_plans_judge_and_defaults_are_no_difference() -> None:
    plan = scorer_pb2.JudgeConfig(model="c/d", votes=3, parameters_json='{"seed": 1, "x": 2}')
    assert same_judge(JudgeFlags().over(plan), plan)
    assert same_judge(
        scorer_pb2.JudgeConfig(model="m"),
        JudgeFlags(votes=1, timeout=120).over(scorer_pb2.JudgeConfig(model="m", threshold=1.0)),
    )
    changed = describe_judge(JudgeFlags(seed=5).over(plan))
    assert changed["parameters"] == {"seed": 5, "x": 2}
    assert changed["votes"] == 3
    assert not same_judge(JudgeFlags(threshold=0.0).over(plan), plan)


def test_settings_that_change_results_are_told_from_those_that_do_not(tmp_path) -> None:
    models = tmp_path / "models.yaml"
    models.write_text("model_list: []")
    environ = {
        "TAU2EVAL_AGENT_BOT_SPEECH__VOICE": "b",
        "TAU2EVAL_BRIDGE_STALL_SECONDS": "9",
        "TAU2EVAL_GATEWAY_TOTAL_TIMEOUT_SECONDS": "9",
        "TAU2EVAL_GATEWAY_MODEL_CONFIG": str(models),
        "TAU2EVAL_AGENT_BOT_LOG_LEVEL": "debug",
        "TAU2EVAL_BRIDGE_PORT": "1",
        "TAU2EVAL_GATEWAY_HTTP_PORT": "1",
        "TAU2EVAL_BRIDGE_ADDRESS": "h:1",
        "TAU2EVAL_AGENT_BOT_GATEWAY_ADDRESS": "h:1",
        "TAU2EVAL_BRIDGE_SPOOL_DIR": "/x",
        "TAU2EVAL_AGENT_BOT_SPEECH_PRELOAD": "false",
        "TAU2EVAL_SCORER_HTTP_PORT": "0",
        "OPENAI_API_KEY": "sk",
    }
    found = service_settings(environ)
    assert set(found) == {
        "TAU2EVAL_AGENT_BOT_SPEECH__VOICE",
        "TAU2EVAL_BRIDGE_STALL_SECONDS",
        "TAU2EVAL_GATEWAY_TOTAL_TIMEOUT_SECONDS",
        "TAU2EVAL_GATEWAY_MODEL_CONFIG_SHA256",
    }
    models.write_text("model_list: [x]")
    assert service_settings(environ) != found
    assert {"tau2eval-cli", "tau2eval-airline"} <= set(versions())
