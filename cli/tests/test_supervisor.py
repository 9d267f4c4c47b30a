import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tau2eval_cli.child import StartError
from tau2eval_cli.supervisor import MAX_RESTARTS, Supervisor, SupervisorConfig
from tau2eval_cli.wiring import Wiring


def config(fakes, tmp_path: Path, environ: dict[str, str] | None = None, **wiring):
    return SupervisorConfig(
        wiring=Wiring(artifacts_dir=tmp_path / "runs", **wiring),
        logs_dir=tmp_path / "logs",
        environ={"PATH": os.environ["PATH"], **(environ or {})},
        start_seconds=30,
        grace_seconds=2,
        restart_pause_seconds=0.01,
        command=fakes.command,
    )


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_all_start_connected_and_end_in_order(fakes, tmp_path: Path) -> None:
    async with Supervisor(config(fakes, tmp_path, sessions=5), print) as supervisor:
        running, pids = supervisor.running, supervisor.pids()
        assert len(pids) == 6
        assert running["gateway"].http
        assert running["scripted-models"].grpc == ""
    assert all(gone(pid) for pid in pids.values())
    ends = fakes.ends()
    assert ends[0] == "bridge"
    assert set(ends[1:3]) == {"agent-bot", "user-bot"}
    assert ends[3:] == ["scorer", "gateway", "scripted-models"]
    bridge = fakes.environment("bridge")
    assert bridge["TAU2EVAL_BRIDGE_AGENT_ADDRESS"] == running["agent-bot"].grpc
    assert bridge["TAU2EVAL_BRIDGE_USER_ADDRESS"] == running["user-bot"].grpc
    assert bridge["TAU2EVAL_BRIDGE_SCORER_ADDRESS"] == running["scorer"].grpc
    assert bridge["TAU2EVAL_BRIDGE_MAX_SESSIONS"] == "5"
    gateway = fakes.environment("gateway")
    assert gateway["TAU2EVAL_GATEWAY_SCRIPTED_ADDRESS"] == running["scripted-models"].http
    for name in ("agent-bot", "user-bot"):
        prefix = f"TAU2EVAL_{name.upper().replace('-', '_')}_"
        assert fakes.environment(name)[f"{prefix}GATEWAY_ADDRESS"] == running["gateway"].grpc
    scorer = fakes.environment("scorer")
    assert scorer["TAU2EVAL_SCORER_ARTIFACTS_DIR"] == str(tmp_path / "runs")
    assert "bridge starts" in (tmp_path / "logs" / "bridge.log").read_text()
    assert "not the line" in (tmp_path / "logs" / "bridge.log").read_text()


async def test_a_planted_key_reaches_the_gateway_alone(fakes, tmp_path: Path) -> None:
    planted = {"OPENAI_API_KEY": "sk-planted", "SOME_SECRET": "sk-planted"}
    async with Supervisor(config(fakes, tmp_path, planted), print) as supervisor:
        names = list(supervisor.running)
    seen = {name for name in names if "sk-planted" in fakes.environment(name).values()}
    assert seen == {"gateway"}
    assert "SOME_SECRET" not in fakes.environment("gateway")


async def test_bots_of_the_persons_own_are_not_started(fakes, tmp_path: Path) -> None:
    own = config(fakes, tmp_path, agent_address="127.0.0.1:9000")
    async with Supervisor(own, print) as supervisor:
        assert "agent-bot" not in supervisor.running
        assert "user-bot" in supervisor.running
    assert fakes.environment("bridge")["TAU2EVAL_BRIDGE_AGENT_ADDRESS"] == "127.0.0.1:9000"


async def test_a_dead_service_comes_back_on_its_ports_and_it_is_told(
    fakes, tmp_path: Path, until
) -> None:
    told: list[str] = []
    async with Supervisor(config(fakes, tmp_path), told.append) as supervisor:
        before, pids = dict(supervisor.running), supervisor.pids()
        assert supervisor.complete.is_set()
        os.kill(pids["gateway"], signal.SIGKILL)
        await until(lambda: any("gateway was ended" in text for text in told))
        assert not supervisor.complete.is_set()
        await until(lambda: any("gateway listens again" in text for text in told))
        assert supervisor.complete.is_set()
        assert supervisor.running == before
        assert supervisor.pids()["gateway"] != pids["gateway"]
        others = {name: pid for name, pid in supervisor.pids().items() if name != "gateway"}
        assert others == {name: pid for name, pid in pids.items() if name != "gateway"}
    assert any("gateway was ended by SIGKILL" in text and "1 of 5" in text for text in told)
    again = fakes.environment("gateway", start=1)
    assert before["gateway"].grpc.endswith(f":{again['TAU2EVAL_GATEWAY_PORT']}")
    assert before["gateway"].http.endswith(f":{again['TAU2EVAL_GATEWAY_HTTP_PORT']}")


@pytest.mark.parametrize("mode", ["dies", "fails-again"])
async def test_a_service_that_keeps_dying_is_given_up(fakes, tmp_path: Path, mode: str) -> None:
    told: list[str] = []
    environ = {"TAU2EVAL_USER_BOT_FAKE": mode}
    async with Supervisor(config(fakes, tmp_path, environ), told.append) as supervisor:
        if mode == "fails-again":
            os.kill(supervisor.pids()["user-bot"], signal.SIGKILL)
        async with asyncio.timeout(60):
            await supervisor.given_up.wait()
        # No call waits for a service that will not come back.
        assert supervisor.complete.is_set()
    assert sum("starting it again" in text for text in told) == MAX_RESTARTS
    assert "given up" in told[-1]
    assert len(list(fakes.folder.glob("user-bot.*.json"))) == 1 + MAX_RESTARTS


async def test_a_service_that_fails_to_start_is_explained_and_nothing_stays(
    fakes, tmp_path: Path
) -> None:
    supervisor = Supervisor(config(fakes, tmp_path, {"TAU2EVAL_USER_BOT_FAKE": "fails"}), print)
    with pytest.raises(StartError) as caught:
        async with supervisor:
            pass
    # The service called it wrong use, so it is wrong use of this command, too.
    assert caught.value.exit_code == 2
    assert "user-bot ended with exit code 2 before it listened" in caught.value.message
    assert "the port is taken" in caught.value.message
    assert supervisor.pids() == {}
    # The scorer starts at the same time, and may be ended before it can note it.
    assert {"scripted-models", "gateway"} <= set(fakes.ends())
    assert not (fakes.folder / "bridge.0.json").exists()


async def test_a_service_that_says_nothing_is_not_waited_for_forever(fakes, tmp_path: Path) -> None:
    slow = config(fakes, tmp_path, {"TAU2EVAL_SCORER_FAKE": "silent"})
    slow = type(slow)(**{**vars(slow), "start_seconds": 2.0})
    with pytest.raises(StartError, match="scorer did not listen within 2 s"):
        async with Supervisor(slow, print):
            pass


@pytest.mark.parametrize("mode", ["busy", "stubborn"])
async def test_a_service_that_does_not_end_is_ended(fakes, tmp_path: Path, mode: str) -> None:
    environ = {"TAU2EVAL_BRIDGE_FAKE": mode, "TAU2EVAL_BRIDGE_EXIT_WITH_PARENT": "false"}
    quick = config(fakes, tmp_path, environ)
    quick = type(quick)(**{**vars(quick), "grace_seconds": 0.5})
    async with Supervisor(quick, print) as supervisor:
        pid = supervisor.pids()["bridge"]
    assert gone(pid)
    assert ("bridge" in fakes.ends()) == (mode == "busy")


_SUPERVISE = """
import asyncio, json, os, pathlib, sys
from tau2eval_cli.supervisor import Supervisor, SupervisorConfig
from tau2eval_cli.wiring import Wiring
fake, folder = sys.argv[1], pathlib.Path(sys.argv[2])
async def main():
    config = SupervisorConfig(
        wiring=Wiring(artifacts_dir=folder), logs_dir=folder / "logs", environ=dict(os.environ),
        command=lambda spec: [sys.executable, fake, spec.name, spec.prefix, str(folder)])
    async with Supervisor(config, print) as supervisor:
        print(json.dumps(supervisor.pids()), flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_no_process_is_left_behind_when_we_are_killed(fakes, until) -> None:
    fake = fakes.command(type("Spec", (), {"name": "", "prefix": ""}))[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SUPERVISE, fake, str(fakes.folder)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        pids = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        assert len(pids) == 6
        assert not any(gone(pid) for pid in pids.values())
    finally:
        process.kill()
        await process.wait()
    await until(lambda: all(gone(pid) for pid in pids.values()))
