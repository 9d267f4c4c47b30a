"""What each child process gets to see of the environment: its own settings and no one's keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tau2eval_cli.errors import WrongUse
from tau2eval_cli.services import GATEWAY, SCORER, SERVICES, ServiceSpec

PREFIX: Final = "TAU2EVAL_"

_SYSTEM = re.compile(
    r"""PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP
    |PYTHON\w*|VIRTUAL_ENV|SSL_\w+|LD_LIBRARY_PATH|DYLD_\w+|XDG_CACHE_HOME
    |OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES|GRPC_VERBOSITY""",
    re.VERBOSE,
)
_FIXTURES = re.compile(r"EVAL_DATA_ROOT|TAU2_DATA_DIR")
# Keys and addresses of model providers, by the names that LiteLLM reads, and the gateway's own
# settings that have no prefix of ours.
_PROVIDERS = re.compile(
    r"""\w+_API_KEYS?|\w+_API_BASE|\w+_API_VERSION|\w+_BASE_URL|\w+_ORGANIZATION|\w+_ENDPOINT
    |\w*MODEL_API_KEYS|MARINA_\w+|DATABASE_URL|AWS_\w+|AZURE_\w+|GOOGLE_\w+|GEMINI_\w+|VERTEX\w+
    |WATSONX_\w+|DATABRICKS_\w+|HF_TOKEN|HUGGINGFACE_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE""",
    re.VERBOSE,
)
# Where runs are kept, if not in SQLite and files; the keys only where an object store is named.
_STORE = re.compile(r"DATABASE_URL|PG(PASSFILE|SSL\w+)")
_OBJECT_STORE = re.compile(r"AWS_\w+")
_PROXIES = re.compile(r"(HTTP|HTTPS|ALL)_PROXY", re.IGNORECASE)
_LOCAL: Final = ("127.0.0.1", "localhost", "::1")


def child_environment(
    spec: ServiceSpec,
    environ: Mapping[str, str],
    *,
    defaults: Mapping[str, str] | None = None,
    forced: Mapping[str, str] | None = None,
    gateway_names: Iterable[str] = (),
) -> dict[str, str]:
    """Returns the environment of a service's process.

    It holds what any program needs, the service's own settings, the place of the fixtures for those
    that read them, keys and proxies of providers for the gateway only, and the database and object
    store of the runs for the scorer.

    Args:
        spec: The service.
        environ: The environment of this command.
        defaults: Settings that apply where the person set none, by variable name.
        forced: Settings that apply in any case: addresses and ports of this set of processes.
        gateway_names: Further variables that the gateway gets (a key of another name).
    """
    child = {name: value for name, value in environ.items() if _SYSTEM.fullmatch(name)}
    if spec.needs_fixtures:
        child |= {name: value for name, value in environ.items() if _FIXTURES.fullmatch(name)}
    if spec.reaches_providers:
        wanted = {*gateway_names, *_model_list_names(environ)}
        child |= {
            name: value
            for name, value in environ.items()
            if not name.startswith(PREFIX)
            and (name in wanted or _PROVIDERS.fullmatch(name) or _PROXIES.fullmatch(name))
        }
        if any(_PROXIES.fullmatch(name) for name in child):
            child |= _no_proxy(environ)
    if spec.keeps_runs:
        wanted_here = [_STORE, *([_OBJECT_STORE] if keeps_artifacts_elsewhere(environ) else [])]
        child |= {
            name: value
            for name, value in environ.items()
            if any(pattern.fullmatch(name) for pattern in wanted_here)
        }
    child |= defaults or {}
    child |= {
        name: value
        for name, value in environ.items()
        if name.startswith(spec.prefix) and name not in address_names(spec)
    }
    child |= forced or {}
    return child


def address_names(spec: ServiceSpec) -> tuple[str, str]:
    """Returns the variables that tell this command where a service is: gRPC and HTTP."""
    return spec.key("address"), spec.key("http_address")


def keeps_artifacts_elsewhere(environ: Mapping[str, str]) -> bool:
    """Tells whether a scorer of ours keeps artifacts in an object store."""
    return bool(environ.get(SCORER.key("artifacts_url")))


def check_environment(environ: Mapping[str, str]) -> None:
    """Refuses a variable with our prefix that belongs to no service: most likely a slip.

    Raises:
        WrongUse: With the prefixes that there are.
    """
    prefixes = tuple(spec.prefix for spec in SERVICES.values())
    for name in sorted(environ):
        if name.startswith(PREFIX) and not name.startswith(prefixes):
            raise WrongUse(
                f"{name} in the environment is a setting of no service; settings begin with "
                f"{', '.join(sorted(prefixes))}"
            )


def _model_list_names(environ: Mapping[str, str]) -> list[str]:
    """Returns the variables that the gateway's model list reads as os.environ/NAME."""
    path = environ.get(GATEWAY.key("model_config"), "")
    try:
        text = Path(path).read_text(encoding="utf-8") if path else ""
    except (OSError, UnicodeDecodeError):
        return []  # The gateway says what is wrong with it.
    return re.findall(r"os\.environ/(\w+)", text)


def _no_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """Keeps calls to this machine (the scripted models) off the proxy."""
    given = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    names = [name.strip() for name in given.split(",") if name.strip()]
    value = ",".join([*names, *(name for name in _LOCAL if name not in names)])
    return {"NO_PROXY": value, "no_proxy": value}
