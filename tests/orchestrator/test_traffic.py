"""What a front counts while requests go through it."""

from orchestrator.requests import DraftStats, EmittedToken, Finished, Stats, Tokens
from orchestrator.traffic import MOST_POSITIONS, Traffic
from outrider.types import FinishReason, StepTiming


def run(*drafts: str, verified: int) -> Tokens:
    """A verdict: a token of each draft, then the target's."""
    tokens = tuple(EmittedToken(1, "x", draft) for draft in (*drafts, ""))
    return Tokens(tokens, verified, StepTiming(forward_us=2000, gap_us=500))


def test_each_verdict_counts_at_once() -> None:
    traffic = Traffic()
    traffic.note(run("a", "b", verified=5))
    traffic.note(run("a", verified=3))
    traffic.note(run(verified=0))
    assert (traffic.emitted_tokens, traffic.target_passes, traffic.drafted_passes) == (6, 3, 2)
    assert (traffic.verified_tokens, traffic.accepted_tokens) == (8, 3)
    assert traffic.accepted_per_position == [2, 1]
    assert (traffic.forward_us, traffic.gap_us) == (6000, 1500)
    assert {name: one.written_tokens for name, one in traffic.drafts.items()} == {"a": 2, "b": 1}


def test_a_pass_that_requests_share_takes_its_time_once() -> None:
    traffic = Traffic()
    timing = StepTiming(forward_us=2000, gap_us=500, batch_sessions=4)
    for _ in range(4):
        traffic.note(Tokens((EmittedToken(1, "x", ""),), 0, timing))
    assert (traffic.forward_us, traffic.gap_us) == (2000, 500)


def test_deep_positions_share_the_last_count() -> None:
    traffic = Traffic()
    traffic.note(run(*["a"] * (MOST_POSITIONS + 3), verified=40))
    assert len(traffic.accepted_per_position) == MOST_POSITIONS
    assert traffic.accepted_per_position[-1] == 4
    assert sum(traffic.accepted_per_position) == MOST_POSITIONS + 3


def test_the_end_of_a_request_tells_what_its_drafts_did() -> None:
    traffic = Traffic()
    draft = DraftStats("a", drafted_tokens=9, accepted_tokens=4, steps=3, step_us=60)
    stats = Stats(drafts=[draft])
    for _ in range(2):
        traffic.note(Finished(FinishReason.STOP, stats, ()))
    found = traffic.of("a")
    assert (found.drafted_tokens, found.accepted_tokens) == (18, 8)
    assert (found.steps, found.step_us, found.written_tokens) == (6, 120, 0)
