#!/usr/bin/env bash
# Makes the virtual environment of the servers that `make bench-gateway` compares with; again at no cost.
# It stands apart from .venv because LiteLLM's proxy pins what we do not. Usage: bench_env.sh VENV
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
python=${PYTHON:-python3}
stamp=$venv/.installed
wanted=(
  'litellm[proxy]==1.108.7'
  aiohttp==3.14.5
  granian==2.8.9
  httptools==0.9.0
  httpx==0.28.1
  starlette==1.10.0
  uvicorn==0.54.0
  uvloop==0.23.0
)

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${wanted[*]}" ]; then exit 0; fi
echo "bench_env: installing ${wanted[0]} and four servers into $venv (750 MB, a minute or two)" >&2
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check --quiet install "${wanted[@]}"
# The import is the proof; a half-made environment gets no stamp.
LITELLM_LOCAL_MODEL_COST_MAP=True "$venv/bin/python" -c "import granian, uvicorn, uvloop, litellm.proxy.proxy_server"
printf '%s' "${wanted[*]}" >"$stamp"
