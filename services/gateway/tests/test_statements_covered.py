"""Every statement of the gateway's specification has a test that carries its number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

STATEMENTS = frozenset({*range(1, 40), 42})
"""40 and 41 are about the benchmark kit."""
_NAME = re.compile(r"test_statement_(\d\d)_\w+")
_NOT_RUN = frozenset({"skip", "skipif", "xfail"})
_FOLDER = Path(__file__).parent


def collected(source: str) -> Iterator[str]:
    """Yields the tests that pytest would collect and run of a file."""
    tree = ast.parse(source)
    if any(_marks_file(node) for node in tree.body):
        return
    for node in tree.body:
        tests: Iterable[ast.stmt] = [node]
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not _left_out(node):
            tests = node.body
        for test in tests:
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and not _left_out(test):
                yield test.name


def _left_out(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(_marks(decorator) & _NOT_RUN for decorator in node.decorator_list)


def _marks_file(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        return "pytestmark" in names and bool(_marks(node.value) & _NOT_RUN)
    return False


def _marks(node: ast.AST) -> set[str]:
    return {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def numbers(sources: Iterable[str]) -> set[int]:
    """Returns the numbers of the statements that the tests of some files carry."""
    names = (name for source in sources for name in collected(source))
    return {int(match[1]) for name in names if (match := _NAME.fullmatch(name))}


def test_every_statement_has_a_test_of_its_number() -> None:
    found = numbers(path.read_text(encoding="utf-8") for path in _FOLDER.rglob("test_*.py"))
    assert sorted(STATEMENTS - found) == []
    assert sorted(found - STATEMENTS) == [], "there are no such statements of the gateway"


@pytest.mark.parametrize(
    "source",
    [
        "def helper(): pass",
        "def test_statement_7_without_a_nought(): pass",
        "def outer():\n    def test_statement_07_inside(): pass",
        "@pytest.mark.skip\ndef test_statement_07_x(): pass",
        "@pytest.mark.xfail(reason='later')\nasync def test_statement_07_x(): pass",
        "pytestmark = pytest.mark.skip('later')\ndef test_statement_07_x(): pass",
        "@pytest.mark.skip\nclass TestX:\n    def test_statement_07_x(self): pass",
        "# def test_statement_07_x(): pass",
    ],
)
def test_what_is_not_run_does_not_count(source: str) -> None:
    assert numbers([source]) == set()


def test_functions_and_methods_count() -> None:
    assert numbers(
        [
            "def test_statement_07_x(): pass\nasync def test_statement_42_y(): pass",
            "class TestX:\n    def test_statement_01_z(self): pass",
            "@pytest.mark.parametrize('a', [1])\ndef test_statement_09_x(a): pass",
        ]
    ) == {1, 7, 9, 42}
