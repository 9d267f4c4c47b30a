"""The server in a process of its own: health, reflection, errors, drain, and the parent's end."""

import asyncio
import contextlib
import json
import os
import signal
import sys

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tau2eval.scorer.v1 import scorer_pb2, scorer_pb2_grpc
from tau2eval_common import server as server_module
from tau2eval_common.client import open_channel
from tau2eval_common.errors import error_info

SERVER = """
import asyncio, sys
from tau2eval.scorer.v1 import scorer_pb2, scorer_pb2_grpc
from tau2eval_common import errors
from tau2eval_common.server import run_service
from tau2eval_common.sessions import SessionLimit
from tau2eval_common.settings import ServiceSettings

class Servicer(scorer_pb2_grpc.RunServiceServicer):
    limit = SessionLimit(1, "this server")
    async def GetRun(self, request, context):
        if request.run_id == "missing":
            raise errors.NotFound("no such run", metadata={"run_id": "missing"})
        if request.run_id == "bug":
            raise ValueError("secret detail")
        with self.limit.hold():
            await asyncio.sleep(float(request.run_id))
        return scorer_pb2.GetRunResponse(created_at="done")
    async def WatchRun(self, request, context):
        yield scorer_pb2.WatchRunResponse()
        raise errors.CapacityExhausted("full")

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

class Service:
    name = "example"
    async def start(self):
        if "stubborn" in sys.argv:
            self.task = asyncio.create_task(stubborn(), name="stubborn")
    def register(self, server):
        scorer_pb2_grpc.add_RunServiceServicer_to_server(Servicer(), server)
        return ["tau2eval.scorer.v1.RunService"]
    def addresses(self): return {"http": "127.0.0.1:1"}
    async def stop(self): print("stopped", flush=True)

port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
sys.exit(run_service(Service(), ServiceSettings(exit_with_parent=True, port=port)))
"""


@contextlib.asynccontextmanager
async def running_server(*args):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVER,
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        line = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        async with open_channel(line["grpc"]) as channel:
            yield process, line, channel
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def get_run(channel, run_id):
    stub = scorer_pb2_grpc.RunServiceStub(channel)
    return await stub.GetRun(scorer_pb2.GetRunRequest(run_id=run_id), timeout=60)


async def test_listening_line_health_and_reflection():
    async with running_server() as (_, line, channel):
        assert line["event"] == "listening"
        assert line["service"] == "example"
        assert line["http"] == "127.0.0.1:1"
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "tau2eval.scorer.v1.RunService"):
            reply = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=30)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = reflection.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=30
        )
        async for answer in call:
            listed = {service.name for service in answer.list_services_response.service}
            assert {"tau2eval.scorer.v1.RunService", "grpc.health.v1.Health"} <= listed
            break
        else:
            pytest.fail("reflection gave no answer")


async def test_domain_errors_become_statuses_and_unknown_ones_are_hidden():
    async with running_server() as (_, _, channel):
        with pytest.raises(grpc.RpcError) as failure:
            await get_run(channel, "missing")
        assert failure.value.code() == grpc.StatusCode.NOT_FOUND
        info = error_info(failure.value)
        assert (info.reason, info.domain) == ("NOT_FOUND", "tau2eval")
        assert dict(info.metadata) == {"run_id": "missing"}

        with pytest.raises(grpc.RpcError) as failure:
            await get_run(channel, "bug")
        assert failure.value.code() == grpc.StatusCode.INTERNAL
        assert "secret detail" not in failure.value.details()

        stub = scorer_pb2_grpc.RunServiceStub(channel)
        call = stub.WatchRun(scorer_pb2.WatchRunRequest(), timeout=30)
        assert isinstance(await call.read(), scorer_pb2.WatchRunResponse)
        with pytest.raises(grpc.RpcError) as failure:
            await call.read()
        assert failure.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_one_session_too_many_is_refused_and_the_slot_comes_back():
    async with running_server() as (_, _, channel):
        refusals = []
        while not refusals:
            held = asyncio.ensure_future(get_run(channel, "3"))
            # Of two calls that arrive at once, the short one may have the slot.
            await asyncio.sleep(0.5)
            while not held.done():
                try:
                    await get_run(channel, "0")
                except grpc.RpcError as error:
                    refusals.append((error.code(), error_info(error).reason))
                await asyncio.sleep(0.05)
        assert (await held).created_at == "done"
        assert set(refusals) == {(grpc.StatusCode.RESOURCE_EXHAUSTED, "SESSIONS_EXHAUSTED")}
        assert (await get_run(channel, "0")).created_at == "done"


async def test_sigterm_turns_health_off_and_lets_calls_end():
    async with running_server() as (process, _, channel):
        health = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        held = asyncio.ensure_future(get_run(channel, "2"))
        await asyncio.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        assert (await held).created_at == "done"
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert b"stopped" in await process.stdout.read()


async def test_second_signal_ends_calls_at_once():
    async with running_server() as (process, _, channel):
        held = asyncio.ensure_future(get_run(channel, "600"))
        await asyncio.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert not held.done()
        process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError):
            await held
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_the_end_of_the_parent_ends_the_server_with_calls_in_progress():
    async with running_server() as (process, _, channel):
        held = asyncio.ensure_future(get_run(channel, "600"))
        await asyncio.sleep(0.5)
        process.stdin.close()
        with pytest.raises(grpc.RpcError):
            await held
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_a_quiet_call_may_be_pinged():
    # With a wrong option name the server ended quiet calls after 80 s: "Too many pings".
    quick = {
        "grpc.keepalive_time_ms": 300,
        "grpc.http2.min_ping_interval_without_data_ms": 100,
    }
    options = [(key, quick.get(key, value)) for key, value in server_module.SERVER_OPTIONS]
    assert set(quick) <= {key for key, _ in options}

    class Quiet(scorer_pb2_grpc.RunServiceServicer):
        async def GetRun(self, request, context):
            await asyncio.sleep(4)
            return scorer_pb2.GetRunResponse(created_at="done")

    server = grpc.aio.server(options=options)
    scorer_pb2_grpc.add_RunServiceServicer_to_server(Quiet(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            assert (await get_run(channel, "x")).created_at == "done"
    finally:
        await server.stop(0)


async def test_port_in_use_is_wrong_use():
    async with running_server() as (_, line, _):
        port = line["grpc"].rsplit(":", 1)[1]
        second = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SERVER,
            port,
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(os.environ),
        )
        _, stderr = await asyncio.wait_for(second.communicate(), 60)
        assert second.returncode == 2
        assert f"127.0.0.1:{port} cannot be listened on" in stderr.decode()


async def test_a_task_that_will_not_end_does_not_keep_the_process():
    async with running_server("0", "stubborn") as (process, _, _channel):
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
        errors = (await process.stderr.read()).decode()
    assert "stubborn" in errors
