"""What is told of the answers to an HTTP request besides their text: usage, and how drafting went.
Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict

from orchestrator.gateway.gathered import Answer
from orchestrator.gateway.outcomes import (
    CompletionDetails,
    Metrics,
    PromptDetails,
    Replay,
    SpeculativeDecoding,
    Usage,
)
from orchestrator.requests import Stats


class ExtraFields(TypedDict, total=False):
    """Of an outcome, as keyword arguments; what is not there is not sent."""

    usage: Usage
    metrics: Metrics
    outrider: Replay


@dataclass(frozen=True, slots=True)
class Extras:
    """What goes with a whole answer, or with the last chunk of a stream."""

    usage: Usage
    metrics: Metrics | None = None
    outrider: Replay | None = None

    @property
    def fields(self) -> ExtraFields:
        """As keyword arguments of an outcome."""
        fields = ExtraFields(usage=self.usage)
        if self.metrics is not None:
            fields["metrics"] = self.metrics
        if self.outrider is not None:
            fields["outrider"] = self.outrider
        return fields


def extras_of(answers: Sequence[Answer], n: int) -> Extras:
    """Of the choices of all prompts, `n` each."""
    usage = usage_of([answer.stats for answer in answers], n)
    if len(answers) != 1:
        return Extras(usage)
    (answer,) = answers
    replay = None
    if answer.started is not None:
        notices = (*answer.started.notices, *answer.end.notices)
        replay = Replay(
            seed=answer.started.seed,
            drafts=[draft.name for draft in answer.stats.drafts],
            notices=list(notices),
        )
    return Extras(usage, metrics_of(answer.stats), replay)


def usage_of(stats: Sequence[Stats], n: int) -> Usage:
    """Of choices, `n` in a row to each prompt, which counts once."""
    prompts = stats[::n]
    prompt_tokens = sum(one.prompt_tokens for one in prompts)
    emitted = sum(one.emitted_tokens for one in stats)
    accepted = sum(one.accepted_tokens for one in stats)
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=emitted,
        total_tokens=prompt_tokens + emitted,
        prompt_tokens_details=PromptDetails(
            cached_tokens=sum(one.cached_tokens for one in prompts)
        ),
        completion_tokens_details=CompletionDetails(
            accepted_prediction_tokens=accepted,
            rejected_prediction_tokens=sum(one.verified_tokens for one in stats) - accepted,
        ),
    )


def metrics_of(stats: Stats) -> Metrics | None:
    """None where no pass verified a drafted token."""
    passes = stats.drafted_passes
    if not passes:
        return None
    longer = [passes, *stats.accepted_per_position, 0]
    return Metrics(
        speculative_decoding=SpeculativeDecoding(
            mean_acceptance_length=1 + stats.accepted_tokens / passes,
            draft_acceptance_rate=stats.accepted_tokens / max(1, stats.verified_tokens),
            acceptance_histogram=[more - most for more, most in pairwise(longer)],
            num_spec_steps=passes,
            num_accepted_draft_tokens=stats.accepted_tokens,
            num_draft_tokens=stats.verified_tokens,
        )
    )
