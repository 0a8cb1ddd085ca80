"""Where and with what a figure was measured."""

import os
import platform
import subprocess
import textwrap
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from outrider.errors import InvalidArgumentError

ROOT = Path(__file__).resolve().parent.parent
LINE = 110
"""Characters of a line of what is written for the README."""

PACKAGES = (
    *("grpcio", "protobuf", "torch", "ray"),
    *("llama-cpp-python", "transformers", "xllamacpp"),
)
"""What runs in a benchmark: the project's own libraries, and peers."""


def describe() -> dict[str, object]:
    """Machine, versions, commit and time, for the JSON of every run."""
    return {
        "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def provenance(machine: Mapping[str, object], command: str) -> str:
    """Where figures come from and what measured them, in a paragraph for people."""
    versions = ", ".join(
        f"{name} {machine[name]}" for name in ("python", "grpcio", "torch") if name in machine
    )
    told = (
        f"Measured at commit {machine['commit']} ({str(machine['measured_at'])[:10]}) on "
        f"{machine['cores']} cores ({machine['cpu']}, {machine['system']}), {versions}, load "
        f"before {machine['load_before']}, by"
    )
    # The command has a line of its own, so that it can be copied out of the source, too.
    return f"{textwrap.fill(told, LINE, break_on_hyphens=False)}\n`{command}`."


def json_path(asked: Path | None, rig: str) -> Path:
    """Where a rig's JSON goes: as asked, else under build/. Raises InvalidArgumentError, before
    anything is measured, where it cannot be written.
    """
    path = ROOT / "build" / "benchmarks" / f"{rig}.json" if asked is None else asked
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"--json: {path.parent} cannot be made: {error}") from error
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidArgumentError(
            f"--json: {path} is a folder, or may not be written; give a file"
        )
    return path


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    def git(*arguments: str) -> str:
        run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return run.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short", "HEAD") + ("+changes" if changed else "")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
