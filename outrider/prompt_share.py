"""How much of a pass the prompts that are being read get, and which of them how much. Pure."""

from collections.abc import Sequence

from outrider.pass_times import PassTimes

LEAST_PROMPT_TOKENS = 16
"""Of prompts in a pass that has other rows too, where it has room for them."""


def prompt_tokens(times: PassTimes, rows: int, room: int) -> int:
    """Tokens of prompts, at most `room`, beside `rows` others: so many that they at most double the
    time of the pass; all the room where there are no others, or no row costs anything yet.

    >>> times = PassTimes().add(1, 1100).add(11, 2100)
    >>> prompt_tokens(times, 10, 512), prompt_tokens(times, 0, 512), prompt_tokens(times, 10, 4)
    (20, 512, 4)
    """
    if not rows or not times.row_us:
        return room
    return min(room, max(LEAST_PROMPT_TOKENS, int(times.predict(rows) / times.row_us)))


def equal_shares(wants: Sequence[int], room: int) -> list[int]:
    """What each of `wants` gets of `room`: all the same, but none more than it wants, and what it
    leaves goes to the others. Where not each can have one token, those get it that want least: they
    are done soon.

    >>> equal_shares([4000, 8, 100], 64), equal_shares([8, 8], 64), equal_shares([5, 1, 5], 2)
    ([28, 8, 28], [8, 8], [1, 1, 0])
    >>> equal_shares([4000, 4000, 4000, 8], 2)
    [1, 0, 0, 1]
    """
    shares = [0] * len(wants)
    served = sorted(range(len(wants)), key=lambda i: wants[i])[: max(0, room)]
    for done, index in enumerate(served):
        shares[index] = min(wants[index], -(-room // (len(served) - done)))
        room -= shares[index]
    return shares
