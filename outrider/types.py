"""The frozen dataclasses that travel between the rooms. They know no torch and no gRPC."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from outrider.errors import require
from outrider.plans import MAX_DRAFT_INDEX, DraftPlan, ReadinessPolicy

PROTOCOL_VERSION = 3
"""Peers with another version are refused."""

DRAFT_INDEX_SHIFT = 24
"""A node id is `draft_index << DRAFT_INDEX_SHIFT | counter`; below 2**24 it names a committed tip.
"""

MAX_LOGPROBS = 20
"""Most alternatives that are reported at a position."""

MAX_GRAMMAR_BYTES = 2**16
"""Most bytes of a schema or of all choices; a regex has a lower limit. Compiling takes time that
grows with the square of a schema's properties: a few seconds for the slowest one of this size."""

MAX_TOKEN_RULES = 4096
"""Most tokens that a request names in a bias, an allowed or a banned set."""


class AcceptanceMode(str, Enum):
    """How a proposal is accepted; every mode keeps the target's law (docs/exactness.md)."""

    COUPLED = "coupled"
    REJECTION = "rejection"
    BLOCK = "block"
    MATCH = "match"


class NodeKind(str, Enum):
    """How a draft chose a node's token."""

    SAMPLED = "sampled"
    LISTED = "listed"


class FinishReason(str, Enum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the text must match; exactly one of the three is set. `json_schema` is JSON text."""

    json_schema: str = ""
    regex: str = ""
    choice: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        forms = sum(bool(form) for form in (self.json_schema, self.regex, self.choice))
        require(
            forms == 1, f"the grammar has {forms} forms; give a JSON schema, a regex or a choice"
        )
        require(all(self.choice), "a choice is empty; give texts of at least one character")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters of one request, applied in the order that `sampling.processing` states.

    `temperature` 0 means greedy; `seed` None means not drawn yet; `allowed_token_ids` None means
    all. `logit_bias` are (token id, bias) pairs in the order of the ids.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    mode: AcceptanceMode = AcceptanceMode.COUPLED
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: frozenset[int] | None = None
    banned_token_ids: frozenset[int] = frozenset()
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        require(
            math.isfinite(self.temperature) and self.temperature >= 0,
            f"temperature is {self.temperature}; give a number of at least 0 (0 means greedy)",
        )
        require(
            0 <= self.top_k < 2**32,
            f"top_k is {self.top_k}; give at least 1 and less than 2^32, or 0 for all tokens",
        )
        require(0 < self.top_p <= 1, f"top_p is {self.top_p}; give a number above 0 and up to 1")
        require(0 <= self.min_p < 1, f"min_p is {self.min_p}; give a number from 0 to below 1")
        require(
            self.seed is None or 0 <= self.seed < 2**64,
            f"seed is {self.seed}; give a whole number from 0 to 2^64 - 1",
        )
        require(
            0.01 <= self.repetition_penalty <= 10,
            f"repetition_penalty is {self.repetition_penalty}; give a number from 0.01 to 10",
        )
        for name in ("frequency_penalty", "presence_penalty"):
            value = getattr(self, name)
            require(-2 <= value <= 2, f"{name} is {value}; give a number from -2 to 2")
        self._check_tokens()

    @property
    def is_greedy(self) -> bool:
        """Whether the target's most likely token is taken at every position."""
        return self.temperature == 0

    @property
    def draws_proposals(self) -> bool:
        """Whether drafts propose SAMPLED tokens, whose rows the verifier needs."""
        is_drawn = self.mode in (AcceptanceMode.REJECTION, AcceptanceMode.BLOCK)
        return is_drawn and not self.is_greedy

    def _check_tokens(self) -> None:
        ids = [token for token, _ in self.logit_bias]
        require(len(set(ids)) == len(ids), "logit_bias names a token twice; give each token once")
        for token, bias in self.logit_bias:
            require(
                -100 <= bias <= 100,
                f"logit_bias of token {token} is {bias}; give a number from -100 to 100",
            )
        for name, size in (
            ("logit_bias", len(ids)),
            ("allowed_token_ids", len(self.allowed_token_ids or ())),
            ("banned_token_ids", len(self.banned_token_ids)),
        ):
            require(
                size <= MAX_TOKEN_RULES,
                f"{name} has {size} tokens; give at most {MAX_TOKEN_RULES}",
            )
        if self.allowed_token_ids is not None:
            require(
                bool(self.allowed_token_ids - self.banned_token_ids),
                "no allowed token is left; name at least one that is not banned",
            )


@dataclass(frozen=True, slots=True)
class StopConditions:
    """Where a generation ends, besides the model's context length."""

    max_tokens: int
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    min_tokens: int = 0

    def __post_init__(self) -> None:
        require(
            1 <= self.max_tokens < 2**32,
            f"max_tokens is {self.max_tokens}; give at least 1 and less than 2^32",
        )
        require(
            0 <= self.min_tokens <= self.max_tokens,
            f"min_tokens is {self.min_tokens}; give 0 to max_tokens, which is {self.max_tokens}",
        )

    def ends(self, eos_token_ids: Iterable[int]) -> frozenset[int]:
        """The tokens that end the text of a model with these end-of-sequence ids."""
        return self.stop_token_ids | (frozenset() if self.ignore_eos else frozenset(eos_token_ids))

    def reached(
        self, emitted: Sequence[int], eos_token_ids: Iterable[int], room: int
    ) -> FinishReason | None:
        """Why nothing follows the emitted tokens, of which `room` fit behind the prompt; None: more
        does, unless a stop string or a grammar has ended the text.
        """
        if emitted and emitted[-1] in self.ends(eos_token_ids):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(emitted) >= min(self.max_tokens, room) else None

    def named(self, last: Sequence[int], eos_token_ids: Iterable[int]) -> int | None:
        """The token at the end of `last`, where it ends the text because the request says so, and
        not as one of the model's own ends.
        """
        own = () if self.ignore_eos else eos_token_ids
        return next((t for t in last[-1:] if t in self.stop_token_ids and t not in own), None)


@dataclass(frozen=True, slots=True)
class Node:
    """One drafted token: `q` is its probability under the draft's warped distribution.

    `chance` is the draft's estimate of the chance that the target accepts it where it accepts the
    parent; 0: not estimated. Of a SAMPLED node it knows the parent and its row, never the token.
    """

    id: int
    parent_id: int
    token: int
    q: float
    kind: NodeKind
    chance: float = 0.0


@dataclass(frozen=True, slots=True)
class ProposalRow:
    """The sparse distribution that the SAMPLED children of `parent_id` were really drawn from,
    without replacement.
    """

    parent_id: int
    ids: tuple[int, ...]
    probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Nodes that a draft made, parents first, and the rows its SAMPLED nodes were drawn from.

    When it was sent the draft knew of `known_tokens` emitted ones, for `held_us` by then.
    """

    nodes: tuple[Node, ...]
    rows: tuple[ProposalRow, ...] = ()
    step_us: int = 0
    known_tokens: int = 0
    held_us: int = 0

    @property
    def most_bytes(self) -> int:
        """No more than so many bytes on the wire."""
        return 48 + 40 * len(self.nodes) + sum(24 + 9 * len(row.ids) for row in self.rows)


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Where the time of one pass went, in microseconds. `queue_us` is the part of `wait_us` for
    which the session was ready and the model busy. `batch_*` are of the whole pass, `rows` of the
    session. For `gap_us` the model stood idle before the pass, and before those since the last
    verdict that only read prompts, although it could have begun.
    """

    wait_us: int = 0
    forward_us: int = 0
    accept_us: int = 0
    rows: int = 0
    batch_sessions: int = 1
    queue_us: int = 0
    batch_rows: int = 0
    batch_tokens: int = 0
    gap_us: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Of the target's logits at one position as they are, before the request's sampling parameters:
    the emitted token's natural log-probability, and the most likely (token, log-probability) pairs.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one pass: the accepted path, then the target's own token (node id 0).

    `logprobs` has an entry for each token where they were asked for. `fresh` says that the last
    token was drawn after a look at what was drafted below it: all of that is spent. `missed` says
    that drafted tokens were tested for the place of the last token, and none was taken.
    """

    round_index: int
    base: int
    tokens: tuple[int, ...]
    node_ids: tuple[int, ...]
    drafted: int
    finish_reason: FinishReason | None = None
    timing: StepTiming = field(default_factory=StepTiming)
    logprobs: tuple[TokenLogprobs, ...] = ()
    fresh: bool = False
    missed: bool = False


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts about a model, compared before a session is opened.

    An empty `tokenizer_hash` means that the model works on the ids of any tokenizer; `vocab_size` 0
    means any. `known_vocabularies` are the tokenizer hashes of targets that a draft was sent the
    vocabulary of, each with how many tokens both have.
    """

    model_name: str
    backend: str
    tokenizer_hash: str
    vocab_size: int
    context_tokens: int
    eos_token_ids: tuple[int, ...] = ()
    takes_vocabulary: bool = False
    known_vocabularies: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DraftOpening:
    """What a draft must know to open a session."""

    session_id: str
    draft_index: int
    prompt_ids: tuple[int, ...]
    emitted_ids: tuple[int, ...]
    sampling: SamplingParams
    plan: DraftPlan
    tokenizer_hash: str
    vocab_size: int
    end_token_ids: frozenset[int] = frozenset()
    min_tokens: int = 0

    def __post_init__(self) -> None:
        _require_prompt(self.session_id, self.prompt_ids)
        require(
            1 <= self.draft_index <= MAX_DRAFT_INDEX,
            f"draft_index is {self.draft_index}; give 1 to {MAX_DRAFT_INDEX}",
        )
        require(
            self.sampling.seed is not None, "the seed is unset; the orchestrator has to draw one"
        )


@dataclass(frozen=True, slots=True)
class DraftCommit:
    """Tokens emitted since, and the plan from now on (None: unchanged). `fresh`: see Verdict."""

    base: int
    tokens: tuple[int, ...]
    plan: DraftPlan | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class VerifyOpening:
    """What the verifier must know to open a session, or to resume it from `emitted_ids`."""

    session_id: str
    prompt_ids: tuple[int, ...]
    emitted_ids: tuple[int, ...]
    sampling: SamplingParams
    stop: StopConditions
    policy: ReadinessPolicy
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _require_prompt(self.session_id, self.prompt_ids)
        require(
            self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
            f"logprobs is {self.logprobs}; give 0 to {MAX_LOGPROBS}",
        )
        require(
            self.sampling.seed is not None, "the seed is unset; the orchestrator has to draw one"
        )
        require(
            len(self.emitted_ids) <= self.stop.max_tokens,
            f"{len(self.emitted_ids)} tokens are emitted already and max_tokens is "
            f"{self.stop.max_tokens}; give one that counts them",
        )


def _require_prompt(session_id: str, prompt_ids: tuple[int, ...]) -> None:
    require(
        0 < len(session_id) <= 128, f"session_id has {len(session_id)} characters; give 1 to 128"
    )
    require(len(prompt_ids) > 0, "the prompt is empty; give at least one token")
