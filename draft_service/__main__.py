"""`python -m draft_service`: the draft service on its own."""

import sys
from collections.abc import Sequence

from draft_service.settings import DraftSettings
from outrider.settings import read_settings


def main(arguments: Sequence[str], program: str = "python -m draft_service") -> int:
    """Reads the settings, serves, returns the exit status."""
    settings = read_settings(DraftSettings, arguments, program)
    from draft_service.server import run

    return run(settings)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
