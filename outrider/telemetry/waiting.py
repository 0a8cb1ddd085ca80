"""Log lines about what takes long: when it begins, and that it still goes on."""

import contextvars
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from outrider.telemetry.logs import get_logger

TELL_EVERY_S = 10.0


@contextmanager
def told_while(event: str, every_s: float = TELL_EVERY_S, **values: object) -> Iterator[None]:
    """Logs `event` now and, as long as the block runs, again with the seconds that it has taken.

    >>> with told_while("loading_model", model="org/big"):  # doctest: +SKIP
    ...     load()
    """
    started = time.monotonic()
    is_over = threading.Event()
    logger = get_logger()
    logger.info(event, **values)

    def go_on() -> None:
        while not is_over.wait(every_s):
            logger.info(event, seconds=round(time.monotonic() - started), **values)

    # With the context of the caller, which holds the name of the service.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(go_on,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
