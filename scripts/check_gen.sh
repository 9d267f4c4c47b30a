#!/usr/bin/env bash
# Fails when generating the stubs again would change what is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
scripts/gen_protos.sh "$fresh"
if ! diff -r -x __pycache__ "$fresh/tau2eval" libs/proto/src/tau2eval; then
  echo "check-gen: libs/proto differs from proto/; run 'make gen' and commit the result" >&2
  exit 1
fi
echo "check-gen: libs/proto is what proto/ generates"
