"""`outrider bench` against a deployment that runs: what it prints, writes, and leaves behind."""

import csv
import io
import json
import signal

import pytest
from running_commands import Running, run
from stub_orchestrator import StubOrchestrator
from typer import Exit

from orchestrator.cli import bench
from orchestrator.cli.app import main
from orchestrator.cli.bench import Bench, measure
from orchestrator.cli.bench_plan import Configuration, Sweep
from orchestrator.cli.bench_plot import require_drawable
from orchestrator.cli.bench_rows import Measurement
from orchestrator.cli.console import errors_told
from outrider.client import AsyncClient
from outrider.errors import CapacityError

SHORT = ("--max-tokens", "24", "--repetitions", "2", "--requests", "2", "--temperature", "0")


def test_the_first_line_is_a_sentence_and_the_table_has_each_configuration(address, tmp_path):
    plot = tmp_path / "speed.png"
    lengths = ("--concurrency", "1,2", "--num-speculative-tokens", "2,6")
    done = run("bench", "--address", address, *SHORT, *lengths, "--plot", str(plot))
    assert (done.status, done.stderr.count("\n")) == (0, 1)
    first, empty, *table = done.stdout.splitlines()
    assert first.startswith("At ")
    assert "tokens/s against" in first
    assert empty == ""
    cells = [[cell.strip() for cell in line.split("|")[1:5]] for line in table[2:8]]
    assert cells == [
        [clients, "0", *asked]
        for clients in ("1", "2")
        for asked in (("0", ""), ("default", "2"), ("default", "6"))
    ]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_json_and_csv_are_for_programs_and_the_sentence_goes_elsewhere(address, tmp_path):
    ask = ("bench", "--address", address, *SHORT, "--concurrency", "2", "--max-drafts", "1")
    done = run(*ask, "--format", "json")
    whole = json.loads(done.stdout)
    alone, drafted = whole["rows"]
    assert whole["sentence"] in done.stderr
    assert (alone["max_drafts"], drafted["max_drafts"]) == (0, 1)
    assert alone["tokens"] == drafted["tokens"] == 2 * 2 * 24  # The same answers, lossless.
    assert alone["acceptance_length"] == 1.0 < drafted["acceptance_length"]
    assert alone["ratio_to_target_alone"] == 1.0
    assert drafted["ratio_to_target_alone"] > 0
    assert whole["cluster"]["verify"]["model"]["model_name"].startswith("scripted")
    file = tmp_path / "rows.csv"
    done = run(*ask, "--format", "csv", "--output", str(file))
    assert done.stdout.startswith("At 2 clients ")
    lines = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
    assert [line["max_drafts"] for line in lines] == ["0", "1"]


def test_what_fails_in_the_middle_is_told_and_the_rest_is_reported(address, monkeypatch, capsys):
    async def partly(planned, client, configuration, repetition):
        if configuration.concurrency == 2:
            return Measurement(configuration, repetition, (), ("no room",) * 2)
        return await measure(planned, client, configuration, repetition)

    monkeypatch.setattr(bench, "measure", partly)
    ask = ["bench", "--address", address, *SHORT, "--concurrency", "1,2", "--repetitions", "1"]
    assert main(ask) == 1
    told = capsys.readouterr()
    assert told.out.startswith("At 1 client ")
    assert told.out.count("| failed |") == 2
    assert told.err.count("outrider: at 2 clients 2 of 2 requests failed: no room\n") == 2


async def test_requests_that_the_server_refuses_are_counted():
    alone = Configuration(3, None, 0, None)
    with StubOrchestrator() as stub:
        stub.refusal = CapacityError("no room for anybody")
        planned = Bench(stub.address, Sweep((3,)), ("hello",), {}, 1, 5, "md", None, None)
        async with AsyncClient(stub.address) as client:
            measured = await measure(planned, client, alone, 0)
    assert (measured.answers, measured.problems) == ((), ("no room for anybody",) * 5)
    assert len(stub.requests) == 5


def test_ctrl_c_ends_with_its_status_and_no_traceback(address):
    ask = ["bench", "--address", address, *SHORT, "--repetitions", "1000"]
    with Running(ask) as running:
        running.stderr.wait_for("measuring 4 configurations, 1000 times each")
        running.send(signal.SIGINT)
        finished = running.finished()
    assert finished.status == 130
    assert "outrider: stopped after " in finished.stderr
    assert "Traceback" not in finished.stderr


def test_what_was_measured_before_ctrl_c_is_reported(address, monkeypatch, capsys):
    left = [0, 1]

    async def interrupted(planned, client, configuration, repetition):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return await measure(planned, client, configuration, repetition)

    monkeypatch.setattr(bench, "measure", interrupted)
    status = main(["bench", "--address", address, *SHORT, "--concurrency", "1", "--format", "csv"])
    told = capsys.readouterr()
    assert status == 130
    assert "outrider: stopped after 2 of 4 measurements\n" in told.err
    assert len(told.out.splitlines()) == 3


def test_what_ends_the_first_request_ends_the_command_with_one_line():
    with StubOrchestrator() as stub:
        stub.refusal = CapacityError("no room for anybody")
        assert main(["bench", "--address", stub.address]) == 1


def test_a_plot_without_matplotlib_is_refused_before_anything_is_measured(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr("orchestrator.cli.bench_plot.find_spec", lambda name: None)
    with pytest.raises(Exit), errors_told():
        require_drawable(tmp_path / "speed.png")
    assert "pip install 'outrider[bench]'" in capsys.readouterr().err
