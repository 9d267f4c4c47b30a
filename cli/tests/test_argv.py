import pytest

from tau2eval_cli.argv import check_reference_flags, expand_values
from tau2eval_cli.errors import WrongUse


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        (["run", "--scenarios", "a"], ["run", "--scenarios", "a"]),
        (
            ["run", "--scenarios", "a", "b", "c"],
            ["run", "--scenarios", "a", "--scenarios", "b", "--scenarios", "c"],
        ),
        (
            ["run", "--scenarios", "a", "b", "--parallel", "2", "--scenarios", "c"],
            [
                *("run", "--scenarios", "a", "--scenarios", "b", "--parallel", "2"),
                *("--scenarios", "c"),
            ],
        ),
        (["run", "--scenarios=a", "b"], ["run", "--scenarios=a", "--scenarios", "b"]),
        (
            ["run", "--json", "--scenarios", "a", "b", "--json"],
            ["run", "--json", "--scenarios", "a", "--scenarios", "b", "--json"],
        ),
        (["run", "--scenarios", "--json"], ["run", "--scenarios", "--json"]),
        (["run", "--", "--scenarios", "a", "b"], ["run", "--", "--scenarios", "a", "b"]),
        (["show", "x", "y"], ["show", "x", "y"]),
        ([], []),
    ],
)
def test_several_values_after_one_flag(typed: list[str], parsed: list[str]) -> None:
    assert expand_values(typed) == parsed


@pytest.mark.parametrize("flag", ["--list", "--judge-url=x", "--judge-api-key"])
def test_a_flag_of_the_reference_evaluator_gets_an_answer(flag: str) -> None:
    with pytest.raises(WrongUse, match=r"run has no --") as caught:
        check_reference_flags(["run", flag, "x"])
    assert caught.value.exit_code == 2


def test_score_answers_for_the_judges_flags_too() -> None:
    with pytest.raises(WrongUse, match="score has no --judge-api-key"):
        check_reference_flags(["score", "x", "--judge-api-key", "y"])
    check_reference_flags(["score", "x", "--list"])
    check_reference_flags(["run", "--resume", "x", "--judge-model", "y"])


def test_other_commands_are_not_searched_for_them() -> None:
    check_reference_flags(["show", "--list"])
    check_reference_flags(["run", "--domain", "x"])
    check_reference_flags([])
