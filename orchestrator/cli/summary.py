"""What happened, in sentences for people. Pure: results in, text out."""

import math
from collections.abc import Sequence
from dataclasses import asdict

from outrider.client import DraftStats, Result, Started, Stats, Token
from outrider.types import FinishReason

SAME_SPEED = 0.1
"""A difference of up to this share is called none: it is within what repeated runs vary."""


def idle_share(stats: Sequence[Stats]) -> float:
    """For what share of the time in which it served these answers the target stood idle between
    passes although it could have begun one; 0 where nothing is known of it.
    """
    idle_us = sum(sum(one.gap_us) for one in stats)
    whole_us = sum(sum(one.wait_us) + sum(one.forward_us) + one.accept_us for one in stats)
    return idle_us / whole_us if whole_us else 0.0


def answer_line(result: Result) -> str:
    """One line about one answer."""
    stats = result.stats
    return (
        f"{counted(stats.emitted_tokens, 'token')} in {passes(stats)}, {drafting(stats)}, "
        f"{stats.total_us / 1e6:.1f} s ({stats.tokens_per_s:.0f} tokens/s), seed {result.seed}"
        f"{', cut off at its length limit' if result.finish_reason is FinishReason.LENGTH else ''}"
    )


def prompt_line(result: Result) -> str:
    """One line about the prompt of an answer: what of it had been read before."""
    stats = result.stats
    drafts = "".join(
        f", {draft.cached_tokens} at {draft.name}" for draft in stats.drafts if draft.cached_tokens
    )
    return (
        f"{counted(stats.prompt_tokens, 'prompt token')}, {stats.cached_tokens} of them in the "
        f"target's cache{drafts}; the first token came after {stats.first_token_us / 1e6:.2f} s"
    )


def comparison(drafted: Result, alone: Result, draft_is_target: bool) -> str:
    """One sentence about the same answer with and without drafts."""
    stats = drafted.stats
    with_s, without_s = stats.total_us / 1e6, alone.stats.total_us / 1e6
    what = (
        f"{counted(stats.emitted_tokens, 'token')} took {passes(stats)}, "
        f"{stats.tokens_per_pass:.1f} tokens a pass: {drafting(stats)}"
    )
    if not stats.drafts:
        return (
            f"{what}; the two runs took {with_s:.1f} s and {without_s:.1f} s, and the difference "
            "is noise."
        )
    if not stats.verified_tokens:
        return (
            f"{what}; it took {with_s:.1f} s with drafts and {without_s:.1f} s without; the "
            "difference is noise, or what idle drafts cost."
        )
    ratio = without_s / with_s
    if ratio > 1 + SAME_SPEED:
        outcome = f"so drafts made it {ratio:.1f} times as fast"
    elif ratio < 1 - SAME_SPEED:
        outcome = f"so drafts did not pay here: {_why_slow(drafted, alone, draft_is_target)}"
    else:
        outcome = "so drafts neither helped nor hurt here"
    return f"{what}; it took {with_s:.1f} s with drafts and {without_s:.1f} s without, {outcome}."


def paces(drafted: Result, alone: Result) -> str:
    """One sentence about what passes and draft steps took, as the services measured it."""
    told = (
        f"On average a target pass took {_pace(drafted.stats)}, and {_pace(alone.stats)} "
        "without drafts"
    )
    steps = sum(draft.steps for draft in drafted.stats.drafts)
    if steps:
        step_ms = sum(draft.step_us for draft in drafted.stats.drafts) / steps / 1000
        told += f"; a draft step took {step_ms:.0f} ms"
    return f"{told}."


def _pace(stats: Stats) -> str:
    count = max(1, len(stats.forward_us))
    pass_ms = sum(stats.forward_us) / count / 1000
    return f"{pass_ms:.0f} ms for {sum(stats.pass_rows) / count:.1f} rows"


def passes(stats: Stats) -> str:
    """How many target passes an answer took."""
    return counted(stats.target_passes, "target pass", "target passes")


def drafting(stats: Stats) -> str:
    """How much of what was drafted was accepted."""
    if not stats.drafts:
        return "no draft took part"
    losses = [_loss(stats, draft) for draft in stats.drafts if draft.lost]
    if stats.verified_tokens:
        accepted = (
            f"{stats.accepted_tokens} of {counted(stats.verified_tokens, 'verified draft token')} "
            f"accepted ({stats.acceptance_rate:.0%})"
        )
        return ", ".join([accepted, *_each(stats), *losses])
    if losses:
        return ", ".join(losses)
    if not any(draft.drafted_tokens for draft in stats.drafts):
        return "the drafts had nothing to propose"
    return "no drafted token was likely enough, or there in time, to be verified"


def _each(stats: Stats) -> list[str]:
    """Where several drafts took part: how many tokens came from each."""
    if len(stats.drafts) < 2:
        return []
    return [
        "of which "
        + ", ".join(
            f"{draft.accepted_tokens} from {draft.name}"
            + ("" if draft.drafted_tokens else " (it had nothing to add)")
            for draft in stats.drafts
        )
    ]


def _loss(stats: Stats, draft: DraftStats) -> str:
    who = "the draft" if len(stats.drafts) == 1 else f"draft {draft.name}"
    return f"{who} was lost ({counted(draft.drafted_tokens, 'token')} came from it)"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number and its noun.

    >>> counted(1, "token"), counted(2, "target pass", "target passes")
    ('1 token', '2 target passes')
    """
    return f"{count} {one if count == 1 else many or one + 's'}"


def as_json(result: Result) -> dict[str, object]:
    """A result as plain values, with the figures derived from its counts."""
    stats = result.stats
    plain: dict[str, object] = {
        "text": result.text,
        "ids": [token.id for token in result.tokens],
        "finish_reason": result.finish_reason.value,
        "stop_string": result.stop_string or None,
        "seed": result.seed,
        "mode": result.mode.value if result.mode else None,
        "request_id": result.request_id,
        "stats": {
            **asdict(stats),
            "tokens_per_pass": stats.tokens_per_pass,
            "acceptance_rate": stats.acceptance_rate,
            "tokens_per_s": stats.tokens_per_s,
            "target_idle_share": idle_share([stats]),
        },
        "notices": list(result.notices),
    }
    return {**plain, **logprobs_as_json(result.tokens)}


def partial_as_json(
    started: Started | None, text: str, tokens: Sequence[Token]
) -> dict[str, object]:
    """What there is of an answer that was stopped, as plain values."""
    return {
        "text": text,
        "ids": [token.id for token in tokens],
        "finish_reason": None,
        "seed": started.seed if started else None,
        "mode": started.mode.value if started and started.mode else None,
        "request_id": started.request_id if started else None,
        "notices": list(started.notices) if started else [],
        **logprobs_as_json(tokens),
    }


def logprobs_as_json(tokens: Sequence[Token]) -> dict[str, object]:
    """The log-probabilities under their name; nothing where none were asked for."""
    if all(token.logprob is None for token in tokens):
        return {}
    return {
        "logprobs": [
            {
                **_logprob_as_json(token.id, token.logprob, token.piece),
                "top": [_logprob_as_json(t.id, t.logprob, t.piece) for t in token.top_logprobs],
            }
            for token in tokens
        ]
    }


def _logprob_as_json(token: int, logprob: float | None, piece: bytes) -> dict[str, object]:
    """JSON has no infinity: a token that cannot be has null."""
    is_number = logprob is not None and math.isfinite(logprob)
    return {"id": token, "logprob": logprob if is_number else None, "bytes": list(piece)}


def _why_slow(drafted: Result, alone: Result, draft_is_target: bool) -> str:
    stats = drafted.stats
    if draft_is_target:
        return (
            "the draft is the target's own model on the same cores, and takes from it what it "
            "gives; a draft belongs on another machine or has to be much smaller"
        )
    pass_ms = stats.total_us / stats.target_passes / 1000
    bare_ms = alone.stats.total_us / alone.stats.target_passes / 1000
    saved = 1 - stats.target_passes / alone.stats.target_passes
    return (
        f"they saved {saved:.0%} of the passes, but a pass took {pass_ms:.0f} ms with drafted "
        f"tokens and {bare_ms:.0f} ms without"
    )
