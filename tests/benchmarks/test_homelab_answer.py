"""What a client gets, taken apart into passes and speeds."""

import pytest
from measured import answer, stats, tokens

from benchmarks.homelab_answer import Phases, Round, accepted_runs, answer_of
from benchmarks.homelab_plan import Configuration
from outrider.errors import InternalError

ASKED = Configuration("outrider", 5.0, 0.0)


@pytest.mark.parametrize(
    ("pattern", "runs"),
    [
        ("", []),
        ("t", [0]),
        ("ttt", [0, 0, 0]),
        ("tddtt", [0, 2, 0]),
        ("dtddt", [1, 2]),
        ("tdd", [0, 2]),
    ],
)
def test_a_pass_emits_what_it_accepted_and_then_a_token_of_the_target(
    pattern: str, runs: list[int]
) -> None:
    assert accepted_runs(tokens(pattern)) == runs


def test_an_answer_has_its_passes_one_by_one_and_its_phases() -> None:
    got = answer_of(3, ASKED, tokens("tddt"), (10, 20, 20, 20), stats())
    assert got.rounds == (Round(2, 0, 9000, 0), Round(4, 2, 11000, 1500))
    assert got.phases == Phases(8000, 20, 900, 2, 300, 40)
    assert (got.prompt, got.passes, got.wire_bytes) == (3, 2, 700)
    assert got.ids == (10, 11, 12, 13)


@pytest.mark.parametrize("name", ["pass_rows", "forward_us", "wait_us"])
def test_counts_that_do_not_fit_the_tokens_are_not_reported(name: str) -> None:
    with pytest.raises(InternalError, match="2 passes are told by the tokens"):
        answer_of(0, ASKED, tokens("tddt"), (1, 2, 2, 2), stats(**{name: (1, 2, 3)}))


def test_speed_is_counted_from_the_first_tokens_to_the_last() -> None:
    got = answer(ids=range(11), every_ms=50, first_ms=3000)
    assert got.tokens_per_s == pytest.approx(20)
    assert got.ttft_ms == 3000
    assert got.gaps_ms == (50,) * 10


def test_tokens_that_come_with_the_first_one_are_not_counted_as_decoded() -> None:
    got = answer_of(
        0, ASKED, tokens("dddtdddt"), (100, 100.2, 100.3, 100.4, 500, 500, 500, 500), stats()
    )
    assert got.tokens_per_s == pytest.approx(4 / 0.4)


def test_an_answer_that_came_at_once_has_no_speed() -> None:
    assert answer(ids=(1,)).tokens_per_s is None
