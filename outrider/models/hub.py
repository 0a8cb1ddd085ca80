"""Fetches models from the hub ahead of time: which files a backend needs, and how many bytes came.

Files go into the cache of the hub's own library, which goes on where an earlier try stopped. Loads
no model and tells nothing but numbers.
"""

import glob
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

from outrider.errors import (
    InvalidArgumentError,
    NotFoundError,
    OutriderError,
    UnavailableError,
)
from outrider.models.hf_source import HUB_TIMEOUT_S, is_transport_error
from outrider.models.llamacpp_source import Part

Report = Callable[[int, int], None]
"""Is told how many bytes are here, and how many there are in all; from any thread."""

CHECKPOINT = (".json", ".safetensors", ".model", ".txt", ".jinja")
"""What transformers reads of a checkpoint, all of it at the top of the repository."""
DUPLICATES = "consolidated"
"""Some repositories have their weights once more, in files that begin so."""
SHOWN_FILES = 5


def fetch_checkpoint(name: str, revision: str | None, report: Report) -> Path:
    """The folder of a checkpoint for transformers, with all that it needs.

    Raises NotFoundError for what is no such model, UnavailableError where the hub cannot be asked.
    """
    sizes = _files(name, revision)
    wanted = [file for file in sizes if is_of_checkpoint(file)]
    if "config.json" not in sizes or not any(file.endswith(".safetensors") for file in wanted):
        raise NotFoundError(
            f"{name} on the hub has no config.json with safetensors weights{_offered(name, sizes)}"
        )
    return _download(name, revision, wanted, sizes, report)


def fetch_gguf_file(name: str, file: str, revision: str | None, report: Report) -> Path:
    """A GGUF file of a repository, of a split one the first part, once all are here.

    Raises NotFoundError for a file that is not there, UnavailableError where the hub cannot be
    asked.
    """
    folder, _, last = file.rpartition("/")
    part = Part.of(last)
    names = [last] if part is None else part.names()
    wanted = [f"{folder}/{one}" if folder else one for one in names]
    sizes = _files(name, revision)
    for one in wanted:
        if one not in sizes:
            raise NotFoundError(f"{name} on the hub has no file {one}{_offered(name, sizes)}")
    return _download(name, revision, wanted, sizes, report) / wanted[0]


def is_of_checkpoint(file: str) -> bool:
    """Whether a file of a repository is one that transformers may need.

    >>> [is_of_checkpoint(f) for f in ("model.safetensors", "onnx/config.json", "a.gguf")]
    [True, False, False]
    """
    return "/" not in file and file.endswith(CHECKPOINT) and not file.startswith(DUPLICATES)


def _offered(name: str, files: Iterable[str]) -> str:
    found = sorted(file for file in files if file.lower().endswith(".gguf"))
    if not found:
        return "; give another model"
    shown = ", ".join(f"{name}/{file}" for file in found[:SHOWN_FILES])
    more = f" and {len(found) - SHOWN_FILES} more" if len(found) > SHOWN_FILES else ""
    return f"; it has GGUF files, give one of them: {shown}{more}"


def _files(name: str, revision: str | None) -> dict[str, int]:
    """The files of a repository and their bytes."""
    try:
        info = HfApi().model_info(
            name, revision=revision, timeout=HUB_TIMEOUT_S, files_metadata=True
        )
    except Exception as error:
        raise _explained(error, name, revision) from error
    return {file.rfilename: file.size or 0 for file in info.siblings or ()}


def _download(
    name: str, revision: str | None, wanted: Sequence[str], sizes: dict[str, int], report: Report
) -> Path:
    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=[glob.escape(file) for file in wanted],
                tqdm_class=_counter(report, sum(sizes[file] for file in wanted)),
            )
        )
    except Exception as error:
        raise _explained(error, name, revision) from error


def _counter(report: Report, total: int) -> type[tqdm]:
    """A progress bar of the hub's library that draws nothing and reports the bytes."""
    lock = Lock()
    done = 0

    class Counter(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            # Beside the bytes that are here it tells those of the network, and files.
            is_network = str(options.get("name")).endswith(".transfer")
            self._is_counted = options.get("unit") == "B" and not is_network
            options["disable"] = True
            super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            nonlocal done
            if self._is_counted and n:
                with lock:
                    done += int(n)
                    report(done, total)

    return Counter


def _explained(error: Exception, name: str, revision: str | None) -> Exception:
    """The domain error that says what to do; the error itself where it is none of the hub's."""
    told: OutriderError
    if isinstance(error, GatedRepoError):
        told = NotFoundError(
            f"access to {name} on the hub has to be granted to you: ask for it on the model's "
            "page, then set HF_TOKEN or run `hf auth login`"
        )
    elif isinstance(error, RevisionNotFoundError):
        told = NotFoundError(f"{name} on the hub has no revision {revision!r}")
    elif isinstance(error, HFValidationError):
        told = InvalidArgumentError(
            f"{name!r} is no name of a model; give org/name or org/name/file.gguf"
        )
    elif isinstance(error, RepositoryNotFoundError):
        told = NotFoundError(
            f"there is no model {name} on the hub (or it is private: set HF_TOKEN); "
            "`outrider models list` shows what is here"
        )
    elif isinstance(error, OSError) and error.errno and not is_transport_error(error):
        told = UnavailableError(
            f"{name} cannot be written to the cache of the hub's library ({error.strerror}); make "
            "room there, or set HF_HOME to another folder"
        )
    elif isinstance(error, OfflineModeIsEnabled | HfHubHTTPError | OSError) or is_transport_error(
        error
    ):
        told = UnavailableError(
            f"the hub cannot be reached ({type(error).__name__}) for {name}; check the network, "
            "HF_ENDPOINT and HF_HUB_OFFLINE, and run this again: it goes on where it stopped"
        )
    else:
        return error
    return told
