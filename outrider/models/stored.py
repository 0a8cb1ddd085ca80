"""The models that lie on this machine: packaged ones, and those in the cache of the hub's library.

Looks at files only: loads nothing, asks nobody.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from outrider.errors import UnavailableError
from outrider.models.hub import is_of_checkpoint
from outrider.models.llamacpp_source import Part
from outrider.models.packaged import cached
from outrider.models.packaged_gguf import PACKAGED_GGUF, cached_gguf
from outrider.models.packaged_wheels import PACKAGED

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, CachedRevisionInfo

MB = 10**6


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model by the name that --model takes. `path` None: it would have to be fetched first.

    `size_bytes` is what it takes here; of one that is not here, about what has to be fetched.
    """

    name: str
    source: Literal["packaged", "hub"]
    path: Path | None
    size_bytes: int


def stored_models() -> list[StoredModel]:
    """All packaged models, and what the hub's cache has."""
    return [*_packaged(), *_from_hub()]


def _packaged() -> Iterator[StoredModel]:
    for name, model in PACKAGED.items():
        yield _packaged_model(name, cached(name), model.size_mb)
    for name, file in PACKAGED_GGUF.items():
        yield _packaged_model(name, cached_gguf(name), PACKAGED[file.model].size_mb)


def _packaged_model(name: str, path: Path | None, fetched_mb: int) -> StoredModel:
    if path is None:
        return StoredModel(name, "packaged", None, fetched_mb * MB)
    files = path.iterdir() if path.is_dir() else (path,)
    return StoredModel(name, "packaged", path, sum(file.stat().st_size for file in files))


def _from_hub() -> Iterator[StoredModel]:
    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return
    except (ValueError, OSError) as error:
        raise UnavailableError(
            f"the cache of the hub's library cannot be looked through ({error}); see that "
            "HF_HUB_CACHE and HF_HOME name folders"
        ) from error
    for repository in sorted(repositories, key=lambda one: one.repo_id):
        if repository.repo_type == "model" and repository.revisions:
            yield from _in_repository(repository)


def _in_repository(repository: "CachedRepoInfo") -> Iterator[StoredModel]:
    """The checkpoint at its top, and each GGUF file; what transformers would load is the branch."""
    revision = max(repository.revisions, key=lambda one: ("main" in one.refs, one.last_modified))
    sizes = {_within(revision, file.file_path): file.size_on_disk for file in revision.files}
    weights = [file for file in sizes if is_of_checkpoint(file) and file.endswith(".safetensors")]
    if "config.json" in sizes and weights:
        size = sum(size for file, size in sizes.items() if is_of_checkpoint(file))
        yield StoredModel(repository.repo_id, "hub", revision.snapshot_path, size)
    for file in sorted(file for file in sizes if file.lower().endswith(".gguf")):
        folder, slash, last = file.rpartition("/")
        part = Part.of(last)
        names = [file] if part is None else [f"{folder}{slash}{one}" for one in part.names()]
        if names[0] == file and all(name in sizes for name in names):
            size = sum(sizes[name] for name in names)
            path = revision.snapshot_path / file
            yield StoredModel(f"{repository.repo_id}/{file}", "hub", path, size)


def _within(revision: "CachedRevisionInfo", path: Path) -> str:
    return path.relative_to(revision.snapshot_path).as_posix()
