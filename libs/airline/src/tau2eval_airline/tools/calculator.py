"""Evaluates arithmetic without eval, at a bounded cost.

Upstream takes the characters 0-9 + - * / ( ) . and space, evaluates them as Python and rounds to
two decimals; that allows ** and //, and 9**9**9 hangs it. Here every intermediate value is
bounded, so no expression of the allowed length takes noticeable time.
"""

from __future__ import annotations

import re

MAX_LENGTH = 500
"""Bound on the characters of an expression."""

MAX_DEPTH = 40
"""Bound on how deep parentheses, signs and powers may nest."""

MAX_VALUE = 10**15
"""Bound on the size of every intermediate value."""

_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*|\.\d+)|(\*\*|//|[-+*/()]))", re.ASCII)

Number = int | float


class CalculationError(ValueError):
    """The expression is not arithmetic, or its value is beyond the bounds."""


def calculate(expression: str) -> str:
    """Evaluates an arithmetic expression.

    Args:
        expression: Decimal numbers, + - * / // **, parentheses and spaces.

    Returns:
        The value rounded to two decimals, always with a decimal point: "1200.0".

    Raises:
        CalculationError: If it cannot be read, divides by zero, or is too long, deep or large.
    """
    if len(expression) > MAX_LENGTH:
        raise CalculationError(f"the expression is longer than {MAX_LENGTH} characters")
    return str(round(float(_Parser(_tokens(expression)).parse()), 2))


def _tokens(expression: str) -> list[str]:
    text = expression.strip()
    tokens: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise CalculationError(
                f"{text[at:].strip()[:1]!r} is not allowed: use numbers, + - * / and parentheses"
            )
        tokens.append(match.group(1) or match.group(2))
        at = match.end()
    return tokens


class _Parser:
    """Recursive descent with Python's precedence: + -, then * / //, then signs, then **."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def parse(self) -> Number:
        value = self._sum()
        if self._peek():
            raise CalculationError(f"unexpected {self._peek()!r}")
        return value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _sum(self) -> Number:
        value = self._product()
        while (operator := self._peek()) in ("+", "-"):
            self._take()
            right = self._product()
            value = _bounded(value + right if operator == "+" else value - right)
        return value

    def _product(self) -> Number:
        value = self._sign()
        while (operator := self._peek()) in ("*", "/", "//"):
            self._take()
            right = self._sign()
            if operator == "*":
                value = _bounded(value * right)
                continue
            if right == 0:
                raise CalculationError("division by zero")
            value = _bounded(value / right if operator == "/" else value // right)
        return value

    def _sign(self) -> Number:
        if self._peek() not in ("+", "-"):
            return self._power()
        negative = self._take() == "-"
        value = self._deeper()
        return -value if negative else value

    def _deeper(self) -> Number:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CalculationError(f"the expression nests deeper than {MAX_DEPTH}")
        value = self._sign()
        self._depth -= 1
        return value

    def _power(self) -> Number:
        base = self._atom()
        if self._peek() != "**":
            return base
        self._take()
        exponent = self._deeper()
        if abs(exponent) > 64:
            raise CalculationError("the exponent is too large")
        if base == 0 and exponent < 0:
            raise CalculationError("division by zero")
        try:
            value = base**exponent
        except OverflowError:
            raise CalculationError("the value is too large") from None
        if isinstance(value, complex):
            raise CalculationError("a root of a negative number")
        return _bounded(value)

    def _atom(self) -> Number:
        token = self._take()
        if token == "(":  # noqa: S105 - a token of the grammar, no secret
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise CalculationError(f"the expression nests deeper than {MAX_DEPTH}")
            value = self._sum()
            self._depth -= 1
            if self._take() != ")":
                raise CalculationError("a closing parenthesis is missing")
            return value
        if not token or not (token[0].isdigit() or token[0] == "."):
            raise CalculationError(
                f"a number is missing before {token!r}"
                if token
                else "a number is missing at the end"
            )
        return _bounded(float(token) if "." in token else int(token))


def _bounded(value: Number) -> Number:
    if not abs(value) <= MAX_VALUE:  # Also catches what is not a number.
        raise CalculationError("the value is too large")
    return value
