"""Plans of drafts and policies of verifiers: protos to dataclasses and back."""

from outrider.errors import InvalidArgumentError
from outrider.plans import DraftPart, DraftPlan, ReadinessPolicy
from outrider.v1 import draft_pb2, verify_pb2

_PARTS = {
    draft_pb2.DRAFT_PART_CHAIN: DraftPart.CHAIN,
    draft_pb2.DRAFT_PART_TREE: DraftPart.TREE,
    draft_pb2.DRAFT_PART_BRANCHES: DraftPart.BRANCHES,
}
_PART_NUMBERS = {part: number for number, part in _PARTS.items()}


def plan_from(message: draft_pb2.DraftPlan) -> DraftPlan:
    """Raises InvalidArgumentError for values out of bounds."""
    if message.part not in _PARTS:
        raise InvalidArgumentError("the plan has no part; give chain, tree or branches")
    return DraftPlan(
        message.depth,
        message.width,
        message.proposal_top_k,
        message.max_nodes,
        message.max_bytes,
        message.min_chance,
        _PARTS[message.part],
        message.share,
        message.shares,
        message.min_depth,
        message.least_sent,
    )


def plan_to(plan: DraftPlan) -> draft_pb2.DraftPlan:
    """The inverse of `plan_from`."""
    return draft_pb2.DraftPlan(
        depth=plan.depth,
        width=plan.width,
        proposal_top_k=plan.proposal_top_k,
        max_nodes=plan.max_nodes,
        max_bytes=plan.max_bytes,
        min_chance=plan.min_chance,
        part=_PART_NUMBERS[plan.part],
        share=plan.share,
        shares=plan.shares,
        min_depth=plan.min_depth,
        least_sent=plan.least_sent,
    )


def policy_from(message: verify_pb2.ReadinessPolicy) -> ReadinessPolicy:
    """Raises InvalidArgumentError for values out of bounds."""
    return ReadinessPolicy(
        message.min_depth, message.max_wait_us, message.max_rows, message.min_chance
    )


def policy_to(policy: ReadinessPolicy) -> verify_pb2.ReadinessPolicy:
    """The inverse of `policy_from`."""
    return verify_pb2.ReadinessPolicy(
        min_depth=policy.min_depth,
        max_wait_us=policy.max_wait_us,
        max_rows=policy.max_rows,
        min_chance=policy.min_chance,
    )
