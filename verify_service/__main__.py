"""`python -m verify_service`: the verify service on its own."""

import sys
from collections.abc import Sequence

from outrider.settings import read_settings
from verify_service.settings import VerifySettings


def main(arguments: Sequence[str], program: str = "python -m verify_service") -> int:
    """Reads the settings, serves, returns the exit status."""
    settings = read_settings(VerifySettings, arguments, program)
    from verify_service.server import run

    return run(settings)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
