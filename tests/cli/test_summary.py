"""The sentences about an answer say what the counts say."""

import json
from dataclasses import replace

import pytest

from orchestrator.cli.summary import answer_line, as_json, comparison, paces
from outrider.client import DraftStats, Result, Stats, Token, TokenLogprob
from outrider.types import AcceptanceMode, FinishReason


def draft(
    drafted: int, accepted: int = 0, *, name: str = "d", lost: bool = False, steps: int = 0
) -> DraftStats:
    return DraftStats(name, drafted, accepted, lost, steps, steps * 20_000, 0, 0)


def result(*, passes: int, verified: int = 0, seconds: float, tokens: int = 60) -> Result:
    drafts = (draft(verified, tokens - passes, steps=verified),) if verified else ()
    stats = Stats(
        prompt_tokens=5,
        cached_tokens=0,
        emitted_tokens=tokens,
        target_passes=passes,
        verified_tokens=verified,
        accepted_tokens=tokens - passes,
        drafts=drafts,
        first_token_us=1,
        total_us=int(seconds * 1e6),
        messages=1,
        wire_bytes=1,
        resumes=0,
        wait_us=(),
        pass_rows=(1 + verified // passes,) * passes,
        forward_us=(50_000 + 1000 * (verified // passes),) * passes,
        drafted_passes=passes if verified else 0,
        accepted_per_position=(),
        queue_us=0,
        accept_us=0,
        reconcile_us=0,
    )
    return Result("text", (), FinishReason.LENGTH, stats, (), 7, "r")


ALONE = result(passes=60, seconds=6)


def test_the_line_about_an_answer_has_counts_time_and_seed():
    assert answer_line(result(passes=20, verified=50, seconds=2)) == (
        "60 tokens in 20 target passes, 40 of 50 verified draft tokens accepted (80%), "
        "2.0 s (30 tokens/s), seed 7, cut off at its length limit"
    )


def test_single_things_are_not_plural():
    told = answer_line(result(passes=1, tokens=1, seconds=1))
    assert told.startswith("1 token in 1 target pass, no draft took part")


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [
        (2.0, "2.0 s with drafts and 6.0 s without, so drafts made it 3.0 times as fast."),
        (5.9, "so drafts neither helped nor hurt here."),
        (
            9.0,
            "so drafts did not pay here: they saved 67% of the passes, but a pass took 450 ms with "
            "drafted tokens and 100 ms without.",
        ),
    ],
)
def test_the_comparison_says_whether_drafts_paid_and_why_not(seconds, outcome):
    drafted = result(passes=20, verified=50, seconds=seconds)
    assert comparison(drafted, ALONE, draft_is_target=False).endswith(outcome)


def test_a_draft_as_dear_as_the_target_is_named_as_the_reason():
    drafted = result(passes=20, verified=50, seconds=9)
    assert "the draft is the target's own model" in comparison(drafted, ALONE, draft_is_target=True)


def test_the_paces_are_means_of_what_was_measured():
    assert paces(result(passes=20, verified=60, seconds=2), ALONE) == (
        "On average a target pass took 53 ms for 4.0 rows, and 50 ms for 1.0 rows without drafts; "
        "a draft step took 20 ms."
    )
    assert paces(ALONE, ALONE) == (
        "On average a target pass took 50 ms for 1.0 rows, and 50 ms for 1.0 rows without drafts."
    )


def with_drafts(whole: Result, *drafts: DraftStats) -> Result:
    return replace(whole, stats=replace(whole.stats, drafts=drafts))


@pytest.mark.parametrize("seconds", [3.0, 6.0, 9.0])
def test_drafts_that_did_nothing_are_neither_praised_nor_blamed(seconds):
    unhelped = result(passes=60, seconds=seconds)
    assert comparison(unhelped, ALONE, draft_is_target=True).endswith(
        f"no draft took part; the two runs took {seconds:.1f} s and 6.0 s, and the difference is "
        "noise."
    )
    idle = with_drafts(unhelped, draft(0))
    assert comparison(idle, ALONE, draft_is_target=True).endswith(
        f"the drafts had nothing to propose; it took {seconds:.1f} s with drafts and 6.0 s "
        "without; the difference is noise, or what idle drafts cost."
    )


def test_a_lost_draft_is_told_with_how_far_it_came():
    unhelped, helped = result(passes=60, seconds=6), result(passes=20, verified=50, seconds=2)
    lost, other = draft(9, lost=True), draft(9, name="e")
    assert "the draft was lost (9 tokens came from it), 6.0 s" in answer_line(
        with_drafts(unhelped, lost)
    )
    told = answer_line(with_drafts(helped, lost, other))
    assert "accepted (80%), of which " in told
    assert "draft d was lost (9 tokens came from it), 2.0 s" in told


def test_of_several_drafts_each_is_told_with_what_came_of_it():
    helped = result(passes=20, verified=50, seconds=2)
    first = replace(draft(30, name="a"), accepted_tokens=38)
    second, silent = replace(draft(9, name="b"), accepted_tokens=2), draft(0, name="c")
    assert "of which 38 from a, 2 from b, 0 from c (it had nothing to add)" in answer_line(
        with_drafts(helped, first, second, silent)
    )
    assert "of which" not in answer_line(with_drafts(helped, first))


@pytest.mark.parametrize(
    ("drafted", "told"),
    [
        (9, "no drafted token was likely enough, or there in time, to be verified"),
        (0, "the drafts had nothing to propose"),
    ],
)
def test_late_and_silent_drafts_are_not_called_rejected(drafted, told):
    unhelped = result(passes=60, verified=0, seconds=6)
    assert told in answer_line(with_drafts(unhelped, draft(drafted)))


def test_json_has_log_probabilities_where_there_are_any_and_no_infinity():
    plain = result(passes=1, tokens=1, seconds=1)
    assert "logprobs" not in as_json(plain)
    top = (TokenLogprob(1, -0.5, b"a"), TokenLogprob(2, float("-inf"), b"\xc3"))
    told = as_json(replace(plain, tokens=(Token(1, "a", "", -0.5, b"a", top),)))
    assert told["logprobs"] == [
        {
            "id": 1,
            "logprob": -0.5,
            "bytes": [97],
            "top": [
                {"id": 1, "logprob": -0.5, "bytes": [97]},
                {"id": 2, "logprob": None, "bytes": [195]},
            ],
        }
    ]
    json.dumps(told, allow_nan=False)


def test_json_names_the_mode_and_the_stop_string():
    plain = result(passes=1, tokens=1, seconds=1)
    assert (as_json(plain)["mode"], as_json(plain)["stop_string"]) == (None, None)
    told = as_json(replace(plain, mode=AcceptanceMode.BLOCK, stop_string="END"))
    assert (told["mode"], told["stop_string"]) == ("block", "END")
