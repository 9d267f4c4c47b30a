import os
import subprocess
import sys

import pytest

from tau2eval_cli.holders import describe_holder, is_dead


def holder_of(pid: int) -> str:
    return describe_holder().replace(f"process {os.getpid()} ", f"process {pid} ")


def test_a_living_process_is_not_dead() -> None:
    assert not is_dead(describe_holder())


def test_a_process_of_this_machine_that_is_gone_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert is_dead(holder_of(child.pid))


@pytest.mark.parametrize(
    "holder", ["", "alice", "node1 process 12", "node1 process 999999999999999999999 [00000000]"]
)
def test_nothing_is_known_of_others(holder: str) -> None:
    assert not is_dead(holder)


def test_another_machine_of_the_same_name_is_another_machine() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    ours = holder_of(child.pid)
    other = ours[:-2] + ("0" if ours[-2] != "0" else "1") + "]"
    assert is_dead(ours)
    assert not is_dead(other)


def test_a_pid_that_no_machine_has_is_no_error() -> None:
    assert not is_dead(holder_of(10**30))
