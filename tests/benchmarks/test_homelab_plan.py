"""Every configuration is asked everything, none always first."""

import pytest

from benchmarks.homelab_plan import MODES, Configuration, checked_modes, configurations, turns
from outrider.errors import InvalidArgumentError

RTTS_MS = (0.2, 5.0, 20.0)


def test_only_drafts_over_a_wire_are_measured_at_every_round_trip_time() -> None:
    counts = {mode: 0 for mode in MODES}
    for configuration in configurations(MODES, RTTS_MS, 1.0):
        counts[configuration.mode] += 1
        assert configuration.temperature == 1.0
    assert counts == dict.fromkeys(MODES, 1) | {"synchronous": 3, "outrider": 3}


def test_every_configuration_answers_every_prompt_at_every_temperature_once() -> None:
    asked = list(turns(3, MODES, RTTS_MS, (0.0, 1.0)))
    assert len(set(asked)) == len(asked) == 3 * 2 * 10
    assert [turn.prompt for turn in asked] == sorted(turn.prompt for turn in asked)


def test_each_configuration_comes_first_and_last_in_its_turn() -> None:
    row = configurations(MODES, RTTS_MS, 0.0)
    asked = list(turns(len(row), MODES, RTTS_MS, (0.0,)))
    rows = [asked[i : i + len(row)] for i in range(0, len(asked), len(row))]
    for place in (0, -1):
        assert {turn_row[place].configuration for turn_row in rows} == set(row)


def test_the_target_alone_is_always_measured_and_modes_keep_their_order() -> None:
    assert checked_modes(("outrider", "synchronous")) == ("target_alone", "synchronous", "outrider")


def test_an_unknown_mode_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match="'eager'; give some of target_alone"):
        checked_modes(("outrider", "eager"))


def test_configurations_are_told_apart_by_all_they_have() -> None:
    assert Configuration("outrider", 5, 0.0) != Configuration("outrider", 5, 1.0)
