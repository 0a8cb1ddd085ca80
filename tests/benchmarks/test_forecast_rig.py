"""The forecast rig: what it reports is what it measured; and one cell through real services."""

import json
from pathlib import Path

import pytest

from benchmarks import forecast, forecast_report
from benchmarks.forecast import Outcome
from benchmarks.forecast_rig import Cell, deployment
from outrider.client import Client
from outrider.errors import UnavailableError


def outcome(forecast_tokens_per_s: float, measured_tokens_per_s: float) -> Outcome:
    return Outcome(
        rtt_ms=20.0,
        drift=0.2,
        draft_step_ms=4.0,
        accepted_share=0.84,
        draft_pace_ms=4.9,
        wire_ms=21.5,
        alone_tokens_per_s=22.0,
        forecast_tokens_per_s=forecast_tokens_per_s,
        measured_tokens_per_s=measured_tokens_per_s,
        forecast_ratio=2.0,
        measured_ratio=2.1,
        bound_ratio=4.0,
    )


def run(monkeypatch: pytest.MonkeyPatch, path: Path, *outcomes: Outcome) -> tuple[int, object]:
    remaining = list(outcomes) * 20
    monkeypatch.setattr(forecast, "measure", lambda cell, answers: remaining.pop(0))
    status = forecast.main(["--quick", "--json", str(path)])
    return status, json.loads(path.read_text())


def test_a_forecast_that_is_off_too_far_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, result = run(monkeypatch, tmp_path / "f.json", outcome(44.0, 42.0), outcome(50.0, 42.0))
    assert status == 1
    assert result["summary"]["worst_error"] == pytest.approx(50 / 42 - 1, abs=1e-3)


def test_forecasts_within_bounds_pass_and_are_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, result = run(monkeypatch, tmp_path / "f.json", outcome(44.0, 42.0))
    assert status == 0
    page = forecast_report.page(result)
    assert "| 20 ms | 4 ms | 84% | 2.00x | 2.10x | +5% |" in page
    assert "does not show" in page and result["machine"]["commit"] in page
    assert forecast_report.table(result["figures"]) in forecast_report.readme(result)


@pytest.mark.parametrize(
    ("error", "status"), [(UnavailableError("no"), 1), (KeyboardInterrupt(), 130)]
)
def test_what_stops_it_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
) -> None:
    def measure(cell: Cell, answers: int) -> Outcome:
        raise error

    monkeypatch.setattr(forecast, "measure", measure)
    assert forecast.main(["--quick", "--json", str(tmp_path / "f.json")]) == status
    assert capsys.readouterr().err.startswith("python -m benchmarks.forecast: ")


def test_wrong_arguments_end_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        forecast.main(["--answers", "0"])
    assert ended.value.code == 2 and "--answers is 0" in capsys.readouterr().err


def test_the_draft_of_a_cell_is_as_far_away_as_asked() -> None:
    cell = Cell(rtt_ms=40.0, drift=0.1, draft_step_ms=1.0, target_step_ms=5.0)
    with deployment(cell) as address, Client(address) as client:
        found = client.diagnose(with_bandwidth=False)
    assert found.drafts[0].round_trip_us >= 40_000
