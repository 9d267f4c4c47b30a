"""Which upstream serves a model id."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_gateway.errors import ModelNotFound, NotConfigured
from tau2eval_gateway.model_list import ENVIRON_PREFIX, Deployment


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one model id.

    Attributes:
        deployment: The entry of the model list that matched.
        model: Full LiteLLM id of the model to ask, "openai/gpt-5.2" for instance.
    """

    deployment: Deployment
    model: str

    @property
    def upstream_model(self) -> str:
        """The id that the upstream knows."""
        if self.deployment.direct:
            return self.model.removeprefix("openai/")
        return self.model

    @property
    def provider(self) -> str:
        """Short name of who serves it, for metadata."""
        if self.deployment.own:
            return "tau2-eval"
        provider = self.deployment.params.get("custom_llm_provider")
        if isinstance(provider, str):
            return provider
        return self.model.split("/", 1)[0] if "/" in self.model else "litellm"


class Router:
    """Finds routes as LiteLLM's proxy does: an exact name first, then the most specific pattern.

    Entries of the same name take turns.
    """

    def __init__(self, deployments: Sequence[Deployment]) -> None:
        groups: dict[str, list[Deployment]] = {}
        for deployment in deployments:
            groups.setdefault(deployment.model_name, []).append(deployment)
        self._turns = {name: itertools.cycle(range(len(group))) for name, group in groups.items()}
        self._groups = groups
        patterns = [name for name in groups if "*" in name]
        self._patterns = [
            (name, re.compile("(.*)".join(re.escape(part) for part in name.split("*"))))
            for name in sorted(patterns, key=len, reverse=True)
        ]

    def find(self, model: str) -> Route:
        """Returns the route of a model id; see `find_all`."""
        return self.find_all(model)[0]

    def find_all(self, model: str) -> list[Route]:
        """Returns the routes of a model id: the one whose turn it is, then those to fall back on.

        Raises:
            ModelNotFound: No entry matches.
        """
        if "*" not in model:
            if model in self._groups:
                return [Route(deployment, deployment.model) for deployment in self._turn(model)]
            for name, pattern in self._patterns:
                if match := pattern.fullmatch(model):
                    return [
                        Route(deployment, deployment.model.replace("*", match.group(1)))
                        for deployment in self._turn(name)
                    ]
        raise _unknown()

    def _turn(self, name: str) -> list[Deployment]:
        group = self._groups[name]
        first = next(self._turns[name])
        return group[first:] + group[:first]

    def check(self, model: str) -> None:
        """Does what `find` does without taking a turn.

        Raises:
            ModelNotFound: No entry matches.
        """
        exact = model in self._groups and "*" not in model
        if not exact and ("*" in model or not any(p.fullmatch(model) for _, p in self._patterns)):
            raise _unknown()

    def names(self) -> list[str]:
        """Returns the model names without a wildcard."""
        return sorted(name for name in self._groups if "*" not in name)

    def own_patterns(self) -> list[Deployment]:
        """Returns the entries with a wildcard whose upstream is our own and can list its models."""
        return [
            deployment
            for name, group in self._groups.items()
            if "*" in name
            for deployment in group
            if deployment.own
        ]


def _unknown() -> ModelNotFound:
    return ModelNotFound(
        "no such model here; GET /v1/models lists the models that have names",
        error_code="model_not_found",
        param="model",
    )


class Environment:
    """Looks up os.environ/NAME values when they are first needed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def resolve(self, value: Any) -> Any:
        """Returns a configured value, or what the variable that it names holds.

        Raises:
            NotConfigured: The variable is not set; names it, never a value.
        """
        if not isinstance(value, str) or not value.startswith(ENVIRON_PREFIX):
            return value
        name = value.removeprefix(ENVIRON_PREFIX)
        found = self._environ.get(name, "")
        if not found:
            raise NotConfigured(
                f"the model list takes a value from the environment variable {name}, which is "
                "not set for the gateway",
                error_code="missing_environment_variable",
            )
        return found
