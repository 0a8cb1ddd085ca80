"""What a model must show before it is used: branches kept apart, and bits that no plan changes."""

import torch
from torch import Tensor

from outrider.errors import InvalidArgumentError
from outrider.models.base import TIP, Feed
from outrider.models.llamacpp_library import LoadedModel
from outrider.models.llamacpp_model import LlamaCppModel
from outrider.telemetry.logs import get_logger

CHECK_CELLS = 96
_TOKENS = 16
"""Also of those run alone: a kernel that rounds otherwise may do so in one row of three only."""

_TOLERANCE = 0.2
"""Far above what quantisation does to a row, far below what a wrong mask does."""


def check(weights: LoadedModel, probe: LlamaCppModel) -> None:
    """Raises InvalidArgumentError for a model that mixes branches up.

    Where a token that is run alone takes another kernel than several do, as with most unquantised
    weights on a CPU, `weights` are told to run none alone: a row then has the same bits with drafts
    and without. Where that does not help, the log says so.
    """
    check_tree_rows(probe)
    if not weights.on_cpu:
        return
    together = _rows(probe, _TOKENS, _TOKENS)
    if not all(torch.equal(_rows(probe, _TOKENS, size), together) for size in (2, 7)):
        get_logger().warning(
            "rows_depend_on_the_pass",
            model=probe.info.model_name,
            meaning="with the same seed drafts may change tokens; the law of the text stands",
        )
    weights.pairs_rows = not torch.equal(_rows(probe, _TOKENS, 1), together)


def _rows(probe: LlamaCppModel, count: int, size: int) -> Tensor:
    """Rows of the first `count` of some tokens, `size` at a time, from an empty cache."""
    sequence = probe.open(())
    tokens = [token % probe.info.vocab_size for token in range(3, 3 + 7 * count, 7)]
    rows: list[Tensor] = []
    for start in range(0, count, size):
        some = tokens[start : start + size]
        first = sequence.next_node
        (made,) = probe.forward([Feed.chain(sequence, some, range(len(some)))])
        probe.keep(sequence, range(first, first + len(some)))
        rows.append(made)
    # As it was: nothing is left that the next one could reuse.
    probe.close(sequence)
    probe.cells.evict()
    return torch.cat(rows)


def check_tree_rows(probe: LlamaCppModel) -> None:
    """Compares rows of a small tree with those of the same tokens in a row of their own.

    Raises InvalidArgumentError for a model that mixes branches up: it would give wrong text without
    any error.
    """
    vocab_size = probe.info.vocab_size
    path = [token % vocab_size for token in (3, 5, 7, 9)]
    other = [token % vocab_size for token in (11, 13)]
    alone = probe.open(())
    (expected,) = probe.forward([Feed.chain(alone, path, range(4))])
    probe.close(alone)
    sequence = probe.open(())
    tree = (other[0], path[0], other[1], path[1], other[0])
    (first,) = probe.forward([Feed(sequence, tree, (TIP, TIP, 0, 1, 1), (1, 3))])
    probe.keep(sequence, [1, 3])
    rest = (other[1], path[2], path[3])
    (second,) = probe.forward([Feed(sequence, rest, (TIP, TIP, 6), (1, 2))])
    probe.close(sequence)
    probe.cells.evict()
    if not bool(torch.isfinite(expected).all()) or bool((expected == expected[0, 0]).all()):
        raise InvalidArgumentError(
            "the model's logits are no numbers, or all the same: its weights are damaged; fetch "
            "the file again"
        )
    spread = expected - expected.mean(dim=-1, keepdim=True)
    difference = torch.cat([first, second]) - expected
    ratio = float(difference.square().mean().sqrt() / spread.square().mean().sqrt())
    if not ratio <= _TOLERANCE:
        raise InvalidArgumentError(
            f"the model does not keep branches apart: its rows differ by {ratio:.0%} from those of "
            "the tokens alone; use another model"
        )
