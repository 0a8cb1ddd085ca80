"""The figures of the scale rig follow from what was seen and counted, and so do their tables."""

import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import protocol, protocol_report, report
from benchmarks.protocol_capacity import COLOCATED, OFFLOADED, Turn, capacities
from benchmarks.protocol_deployment import draft_name, drafts_of, model, orchestrator_of
from benchmarks.protocol_figures import (
    ALONE,
    OUTRIDER,
    SYNCHRONOUS,
    Load,
    Memory,
    Sample,
    figures,
    kind_of,
    window,
)
from benchmarks.protocol_ideal import Costs, ideal
from benchmarks.protocol_rounds import Round
from benchmarks.protocol_settings import FULL, QUICK, read
from outrider.client import Stats
from outrider.errors import InvalidArgumentError, NotFoundError
from outrider.models.registry import load_model
from outrider.models.scripted import ScriptedLaw

COSTS = Costs(40.0, 0.2, 4.0)
DRAFTED = Load(OUTRIDER, 2, 1, 0.0, 0.8, 7)
MEMORY = [Memory("verify", 4, 32, 1000, 5000), Memory("draft", 4, 32, 1000, 2000)]


def stats(tokens: int, passes: int) -> Stats:
    return Stats(
        prompt_tokens=5,
        cached_tokens=4,
        emitted_tokens=tokens,
        target_passes=passes,
        verified_tokens=tokens,
        accepted_tokens=tokens - passes,
        drafts=(),
        first_token_us=1000,
        total_us=10**6,
        messages=3 * passes,
        wire_bytes=100 * passes,
        resumes=0,
        wait_us=tuple([9_000_000, 9_000_000, *[2000] * (passes - 2)]),
        pass_rows=(8,) * passes,
        forward_us=(40_000,) * passes,
        drafted_passes=passes,
        accepted_per_position=(),
        queue_us=500 * passes,
        accept_us=200 * passes,
        reconcile_us=100 * passes,
        gap_us=tuple([9_000_000, 9_000_000, *[1000 + 10 * i for i in range(passes - 2)]]),
        batch_rows=(16,) * passes,
    )


def sample(load: Load, step_s: float, passes: int, cores: float = 0.5) -> Sample:
    """Two clients, each with 101 tokens, the second one half a second later."""
    times = tuple(i * step_s for i in range(101))
    return Sample(
        load,
        (times, tuple(0.5 + time for time in times)),
        (stats(101, passes), stats(101, passes)),
        {"verify": cores},
    )


SAMPLES = [
    sample(DRAFTED.alone, 0.04, 101),
    sample(DRAFTED, 0.02, 25),
    sample(DRAFTED, 0.01, 25, cores=0.7),
    sample(DRAFTED.alone, 0.04, 101),
]

TURNS = [
    Turn(COLOCATED, 16, 600.0, 3.3, 80.0),
    Turn(OFFLOADED, 16, 800.0, 2.8, 60.0),
    Turn(OFFLOADED, QUICK.crowd.more(16), 900.0, 2.8, 90.0),
]


def test_tokens_count_while_everybody_is_being_answered() -> None:
    assert window(SAMPLES[0].token_s) == (0.5, 4.0)
    assert SAMPLES[0].tokens_per_s == pytest.approx(2 / 0.04, rel=0.02)
    apart = replace(SAMPLES[0], token_s=((0.0, 1.0), (2.0, 3.0)))
    with pytest.raises(InvalidArgumentError, match="more --tokens"):
        _ = apart.tokens_per_s


def test_a_figure_has_speed_gain_and_the_part_of_the_bound() -> None:
    alone, drafted = figures(SAMPLES, COSTS, 7, MEMORY)
    assert (alone.mode, alone.ratio_to_target_alone) == (ALONE, 1.0)
    assert drafted.tokens_per_s == pytest.approx((100 + 200) / 2, rel=0.03)
    assert drafted.ratio_to_target_alone == pytest.approx((2 + 4) / 2, rel=0.03)
    bound = ideal(COSTS, 0.8, 2, 1, 7).tokens_per_s
    assert drafted.bound_tokens_per_s == pytest.approx(bound, abs=0.1)
    assert drafted.ratio_to_bound == pytest.approx(drafted.tokens_per_s / bound, abs=0.002)
    assert alone.bound_tokens_per_s == pytest.approx(2 * 1000 / 40.4, abs=0.1)
    assert drafted.acceptance_length == pytest.approx(101 / 25, abs=0.001)


def test_overhead_leaves_out_the_rounds_in_which_the_pipeline_fills() -> None:
    _, drafted = figures(SAMPLES, COSTS, 7, MEMORY)
    assert (drafted.overhead_p50_ms, drafted.overhead_p95_ms) == (2.0, 2.0)
    assert (drafted.queue_ms, drafted.accept_ms, drafted.reconcile_ms) == (0.5, 0.2, 0.1)
    assert (drafted.messages_per_round, drafted.bytes_per_round) == (3, 100)
    assert (drafted.forward_p50_ms, drafted.cpu_cores) == (40.0, {"verify": 0.6})


def test_the_gap_before_a_pass_counts_once_for_all_its_sessions() -> None:
    alone, drafted = figures(SAMPLES, COSTS, 7, MEMORY)
    # Both answers of a sample come from the same 23 passes; both samples have as many.
    assert (drafted.gap_p50_ms, drafted.gap_p95_ms) == (1.11, 1.21)
    assert drafted.gap_share == pytest.approx(1.11 / 40, abs=1e-4)
    assert alone.gap_share == pytest.approx(1.49 / 40, abs=1e-4)


def test_memory_of_a_session_adds_up_the_services_that_take_part() -> None:
    alone, drafted = figures(SAMPLES, COSTS, 7, MEMORY)
    assert alone.memory_bytes_per_session == 1000
    assert drafted.memory_bytes_per_session == 1000 + 250


def test_processes_are_counted_by_kind() -> None:
    names = ("draft-0.8-3", "proxy of draft-0.8-1 at 20 ms", "orchestrator-0.8-20", "client")
    assert [kind_of(name) for name in names] == ["draft", "proxy", "orchestrator", "client"]


@pytest.mark.parametrize("settings", [QUICK, FULL], ids=["quick", "full"])
def test_each_configuration_is_measured_once_and_against_its_target_alone(settings) -> None:
    loads = settings.loads()
    assert len(loads) == len(set(loads))
    assert all(load.alone in loads for load in loads)
    assert {load.clients for load in loads} == set(settings.clients)
    assert {load.drafts for load in loads} == {0, *settings.drafts}
    drafted = [load for load in loads if load.mode != ALONE]
    assert {load.rtt_ms for load in drafted} == set(settings.rtt_ms)
    assert {load.acceptance for load in drafted} == set(settings.acceptance)
    for mode in (SYNCHRONOUS, OUTRIDER):
        for rtt_ms in settings.rtt_ms:
            assert any(load.mode == mode and load.rtt_ms == rtt_ms for load in drafted)


def test_answers_are_shorter_where_they_take_longest() -> None:
    crowd = replace(FULL.base, clients=64, drafts=8)
    lengths = [FULL.tokens_of(load) for load in (FULL.base, FULL.base.alone, crowd)]
    assert lengths == [FULL.tokens, FULL.tokens // 2, FULL.tokens // 2]


def test_an_orchestrator_has_as_many_drafts_as_its_configuration_and_no_other_has_it() -> None:
    behind: dict[str, list[str]] = {}
    for load in FULL.loads():
        assert orchestrator_of(load.alone, FULL) == orchestrator_of(FULL.base, FULL)
        if load.mode != ALONE:
            drafts = drafts_of(load)
            assert drafts == [draft_name(load.acceptance, 1 + i) for i in range(load.drafts)]
            assert behind.setdefault(orchestrator_of(load, FULL), drafts) == drafts
    apart = [replace(FULL.base, mode=SYNCHRONOUS), *(replace(FULL.base, drafts=d) for d in (1, 4))]
    assert len({orchestrator_of(load, FULL) for load in apart}) == 3


def test_the_law_on_the_command_line_is_the_law() -> None:
    law = ScriptedLaw(vocab=32, seed=3, order=1, drift=0.25, sharpness=1.5, drift_seed=4)
    assert load_model(model(law, 4.0, 0.2)).law == law  # type: ignore[attr-defined]


def test_a_quick_run_keeps_the_documented_figures() -> None:
    assert read([])[1] == report.FOLDER / "protocol.json"
    assert read(["--quick"])[1] != report.FOLDER / "protocol.json"
    settings, path = read(["--quick", "--json", "f.json", "--clients", "2", "--draft-step-ms", "1"])
    assert (settings.clients, settings.costs.draft_step_ms, path) == ((2,), 1.0, Path("f.json"))
    assert settings.rtt_ms == QUICK.rtt_ms


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--clients", "65"], "--clients has 65"),
        (["--drafts", "0"], "--drafts has 0"),
        (["--rtt-ms", "-1"], "--rtt-ms has -1"),
        (["--tokens", "1"], "--tokens is 1; give 16 to 512"),
        (["--target-step-ms", "0", "--target-row-ms", "0"], "a target pass takes no time"),
    ],
)
def test_values_out_of_range_are_refused(arguments, told) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        read(arguments)


def test_an_acceptance_that_cannot_be_had_ends_the_run_with_one_line(capsys) -> None:
    assert protocol.main(["--acceptance", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def result() -> dict[str, object]:
    each_round = [Round("greedy", 1, 60, 2.0, 2.5, 3.5, 4.0, 130)]
    machine = {
        "measured_at": "2026-01-01T00:00:00",
        "commit": "abc1234",
        "cpu": "a processor",
        "cores": 2,
        "system": "Linux",
        "load_before": 0.1,
    }
    settings = replace(QUICK, clients=(2,), rtt_ms=(0.0,), drafts=(1,))
    whole = protocol.as_result(machine, settings, {0.8: 0.3}, each_round, MEMORY, SAMPLES, TURNS)
    plain: dict[str, object] = json.loads(json.dumps(whole))
    return plain


def test_the_json_gives_the_figures_back(result) -> None:
    found = figures(SAMPLES, COSTS, 7, MEMORY)
    assert protocol_report.figures_of(result) == found
    assert protocol_report.memory_of(result) == MEMORY
    assert protocol_report.capacities_of(result) == capacities(TURNS, QUICK.crowd, 0.8)
    assert [asdict(one) for one in protocol_report.rounds_of(result)] == result["rounds"]


def test_the_page_has_every_figure_and_next_to_each_what_it_does_not_show(result) -> None:
    page = protocol_report.page(result)
    for table in protocol_report.tables(result).split("\n\n"):
        assert table.strip() in page
    assert page.count("What it does not show") == page.count("\n## ")
    assert "abc1234" in page


def test_a_run_draws_page_and_plot_beside_its_json(result, tmp_path, capsys) -> None:
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(result), encoding="utf-8")
    before = report.README.read_bytes()
    assert report.redraw("protocol", path) == 0
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert page == protocol_report.page(result).replace("protocol.png", "figures.png")
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert report.README.read_bytes() == before


def test_what_cannot_be_drawn_is_told(tmp_path, capsys) -> None:
    assert report.redraw("protocol", tmp_path / "no.json") == 1
    assert "run its benchmark first" in capsys.readouterr().err
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    assert report.redraw("protocol", broken) == 1
    broken.write_text("[]", encoding="utf-8")
    assert report.redraw("protocol", broken) == 1
    with pytest.raises(NotFoundError, match="there are acceptance"):
        report.rig_of("unknown")
    with pytest.raises(InvalidArgumentError, match="the README lacks"):
        report.filled("no marks", "protocol", "text")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--quick",),
        ("--clients", "1,64", "--rtt-ms", "0.5", "--repetitions", "2"),
        ("--quick", "--drafts", "1,8", "--tokens", "32", "--target-step-ms", "1.5"),
        ("--acceptance", "0.6", "--num-speculative-tokens", "9", "--draft-step-ms", "2"),
    ],
)
def test_the_command_that_is_shown_measures_the_same_again(arguments: tuple[str, ...]) -> None:
    settings, _ = read(arguments)
    shown = protocol_report.command(json.loads(json.dumps({"settings": asdict(settings)})))
    again, _ = read(shlex.split(shown)[3:])
    assert again == settings
