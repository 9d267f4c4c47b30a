from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_airline.tools.calculator import CalculationError, calculate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 * ((350 - 122) + (499 - 127))", "1200.0"),
        ("1/3", "0.33"),
        ("-2 + +3", "1.0"),
        ("--2", "2.0"),
        ("2 - 3 - 4", "-5.0"),
        ("12 / 3 / 2", "2.0"),
        (".5 + 1.", "1.5"),
        ("2 ** 3 ** 2", "512.0"),
        ("-2 ** 2", "-4.0"),
        ("2 ** -1", "0.5"),
        ("7 // 2 * 2", "6.0"),
        (" 1 ", "1.0"),
    ],
)
def test_values(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "9**9**9",
        "9**9**9**9",
        "(" * 200 + "1" + ")" * 200,
        "-" * 400 + "1",
        "9" * 501,
        "9" * 400,
        "9" * 400 + ".5",
        "10**15*10",
        "1.5**64**64",
        "999999999999.5**64",
        "0**-1",
        "1/0",
        "1//0",
        "0.0/0.0",
        "(-8)**0.5",
        "1 2",
        "1 +",
        "()",
        "(1",
        "1)",
        "1.2.3",
        "__import__('os')",
        "abs(1)",
        "1e5",
        "1,000",
        "$5",
        "1_000",
        "1 if 1 else 2",
        "\u0661+1",
    ],
)
def test_refusals(expression: str) -> None:
    with pytest.raises(CalculationError):
        calculate(expression)


@given(st.text(alphabet="0123456789+-*/(). ", max_size=60))
def test_agrees_with_python_or_refuses(expression: str) -> None:
    try:
        value = calculate(expression)
    except CalculationError:
        return
    float(value)
    if "**" not in expression and all(
        token.lstrip("0") == token or "." in token or set(token) == {"0"}
        for token in "".join(c if c.isdigit() or c == "." else " " for c in expression).split()
    ):
        assert value == str(round(float(eval(expression, {"__builtins__": {}})), 2))


@given(st.text(max_size=600))
def test_any_text_ends_in_a_number_or_a_refusal(expression: str) -> None:
    with contextlib.suppress(CalculationError):
        float(calculate(expression))
