#!/usr/bin/env bash
# Makes a virtual environment with every locked requirement and the workspace's packages.
# Usage: setup.sh VENV PACKAGE_DIR...
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1; shift
python=${PYTHON:-python3}

"$python" - <<'PY' || exit 2
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(f"setup: Python 3.11 to 3.13 is needed, {sys.version.split()[0]} was found. "
             "Name another: make setup PYTHON=python3.12")
PY

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
echo "setup: installing the locked requirements into $venv (a minute or two the first time)"
pip install --require-hashes -r requirements.lock
editable=()
for package in "$@"; do editable+=(-e "$package"); done
pip install --no-deps --no-build-isolation "${editable[@]}"
echo "setup: done; the command is $venv/bin/tau2-eval"
