"""Puts the control flows together from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tau2eval_gateway.crews import Crew, check_crews, load_crews
from tau2eval_gateway.errors import GatewayError
from tau2eval_gateway.flows.argcheck import ArgcheckFlow
from tau2eval_gateway.flows.base import Flow
from tau2eval_gateway.flows.ids import Plan, is_flow_id
from tau2eval_gateway.flows.obligations import ObligationsFlow
from tau2eval_gateway.flows.pipeline import AskModel, FlowSettings, LessonSource, Pipeline
from tau2eval_gateway.flows.state import StateStore
from tau2eval_gateway.flows.verify import VerifyFlow
from tau2eval_gateway.model_list import ModelListError
from tau2eval_gateway.routes import Router
from tau2eval_gateway.settings import GatewaySettings, SeedSettings


class FlowFactory:
    """Gives the flow of a name for a plan. A flow without choices in the plan is one object.

    Args:
        seed: Models and modes of the flows.
    """

    def __init__(self, seed: SeedSettings) -> None:
        self._checkers = (seed.verify_checker_model,) if seed.verify_checker_model else ()
        self._rounds = seed.verify_rounds
        self._obligations = ObligationsFlow(seed.obligations_model)
        self._argcheck = ArgcheckFlow(
            seed.argcheck_model or seed.obligations_model, seed.argcheck_trigger
        )

    def __call__(self, name: str, plan: Plan) -> Flow:
        """Returns the flow."""
        if name == "obligations":
            return self._obligations
        if name == "argcheck":
            return self._argcheck
        rounds = self._rounds if plan.rounds is None else plan.rounds
        return VerifyFlow(plan.checkers or self._checkers, rounds)


def make_pipeline(
    ask: AskModel,
    settings: GatewaySettings,
    seed: SeedSettings,
    store: StateStore,
    lessons: LessonSource | None,
) -> Pipeline:
    """Returns the pipeline that the settings describe."""
    return Pipeline(
        ask,
        FlowFactory(seed),
        store,
        lessons,
        FlowSettings(
            lessons=seed.lessons,
            helper_seconds=settings.helper_timeout_seconds,
            total_seconds=settings.total_timeout_seconds,
        ),
    )


def configured_crews(settings: GatewaySettings) -> dict[str, Crew]:
    """Returns the crews of the model list's file.

    Raises:
        ModelListError: Something in it is wrong.
    """
    path = settings.model_config_file
    return {} if path is None else load_crews(path)


def check_models(
    router: Router, settings: GatewaySettings, seed: SeedSettings, crews: Mapping[str, Crew]
) -> None:
    """Checks that every model that crews and settings name is there, before a call needs it.

    Raises:
        ModelListError: One is not; names the setting or the crew.
    """
    if settings.model_config_file is not None:
        check_crews(crews, settings.model_config_file, router.check)
    for name, model in (
        ("MARINA_VERIFY_CHECKER_MODEL", seed.verify_checker_model),
        ("MARINA_OBLIGATIONS_MODEL", seed.obligations_model),
        ("MARINA_ARGCHECK_MODEL", seed.argcheck_model),
    ):
        if model:
            _check_helper(name, model, router.check)


def _check_helper(name: str, model: str, check: Callable[[str], None]) -> None:
    if is_flow_id(model):
        raise ModelListError(f"{name} is a plain model id, without a control flow or a crew")
    try:
        check(model)
    except GatewayError:
        raise ModelListError(f"{name}: no entry of the model list serves {model!r}") from None
