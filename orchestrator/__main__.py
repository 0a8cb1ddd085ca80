"""`python -m orchestrator`: the orchestrator on its own."""

import sys
from collections.abc import Sequence

from orchestrator.settings import OrchestratorSettings
from outrider.settings import read_settings


def main(arguments: Sequence[str], program: str = "python -m orchestrator") -> int:
    """Reads the settings, serves, returns the exit status."""
    settings = read_settings(OrchestratorSettings, arguments, program)
    from orchestrator.server import run

    return run(settings)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
