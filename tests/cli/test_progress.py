"""What is being waited for: a bar on a terminal, lines elsewhere."""

import pytest

from orchestrator.cli import progress
from orchestrator.cli.progress import Progress, Transfer


def test_without_a_terminal_a_transfer_is_told_in_lines_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Transfer("org/big") as transfer:
        for now[0], done in ((1.0, 5_000_000), (10.0, 50_000_000), (11.0, 60_000_000)):
            transfer.report(done, 10**9)
    assert capsys.readouterr().err == "outrider: org/big: 50.0 MB of 1.0 GB, 5.0 MB/s\n"


def test_without_a_terminal_a_wait_shows_only_what_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress() as waiting:
        waiting.waits_for("something")
        waiting.says("it is here")
    assert capsys.readouterr().err == "outrider: it is here\n"


def test_a_terminal_shows_a_bar_with_sizes_and_a_wait_with_a_clock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with Transfer("org/big [q4]") as transfer:
        transfer.report(50_000_000, 10**9)
    shown = capsys.readouterr().err
    assert "org/big [q4]" in shown
    assert "50.0 MB/1.0 GB" in shown or "0.1/1.0 GB" in shown
    with Progress() as waiting:
        waiting.waits_for("reading [the prompt]")
    shown = capsys.readouterr().err
    assert "reading [the prompt]" in shown
    assert "0:00:00" in shown
