"""Every bug that systems like this one really had has a test, through real services, that names
it."""

import re
from pathlib import Path

import pytest

SERVICES = Path(__file__).parents[1] / "services"
NUMBERS = (1, 2, 4, 5, 7, 8, 9, 10, 11, 13, 14, 19, 20, 21, 23, 24, 25, 26, 28)
"""Rows of the list of bugs that others reported; what is left out has no counterpart here."""


def named() -> set[int]:
    """Numbers in names (`test_field_bug_7_...`) and docstrings ("Field bugs 4 and 5")."""
    text = "\n".join(path.read_text("utf-8") for path in SERVICES.glob("test_*.py"))
    found = set(re.findall(r"def test_field_bug_(\d+)", text))
    for sentence in re.findall(r"[Ff]ield bugs? ((?:\d+(?:, | and )?)+)", text):
        found.update(re.findall(r"\d+", sentence))
    return {int(number) for number in found}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_test_through_real_services_names_the_field_bug(number: int) -> None:
    assert number in named()
