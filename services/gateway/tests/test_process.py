import asyncio
import os
import subprocess
import sys

SCRIPT = """
import asyncio, json, sys
import aiohttp
from tau2eval_gateway.model_list import default_deployments
from tau2eval_gateway.service import GatewayService
from tau2eval_gateway.settings import GatewaySettings, SeedSettings

async def main(address, folder):
    settings = GatewaySettings(http_port=0, data_dir=folder)
    service = GatewayService(
        settings, SeedSettings(MARINA_OPEN_API="true"), default_deployments(address), {}
    )
    await service.start()
    try:
        async with aiohttp.ClientSession() as session:
            url = f"http://{service.addresses()['http']}/v1/chat/completions"
            body = {"model": "scripted/x", "messages": [{}]}
            async with session.post(url, json=body) as response:
                print(response.status)
    finally:
        await service.stop()
    print("litellm" in sys.modules, "openai" in sys.modules)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_scripted_models_do_not_import_litellm(upstream, h, tmp_path):
    upstream.replies["scripted/x"] = upstream.answer(h.completion())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, upstream.address, str(tmp_path), stdout=subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert out.decode().split() == ["200", "False", "False"]


def run(arguments, environ):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TAU2EVAL_")}
    return subprocess.run(
        [sys.executable, "-m", "tau2eval_gateway", *arguments],
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_and_wrong_use(tmp_path):
    done = run(["--help"], {})
    assert done.returncode == 0
    for name in ("TAU2EVAL_GATEWAY_HTTP_PORT", "TAU2EVAL_GATEWAY_MODEL_CONFIG", "MODEL_API_KEYS",
                 "MARINA_OPEN_API", "DATABASE_URL"):  # fmt: skip
        assert name in done.stdout
    assert run(["--port", "1"], {}).returncode == 2
    unknown = run([], {"TAU2EVAL_GATEWAY_HTTP_PROT": "1"})
    assert unknown.returncode == 2
    assert "HTTP_PORT" in unknown.stderr
    (tmp_path / "models.yaml").write_text("model_lst: []")
    wrong = run([], {"TAU2EVAL_GATEWAY_MODEL_CONFIG": str(tmp_path / "models.yaml")})
    assert wrong.returncode == 2
    assert "models.yaml" in wrong.stderr
    assert "model_lst" in wrong.stderr
    driver = run(
        [],
        {
            "TAU2EVAL_GATEWAY_PORT": "0",
            "TAU2EVAL_GATEWAY_HTTP_PORT": "0",
            "TAU2EVAL_GATEWAY_DATA_DIR": str(tmp_path),
            "DATABASE_URL": "mysql+nodriver://u:secret-word@h/d",
        },
    )
    assert driver.returncode == 2
    assert "DATABASE_URL" in driver.stderr
    assert "secret-word" not in driver.stderr
