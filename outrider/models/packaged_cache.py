"""The user's cache of models: each thing is made once, in a folder that is whole or not there.

Knows folders, locks and progress lines; knows neither where models come from nor what is in them.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from outrider.errors import UnavailableError

_MANIFEST = "outrider.json"
_LOCK_TIMEOUT_S = 1800.0


def cache_folder() -> Path:
    """Where fetched models lie: OUTRIDER_CACHE_DIR, or the user's cache folder."""
    return Path(os.environ.get("OUTRIDER_CACHE_DIR") or platformdirs.user_cache_dir("outrider"))


def made_once(folder: Path, what: str, build: Callable[[Path], None], needs_gb: float) -> Path:
    """`folder`, made by `build` where it is missing or broken.

    `build` gets an empty folder beside it and fills it; that one is renamed at the end, so that a
    half-finished one is never seen. Several processes may do this at once: one works, the others
    wait. `what` names it for people, `needs_gb` is the room that it takes at most. Raises
    UnavailableError that says what to do where it cannot be written, and what `build` raises.
    """
    if is_complete(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock", timeout=_LOCK_TIMEOUT_S):
            if not is_complete(folder):
                _make(folder, build)
                say(f"{what} is ready in {folder}")
    except Timeout as error:
        raise UnavailableError(
            f"{folder}.lock was held by another process for {_LOCK_TIMEOUT_S:.0f} s; end it"
        ) from error
    except OSError as error:
        raise UnavailableError(
            f"{what} could not be written to {folder.parent} ({error}); it needs about "
            f"{needs_gb:g} GB there, or set OUTRIDER_CACHE_DIR to another folder"
        ) from error
    return folder


def _make(folder: Path, build: Callable[[Path], None]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for leftover in folder.parent.glob(f"{folder.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        made = partial / "made"
        made.mkdir()
        build(made)
        _write_manifest(made)
        made.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_manifest(folder: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    (folder / _MANIFEST).write_text(json.dumps(sizes, indent=1), encoding="utf-8")


def is_complete(folder: Path) -> bool:
    """Whether the folder holds the files that were written, in their sizes."""
    try:
        sizes = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def say(text: str) -> None:
    """One line of progress for whoever waits."""
    sys.stderr.write(f"outrider: {text}\n")
    sys.stderr.flush()
