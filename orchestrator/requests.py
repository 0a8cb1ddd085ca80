"""What goes into the engine and what comes out of it. Knows no gRPC, no Ray and no HTTP."""

from dataclasses import dataclass, field, replace

from orchestrator.guesses import Guesses
from outrider.errors import InternalError, InvalidArgumentError
from outrider.seeds import MAX_CHOICE, choice_seed, resumed_seed
from outrider.text import check_stop_strings
from outrider.types import (
    MAX_LOGPROBS,
    AcceptanceMode,
    FinishReason,
    ModelInfo,
    SamplingParams,
    StepTiming,
    StopConditions,
)

Prompt = str | tuple[tuple[str, str], ...] | tuple[int, ...]
"""Raw text, (role, content) messages, or token ids."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request to generate.

    None in a draft option and in `mode`, which takes the place of `sampling.mode`, means the
    deployment's default. `logprobs` None: none are reported; otherwise of each token and of so many
    most likely ones. `choice_index` tells which of several independent answers to one seed this is.
    The answer goes on behind `delivered_ids`, tokens of it that the caller has from a stream that
    broke; max_tokens and min_tokens count them. `traceparent` names the span above its own; empty:
    it is not traced.
    """

    request_id: str
    prompt: Prompt
    sampling: SamplingParams
    stop: StopConditions
    model: str = ""
    max_drafts: int | None = None
    num_speculative_tokens: int | None = None
    width: int | None = None
    mode: AcceptanceMode | None = None
    stop_strings: tuple[str, ...] = ()
    include_stop_string: bool = False
    logprobs: int | None = None
    choice_index: int = 0
    delivered_ids: tuple[int, ...] = ()
    traceparent: str = ""

    def __post_init__(self) -> None:
        check_stop_strings(self.stop_strings)
        if self.include_stop_string and not self.stop_strings:
            raise InvalidArgumentError(
                "include_stop_string is set without a stop string; give at least one"
            )
        if self.logprobs is not None and not 0 <= self.logprobs <= MAX_LOGPROBS:
            raise InvalidArgumentError(f"logprobs is {self.logprobs}; give 0 to {MAX_LOGPROBS}")
        if not 0 <= self.choice_index <= MAX_CHOICE:
            raise InvalidArgumentError(
                f"choice_index is {self.choice_index}; give 0 to {MAX_CHOICE}"
            )
        if len(self.delivered_ids) > self.stop.max_tokens:
            raise InvalidArgumentError(
                f"{len(self.delivered_ids)} tokens are delivered and max_tokens is "
                f"{self.stop.max_tokens}; give one that counts them"
            )
        if self.max_drafts is not None and not 0 <= self.max_drafts < 2**32:
            raise InvalidArgumentError(
                f"max_drafts is {self.max_drafts}; give 0, for none, or more"
            )
        for name, value, most in (
            ("num_speculative_tokens", self.num_speculative_tokens, 128),
            ("width", self.width, 32),
        ):
            if value is not None and not 1 <= value <= most:
                raise InvalidArgumentError(
                    f"{name} is {value}; give 1 to {most} (max_drafts 0 turns drafting off)"
                )

    def settled_sampling(self) -> SamplingParams:
        """What verifier and drafts sample by: each choice with its own seed, and what follows a
        stream that broke as `resumed_seed` says. The engine has given it a seed and a mode.
        """
        if self.sampling.seed is None or self.mode is None:
            raise InternalError("a session needs a seed and a mode; the engine has to settle them")
        seed = choice_seed(self.sampling.seed, self.choice_index)
        sampling = replace(self.sampling, seed=seed, mode=self.mode)
        if sampling.draws_proposals:
            return replace(sampling, seed=resumed_seed(seed, len(self.delivered_ids)))
        return sampling


@dataclass(frozen=True, slots=True)
class Started:
    """Generation has started. `seed` is the request's; its choice has one derived from it. It goes
    on behind `delivered_tokens` that the caller has.
    """

    request_id: str
    seed: int
    prompt_tokens: int
    drafts: tuple[str, ...]
    notices: tuple[str, ...]
    mode: AcceptanceMode
    model: str = ""
    delivered_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's natural log-probability under the target, and its bytes, control tokens' too."""

    id: int
    logprob: float
    piece: bytes


@dataclass(frozen=True, slots=True)
class EmittedToken:
    """`text` is what became certain with the token, of the last one also what was held back before;
    `draft` names who wrote it (empty: the target).

    Where log-probabilities were asked for, `logprob` is its own and `top_logprobs` are those of the
    most likely tokens in its place, likeliest first.
    """

    id: int
    text: str
    draft: str
    logprob: TokenLogprob | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one verdict, and of its pass: the drafted tokens that it verified, and times."""

    tokens: tuple[EmittedToken, ...]
    verified_tokens: int = 0
    timing: StepTiming = field(default_factory=StepTiming)


@dataclass(slots=True)
class DraftStats:
    """What a draft contributed, and its times in microseconds: `step_us` adds up the mean pass
    behind each of its `steps` chunks, `wire_us` is both ways between orchestrator and draft over
    `wire_rounds` commits. `paced_steps[i]` chunks that go on below i + 1 nodes came right behind
    others, over `paced_us[i]`.
    """

    name: str
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    lost: bool = False
    steps: int = 0
    step_us: int = 0
    wire_rounds: int = 0
    wire_us: int = 0
    cached_tokens: int = 0
    paced_steps: list[int] = field(default_factory=list)
    paced_us: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Stats:
    """Counts and times of one request; times in microseconds.

    `wait_us`, `pass_rows`, `forward_us`, `gap_us` and `batch_rows` have an entry for each verdict,
    and `accepted_per_position[i]` counts the passes whose accepted path had more than i nodes.
    `queue_us` is the part of the waits for which the model was busy with others, `reconcile_us` the
    orchestrator's own work.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    emitted_tokens: int = 0
    target_passes: int = 0
    verified_tokens: int = 0
    accepted_tokens: int = 0
    drafts: list[DraftStats] = field(default_factory=list)
    first_token_us: int = 0
    total_us: int = 0
    messages: int = 0
    wire_bytes: int = 0
    resumes: int = 0
    wait_us: list[int] = field(default_factory=list)
    pass_rows: list[int] = field(default_factory=list)
    forward_us: list[int] = field(default_factory=list)
    drafted_passes: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    queue_us: int = 0
    accept_us: int = 0
    reconcile_us: int = 0
    gap_us: list[int] = field(default_factory=list)
    batch_rows: list[int] = field(default_factory=list)
    guesses: Guesses = field(default_factory=Guesses)


@dataclass(frozen=True, slots=True)
class Finished:
    """Generation has ended; `stop_string` or `stop_token`, one that the request names, ended the
    text, if either did.
    """

    finish_reason: FinishReason
    stats: Stats
    notices: tuple[str, ...]
    stop_string: str = ""
    stop_token: int | None = None


Event = Started | Tokens | Finished


@dataclass(frozen=True, slots=True)
class ServiceView:
    """How a service of the cluster is."""

    name: str
    address: str
    usable: bool
    problem: str
    model: ModelInfo | None
    round_trip_us: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The verifier and the drafts."""

    verify: ServiceView
    drafts: tuple[ServiceView, ...]
