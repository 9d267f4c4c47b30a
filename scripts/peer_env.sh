#!/usr/bin/env bash
# Makes the virtual environment of the official toolkit, for `make validity` and `make tau2-cli`; again at no cost.
# It stands apart from .venv because its requirements contradict ours. Usage: peer_env.sh VENV REQUIREMENT
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 requirement=$2
python=${PYTHON:-python3}
stamp=$venv/.installed

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$requirement" ]; then exit 0; fi
echo "peer_env: installing $requirement into $venv (1 GB, some minutes the first time)" >&2
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check --quiet install \
  --constraint scripts/peer_constraints.txt "$requirement"
# The import is the proof; a half-made environment gets no stamp.
LITELLM_LOCAL_MODEL_COST_MAP=True "$venv/bin/python" -c "import tau2.domains.airline.tools" 2>/dev/null
printf '%s' "$requirement" >"$stamp"
