import pytest

from tau2eval_cli.judging import SCRIPTED_JUDGE, JudgeFlags
from tau2eval_cli.model_ids import is_scripted, models_of
from tau2eval_cli.plan import RunOptions


@pytest.mark.parametrize(
    ("model", "plain"),
    [
        ("openai/gpt-5.2", ("openai/gpt-5.2",)),
        ("scripted/gold", ("scripted/gold",)),
        ("marina/verify:scripted/gold", ("scripted/gold",)),
        ("marina/verify:a/b+c/d", ("a/b", "c/d")),
        # The last + splits.
        ("marina/verify:a+b+c", ("a+b", "c")),
        # A + is part of an id where nothing is verified.
        ("marina/argcheck:a+b", ("a+b",)),
        ("a+b", ("a+b",)),
        ("marina/obligations:marina/argcheck:scripted/gold", ("scripted/gold",)),
        ("marina/argcheck:marina/verify:a+b", ("a", "b")),
        ("marina/verify:marina/argcheck:a+b", ("a", "b")),
        ("marina:crew", ()),
        ("marina/nothing:scripted/gold", ()),
        ("marina/verify:", ()),
        ("marina/verify:a+", ()),
        ("marina/verify", ()),
        ("", ()),
    ],
)
def test_the_plain_ids_in_an_id(model, plain) -> None:
    assert models_of(model) == plain
    assert is_scripted(model) is bool(plain and plain[0].startswith("scripted/"))


@pytest.mark.parametrize(
    ("model", "judge"),
    [
        ("scripted/gold", SCRIPTED_JUDGE),
        ("marina/verify:scripted/gold+openai/x", SCRIPTED_JUDGE),
        ("marina/obligations:marina/argcheck:scripted/gold", SCRIPTED_JUDGE),
        ("marina/verify:openai/x+scripted/checker", ""),
        ("marina:crew", ""),
    ],
)
def test_a_scripted_agent_behind_control_flows_has_the_scripted_judge(model, judge) -> None:
    assert JudgeFlags().for_run(RunOptions(agent_model=model)).model == judge
