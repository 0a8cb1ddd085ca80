"""Whatever is shown of a figure is drawn from the JSON that its benchmark wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDER = ROOT / "docs/benchmarks"
MEASURED = sorted(path.stem for path in FOLDER.glob("*.json"))
DO = "run `python -m benchmarks.report`"


def measured(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_every_json_has_a_rig_that_shows_it() -> None:
    assert set(MEASURED) == set(report.RIGS)


@pytest.mark.parametrize("name", MEASURED)
def test_the_readme_shows_the_figures_that_were_measured(name: str) -> None:
    result = measured(name)
    assert report.filled(README, name, report.RIGS[name].readme(result)) == README, DO
    assert result["machine"]["commit"].partition("+")[0] in README


@pytest.mark.parametrize("name", MEASURED)
def test_each_page_shows_the_figures_and_says_what_they_do_not_show(name: str) -> None:
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert page == report.RIGS[name].page(measured(name)), DO
    assert "does not show" in page
    assert measured(name)["machine"]["commit"] in page


@pytest.mark.parametrize("name", [n for n in MEASURED if report.RIGS[n].plot])
def test_each_plot_is_there_and_shown(name: str) -> None:
    assert (FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG"), DO
    assert f"](docs/benchmarks/{name}.png)" in README
    assert f"]({name}.png)" in (FOLDER / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted({"homelab", "protocol"} & set(MEASURED)))
def test_each_figure_of_a_rig_has_what_it_is_judged_by(name: str) -> None:
    wanted = {"tokens_per_s", "ratio_to_target_alone", "ratio_to_bound", "rtt_ms", "mode"}
    for figure in measured(name)["figures"]:
        assert wanted | {"acceptance_length"} <= figure.keys()
