"""Answers become times and chances: of known answers the right ones."""

import random
from dataclasses import replace

import pytest
from deployments import LIMITS, pair, probe

from orchestrator.doctor.measurements import (
    MOST_POSITIONS,
    PassRecord,
    Probe,
    acceptance,
    accepted_share,
    achieved_ratio,
    alone_us,
    draft_pace_us,
    draft_wire_us,
    for_text,
    pass_costs,
    pass_overhead_us,
    situation,
)
from outrider.client import Token


def tokens(*authors: str) -> list[Token]:
    return [Token(1, "x", author) for author in authors]


def of(authors: list[Token], rows: tuple[int, ...]) -> Probe:
    stats = replace(
        probe().stats, pass_rows=rows, forward_us=tuple(1000 * r for r in rows), target_passes=4
    )
    return Probe.of("story", 0.0, True, stats, authors)


def test_a_pass_ends_with_the_token_that_the_target_wrote() -> None:
    found = of(tokens("", "a", "a", "", "", "a", ""), (9, 4, 3, 2))
    assert found.passes == (PassRecord(4, 4000, 3, 2), PassRecord(3, 3000, 2, 0))
    assert found.first_tokens == 1


def test_an_answer_cut_inside_an_accepted_run_ends_with_a_pass_all_the_same() -> None:
    found = of(tokens("", "a", "", "", "a", "a"), (9, 4, 3, 4))
    assert [record.accepted for record in found.passes] == [1, 0]


def test_where_tokens_and_passes_do_not_fit_together_nothing_is_concluded() -> None:
    assert of(tokens("", "a", ""), (9, 4, 3, 2)).passes == ()


def test_costs_are_medians_by_rows_that_never_fall() -> None:
    records = [(1, 40), (1, 44), (1, 90), (4, 60), (4, 62), (8, 50), (8, 52), (16, 1)]
    passes = tuple(PassRecord(rows, us, rows - 1, 0) for rows, us in records)
    costs = pass_costs([replace(probe(), passes=passes)])
    assert costs is not None
    assert costs.rows == (1, 4, 8), "one pass alone is not believed"
    assert costs.us == (44.0, 56.0, 56.0)


def test_lengths_seen_once_count_where_there_is_nothing_else() -> None:
    costs = pass_costs([replace(probe(), passes=(PassRecord(3, 70, 2, 0),))])
    assert costs is not None and costs.rows == (3,)
    assert pass_costs([replace(probe(), passes=())]) is None


def test_acceptance_is_counted_along_rows_of_accepted_tokens() -> None:
    luck = random.Random(3)
    passes = []
    streak = 0
    for _ in range(4000):
        accepted = 0
        while accepted < 4 and luck.random() < (0.5 if streak + accepted == 0 else 0.9):
            accepted += 1
        passes.append(PassRecord(5, 1, 4, accepted))
        streak = 0 if accepted < 4 else streak + accepted
    chances = acceptance([replace(probe(), passes=tuple(passes))])
    assert len(chances) == MOST_POSITIONS
    assert chances[0] == pytest.approx(0.5, abs=0.03)
    assert all(chance == pytest.approx(0.9, abs=0.04) for chance in chances[1:])


def test_what_was_not_tested_counts_neither_way() -> None:
    passes = (PassRecord(3, 1, 2, 2), PassRecord(1, 1, 0, 0), PassRecord(4, 1, 3, 1))
    assert accepted_share([replace(probe(), passes=passes)]) == pytest.approx(3 / 4)
    assert acceptance([replace(probe(), passes=(PassRecord(1, 1, 0, 0),))]) == ()
    assert accepted_share([]) is None


def test_few_tests_are_drawn_towards_all_of_them() -> None:
    passes = (PassRecord(2, 1, 1, 1),) + (PassRecord(2, 1, 1, 0),) * 3
    chances = acceptance([replace(probe(), passes=passes)])
    assert chances[-1] == pytest.approx(0.25), "never tested: the pooled chance"


def test_times_are_those_of_the_deployment() -> None:
    probes = pair(pace_us=5_000, wire_us=2_000, pass_us=30_000)
    assert draft_pace_us(probes) == 5_000
    assert draft_wire_us(probes) == 2_000
    assert alone_us(probes) == pytest.approx(30_300)
    assert pass_overhead_us(probes) == pytest.approx(300)
    assert draft_pace_us([probe(has_drafts=False)]) is None


def test_a_situation_needs_drafts_and_something_verified() -> None:
    def met(*probes: Probe) -> object:
        return situation(probes, LIMITS, verify_wire_us=400, seen_round_trip_us=900)

    assert met(probe(has_drafts=False)) is None
    assert met(*pair()) is not None
    assert met(replace(probe(), passes=()), probe(has_drafts=False)) is None


def test_each_kind_of_text_has_its_own_acceptance() -> None:
    easy, hard = pair("easy", acceptance=0.95), pair("hard", acceptance=0.3)
    whole = situation([*easy, *hard], LIMITS, verify_wire_us=400, seen_round_trip_us=900)
    assert whole is not None
    low, middle, high = (
        for_text(whole, hard).acceptance[0],
        whole.acceptance[0],
        for_text(whole, easy).acceptance[0],
    )
    assert low < middle < high


def test_the_achieved_gain_is_over_the_same_texts() -> None:
    probes = [*pair(), probe("only with drafts")]
    drafted, alone = probes[0], probes[1]
    assert achieved_ratio(probes) == pytest.approx(drafted.tokens_per_s / alone.tokens_per_s)
    assert achieved_ratio([drafted]) is None
    warm_up = probe(pace_us=40_000, cycle_us=200_000)
    assert achieved_ratio([warm_up, *probes]) == achieved_ratio(probes)
