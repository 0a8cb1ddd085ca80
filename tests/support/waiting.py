"""Waiting for a condition in another task or process, with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable

DEADLINE_S = 20.0
POLL_S = 0.01


async def until(condition: Callable[[], bool], what: str, within_s: float = DEADLINE_S) -> None:
    """Returns once `condition()` holds; fails saying `what` did not happen."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {within_s} s"
        await asyncio.sleep(POLL_S)


async def until_asked(
    question: Callable[[], Awaitable[bool]], what: str, within_s: float = DEADLINE_S
) -> None:
    """As `until`, for a condition that has to be asked for."""
    deadline = time.monotonic() + within_s
    while not await question():
        assert time.monotonic() < deadline, f"{what} did not happen within {within_s} s"
        await asyncio.sleep(POLL_S)
