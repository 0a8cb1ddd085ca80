"""The scale rig runs its services, asks them, and leaves none behind."""

import json
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from benchmarks import protocol
from benchmarks.protocol_capacity import Crowd
from benchmarks.protocol_figures import ALONE, OUTRIDER, SYNCHRONOUS
from benchmarks.protocol_ideal import Costs
from benchmarks.protocol_settings import QUICK

TINY = replace(
    QUICK,
    clients=(1, 2),
    drafts=(1, 2),
    rtt_ms=(0.0, 4.0),
    tokens=48,
    rounds=8,
    costs=Costs(4.0, 0.1, 0.5),
    crowd=Crowd(clients=(2,), nodes=2, costs=Costs(8.0, 0.1, 2.0)),
)


@pytest.fixture(scope="module")
def result() -> dict[str, object]:
    whole = protocol.run(TINY)
    plain: dict[str, object] = json.loads(json.dumps(whole))
    return plain


def test_every_configuration_has_figures_of_real_rounds(result) -> None:
    figures = result["figures"]
    assert [
        (f["mode"], f["clients"], f["drafts"], f["rtt_ms"], f["acceptance"]) for f in figures
    ] == [(x.mode, x.clients, x.drafts, x.rtt_ms, x.acceptance) for x in TINY.loads()]
    assert {f["mode"] for f in figures} == {ALONE, SYNCHRONOUS, OUTRIDER}
    for figure in figures:
        assert figure["tokens_per_s"] > 0
        assert figure["ratio_to_bound"] > 0
        assert figure["bytes_per_round"] > 0
        assert figure["gap_share"] >= 0
        # A pass that is over before 4 ms have gone did not run the model.
        assert figure["forward_p50_ms"] >= 4.0
        assert {"verify", "orchestrator", "client", "draft"} <= figure["cpu_cores"].keys()
        if figure["mode"] == ALONE:
            assert (figure["acceptance_length"], figure["ratio_to_target_alone"]) == (1.0, 1.0)
    # How many drafted tokens come in time depends on the machine; waiting for them does not.
    drafted = [f for f in figures if f["mode"] == SYNCHRONOUS]
    assert all(f["acceptance_length"] > 1 for f in drafted)


def test_rounds_at_zero_step_time_have_the_depth_they_wait_for(result) -> None:
    rounds = {(r["mode"], r["depth"]): r for r in result["rounds"]}
    assert len(rounds) == 6
    assert rounds["greedy", 7]["tokens_per_pass"] > 6
    assert 1.5 < rounds["greedy", 1]["tokens_per_pass"] <= 2


def test_clients_served_are_told_with_the_draft_on_both_places(result) -> None:
    (row,) = result["capacity"]
    assert (row["clients"], row["more_clients"]) == (2, TINY.crowd.more(2))
    # One that shares the device waits for its whole path.
    assert row["colocated_tokens_per_pass"] > 1
    assert row["offloaded_tokens_per_s"] > 0
    assert 0 <= row["clients_served"] <= row["more_clients"]


def test_memory_is_that_of_the_three_services(result) -> None:
    assert {m["service"] for m in result["memory"]} == {"verify", "draft", "orchestrator"}
    assert all(m["before_bytes"] > 2**20 and m["sessions"] == 2 for m in result["memory"])


def test_no_process_is_left(result) -> None:
    assert _services() == []


def test_where_a_service_cannot_start_the_reason_is_told_and_nothing_is_left(
    monkeypatch, capsys, tmp_path: Path
) -> None:
    monkeypatch.setattr("benchmarks.protocol_rounds.MODEL", "scripted:vocab=none")
    assert protocol.main(["--quick", "--json", str(tmp_path / "f.json")]) == 1
    told = capsys.readouterr().err
    assert "verify could not start" in told
    assert "vocab" in told
    assert _services() == []


def _services() -> list[str]:
    """Command lines of services that this process started and that run."""
    commands = [" ".join(p.cmdline()) for p in psutil.Process().children(recursive=True)]
    modules = ("verify_service", "draft_service", "-m orchestrator", "delay_proxy")
    return [command for command in commands if any(module in command for module in modules)]
