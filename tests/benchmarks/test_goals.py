"""The goals of the rigs beside what was found: none is met by rounding, none lost in silence."""

import json
from dataclasses import replace

import pytest

from benchmarks import homelab_report
from benchmarks.goals import Goal, home_lab, scale, table
from benchmarks.machine import ROOT
from benchmarks.protocol_capacity import Capacity
from benchmarks.protocol_figures import Figure as ScaleFigure
from benchmarks.protocol_rounds import Round

LAB = homelab_report.figures_of(
    json.loads((ROOT / "docs/benchmarks/homelab.json").read_text(encoding="utf-8"))
)


def test_the_documented_home_lab_has_every_goal() -> None:
    found = home_lab(LAB)
    assert len(found) == 8
    ratios = {(f.mode, f.rtt_ms, f.temperature): f.ratio_to_target_alone for f in LAB}
    assert found[0].found == ratios["outrider", 0.2, 0.0]
    assert found[2].found == ratios["outrider", 0.2, 0.0] / ratios["synchronous", 0.2, 0.0]


def test_a_goal_without_a_figure_is_left_out_and_the_others_stay() -> None:
    near = [f for f in LAB if f.rtt_ms != 100 and f.mode != "llamacpp_speculation"]
    assert [goal.what for goal in home_lab(near)] == [
        "T = 0, 0.2 ms: × target alone",
        "T = 0, 0.2 ms: of the bound",
        "T = 0, 0.2 ms: × synchronous drafting",
        "T = 1, 0.2 ms: share of its bound, against that at T = 0",
    ]
    assert home_lab([]) == []


@pytest.mark.parametrize(
    ("goal", "line"),
    [
        (Goal("a", 2.5, 2.5), "| a | at least 2.5 | 2.50 | – |"),
        (Goal("a", 2.5, 2.4999), "| a | at least 2.5 | 2.50 | 0% |"),
        (Goal("b", 0.03, 0.06, at_most=True), "| b | at most 0.03 | 0.06 | 100% |"),
        (Goal("b", 0.03, 0.02, at_most=True), "| b | at most 0.03 | 0.02 | – |"),
    ],
)
def test_what_is_missed_says_by_how_much(goal: Goal, line: str) -> None:
    assert table([goal]).splitlines()[-1] == line


def test_the_scale_rig_is_held_to_its_busiest_point_with_four_drafts_at_most() -> None:
    blank = ScaleFigure(
        **{name: 0 for name in ScaleFigure.__dataclass_fields__} | {"cpu_cores": {}}
    )
    figures = [
        replace(blank, mode="outrider", clients=c, drafts=d, ratio_to_bound=c + d / 10)
        for c in (1, 64)
        for d in (1, 4, 8)
    ]
    rounds = [
        Round(m, d, 9, 1.0, d + 0.5, 9.0, 4.0, 99.0) for m in ("greedy", "coupled") for d in (1, 7)
    ]
    nothing = dict.fromkeys(Capacity.__dataclass_fields__, 0)
    capacity = Capacity(**(nothing | {"clients": 16, "share_of_theory": 0.9}))
    found = scale(figures, rounds, [capacity])
    assert [(goal.what, goal.found, goal.is_met) for goal in found] == [
        ("p50 of a round at zero step time, greedy, ms", 1.5, True),
        ("p50 of a round at zero step time, coupled, ms", 1.5, True),
        ("64 clients, drafts: 4: of the bound", 64.4, True),
        ("64 clients, drafts: 4: gap of pass", 0, True),
        ("clients served as fast as 16 co-located, of theory", 0.9, True),
        ("the same against the bound of 16 co-located", 0, False),
    ]
