"""Asks the gateway for the run's models before the first call, so that a slip costs nothing."""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import grpc

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_cli.errors import WrongUse
from tau2eval_cli.model_ids import SCRIPTED_PREFIX, is_scripted, models_of
from tau2eval_common.client import open_channel
from tau2eval_common.errors import error_info

SCRIPTED_CALLER = "scripted/caller"
SCRIPTED_JUDGE = "scripted/judge"
SCRIPTED_CHECKERS = "scripted/checker"
"""Begins the ids of the scripts that only help control flows."""
_PLAYS = {SCRIPTED_CALLER: ("user", "the caller"), SCRIPTED_JUDGE: ("judge", "the judge")}
_CHECKER = ("checker", "the checks of control flows")
_AGENT = ("agent", "the agent")
"""What a script is for; those that are not named here play the agent."""

TARGET_SECONDS = 5.0
"""How long a service of the person's own may take to answer."""

_CALL_SECONDS = 120.0
_LIST_SECONDS = 30.0
# Members that a provider refuses in a request without tools.
_NEED_TOOLS = ("tool_choice", "parallel_tool_calls", "functions", "function_call")
_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
_KEY_CODES = frozenset(
    {"provider_auth_failed", "provider_key_missing", "missing_environment_variable"}
)


@dataclass(frozen=True)
class ModelUse:
    """A model of a run.

    Attributes:
        role: "agent", "user" or "judge".
        model: Model id.
        parameters: Extra members of the chat body, as a JSON object; empty for none.
    """

    role: str
    model: str
    parameters: str


async def check_models(channel: grpc.aio.Channel, run_id: str, uses: list[ModelUse]) -> list[str]:
    """Checks that each model answers.

    Scripted models are looked up, behind control flows too; any other is asked for one word, which
    the spend ledger shows under the run without a scenario.

    Args:
        channel: To the gateway.
        run_id: Id of the run.
        uses: Its models.

    Returns:
        Faults that may pass (a provider that is busy, for instance), in words.

    Raises:
        WrongUse: When a model or its parameters are refused, or a key is missing.
    """
    stub = gateway_pb2_grpc.ChatServiceStub(channel)
    scripted = [use for use in uses if is_scripted(use.model)]
    if scripted:
        await _look_up(stub, scripted)
    asked = [use for use in uses if use not in scripted]
    for use in scripted:
        # The script answers no question of ours, but the model that checks it may.
        for checker in models_of(use.model)[1:]:
            if not is_scripted(checker):
                asked.append(ModelUse(use.role, checker, ""))
    faults = await asyncio.gather(*(_ask(stub, run_id, use) for use in asked))
    return [fault for fault in faults if fault]


async def check_targets(targets: Mapping[str, str], seconds: float = TARGET_SECONDS) -> None:
    """Checks that something listens where the person said.

    Args:
        targets: Flag to gRPC target; empty targets are left out.
        seconds: How long each may take to answer.

    Raises:
        WrongUse: With the first that does not.
    """

    async def check(flag: str, target: str) -> None:
        async with open_channel(target) as channel:
            try:
                await asyncio.wait_for(channel.channel_ready(), seconds)
            except TimeoutError:
                raise WrongUse(
                    f"{flag}: nothing listens at {target} ({seconds:g} s waited). Start it first"
                ) from None

    await asyncio.gather(*(check(flag, target) for flag, target in targets.items() if target))


async def _look_up(stub: gateway_pb2_grpc.ChatServiceAsyncStub, uses: list[ModelUse]) -> None:
    try:
        response = await stub.ListModels(gateway_pb2.ListModelsRequest(), timeout=_LIST_SECONDS)
    except grpc.aio.AioRpcError:
        return  # Calls will tell.
    known = [name for name in response.model_ids if name.startswith(SCRIPTED_PREFIX)]
    for use in uses:
        for model in models_of(use.model):
            name = model.partition("@")[0]
            if known and name.startswith(SCRIPTED_PREFIX) and name not in known:
                near = difflib.get_close_matches(name, known, n=2)
                hint = f" Did you mean {' or '.join(near)}?" if near else ""
                raise WrongUse(
                    f"--{use.role}-model: no scripted model {name!r}.{hint} "
                    f"There are {', '.join(sorted(known))}"
                )
    for use in uses:
        # Whatever the script, it can check another one.
        model = models_of(use.model)[0]
        role, plays = _CHECKER if model.startswith(SCRIPTED_CHECKERS) else _PLAYS.get(model, _AGENT)
        if role != use.role:
            raise WrongUse(f"--{use.role}-model: {model} is a script for {plays}")


async def _ask(stub: gateway_pb2_grpc.ChatServiceAsyncStub, run_id: str, use: ModelUse) -> str:
    parameters = json.loads(use.parameters or "{}")
    body = {name: value for name, value in parameters.items() if name not in _NEED_TOOLS}
    body["model"] = use.model
    body["messages"] = [{"role": "user", "content": "Reply with the word OK."}]
    request = gateway_pb2.ChatCompletionRequest(
        context=gateway_pb2.CallContext(run_id=run_id, role=use.role),
        body_json=json.dumps(body).encode(),
    )
    try:
        await stub.ChatCompletion(request, timeout=_CALL_SECONDS)
    except grpc.aio.AioRpcError as error:
        info = error_info(error)
        code = info.metadata.get("code", "") if info is not None else ""
        text = f"--{use.role}-model {use.model}: {(error.details() or '').rstrip('.')}"
        if code in _KEY_CODES:
            raise WrongUse(
                f"{text}. Set the provider's key in the environment (OPENAI_API_KEY, ...); a "
                "variable of another name reaches the gateway by --gateway-env NAME"
            ) from error
        if error.code() in _REFUSALS:
            raise WrongUse(f"{text}. Nothing was run") from error
        return f"{text} ({error.code().name}); the run goes on"
    return ""
