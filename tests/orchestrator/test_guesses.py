"""What drafts guessed is counted where the target decides, and nowhere else."""

from orchestrator.guesses import OUTCOMES, RANKS, STREAKS, Guesses
from outrider.nodes import Draw, TreeNode
from outrider.types import ProposalRow


def below(parent: TreeNode, **chances: float) -> TreeNode:
    """Gives `parent` a LISTED child for each token `t<number>`; returns the likeliest."""
    for name, chance in chances.items():
        token = int(name[1:])
        parent.children[token] = TreeNode(token, parent.position + 1, parent, chance=chance)
    return max(parent.children.values(), key=lambda child: child.chance)


def test_each_place_counts_by_how_sure_the_draft_was_and_which_guess_was_right() -> None:
    root = TreeNode(-1, 0)
    below(below(root, t1=0.62, t2=0.3), t3=0.95)
    guesses = Guesses()
    guesses.note(root, [1, 4])
    assert guesses.outcomes[6 * OUTCOMES] == 1
    assert guesses.outcomes[9 * OUTCOMES + RANKS] == 1
    assert sum(guesses.outcomes) == 2


def test_the_likeliest_guess_is_the_first_whatever_order_it_came_in() -> None:
    root = TreeNode(-1, 0)
    below(root, t2=0.3, t1=0.62, t5=0.04)
    guesses = Guesses()
    guesses.note(root, [2])
    assert guesses.outcomes[6 * OUTCOMES : 7 * OUTCOMES] == [0, 1, 0, 0]


def test_guesses_beyond_those_told_apart_count_as_the_last() -> None:
    root = TreeNode(-1, 0)
    below(root, t1=0.4, t2=0.3, t3=0.2, t4=0.1)
    guesses = Guesses()
    guesses.note(root, [4])
    assert guesses.outcomes[4 * OUTCOMES : 5 * OUTCOMES] == [0, 0, 1, 0]


def test_places_where_nothing_was_guessed_tell_nothing_and_break_no_row() -> None:
    guesses = Guesses()
    for tokens in ([1], [5], [1]):
        root = TreeNode(-1, 0)
        if tokens == [1]:
            below(root, t1=0.8)
        guesses.note(root, tokens)
    assert guesses.guessed[:3] == guesses.found[:3] == [1, 1, 0]
    assert sum(guesses.outcomes) == 2


def test_rows_of_right_guesses_go_on_over_verdicts_and_end_with_a_wrong_one() -> None:
    guesses = Guesses()
    for token in [1] * (STREAKS + 3) + [2, 1]:
        root = TreeNode(-1, 0)
        below(root, t1=0.8)
        guesses.note(root, [token])
    assert guesses.guessed == [2, *[1] * (STREAKS - 2), 5]
    assert guesses.found == [2, *[1] * (STREAKS - 2), 4]


def test_a_drawn_guess_counts_by_the_chance_that_knows_nothing_of_its_token() -> None:
    root = TreeNode(-1, 0)
    root.children[3] = TreeNode(3, 1, root)
    root.draws.append(Draw(3, ProposalRow(0, (3,), (1.0,)), chance=0.55))
    guesses = Guesses()
    guesses.note(root, [3])
    assert guesses.outcomes[5 * OUTCOMES] == 1
