"""Every bug that systems like this one really had has a test, through real services, that names
it."""

import ast
import re
from pathlib import Path

import pytest

SERVICES = Path(__file__).parents[1] / "services"
NUMBERS = (1, 2, 4, 5, 7, 8, 9, 10, 11, 13, 14, 19, 20, 21, 23, 24, 25, 26, 28)
"""Rows of the list of bugs that others reported; what is left out has no counterpart here."""


def named() -> set[int]:
    """Numbers in tests' names (`test_field_bug_7_...`), in their docstrings ("Field bugs 4 and 5"),
    and in that of a module whose tests are all about one."""
    found: set[str] = set()
    for path in SERVICES.glob("test_*.py"):
        module = ast.parse(path.read_text("utf-8"))
        tests = [
            node
            for node in ast.walk(module)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.name.startswith("test_")
        ]
        for test in tests:
            found.update(re.findall(r"^test_field_bug_(\d+)", test.name))
        for node in (module, *tests):
            for sentence in re.findall(
                r"[Ff]ield bugs? ((?:\d+(?:, | and )?)+)", ast.get_docstring(node) or ""
            ):
                found.update(re.findall(r"\d+", sentence))
    return {int(number) for number in found}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_test_through_real_services_names_the_field_bug(number: int) -> None:
    assert number in named()
