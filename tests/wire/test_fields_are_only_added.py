"""The protocol grows by new fields and values only; what is removed stays reserved."""

import pytest
from known_fields import known, present, reserved


@pytest.mark.parametrize("line", known())
def test_a_field_keeps_its_number_its_type_and_its_name_or_is_reserved(line: str) -> None:
    owner, number, _, name = line.split()
    is_reserved = {(owner, int(number)), (owner, name)} <= reserved()
    assert line in present() or is_reserved, "give it back, or reserve its number and its name"


def test_what_was_added_is_known() -> None:
    assert set(present()) <= set(known()), "append it: .venv/bin/python tests/wire/known_fields.py"
