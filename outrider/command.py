"""The entry point of the `outrider` command: it says so where its packages are not installed."""

import importlib
import sys

_OURS = frozenset({"outrider", "orchestrator", "draft_service", "verify_service"})


def main() -> int:
    """Runs the command line and returns its exit status."""
    try:
        status: int = importlib.import_module("orchestrator.cli.app").main()
    except KeyboardInterrupt:  # while it was still being loaded
        sys.stderr.write("outrider: stopped\n")
        return 130
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in _OURS or package in sys.stdlib_module_names:
            raise
        sys.stderr.write(
            f"outrider: this command needs more packages ({package} is missing); "
            "install them with: pip install 'outrider[all]'\n"
        )
        return 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
