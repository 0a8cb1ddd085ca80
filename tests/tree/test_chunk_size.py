"""What the rows of drawn tokens cost on the wire: they are sparse, and float32."""

import math

import pytest
import torch

from outrider.plans import DraftPlan
from outrider.types import Chunk, Node, NodeKind, ProposalRow
from outrider.wire.convert import chunk_to

FIRST_ID = (255 << 24) + (1 << 24) - 9
"""The last draft's last ids: no id is longer."""

VOCAB = 262_144
TOP_K = DraftPlan().proposal_top_k
SIX_KILOBYTES = 6000


@pytest.mark.parametrize("going_on", ["chain", "siblings"])
def test_a_round_of_eight_draws_over_the_largest_vocabulary_costs_less_than_six_kilobytes(
    going_on: str,
) -> None:
    """The ids of every row are as long as they can be on the wire."""
    assert TOP_K == 64
    nodes, rows = [], []
    generator = torch.Generator().manual_seed(0)
    for depth in range(8):
        parent = FIRST_ID + depth - 1 if depth and going_on == "chain" else 0
        probs = torch.rand(TOP_K, generator=generator)
        ids = tuple(range(VOCAB - TOP_K - depth, VOCAB - depth))
        if depth == 0 or going_on == "chain":
            rows.append(ProposalRow(parent, ids, tuple((probs / probs.sum()).tolist())))
        node_id = FIRST_ID + depth
        nodes.append(Node(node_id, parent, ids[depth], math.pi / 10, NodeKind.SAMPLED, math.e / 10))
    size = chunk_to(Chunk(tuple(nodes), tuple(rows), step_us=10**6)).ByteSize()
    assert TOP_K * 4 < size < SIX_KILOBYTES
