"""How many clients are served follows from speeds, and the theory from step times."""

import numpy as np
import pytest

from benchmarks.protocol_capacity import COLOCATED, OFFLOADED, Crowd, Turn, capacities, served
from benchmarks.protocol_ideal import Costs

CROWD = Crowd(clients=(16, 64), nodes=4, costs=Costs(40.0, 0.2, 8.0))


def test_the_theory_is_the_time_of_a_shared_round_over_that_of_a_pass() -> None:
    assert CROWD.theory(16) == pytest.approx((4 * 8 + 40 + 0.2 * 80) / (40 + 0.2 * 80))
    assert CROWD.theory(64) < CROWD.theory(16)
    assert Crowd((16,), costs=Costs(40.0, 0.2, 0.0)).theory(16) == 1
    assert CROWD.more(16) == 25


def test_the_bound_of_one_device_has_all_sessions_in_step() -> None:
    tokens = 1 + 0.8 + 0.8**2 + 0.8**3 + 0.8**4
    assert CROWD.colocated_bound(0.8, 16) == pytest.approx(16 * tokens / (0.032 + 0.056))
    # Elsewhere the same sessions would have theory times that.
    alone = 16 * tokens / 0.056
    assert CROWD.colocated_bound(0.8, 16) * CROWD.theory(16) == pytest.approx(alone)


def test_clients_served_are_those_that_get_as_much_as_before() -> None:
    def each_s(clients: float) -> float:
        return 0.04 + 0.001 * clients

    for wanted in (16.0, 19.5, 25.0):
        found = served(16, 25, each_s(wanted), each_s(16), each_s(25))
        assert found == pytest.approx(wanted)
    # Beyond what was measured nothing is promised, below it there is no measure to lean on.
    assert served(16, 25, each_s(40), each_s(16), each_s(25)) == 25
    assert 0 <= served(16, 25, each_s(10), each_s(16), each_s(25)) == pytest.approx(10)
    assert served(16, 25, 0.001, each_s(16), each_s(25)) == 0


def test_noise_that_makes_a_crowd_faster_serves_no_more_than_was_measured() -> None:
    generator = np.random.default_rng(3)
    for wanted, few, many in generator.uniform(0.01, 0.2, size=(500, 3)):
        assert 0 <= served(16, 25, wanted, few, many) <= 25


def turn(place: str, clients: int, tokens_per_s: float) -> Turn:
    return Turn(place, clients, tokens_per_s, 3.0, 5.0 * clients)


def test_a_deployment_that_keeps_up_with_the_theory_has_all_of_it() -> None:
    crowd = Crowd(clients=(16,), costs=CROWD.costs)
    turns = [
        turn(COLOCATED, 16, 600.0),
        turn(OFFLOADED, 16, 800.0),
        turn(OFFLOADED, 25, 25 * 600 / 16),
    ]
    (found,) = capacities(turns, crowd, 0.8)
    assert (found.clients_served, found.more_clients) == (25, 25)
    assert found.ratio == pytest.approx(25 / 16, abs=0.001)
    assert found.share_of_theory == pytest.approx(25 / 16 / crowd.theory(16), abs=0.001)
    assert found.colocated_rows_per_pass == 80
    # One device at its best is a little faster than what was measured here.
    assert 600 < found.colocated_bound_tokens_per_s < 620
    expected = 25 * 600 / 16 / (crowd.theory(16) * crowd.colocated_bound(0.8, 16))
    assert found.share_against_bound == pytest.approx(expected, abs=0.001)


def test_a_deployment_that_is_as_slow_as_before_serves_as_many_as_before() -> None:
    crowd = Crowd(clients=(16,), costs=CROWD.costs)
    turns = [
        *(turn(COLOCATED, 16, speed) for speed in (500.0, 700.0)),
        *(turn(OFFLOADED, 16, speed) for speed in (590.0, 610.0)),
        *(turn(OFFLOADED, 25, speed) for speed in (690.0, 710.0)),
    ]
    (found,) = capacities(turns, crowd, 0.8)
    assert found.colocated_tokens_per_s == 600
    assert (found.clients_served, found.ratio) == (16, 1.0)
