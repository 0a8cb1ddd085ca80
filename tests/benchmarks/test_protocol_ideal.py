"""The bound of the scale rig is a bound, and drafts agree as often as was asked."""

import numpy as np
import pytest
import torch

from benchmarks.protocol_ideal import (
    CONTEXTS,
    Costs,
    acceptance_of,
    coupled_agreement,
    drafts_per_client,
    drift_for,
    expected_tokens,
    ideal,
    random_contexts,
    run_ahead_ideal,
    synchronous_nodes,
)
from outrider.errors import InvalidArgumentError
from outrider.models.scripted import ScriptedLaw, scripted_logits
from outrider.sampling.noise import PhiloxNoise, Stream

LAW = ScriptedLaw(vocab=32, order=2, sharpness=2.0)
COSTS = Costs(40.0, 0.2, 4.0)


def test_the_target_alone_is_bounded_by_its_own_passes() -> None:
    assert ideal(COSTS, 0.8, 1, 0, 7).tokens_per_s == pytest.approx(1000 / 40.2)
    assert ideal(COSTS, 0.8, 64, 0, 7).tokens_per_s == pytest.approx(64_000 / 52.8)
    assert ideal(COSTS, 0.8, 64, 0, 7).nodes == 0


def test_the_bound_takes_the_best_depth_and_no_deeper_than_allowed() -> None:
    for clients in (1, 8, 64):
        found = ideal(COSTS, 0.8, clients, 1, 7)
        speeds = [
            1000 * clients * expected_tokens(0.8, n) / (40 + 0.2 * clients * (1 + n))
            for n in range(8)
        ]
        assert found.tokens_per_s == pytest.approx(max(speeds))
        assert speeds[found.nodes] == max(speeds)
    assert ideal(COSTS, 0.8, 1, 1, 7).nodes == 7
    assert ideal(COSTS, 0.8, 64, 1, 128).nodes < ideal(COSTS, 0.8, 1, 1, 128).nodes < 128


def test_a_draft_that_always_agrees_and_rows_that_cost_nothing_give_every_node() -> None:
    free_rows = Costs(40.0, 0.0, 4.0)
    assert ideal(free_rows, 1.0, 4, 1, 7).tokens_per_s == pytest.approx(4 * 8 * 25)


def test_more_drafts_raise_the_bound_and_never_above_certainty() -> None:
    bounds = [ideal(COSTS, 0.6, 4, drafts, 7).tokens_per_s for drafts in (0, 4, 8, 32, 4000)]
    assert bounds == sorted(bounds)
    assert bounds[-1] <= ideal(COSTS, 1.0, 4, 1, 7).tokens_per_s + 1e-9


def test_drafts_are_shared_out_and_a_crowd_has_one_each() -> None:
    for drafts in (1, 2, 4, 8):
        for clients in (1, 2, 3, 8, 64):
            each = drafts_per_client(drafts, clients)
            assert each >= 1
            assert each == 1 or each * clients <= drafts < (each + 1) * clients
    for bound in (
        lambda clients, drafts: ideal(COSTS, 0.6, clients, drafts, 7).tokens_per_s,
        lambda clients, drafts: run_ahead_ideal(COSTS, 0.6, clients, drafts, 7),
    ):
        assert bound(64, 4) == bound(64, 1) > bound(64, 0)
        assert bound(1, 4) > bound(1, 1)
        assert bound(2, 4) == bound(2, 5) > bound(2, 3) == bound(2, 1)


def test_drafts_that_begin_again_bring_less_than_drafts_that_are_never_late() -> None:
    for clients in (1, 8, 64):
        for acceptance in (0.3, 0.8, 0.95):
            free = ideal(COSTS, acceptance, clients, 1, 7).tokens_per_s
            alone = ideal(COSTS, acceptance, clients, 0, 7).tokens_per_s
            bound = run_ahead_ideal(COSTS, acceptance, clients, 1, 7)
            assert alone <= bound <= free
    assert run_ahead_ideal(COSTS, 0.8, 8, 0, 7) == ideal(COSTS, 0.8, 8, 0, 7).tokens_per_s
    # Nothing is lost where drafts take no time, or never miss.
    instant = Costs(40.0, 0.2, 0.0)
    for costs, acceptance in ((instant, 0.8), (COSTS, 1.0)):
        free = ideal(costs, acceptance, 1, 1, 7).tokens_per_s
        assert run_ahead_ideal(costs, acceptance, 1, 1, 7) == pytest.approx(free)


def test_the_run_ahead_bound_is_what_a_draft_without_a_network_gets() -> None:
    generator = np.random.default_rng(2)
    for after_hit, after_miss in ((7, 3), (7, 0), (4, 7)):
        speed = _simulated(generator, 0.8, after_hit, after_miss)
        assert speed < 1.04 * run_ahead_ideal(COSTS, 0.8, 1, 1, 7)
    best = max(_simulated(generator, 0.8, 7, m) for m in range(8))
    assert best == pytest.approx(run_ahead_ideal(COSTS, 0.8, 1, 1, 7), rel=0.04)


def test_expected_tokens_are_those_of_a_walk_that_ends_at_the_first_miss() -> None:
    generator = np.random.default_rng(1)
    hits = generator.random((200_000, 5)) < 0.7
    lengths = 1 + np.cumprod(hits, axis=1).sum(axis=1)
    assert expected_tokens(0.7, 5) == pytest.approx(float(lengths.mean()), abs=0.02)
    of_three = lengths[:199_998].reshape(-1, 3).max(axis=1)
    assert expected_tokens(0.7, 5, drafts=3) == pytest.approx(float(of_three.mean()), abs=0.02)


def test_a_longer_way_makes_longer_rounds_pay() -> None:
    lengths = [synchronous_nodes(COSTS, 0.8, 1, rtt, 16) for rtt in (0.0, 20.0, 100.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]
    assert synchronous_nodes(COSTS, 0.8, 64, 0.0, 16) <= lengths[0]


def test_the_agreement_of_two_laws_is_what_the_shared_noise_gives() -> None:
    contexts = random_contexts(LAW, 8)
    p, q = (
        scripted_logits(ScriptedLaw(**{**_fields(LAW), "drift": drift}), contexts)
        .double()
        .softmax(dim=-1)
        for drift in (0.0, 0.4)
    )
    for row_p, row_q in zip(p, q, strict=True):
        same = sum(_same_winner(row_p, row_q, seed) for seed in range(1500)) / 1500
        assert coupled_agreement(row_p.numpy(), row_q.numpy()) == pytest.approx(same, abs=0.06)


def test_equal_laws_always_agree() -> None:
    assert acceptance_of(LAW, 0.0, random_contexts(LAW, 16)) == pytest.approx(1.0)
    assert drift_for(1.0, LAW) == 0.0


@pytest.mark.parametrize("wanted", [0.3, 0.6, 0.8, 0.95])
def test_the_drift_found_has_the_acceptance_that_was_wanted(wanted: float) -> None:
    drift = drift_for(wanted, LAW)
    assert acceptance_of(LAW, drift, random_contexts(LAW, CONTEXTS)) == pytest.approx(
        wanted, abs=0.002
    )
    others = random_contexts(ScriptedLaw(**{**_fields(LAW), "seed": 5}), 256)
    assert acceptance_of(LAW, drift, others) == pytest.approx(wanted, abs=0.05)


@pytest.mark.parametrize("wanted", [0.0, 0.01, 1.5])
def test_an_acceptance_that_no_drift_has_is_refused(wanted: float) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be had"):
        drift_for(wanted, LAW)


def _simulated(
    generator: np.random.Generator, acceptance: float, after_hit: int, after_miss: int
) -> float:
    """Tokens a second of 10,000 rounds, one after the other."""
    tokens, time_ms, is_hit = 0, 0.0, True
    for _ in range(10_000):
        nodes = after_hit if is_hit else after_miss
        time_ms += COSTS.pass_ms(1 + nodes) + (0 if is_hit else nodes * COSTS.draft_step_ms)
        stood = int(np.cumprod(generator.random(nodes + 1) < acceptance).sum())
        tokens += 1 + min(stood, nodes)
        is_hit = stood > nodes  # The draft's next token is the target's own, too.
    return 1000 * tokens / time_ms


def _same_winner(p: torch.Tensor, q: torch.Tensor, seed: int) -> bool:
    noise = PhiloxNoise(seed)
    return noise.choose(p, 0, Stream.COUPLED) == noise.choose(q, 0, Stream.COUPLED)


def _fields(law: ScriptedLaw) -> dict[str, float]:
    return {
        "vocab": law.vocab,
        "seed": law.seed,
        "order": law.order,
        "sharpness": law.sharpness,
    }
