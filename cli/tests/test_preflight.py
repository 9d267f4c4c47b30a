import json

import grpc
import pytest

from tau2eval_cli.errors import WrongUse
from tau2eval_cli.preflight import ModelUse, check_models, check_targets
from tau2eval_common.client import open_channel
from tau2eval_common.errors import (
    CapacityExhausted,
    InvalidInput,
    NotFound,
    Tau2EvalError,
    UpstreamFailed,
)


@pytest.fixture
async def chat(chat):
    servicer, address = chat
    async with open_channel(address) as channel:
        yield servicer, channel


async def test_scripted_models_are_looked_up_and_not_asked(chat) -> None:
    servicer, channel = chat
    uses = [ModelUse("agent", "scripted/gold", ""), ModelUse("user", "scripted/caller", "")]
    assert await check_models(channel, "eval_1", uses) == []
    assert servicer.requests == []
    with pytest.raises(WrongUse, match=r"--agent-model.*Did you mean scripted/gold"):
        await check_models(channel, "eval_1", [ModelUse("agent", "scripted/golf", "")])


@pytest.mark.parametrize(
    ("role", "model", "plays"),
    [
        ("agent", "scripted/caller", "the caller"),
        ("user", "scripted/gold", "the agent"),
        ("agent", "scripted/checker-strict", "the checks of control flows"),
    ],
)
async def test_a_script_on_the_wrong_side_is_wrong_use(chat, role, model, plays) -> None:
    _, channel = chat
    uses = [ModelUse("agent", model, ""), ModelUse("user", model, "")]
    with pytest.raises(WrongUse, match=f"--{role}-model: {model} is a script for {plays}"):
        await check_models(channel, "eval_1", uses)


@pytest.mark.parametrize(
    "model",
    [
        "marina/verify:scripted/gold",
        "marina/verify:scripted/gold+scripted/gold",
        "marina/obligations:marina/argcheck:scripted/gold@11",
    ],
)
async def test_scripts_behind_control_flows_are_looked_up_too(chat, model) -> None:
    servicer, channel = chat
    assert await check_models(channel, "eval_1", [ModelUse("agent", model, "")]) == []
    assert servicer.requests == []
    with pytest.raises(WrongUse, match=r"no scripted model 'scripted/golf'"):
        await check_models(
            channel, "eval_1", [ModelUse("agent", model.replace("gold", "golf", 1), "")]
        )


async def test_a_checker_that_is_no_script_is_asked(chat) -> None:
    servicer, channel = chat
    uses = [ModelUse("agent", "marina/verify:scripted/gold+a/b", '{"tool_choice": "auto"}')]
    assert await check_models(channel, "eval_1", uses) == []
    (request,) = servicer.requests
    assert json.loads(request.body_json)["model"] == "a/b"
    servicer.fault = NotFound("no such model")
    with pytest.raises(WrongUse, match="a/b: no such model"):
        await check_models(channel, "eval_1", uses)


async def test_a_real_model_behind_control_flows_is_asked_through_them(chat) -> None:
    servicer, channel = chat
    uses = [ModelUse("agent", "marina/verify:a/b", ""), ModelUse("user", "marina:crew", "")]
    assert await check_models(channel, "eval_1", uses) == []
    asked = {json.loads(request.body_json)["model"] for request in servicer.requests}
    assert asked == {"marina/verify:a/b", "marina:crew"}


async def test_a_real_model_is_asked_with_its_parameters(chat) -> None:
    servicer, channel = chat
    parameters = '{"temperature": 0, "tool_choice": "auto"}'
    assert await check_models(channel, "eval_1", [ModelUse("user", "a/b", parameters)]) == []
    (request,) = servicer.requests
    body = json.loads(request.body_json)
    assert (request.context.run_id, request.context.role) == ("eval_1", "user")
    assert (body["model"], body["temperature"]) == ("a/b", 0)
    # A provider refuses it in a request without tools.
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (NotFound("no such model"), "no such model. Nothing was run"),
        (InvalidInput("temperature must be 1"), "temperature must be 1"),
        (
            UpstreamFailed("refused", metadata={"code": "provider_auth_failed"}),
            "OPENAI_API_KEY",
        ),
    ],
)
async def test_what_cannot_work_is_wrong_use(chat, fault: Tau2EvalError, told: str) -> None:
    servicer, channel = chat
    servicer.fault = fault
    with pytest.raises(WrongUse, match="--agent-model a/b") as caught:
        await check_models(channel, "eval_1", [ModelUse("agent", "a/b", "")])
    assert told in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("fault", [CapacityExhausted("slow down"), UpstreamFailed("500")])
async def test_what_may_pass_is_told_and_the_run_goes_on(chat, fault: Tau2EvalError) -> None:
    servicer, channel = chat
    servicer.fault = fault
    (text,) = await check_models(channel, "eval_1", [ModelUse("agent", "a/b", "")])
    assert fault.message in text


async def test_a_gateway_that_is_gone_is_left_to_the_calls() -> None:
    async with open_channel("127.0.0.1:1") as channel:
        assert await check_models(channel, "eval_1", [ModelUse("agent", "scripted/x", "")]) == []


async def test_targets_where_nothing_listens_are_wrong_use(unused_tcp_port) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        await check_targets({"--agent-url": f"127.0.0.1:{port}", "--user-url": ""})
        gone = f"127.0.0.1:{unused_tcp_port}"
        with pytest.raises(WrongUse, match=f"--user-url: nothing listens at {gone}"):
            await check_targets({"--agent-url": f"127.0.0.1:{port}", "--user-url": gone}, 0.5)
    finally:
        await server.stop(0)
