"""Figures in the README are those of the JSON files that benchmarks wrote."""

import json
from pathlib import Path

from benchmarks.protocol import Figure, table

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_shows_the_protocol_figures_that_were_measured() -> None:
    measured = json.loads((ROOT / "docs/benchmarks/protocol.json").read_text(encoding="utf-8"))
    figures = [Figure(**figure) for figure in measured["figures"]]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert table(figures) in readme, "paste the table that `python -m benchmarks.protocol` prints"
    assert measured["machine"]["commit"].partition("+")[0] in readme
