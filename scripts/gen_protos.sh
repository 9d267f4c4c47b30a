#!/usr/bin/env bash
# Generates the Python stubs of all contracts. Usage: gen_protos.sh OUTPUT_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
bin=$PWD/.venv/bin
mkdir -p "$out"
find "$out" \( -name '*_pb2*.py' -o -name '*_pb2*.pyi' \) -delete
# shellcheck disable=SC2046
PATH="$bin:$PATH" "$bin/python" -m grpc_tools.protoc -Iproto \
  --python_out="$out" --mypy_out=quiet:"$out" \
  --grpc_python_out="$out" --mypy_grpc_out=quiet:"$out" \
  $(find proto -name '*.proto' | sort)
find "$out/tau2eval" -type d -exec touch {}/__init__.py \;
touch "$out/tau2eval/py.typed"
