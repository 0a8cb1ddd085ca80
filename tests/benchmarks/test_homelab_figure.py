"""Figures are what the answers say, prompt by prompt."""

from dataclasses import asdict

import pytest
from measured import answer, passes

from benchmarks.homelab_answer import Answer, Phases
from benchmarks.homelab_bound import bound, pass_times
from benchmarks.homelab_figure import Figure, differences, figures
from benchmarks.homelab_plan import ALONE, LLAMACPP, OUTRIDER, SYNCHRONOUS

LONGEST = {SYNCHRONOUS: 2, OUTRIDER: 4, LLAMACPP: 2}


def run() -> list[Answer]:
    """Two prompts, alone and over two wires, and a peer that answers one of them."""
    answers = []
    for prompt, slow in ((0, 1.0), (1, 2.0)):
        answers += [
            answer(prompt=prompt, ids=range(12), every_ms=100 * slow, rounds=passes([0] * 12, 0)),
            answer(
                SYNCHRONOUS,
                prompt=prompt,
                rtt_ms=5,
                ids=range(12),
                every_ms=50 * slow,
                rounds=passes([0, 2, 1, 2, 1, 2, 1, 2, 0], 2),
                accepted_per_position=(7, 4),
            ),
            answer(
                OUTRIDER,
                prompt=prompt,
                rtt_ms=5,
                ids=range(12),
                every_ms=(40, 25)[prompt] * slow,
                rounds=passes([0, 4, 3, 4, 0], 4, wait_us=2000),
                accepted_per_position=(3, 3, 3, 2),
                phases=Phases(10_000, 500, 9000, 3, 5000, 250),
                wire_bytes=1000,
            ),
        ]
    answers.append(answer(LLAMACPP, ids=range(1, 13), every_ms=80))
    return answers


def figure(mode: str) -> Figure:
    return next(f for f in figures(run(), LONGEST) if f.mode == mode)


def test_ratios_are_paired_by_prompt() -> None:
    assert figure(ALONE).ratio_to_target_alone == 1
    assert figure(SYNCHRONOUS).ratio_to_target_alone == 2
    assert figure(OUTRIDER).ratio_to_target_alone == pytest.approx((2.5 + 4) / 2)
    assert figure(OUTRIDER).ratio_spread == pytest.approx(0.75)
    assert figure(OUTRIDER).tokens_per_s == pytest.approx((25 + 20) / 2)


def test_the_bound_of_a_mode_is_at_its_own_longest_chain_with_all_measured_passes() -> None:
    drafted = [r for a in run() if a.configuration.mode != ALONE for r in a.rounds[1:-1]]
    times = pass_times([r for a in run() for r in a.rounds[1:-1]])
    tested = [sum(1 for r in drafted if r.accepted >= i and r.rows - 1 > i) for i in range(4)]
    taken = [sum(1 for r in drafted if r.accepted > i) for i in range(4)]
    rates = tuple(b / a for a, b in zip(tested, taken, strict=True))
    for mode, most in ((SYNCHRONOUS, 2), (OUTRIDER, 4)):
        expected = bound(rates, times, most)
        found = figure(mode)
        assert (found.bound, found.bound_nodes) == (round(expected.speed_up, 3), expected.nodes)
        assert found.ratio_to_bound == pytest.approx(
            found.ratio_to_target_alone / expected.speed_up, abs=1e-3
        )
    assert figure(SYNCHRONOUS).bound != figure(OUTRIDER).bound


def test_acceptance_is_told_by_position_and_by_pass() -> None:
    found = figure(SYNCHRONOUS)
    assert found.acceptance_per_position == (1.0, round(8 / 14, 3))
    assert found.accepted_per_position == (round(14 / 18, 3), round(8 / 18, 3))
    assert (found.acceptance_length, found.passes_per_token) == (round(12 / 9, 3), 0.75)
    assert found.rows_per_pass == 3


def test_phases_are_means_of_a_pass() -> None:
    found = figure(OUTRIDER)
    assert (found.draft_ms, found.queue_ms, found.accept_ms) == (2.0, 0.1, 1.0)
    assert (found.reconcile_ms, found.wire_ms, found.waiting_ms) == (0.05, 3.0, 2.0)
    assert (found.verify_ms, found.bytes_per_round) == (150.0, 200)


def test_times_between_tokens_are_those_of_all_answers() -> None:
    found = figure(ALONE)
    assert (found.ttft_ms, found.itl_p50_ms, found.itl_p95_ms) == (200, 150, 200)


def test_what_a_peer_does_not_tell_is_not_made_up() -> None:
    found = asdict(figure(LLAMACPP))
    unknown = ("acceptance_per_position", "verify_ms", "waiting_ms", "draft_ms", "bytes_per_round")
    assert [found[name] for name in unknown] == [None] * 5
    assert found["prompts"] == 1
    assert found["ratio_to_target_alone"] == 1.25
    assert found["identical"] == 0


def test_without_drafts_there_is_no_bound() -> None:
    (alone,) = figures([answer(ids=range(9), rounds=passes([0] * 9, 0))], LONGEST)
    assert (alone.bound, alone.ratio_to_bound, alone.ratio_to_target_alone) == (None, None, 1)


def test_a_prompt_that_the_target_alone_has_not_answered_is_left_out() -> None:
    answers = [*run(), answer(OUTRIDER, prompt=7, rtt_ms=5, ids=range(12), every_ms=1)]
    assert figures(answers, LONGEST) == figures(run(), LONGEST)


def test_another_token_or_another_length_is_a_difference() -> None:
    answers = [
        answer(ids=(1, 2, 3)),
        answer(OUTRIDER, ids=(1, 2, 3)),
        answer(SYNCHRONOUS, rtt_ms=5, ids=(1, 9, 3)),
        answer(OUTRIDER, rtt_ms=5, ids=(1, 2)),
        answer(LLAMACPP, ids=(7, 7, 7)),
        answer(temperature=1.0, ids=(4, 5, 6)),
        answer(OUTRIDER, temperature=1.0, ids=(4, 5, 7)),
    ]
    found = [(d.mode, d.rtt_ms, d.temperature, d.token) for d in differences(answers)]
    assert found == [(SYNCHRONOUS, 5, 0, 1), (OUTRIDER, 5, 0, 2), (OUTRIDER, 0, 1, 2)]
