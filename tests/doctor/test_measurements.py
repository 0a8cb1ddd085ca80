"""Answers become times and chances: of known answers the right ones."""

import random
from dataclasses import replace

import pytest
from deployments import LIMITS, pair, probe, told

from orchestrator.doctor.measurements import (
    DraftPace,
    PassRecord,
    Probe,
    acceptance,
    accepted_share,
    achieved_ratio,
    alone_us,
    draft_pace,
    draft_wire_us,
    for_text,
    pass_costs,
    pass_overhead_us,
    profile,
    situation,
)
from orchestrator.guesses import STREAKS
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
    assert found.passes == (PassRecord(4, 4000), PassRecord(3, 3000))
    assert found.first_tokens == 1


def test_an_answer_cut_inside_an_accepted_run_ends_with_a_pass_all_the_same() -> None:
    found = of(tokens("", "a", "", "", "a", "a"), (9, 4, 3, 4))
    assert [record.rows for record in found.passes] == [4, 3]


def test_where_tokens_and_passes_do_not_fit_together_nothing_is_concluded() -> None:
    assert of(tokens("", "a", ""), (9, 4, 3, 2)).passes == ()


def test_costs_are_medians_by_rows_that_never_fall() -> None:
    records = [(1, 40), (1, 44), (1, 90), (4, 60), (4, 62), (8, 50), (8, 52), (16, 1)]
    passes = tuple(PassRecord(rows, us) for rows, us in records)
    costs = pass_costs([replace(probe(), passes=passes)])
    assert costs is not None
    assert costs.rows == (1, 4, 8), "one pass alone is not believed"
    assert costs.us == (44.0, 56.0, 56.0)


def test_lengths_seen_once_count_where_there_is_nothing_else() -> None:
    costs = pass_costs([replace(probe(), passes=(PassRecord(3, 70),))])
    assert costs is not None and costs.rows == (3,)
    assert pass_costs([replace(probe(), passes=())]) is None


def guessing(*guesses: bool) -> Probe:
    return replace(probe(), stats=replace(probe().stats, **told(guesses)))


def test_acceptance_is_counted_along_rows_of_right_guesses() -> None:
    luck = random.Random(3)
    guesses = [True]
    for _ in range(8000):
        guesses.append(luck.random() < (0.9 if guesses[-1] else 0.5))
    chances = acceptance([guessing(*guesses)])
    assert len(chances) == STREAKS
    assert chances[0] == pytest.approx(0.5, abs=0.04)
    assert all(chance == pytest.approx(0.9, abs=0.04) for chance in chances[1:])


def test_places_without_a_guess_count_neither_way() -> None:
    assert accepted_share([guessing(True, True, True, False)]) == pytest.approx(3 / 4)
    assert acceptance([guessing()]) == ()
    assert profile([guessing()]) is None
    assert accepted_share([]) is None


def test_few_places_are_drawn_towards_all_of_them() -> None:
    chances = acceptance([guessing(True, False, False, False)])
    assert chances[-1] == pytest.approx(0.25), "never seen: the pooled chance"


def test_how_sure_drafts_were_is_added_up_over_answers() -> None:
    found = profile([guessing(True, True, False), guessing(False)])
    assert found is not None
    assert found.outcomes[7] == (2, 0, 0, 2)
    assert sum(map(sum, found.outcomes)) == 4


def test_what_a_further_node_costs_a_draft_shows_in_steps_of_several_sizes() -> None:
    def paced(steps: tuple[int, ...], us: tuple[int, ...]) -> Probe:
        drafts = (replace(probe().stats.drafts[0], paced_steps=steps, paced_us=us),)
        return replace(probe(), stats=replace(probe().stats, drafts=drafts))

    pace = draft_pace([paced((10, 0, 5), (200_000, 0, 150_000))])
    assert pace is not None
    assert (pace.step_us, pace.row_us) == (pytest.approx(20_000), pytest.approx(5_000))
    assert pace.of(2) == pytest.approx(25_000)
    falling = draft_pace([paced((10, 10), (200_000, 100_000))])
    assert falling == DraftPace(15_000, 0.0)
    lone = draft_pace([paced((10, 1), (200_000, 900_000))])
    assert lone == DraftPace(20_000, 0.0), "one step alone is not believed"
    unpaced = draft_pace([paced((), ())])
    assert unpaced == DraftPace(4_000, 0.0), "what a pass took is all that is known"


def test_times_are_those_of_the_deployment() -> None:
    probes = pair(pace_us=5_000, wire_us=2_000, pass_us=30_000)
    assert draft_pace(probes) == DraftPace(5_000, 0.0)
    assert draft_wire_us(probes) == 2_000
    assert alone_us(probes) == pytest.approx(30_300)
    assert pass_overhead_us(probes) == pytest.approx(300)
    assert draft_pace([probe(has_drafts=False)]) is None


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
