"""The planner against fixed settings, on what a real pair said and what its passes cost."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from recorded import FAR, NEAR, gain, limited, texts

from orchestrator import planner
from orchestrator.planner import Limits, Observations
from orchestrator.simulation import PassCosts, Situation
from orchestrator.texts import Guess, Recorded

AT = {"near": NEAR, "far": FAR}
WHERE = pytest.mark.parametrize("where", AT)
TEMPERATURE = pytest.mark.parametrize("temperature", [0.0, 1.0])


@cache
def planned(where: str, temperature: float) -> float:
    """The gain with everything planned."""
    return gain(AT[where], texts(temperature))


def synchronous(met: Situation, temperature: float) -> float:
    """The gain of drafting a chain, waiting for all of it, verifying it, at its best depth."""
    answers = texts(temperature)
    return max(
        gain(
            limited(
                met,
                num_speculative_tokens=depth,
                width=1,
                run_ahead=False,
                adaptive=False,
                wait_nodes=depth,
                max_wait_us=60_000_000,
            ),
            answers,
        )
        for depth in range(1, 7)
    )


@WHERE
@TEMPERATURE
def test_planned_waits_are_about_as_good_as_the_best_fixed_one(
    where: str, temperature: float
) -> None:
    answers = texts(temperature)
    fixed = [gain(limited(AT[where], wait_nodes=nodes), answers) for nodes in range(7)]
    assert planned(where, temperature) >= 0.96 * max(fixed)
    assert planned(where, temperature) >= 1.1 * min(fixed), "waiting matters here"


@WHERE
@TEMPERATURE
def test_the_least_chance_is_about_as_good_as_any_multiple_of_it(
    where: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = planned(where, temperature)
    rule: Callable[[Observations, Limits], float] = planner._least_chance
    outcomes = []
    for factor in (0.25, 0.5, 2.0, 4.0):

        def scaled(seen: Observations, limits: Limits, factor: float = factor) -> float:
            return min(factor * rule(seen, limits), 1.0)

        monkeypatch.setattr(planner, "_least_chance", scaled)
        outcomes.append(gain(AT[where], texts(temperature)))
    assert expected >= 0.96 * max(outcomes)
    assert expected >= 1.15 * min(outcomes), "the least chance matters here"


@WHERE
@TEMPERATURE
def test_trees_bring_more_than_chains(where: str, temperature: float) -> None:
    chain = gain(limited(AT[where], width=1), texts(temperature))
    assert planned(where, temperature) >= 1.04 * chain


@pytest.mark.parametrize(("where", "least"), [("near", 1.15), ("far", 1.3)])
@TEMPERATURE
def test_running_ahead_beats_drafting_in_turns_at_its_best_depth(
    where: str, least: float, temperature: float
) -> None:
    assert planned(where, temperature) >= least * synchronous(AT[where], temperature)


def test_a_draft_half_a_target_step_away_keeps_most_of_what_a_near_one_brings() -> None:
    assert planned("near", 0.0) > 2.5
    assert planned("far", 0.0) > 2.1
    assert planned("far", 1.0) > 0.85 * planned("near", 1.0)


@TEMPERATURE
def test_where_rows_cost_as_much_as_passes_little_is_verified_and_little_lost(
    temperature: float,
) -> None:
    dear = replace(NEAR, costs=PassCosts.line(178e3, 178e3))
    assert gain(dear, texts(temperature), tokens=512) > 0.94


@TEMPERATURE
def test_a_draft_slower_than_the_target_costs_nothing(temperature: float) -> None:
    slow = replace(NEAR, draft_step_us=600e3, draft_row_us=600e3)
    assert gain(slow, texts(temperature), tokens=256) > 0.98


@TEMPERATURE
def test_a_draft_many_passes_away_costs_nothing(temperature: float) -> None:
    away = replace(NEAR, draft_wire_us=10e6)
    assert gain(away, texts(temperature), tokens=256) > 0.98


@pytest.mark.parametrize("away_us", [100e3, 400e3, 500e3, 900e3])
def test_drafts_that_rested_in_a_hard_place_help_again_where_it_gets_easy(
    away_us: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far they are: a probe lasts until what it brings is there."""
    hard = Guess((0.05, 0.02, 0.01), (0.05, 0.02, 0.01), None)
    easy = Guess((0.97, 0.01, 0.01), (0.9, 0.05, 0.02), 0)
    text = Recorded(texts(0.0)[0].sampling, [hard] * 60 + [easy] * 540)
    away = replace(NEAR, draft_wire_us=away_us)
    found = gain(away, [text], tokens=600)
    monkeypatch.setattr(planner, "_rests", lambda seen, limits: False)
    assert found >= 0.85 * gain(away, [text], tokens=600) > 1.5


@WHERE
def test_drafts_believed_to_be_better_than_they_are_do_not_make_passes_wait_long(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Observations, "acceptance", lambda self, place: 0.97)
    assert gain(AT[where], texts(0.0)) >= 0.95 * planned(where, 0.0)
