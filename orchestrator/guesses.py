"""How sure drafts were at each place that the target decided, and which of their guesses was right.

Pure: a tree and committed tokens in, counts out. It looks at what is committed only; whether a
guess came in time to be verified plays no part, so the counts tell about the pair of models and not
about the line between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.nodes import TreeNode
from outrider.selection import ways

RANGES = 10
"""Equal ranges of the chance of the likeliest guess at a place."""

RANKS = 3
"""Guesses told apart; later ones count as the last of these."""

OUTCOMES = RANKS + 1
"""The target's token was the guess of rank 0, 1, 2; or none of them."""

STREAKS = 8
"""Longer rows of right guesses count as the last."""


@dataclass(slots=True)
class Guesses:
    """`outcomes[range * OUTCOMES + outcome]` counts places by the chance of the likeliest guess and
    by what came of it. `guessed[i]` counts them by the right guesses in a row before them since the
    last wrong one, `found[i]` those where the target's token was among the guesses.

    >>> root = TreeNode(-1, 0)
    >>> root.children = {7: TreeNode(7, 1, root, chance=0.9), 8: TreeNode(8, 1, root, chance=0.05)}
    >>> guesses = Guesses()
    >>> guesses.note(root, [8, 5])
    >>> guesses.outcomes[9 * OUTCOMES:], guesses.guessed[:2], guesses.found[:2]
    ([0, 1, 0, 0], [1, 0], [1, 0])
    """

    outcomes: list[int] = field(default_factory=lambda: [0] * (RANGES * OUTCOMES))
    guessed: list[int] = field(default_factory=lambda: [0] * STREAKS)
    found: list[int] = field(default_factory=lambda: [0] * STREAKS)
    streak: int = 0

    def note(self, root: TreeNode, tokens: Sequence[int]) -> None:
        """`tokens` are about to be committed at `root`; places without a guess tell nothing."""
        node = root
        for token in tokens:
            chances: dict[TreeNode, float] = {}
            for way in ways(node, 1.0):
                chances[way.child] = max(way.weight, chances.get(way.child, 0.0))
            if not chances:
                return
            ranked = sorted(chances, key=lambda child: -chances[child])
            tokens_ranked = [child.token for child in ranked]
            is_found = token in node.children
            rank = min(tokens_ranked.index(token), RANKS - 1) if is_found else RANKS
            reach = min(int(chances[ranked[0]] * RANGES), RANGES - 1)
            self.outcomes[reach * OUTCOMES + rank] += 1
            place = min(self.streak, STREAKS - 1)
            self.guessed[place] += 1
            self.found[place] += is_found
            self.streak = self.streak + 1 if is_found else 0
            if not is_found:
                return
            node = node.children[token]
