"""From measured answers to the figures of the home-lab rig. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.homelab_answer import Answer, Round
from benchmarks.homelab_bound import Bound, acceptance, bound, inner_rounds, pass_times
from benchmarks.homelab_plan import ALONE, OURS, OVER_A_WIRE, Configuration


@dataclass(frozen=True, slots=True)
class Figure:
    """One configuration over all prompts. Times in milliseconds; `*_ms` of a phase are per pass.

    `spread` is the interquartile range between prompts. `ratio_to_target_alone` is the median of
    the ratios prompt by prompt; `ratio_to_bound` that ratio by `bound`, which homelab_bound
    defines. `acceptance_length` is the tokens that a target pass emits. `acceptance_per_position`
    is conditional (of those tested), `accepted_per_position` not (of all passes with drafts). What
    a peer does not tell is None. `identical` counts the answers whose tokens are the target's.
    """

    mode: str
    rtt_ms: float
    temperature: float
    prompts: int
    tokens: int
    tokens_per_s: float
    spread: float
    ratio_to_target_alone: float
    ratio_spread: float
    ratio_to_bound: float | None
    bound: float | None
    bound_nodes: int | None
    acceptance_length: float
    passes_per_token: float
    acceptance_per_position: tuple[float, ...] | None
    accepted_per_position: tuple[float, ...] | None
    rows_per_pass: float | None
    ttft_ms: float
    itl_p50_ms: float
    itl_p95_ms: float
    bytes_per_round: float | None
    draft_ms: float | None
    queue_ms: float | None
    wire_ms: float | None
    verify_ms: float | None
    accept_ms: float | None
    reconcile_ms: float | None
    waiting_ms: float | None
    identical: int


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer that is not the target's own, and the first token where it leaves it."""

    mode: str
    rtt_ms: float
    temperature: float
    prompt: int
    token: int


def figures(answers: Sequence[Answer], longest: Mapping[str, int]) -> list[Figure]:
    """A figure for every configuration, in the order in which they first occur by mode.

    `longest` is the longest chain that each mode may verify; it limits the mode's bound. Prompts
    that the target alone has not answered are left out.
    """
    found: list[Figure] = []
    # What a pass takes does not depend on the temperature, what is accepted does.
    times = pass_times(_rounds(answers, OURS))
    for temperature in sorted({a.configuration.temperature for a in answers}):
        own = [a for a in answers if a.configuration.temperature == temperature]
        alone = {a.prompt: a for a in own if a.configuration.mode == ALONE}
        rates = acceptance(_rounds(own, OVER_A_WIRE))
        by_configuration: dict[Configuration, list[Answer]] = {}
        for answer in own:
            if answer.prompt in alone:
                by_configuration.setdefault(answer.configuration, []).append(answer)
        for configuration in sorted(by_configuration, key=_order):
            most = longest.get(configuration.mode, max(longest.values(), default=0))
            limit = bound(rates, times, most) if rates and 1 in times else None
            found.append(_figure(configuration, by_configuration[configuration], alone, limit))
    return found


def differences(answers: Sequence[Answer]) -> list[Difference]:
    """Answers of ours whose tokens are not those of the target alone to the same prompt.

    At temperature 0, and at any under `coupled` with one seed, there must be none.
    """
    alone = {_question(a): a.ids for a in answers if a.configuration.mode == ALONE}
    return [
        Difference(
            answer.configuration.mode,
            answer.configuration.rtt_ms,
            answer.configuration.temperature,
            answer.prompt,
            _first_difference(answer.ids, alone[_question(answer)]),
        )
        for answer in answers
        if answer.configuration.mode in OVER_A_WIRE
        and _question(answer) in alone
        and answer.ids != alone[_question(answer)]
    ]


def _figure(
    configuration: Configuration,
    answers: Sequence[Answer],
    alone: Mapping[int, Answer],
    limit: Bound | None,
) -> Figure:
    speeds = [a.tokens_per_s for a in answers if a.tokens_per_s is not None]
    ratios = [ratio for a in answers if (ratio := _ratio(a, alone[a.prompt])) is not None]
    ratio = _median(ratios)
    gaps = [gap for a in answers for gap in a.gaps_ms]
    emitted = sum(len(a.ids) for a in answers)
    passes = sum(a.passes for a in answers)
    is_ours = configuration.mode in OURS
    rounds = [r for a in answers for r in a.rounds[1:]]
    is_drafted = configuration.mode in OVER_A_WIRE

    def per_pass(microseconds: float) -> float | None:
        return round(microseconds / 1000 / passes, 3) if is_ours and passes else None

    wire_rounds = sum(a.phases.wire_rounds for a in answers)
    wire_us = sum(a.phases.wire_us for a in answers)
    return Figure(
        mode=configuration.mode,
        rtt_ms=configuration.rtt_ms,
        temperature=configuration.temperature,
        prompts=len(answers),
        tokens=emitted,
        tokens_per_s=round(_median(speeds), 3),
        spread=round(_range(speeds), 3),
        ratio_to_target_alone=round(ratio, 3),
        ratio_spread=round(_range(ratios), 3),
        ratio_to_bound=None if limit is None else round(ratio / limit.speed_up, 3),
        bound=None if limit is None else round(limit.speed_up, 3),
        bound_nodes=None if limit is None else limit.nodes,
        acceptance_length=round(emitted / passes, 3) if passes else 0.0,
        passes_per_token=round(passes / emitted, 3) if emitted else 0.0,
        acceptance_per_position=_rounded(
            acceptance([r for a in answers for r in inner_rounds(a.rounds)])
        )
        if is_drafted
        else None,
        accepted_per_position=_accepted_per_position(answers) if is_drafted else None,
        rows_per_pass=round(statistics.mean(r.rows for r in rounds), 2) if rounds else None,
        ttft_ms=round(_median([a.ttft_ms for a in answers]), 1),
        itl_p50_ms=round(_quantile(gaps, 0.50), 2),
        itl_p95_ms=round(_quantile(gaps, 0.95), 2),
        bytes_per_round=round(sum(a.wire_bytes for a in answers) / passes)
        if is_ours and passes
        else None,
        draft_ms=per_pass(sum(a.phases.draft_us for a in answers)),
        queue_ms=per_pass(sum(a.phases.queue_us for a in answers)),
        wire_ms=round(wire_us / 1000 / wire_rounds, 3) if wire_rounds else None,
        verify_ms=_mean_ms([r.forward_us for r in rounds]),
        accept_ms=per_pass(sum(a.phases.accept_us for a in answers)),
        reconcile_ms=per_pass(sum(a.phases.reconcile_us for a in answers)),
        waiting_ms=_mean_ms([r.wait_us for r in rounds]),
        identical=sum(a.ids == alone[a.prompt].ids for a in answers),
    )


def _order(configuration: Configuration) -> tuple[int, float]:
    modes = (*OURS, configuration.mode)
    return modes.index(configuration.mode), configuration.rtt_ms


def _rounds(answers: Sequence[Answer], modes: Sequence[str]) -> list[Round]:
    return [
        one
        for answer in answers
        if answer.configuration.mode in modes
        for one in inner_rounds(answer.rounds)
    ]


def _question(answer: Answer) -> tuple[int, float]:
    return answer.prompt, answer.configuration.temperature


def _ratio(answer: Answer, alone: Answer) -> float | None:
    if answer.tokens_per_s is None or alone.tokens_per_s is None:
        return None
    return answer.tokens_per_s / alone.tokens_per_s


def _accepted_per_position(answers: Sequence[Answer]) -> tuple[float, ...]:
    passes = sum(a.drafted_passes for a in answers)
    depth = max((len(a.accepted_per_position) for a in answers), default=0)
    totals = [
        sum(a.accepted_per_position[i] for a in answers if i < len(a.accepted_per_position))
        for i in range(depth)
    ]
    return _rounded([total / passes for total in totals]) if passes else ()


def _first_difference(got: Sequence[int], wanted: Sequence[int]) -> int:
    pairs = zip(got, wanted, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(got), len(wanted)))


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, 3) for value in values)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _mean_ms(values: Sequence[int]) -> float | None:
    return round(statistics.mean(values) / 1000, 3) if values else None


def _range(values: Sequence[float]) -> float:
    """Interquartile range; 0 for fewer than two values."""
    return _quantile(values, 0.75) - _quantile(values, 0.25) if len(values) > 1 else 0.0


def _quantile(values: Sequence[float], share: float) -> float:
    """By linear interpolation between the sorted values; 0 where there is none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
