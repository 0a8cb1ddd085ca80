"""Which seeds derive from that of a request. Knows no random numbers."""

import hashlib

from outrider.errors import InvalidArgumentError

MAX_CHOICE = 1023
"""Highest number of an answer, counted from 0."""


def choice_seed(seed: int, choice: int) -> int:
    """The seed, 64 bits, of answer number `choice` to a request with `seed`.

    Choice 0 has the request's own seed. The others have the first eight bytes, little-endian, of
    SHA-256 over "outrider choice", the seed (8 bytes, little-endian) and the choice (4 bytes,
    little-endian). So the answers are independent of each other, and (seed, choice) replays each.

    >>> choice_seed(7, 0)
    7
    """
    if not 0 <= seed < 2**64:
        raise InvalidArgumentError(f"seed is {seed}; give a whole number from 0 to 2^64 - 1")
    if not 0 <= choice <= MAX_CHOICE:
        raise InvalidArgumentError(f"choice is {choice}; give a whole number from 0 to 1023")
    return seed if choice == 0 else _derived(b"outrider choice", seed, choice)


def resumed_seed(seed: int, delivered: int) -> int:
    """The seed, 64 bits, of what follows `delivered` tokens (below 2^32) whose stream broke, where
    drafts draw: derived as for choices, over "outrider resumed" and the count.

    Drafts that begin anew would draw their numbers once more, and the tokens that were delivered
    may have been chosen after a look at them (block verification).

    >>> resumed_seed(7, 0)
    7
    """
    return seed if delivered == 0 else _derived(b"outrider resumed", seed, delivered)


def _derived(name: bytes, seed: int, number: int) -> int:
    whole = name + seed.to_bytes(8, "little") + number.to_bytes(4, "little")
    return int.from_bytes(hashlib.sha256(whole).digest()[:8], "little")
