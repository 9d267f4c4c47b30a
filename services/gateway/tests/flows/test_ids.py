from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_gateway.errors import GatewayError
from tau2eval_gateway.flows.ids import FLOW_NAMES, arm_of, is_flow_id, read_model_id


@dataclass
class Crew:
    name: str = "support"
    proposer: str = "openai/a"
    checkers: tuple[str, ...] = ("openai/b", "openai/c")
    flows: tuple[str, ...] = ("verify", "obligations")
    rounds: int | None = 2
    lessons: str | None = "off"


CREWS = {"support": Crew()}


@pytest.mark.parametrize(
    "model", ["openai/gpt-5.2", "scripted/gold", "marina", "x/marina/verify:y"]
)
def test_plain_ids_have_no_plan(model):
    assert read_model_id(model, CREWS) is None
    assert not is_flow_id(model)


@pytest.mark.parametrize(
    ("model", "flows", "agent", "checkers", "arm"),
    [
        ("marina/verify:a/b", ("verify",), "a/b", (), "verify"),
        ("marina/verify:a/b+c/d", ("verify",), "a/b", ("c/d",), "verify"),
        ("marina/verify:a+b+c", ("verify",), "a+b", ("c",), "verify"),
        ("marina/obligations:x:free", ("obligations",), "x:free", (), "obligations"),
        (
            "marina/obligations:marina/argcheck:m",
            ("obligations", "argcheck"),
            "m",
            (),
            "obligations+argcheck",
        ),
        (
            "marina/argcheck:marina/obligations:m",
            ("argcheck", "obligations"),
            "m",
            (),
            "obligations+argcheck",
        ),
        (
            "marina/argcheck:marina/verify:a+b",
            ("argcheck", "verify"),
            "a",
            ("b",),
            "argcheck+verify",
        ),
        (
            "marina/verify:marina/argcheck:a+b",
            ("verify", "argcheck"),
            "a",
            ("b",),
            "argcheck+verify",
        ),
    ],
)
def test_ids_read_from_the_outside_in(model, flows, agent, checkers, arm):
    plan = read_model_id(model, CREWS)
    assert (plan.flows, plan.agent_model, plan.checkers, plan.arm) == (flows, agent, checkers, arm)


def test_a_crew_brings_its_own_plan():
    plan = read_model_id("marina:support", CREWS)
    assert plan.flows == ("verify", "obligations")
    assert plan.agent_model == "openai/a"
    assert plan.checkers == ("openai/b", "openai/c")
    assert (plan.arm, plan.rounds, plan.lessons) == ("crew:support", 2, "off")


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("marina/verify:", "invalid_model"),
        ("marina/verify", "invalid_model"),
        ("marina/verify:+b", "invalid_model"),
        ("marina/verify:a+", "invalid_model"),
        ("marina/verify:marina/verify:a", "invalid_model"),
        ("marina/argcheck:marina/obligations:marina/argcheck:a", "invalid_model"),
        ("marina/verify:a+marina/argcheck:b", "invalid_model"),
        ("marina/verify:a+marina:support", "invalid_model"),
        ("marina/obligations:marina:support", "invalid_model"),
        ("marina/argcheck:marina/", "model_not_found"),
        ("marina/judge:a", "model_not_found"),
        ("marina/", "model_not_found"),
        ("marina:", "model_not_found"),
        ("marina:nobody", "model_not_found"),
    ],
)
def test_wrong_ids_are_clear_errors(model, code):
    with pytest.raises(GatewayError) as caught:
        read_model_id(model, CREWS)
    assert caught.value.error_code == code
    assert caught.value.param == "model"


@given(st.permutations(FLOW_NAMES), st.integers(0, 3))
def test_an_arm_does_not_depend_on_the_order(flows, count):
    chosen = flows[:count]
    assert arm_of(chosen) == arm_of(sorted(chosen))
    model = "".join(f"marina/{flow}:" for flow in chosen) + "p"
    plan = read_model_id(model, {})
    if count:
        assert plan.arm == arm_of(chosen)
        assert plan.flows == tuple(chosen)
    else:
        assert plan is None
