#!/usr/bin/env bash
# Installs from Debian what tests start as programs: a PostgreSQL server,
# a Redis server and Chromium.
# What is there is left alone. Needs root, or sudo without a password.
set -euo pipefail

missing=()
if ! command -v postgres >/dev/null && ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
  missing+=(postgresql)
fi
command -v redis-server >/dev/null || missing+=(redis-server)
if ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then
  missing+=(chromium)
fi
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
command -v apt-get >/dev/null || {
  echo "install: ${missing[*]} missing and no apt-get; install them by hand" >&2
  exit 1
}
echo "install: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q >/dev/null
"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
