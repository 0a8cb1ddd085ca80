"""Figures in the README are those of the JSON files that benchmarks wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import acceptance, protocol

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def measured(name: str) -> Any:
    return json.loads((ROOT / f"docs/benchmarks/{name}.json").read_text(encoding="utf-8"))


def test_the_readme_shows_the_protocol_figures_that_were_measured() -> None:
    result = measured("protocol")
    table = protocol.table([protocol.Figure(**figure) for figure in result["figures"]])
    assert table in README, "paste the table that `python -m benchmarks.protocol` prints"
    assert result["machine"]["commit"].partition("+")[0] in README


@pytest.mark.parametrize("name", ["acceptance", "vocabularies"])
def test_the_readme_shows_the_acceptance_figures_that_were_measured(name: str) -> None:
    result = measured(name)
    table = acceptance.table([acceptance.Figure(**figure) for figure in result["figures"]])
    assert table in README, "paste the table that `python -m benchmarks.acceptance` prints"
    assert result["machine"]["commit"].partition("+")[0] in README
