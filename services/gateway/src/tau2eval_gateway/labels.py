"""Bounded labels for metrics: a caller can write any model id, a label must not hold it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from tau2eval_gateway.errors import GatewayError
from tau2eval_gateway.flows.ids import CREW_PREFIX, FLOW_NAMES, arm_of, read_model_id

OTHER = "other"


class ModelLabels:
    """Knows the names that may become labels.

    Args:
        models: Model names without a wildcard, from the model list.
        crews: Names of crews.
    """

    def __init__(self, models: Iterable[str], crews: Iterable[str] = ()) -> None:
        crews = list(crews)
        self._models = frozenset(models) | {f"{CREW_PREFIX}{name}" for name in crews}
        flows = [
            chosen
            for count in range(len(FLOW_NAMES) + 1)
            for chosen in combinations(FLOW_NAMES, count)
        ]
        self._arms = {arm_of(chosen) for chosen in flows} | {f"crew:{name}" for name in crews}

    def model(self, model: str) -> str:
        """Returns the label of a model id: the listed name that answers, or "other".

        Control flows in the id are left out: they are the arm's label. Names that only a wildcard
        of the model list matches are without number, and so "other".
        """
        if model in self._models:
            return model
        try:
            plan = read_model_id(model, {})
        except GatewayError:
            return OTHER
        return plan.agent_model if plan is not None and plan.agent_model in self._models else OTHER

    def arm(self, arm: str) -> str:
        """Returns the label of an arm, which callers can name as they like: theirs are "other"."""
        return arm if arm in self._arms else OTHER
