"""Protos to dataclasses and back, with every check that a message from another machine needs."""

import math

from outrider.errors import InvalidArgumentError, ProtocolMismatchError
from outrider.types import (
    DRAFT_INDEX_SHIFT,
    PROTOCOL_VERSION,
    Chunk,
    DraftCommit,
    DraftOpening,
    ModelInfo,
    Node,
    NodeKind,
    ProposalRow,
    StepTiming,
    TokenLogprobs,
    Verdict,
    VerifyOpening,
)
from outrider.v1 import common_pb2, draft_pb2, verify_pb2
from outrider.version import __version__
from outrider.wire.convert_plan import plan_from, plan_to, policy_from, policy_to
from outrider.wire.convert_sampling import (
    MAX_END_TOKENS,
    finish_from,
    finish_to,
    sampling_from,
    sampling_to,
    stop_from,
    stop_to,
)

MAX_CHUNK_NODES = 4096
MAX_ROW_TOKENS = 1024

_KINDS = {
    common_pb2.NODE_KIND_SAMPLED: NodeKind.SAMPLED,
    common_pb2.NODE_KIND_LISTED: NodeKind.LISTED,
}
_KIND_NUMBERS = {kind: number for number, kind in _KINDS.items()}


def chunk_from(message: common_pb2.DraftChunk, vocab_size: int, draft_index: int = 0) -> Chunk:
    """A draft's chunk, checked: ids of that draft (0: of any), tokens below `vocab_size`, sane q.

    Raises InvalidArgumentError that names the offending node or row.
    """
    if not 0 < len(message.nodes) <= MAX_CHUNK_NODES:
        raise InvalidArgumentError(
            f"the chunk has {len(message.nodes)} nodes; send 1 to {MAX_CHUNK_NODES}"
        )
    if message.rows:
        parents = {row.parent_id for row in message.rows}
        drawn = {node.parent_id for node in message.nodes}
        if len(parents) != len(message.rows) or not parents <= drawn:
            raise InvalidArgumentError(
                "the chunk has two proposal rows for one parent, or one for a parent without nodes"
            )
    nodes = tuple([_node_from(node, vocab_size, draft_index) for node in message.nodes])
    rows = tuple(_row_from(row, vocab_size) for row in message.rows)
    return Chunk(nodes, rows, message.step_us, message.known_tokens, message.held_us)


def branches_from(message: common_pb2.DraftChunk, vocab_size: int, draft_index: int) -> Chunk:
    """A chunk of other drafts for the draft `draft_index`, checked as `chunk_from` checks it."""
    chunk = chunk_from(message, vocab_size)
    for node in chunk.nodes:
        if node.id >> DRAFT_INDEX_SHIFT == draft_index:
            raise InvalidArgumentError(
                f"node {node.id} carries the index of this draft; send it those of others only"
            )
    return chunk


def _node_from(message: common_pb2.Node, vocab_size: int, draft_index: int) -> Node:
    # Each field is read once: services see thousands of nodes a second.
    number, token, q, chance = message.id, message.token, message.q, message.chance
    owner = number >> DRAFT_INDEX_SHIFT
    if owner == 0 or (draft_index and owner != draft_index):
        raise InvalidArgumentError(
            f"node {number} carries draft index {owner}; this draft's index is {draft_index}"
        )
    if token >= vocab_size:
        raise InvalidArgumentError(
            f"node {number} has token {token}; the target knows {vocab_size} ids"
        )
    if not 0 <= q <= 1.0001:
        raise InvalidArgumentError(f"node {number} has q = {q}; give 0 to 1")
    kind = _KINDS.get(message.kind)
    if kind is None:
        raise InvalidArgumentError(f"node {number} is neither SAMPLED nor LISTED")
    if not 0 <= chance <= 1.0001:
        raise InvalidArgumentError(f"node {number} has chance = {chance}; give 0 to 1")
    return Node(number, message.parent_id, token, q, kind, min(chance, 1.0))


def _row_from(message: common_pb2.ProposalRow, vocab_size: int) -> ProposalRow:
    name = f"the proposal row of parent {message.parent_id}"
    size = len(message.ids)
    if size != len(message.probs) or not 0 < size <= MAX_ROW_TOKENS:
        raise InvalidArgumentError(
            f"{name} has {size} ids and {len(message.probs)} probabilities; give as many of each, "
            f"1 to {MAX_ROW_TOKENS}"
        )
    if len(set(message.ids)) != size or max(message.ids) >= vocab_size:
        raise InvalidArgumentError(f"{name} has an id twice, or one that the target does not know")
    if not all(0 <= prob <= 1.0001 for prob in message.probs):
        raise InvalidArgumentError(f"{name} has a probability outside 0 to 1")
    total = math.fsum(message.probs)
    if abs(total - 1) > 1e-3:
        raise InvalidArgumentError(f"{name} adds up to {total:.6f}; it must add up to 1")
    return ProposalRow(message.parent_id, tuple(message.ids), tuple(message.probs))


def chunk_to(chunk: Chunk) -> common_pb2.DraftChunk:
    """The inverse of `chunk_from`."""
    return common_pb2.DraftChunk(
        nodes=[
            common_pb2.Node(
                id=n.id,
                parent_id=n.parent_id,
                token=n.token,
                q=n.q,
                kind=_KIND_NUMBERS[n.kind],
                chance=n.chance,
            )
            for n in chunk.nodes
        ],
        rows=[
            common_pb2.ProposalRow(parent_id=r.parent_id, ids=r.ids, probs=r.probs)
            for r in chunk.rows
        ],
        step_us=chunk.step_us,
        known_tokens=chunk.known_tokens,
        held_us=chunk.held_us,
    )


def draft_opening_from(message: draft_pb2.DraftOpen) -> DraftOpening:
    """Raises InvalidArgumentError where the opening cannot work."""
    if len(message.end_token_ids) > MAX_END_TOKENS:
        raise InvalidArgumentError(
            f"{len(message.end_token_ids)} end token ids; give at most {MAX_END_TOKENS}"
        )
    return DraftOpening(
        session_id=message.session_id,
        draft_index=message.draft_index,
        prompt_ids=tuple(message.prompt_ids),
        emitted_ids=tuple(message.emitted_ids),
        sampling=sampling_from(message.sampling),
        plan=plan_from(message.plan),
        tokenizer_hash=message.tokenizer_hash,
        vocab_size=message.vocab_size,
        end_token_ids=frozenset(message.end_token_ids),
        min_tokens=message.min_tokens,
    )


def draft_opening_to(opening: DraftOpening) -> draft_pb2.DraftOpen:
    """The inverse of `draft_opening_from`."""
    return draft_pb2.DraftOpen(
        session_id=opening.session_id,
        draft_index=opening.draft_index,
        prompt_ids=opening.prompt_ids,
        emitted_ids=opening.emitted_ids,
        sampling=sampling_to(opening.sampling),
        plan=plan_to(opening.plan),
        tokenizer_hash=opening.tokenizer_hash,
        vocab_size=opening.vocab_size,
        end_token_ids=sorted(opening.end_token_ids),
        min_tokens=opening.min_tokens,
    )


def commit_from(message: draft_pb2.DraftCommit) -> DraftCommit:
    """The plan is None where the message leaves it unchanged."""
    plan = plan_from(message.plan) if message.HasField("plan") else None
    return DraftCommit(message.base, tuple(message.tokens), plan, message.fresh)


def commit_to(commit: DraftCommit) -> draft_pb2.DraftCommit:
    """The inverse of `commit_from`."""
    plan = plan_to(commit.plan) if commit.plan is not None else None
    return draft_pb2.DraftCommit(
        base=commit.base, tokens=commit.tokens, plan=plan, fresh=commit.fresh
    )


def verify_opening_from(message: verify_pb2.VerifyOpen) -> VerifyOpening:
    """Raises InvalidArgumentError where the opening cannot work."""
    return VerifyOpening(
        session_id=message.session_id,
        prompt_ids=tuple(message.prompt_ids),
        emitted_ids=tuple(message.emitted_ids),
        sampling=sampling_from(message.sampling),
        stop=stop_from(message.stop),
        policy=policy_from(message.policy),
        logprobs=message.logprobs if message.HasField("logprobs") else None,
    )


def verify_opening_to(opening: VerifyOpening) -> verify_pb2.VerifyOpen:
    """The inverse of `verify_opening_from`."""
    return verify_pb2.VerifyOpen(
        session_id=opening.session_id,
        prompt_ids=opening.prompt_ids,
        emitted_ids=opening.emitted_ids,
        sampling=sampling_to(opening.sampling),
        stop=stop_to(opening.stop),
        policy=policy_to(opening.policy),
        logprobs=opening.logprobs,
    )


def verdict_from(message: verify_pb2.Verdict) -> Verdict:
    """Raises InvalidArgumentError for a verdict that emits nothing."""
    if not message.tokens or len(message.tokens) != len(message.node_ids):
        raise InvalidArgumentError(
            f"verdict {message.round_index} has {len(message.tokens)} tokens and "
            f"{len(message.node_ids)} node ids; it must have as many of each, at least one"
        )
    if message.logprobs and len(message.logprobs) != len(message.tokens):
        raise InvalidArgumentError(
            f"verdict {message.round_index} has {len(message.tokens)} tokens and "
            f"{len(message.logprobs)} log-probabilities; it must have as many, or none"
        )
    if any(len(entry.top_ids) != len(entry.top_logprobs) for entry in message.logprobs):
        raise InvalidArgumentError(
            f"verdict {message.round_index} has alternatives without a log-probability"
        )
    for entry in message.logprobs:
        for logprob in (entry.logprob, *entry.top_logprobs):
            # NaN is no number below anything; rounding may leave a little more than 0.
            if not logprob < 1e-6:
                raise InvalidArgumentError(
                    f"verdict {message.round_index} has the log-probability {logprob}; give at "
                    "most 0"
                )
    timing = message.timing
    return Verdict(
        round_index=message.round_index,
        base=message.base,
        tokens=tuple(message.tokens),
        node_ids=tuple(message.node_ids),
        drafted=message.drafted,
        finish_reason=finish_from(message.finish_reason),
        timing=StepTiming(
            timing.wait_us,
            timing.forward_us,
            timing.accept_us,
            timing.rows,
            timing.batch_sessions,
            timing.queue_us,
            timing.batch_rows,
            timing.batch_tokens,
            timing.gap_us,
        ),
        logprobs=tuple(
            TokenLogprobs(entry.logprob, tuple(zip(entry.top_ids, entry.top_logprobs, strict=True)))
            for entry in message.logprobs
        ),
        fresh=message.fresh,
        missed=message.missed,
    )


def verdict_to(verdict: Verdict) -> verify_pb2.Verdict:
    """The inverse of `verdict_from`."""
    timing = verdict.timing
    return verify_pb2.Verdict(
        round_index=verdict.round_index,
        base=verdict.base,
        tokens=verdict.tokens,
        node_ids=verdict.node_ids,
        drafted=verdict.drafted,
        finish_reason=finish_to(verdict.finish_reason),
        timing=common_pb2.StepTiming(
            wait_us=timing.wait_us,
            forward_us=timing.forward_us,
            accept_us=timing.accept_us,
            rows=timing.rows,
            batch_sessions=timing.batch_sessions,
            queue_us=timing.queue_us,
            batch_rows=timing.batch_rows,
            batch_tokens=timing.batch_tokens,
            gap_us=timing.gap_us,
        ),
        logprobs=[
            verify_pb2.TokenLogprobs(
                logprob=entry.logprob,
                top_ids=[token for token, _ in entry.top],
                top_logprobs=[logprob for _, logprob in entry.top],
            )
            for entry in verdict.logprobs
        ],
        fresh=verdict.fresh,
        missed=verdict.missed,
    )


def info_from(message: common_pb2.ModelInfo) -> ModelInfo:
    """Raises ProtocolMismatchError where the peer speaks another protocol version."""
    if message.protocol_version != PROTOCOL_VERSION:
        raise ProtocolMismatchError(
            f"the peer (outrider {message.version or '?'}) speaks protocol version "
            f"{message.protocol_version}, this side {PROTOCOL_VERSION}; install the same release"
        )
    return ModelInfo(
        model_name=message.model_name,
        backend=message.backend,
        tokenizer_hash=message.tokenizer_hash,
        vocab_size=message.vocab_size,
        context_tokens=message.context_tokens,
        eos_token_ids=tuple(message.eos_token_ids),
        takes_vocabulary=message.takes_vocabulary,
        known_vocabularies=tuple(
            (known.tokenizer_hash, known.shared_tokens) for known in message.known_vocabularies
        ),
    )


def info_to(info: ModelInfo, max_sessions: int = 0) -> common_pb2.ModelInfo:
    """The model's facts, with the protocol and package versions of this side."""
    return common_pb2.ModelInfo(
        protocol_version=PROTOCOL_VERSION,
        model_name=info.model_name,
        backend=info.backend,
        tokenizer_hash=info.tokenizer_hash,
        vocab_size=info.vocab_size,
        context_tokens=info.context_tokens,
        eos_token_ids=info.eos_token_ids,
        max_sessions=max_sessions,
        version=__version__,
        takes_vocabulary=info.takes_vocabulary,
        known_vocabularies=[
            common_pb2.KnownVocabulary(tokenizer_hash=name, shared_tokens=shared)
            for name, shared in info.known_vocabularies
        ],
    )
