"""The model list, in the form of the LiteLLM proxy's configuration file."""

from __future__ import annotations

import difflib
import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tau2eval_gateway.prices import Prices

logger = logging.getLogger(__name__)

ENVIRON_PREFIX = "os.environ/"
_UNUSED_SECTIONS = frozenset(
    {"litellm_settings", "general_settings", "router_settings", "environment_variables"}
)
_OWN_PARAMS = frozenset({"model", "api_base", "api_key", "extra_headers", "timeout"})
_PRICES = frozenset(
    {
        "input_cost_per_token",
        "output_cost_per_token",
        "cache_read_input_token_cost",
        "cache_creation_input_token_cost",
        "output_cost_per_reasoning_token",
    }
)
_PRICE_ABOVE = re.compile(rf"({'|'.join(sorted(_PRICES))})_above_([1-9]\d{{0,4}})k_tokens")
# What LiteLLM is told beside the request: credentials and places, nothing that changes the body.
_LITELLM_PARAMS = frozenset(
    {"api_version", "organization", "custom_llm_provider", "region_name", "project", "tenant_id"}
)
_LITELLM_FAMILIES = ("aws_", "azure_", "vertex_", "watsonx_", "gcs_", "oci_", "sap_")
_INFO = frozenset({"id", "base_model", "mode", "description", "tau2eval_own"}) | _PRICES
_INFO_FAMILIES = ("max_", "supports_")


class ModelListError(ValueError):
    """The configuration file is wrong; the message names the file and the key."""


@dataclass(frozen=True)
class Deployment:
    """One entry of the model list.

    Attributes:
        model_name: What callers ask for; may hold "*".
        model: `litellm_params.model`; may hold "*" when `model_name` does.
        api_base: URL up to and with /v1; may be "os.environ/NAME", as may any text in `params`.
        api_key: The upstream's key or "os.environ/NAME"; empty: none.
        extra_headers: Sent to the upstream.
        timeout_seconds: Bound on a whole call; None: the gateway's own.
        params: Further arguments for LiteLLM.
        prices: Dollars a token, when the file tells them.
        own: One of our own servers, which is told run and scenario.
    """

    model_name: str
    model: str
    api_base: str = ""
    api_key: str = field(default="", repr=False)
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float | None = None
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    prices: Prices | None = None
    own: bool = False

    @property
    def direct(self) -> bool:
        """Whether the upstream speaks OpenAI's protocol at an address that is given."""
        return (
            bool(self.api_base)
            and self.model.startswith("openai/")
            and "custom_llm_provider" not in self.params
        )


def default_deployments(scripted_address: str) -> list[Deployment]:
    """Returns the model list without a file: scripted models, and any id as LiteLLM's own.

    Args:
        scripted_address: host:port of the scripted models; empty: none.
    """
    deployments = [Deployment(model_name="*", model="*")]
    if scripted_address:
        deployments.insert(
            0,
            Deployment(
                model_name="scripted/*",
                model="openai/scripted/*",
                api_base=f"http://{scripted_address}/v1",
                own=True,
            ),
        )
    return deployments


def read_config(path: Path) -> dict[str, Any]:
    """Returns the content of a model list's file.

    Raises:
        ModelListError: It cannot be read or is no mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelListError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise ModelListError(f"{path}{where}: not valid YAML") from None
    if not isinstance(content, dict):
        raise ModelListError(f"{path}: no mapping with model_list")
    return content


def load_deployments(path: Path) -> list[Deployment]:
    """Reads a model list.

    Raises:
        ModelListError: The file cannot be read, or something in it is unknown or wrong.
    """
    content = read_config(path)
    _check_keys(path, "", content, {"model_list", "crews"} | _UNUSED_SECTIONS)
    for section in sorted(_UNUSED_SECTIONS & content.keys()):
        logger.warning("%s: %s belongs to LiteLLM's proxy and is not used here", path, section)
    entries = content.get("model_list")
    if not isinstance(entries, list) or not entries:
        raise ModelListError(f"{path}: model_list is not a list with entries")
    return [_deployment(path, f"model_list[{at}]", entry) for at, entry in enumerate(entries)]


def _deployment(path: Path, where: str, entry: object) -> Deployment:
    entry = _mapping(path, where, entry)
    _check_keys(path, where, entry, {"model_name", "litellm_params", "model_info"})
    params = _mapping(path, f"{where}.litellm_params", entry.get("litellm_params"))
    info = _mapping(path, f"{where}.model_info", entry.get("model_info") or {})
    known = _OWN_PARAMS | _LITELLM_PARAMS | _PRICES
    _check_keys(path, f"{where}.litellm_params", params, known, _LITELLM_FAMILIES)
    _check_keys(path, f"{where}.model_info", info, _INFO, _INFO_FAMILIES)
    timeout = params.get("timeout")
    if timeout is not None and (not _is_number(timeout) or timeout <= 0):
        raise ModelListError(f"{path}: {where}.litellm_params.timeout is not a number above 0")
    own = info.get("tau2eval_own", False)
    if not isinstance(own, bool):
        raise ModelListError(f"{path}: {where}.model_info.tau2eval_own is neither true nor false")
    headers = _mapping(
        path, f"{where}.litellm_params.extra_headers", params.get("extra_headers") or {}
    )
    deployment = Deployment(
        model_name=_text(path, f"{where}.model_name", entry.get("model_name")),
        model=_text(path, f"{where}.litellm_params.model", params.get("model")),
        api_base=_optional(path, f"{where}.litellm_params.api_base", params).rstrip("/"),
        api_key=_optional(path, f"{where}.litellm_params.api_key", params),
        extra_headers={str(name): str(value) for name, value in headers.items()},
        timeout_seconds=float(timeout) if timeout is not None else None,
        params={k: v for k, v in params.items() if k not in _OWN_PARAMS and not _is_price(k)},
        prices=_prices(path, where, {**info, **params}),
        own=own,
    )
    _check(path, where, deployment)
    return deployment


def _check(path: Path, where: str, deployment: Deployment) -> None:
    base = deployment.api_base
    if base and not base.startswith(ENVIRON_PREFIX):
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ModelListError(f"{path}: {where}.litellm_params.api_base is no http(s) URL")
    if deployment.own and not deployment.direct:
        raise ModelListError(
            f"{path}: {where}.model_info.tau2eval_own needs a model openai/... with an api_base"
        )
    if deployment.direct and deployment.params:
        key = sorted(deployment.params)[0]
        raise ModelListError(
            f"{path}: {where}.litellm_params.{key} has no meaning for openai/... with an api_base"
        )
    if "*" in deployment.model and "*" not in deployment.model_name:
        raise ModelListError(f"{path}: {where}.litellm_params.model has a * and model_name none")
    if deployment.model_name.count("*") > 1 or deployment.model.count("*") > 1:
        raise ModelListError(f"{path}: {where}: only one * is supported in a name")
    if deployment.model_name.startswith(("marina/", "marina:")):
        raise ModelListError(f"{path}: {where}.model_name: names under marina are reserved")


def _is_price(key: str) -> bool:
    return key in _PRICES or _PRICE_ABOVE.fullmatch(key) is not None


def _prices(path: Path, where: str, values: Mapping[str, Any]) -> Prices | None:
    given = {key: values[key] for key in values if _is_price(key) and values[key] is not None}
    for key, value in given.items():
        if not _is_number(value) or not 0 <= value < math.inf:
            raise ModelListError(f"{path}: {where}: {key} is not a number of dollars")
    if not given:
        return None
    for key in ("input_cost_per_token", "output_cost_per_token"):
        if key not in given:
            raise ModelListError(f"{path}: {where}: prices are given without {key}")
    steps: dict[int, dict[str, float]] = {}
    for key, value in given.items():
        if match := _PRICE_ABOVE.fullmatch(key):
            steps.setdefault(int(match.group(2)) * 1000, {})[match.group(1)] = value
    # What a step does not name costs what it costs below it.
    names = {key: float(value) for key, value in given.items() if key in _PRICES}
    above: list[tuple[int, Prices]] = []
    for tokens in sorted(steps):
        names = {**names, **steps[tokens]}
        above.insert(0, (tokens, _price_list(names)))
    base = {key: float(value) for key, value in given.items() if key in _PRICES}
    return replace(_price_list(base), above=tuple(above))


def _price_list(names: Mapping[str, float]) -> Prices:
    return Prices(
        input=names["input_cost_per_token"],
        output=names["output_cost_per_token"],
        cache_read=names.get("cache_read_input_token_cost"),
        cache_write=names.get("cache_creation_input_token_cost"),
        reasoning=names.get("output_cost_per_reasoning_token"),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _mapping(path: Path, where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ModelListError(f"{path}: {where} is not a mapping")
    return value


def _text(path: Path, where: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ModelListError(f"{path}: {where} is missing or is no text")
    return value


def _optional(path: Path, where: str, params: Mapping[str, Any]) -> str:
    value = params.get(where.rsplit(".", 1)[1])
    if value is None:
        return ""
    return _text(path, where, value)


def _check_keys(
    path: Path,
    where: str,
    mapping: Mapping[str, Any],
    known: frozenset[str] | set[str],
    families: tuple[str, ...] = (),
) -> None:
    for key in mapping:
        if key in known or (families and str(key).startswith(families)):
            continue
        if known >= _PRICES and _is_price(str(key)):
            continue
        near = difflib.get_close_matches(str(key), known, n=2)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        prefix = f"{where}." if where else ""
        raise ModelListError(f"{path}: {prefix}{key} is not supported by this gateway{hint}")
