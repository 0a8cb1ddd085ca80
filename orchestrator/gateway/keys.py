"""API keys: who may ask. Knows no HTTP.

Keys come from a file, one in a line, and from the settings. The file is read again when it changes,
so a key that is taken out of it is refused from then on.
"""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from outrider.errors import InvalidArgumentError
from outrider.telemetry.logs import get_logger


class Keys:
    """The keys of this moment; without any, everyone may ask.

    >>> keys = Keys(["a-long-secret"])
    >>> keys.admit("a-long-secret"), keys.admit("another"), Keys([]).admit("")
    (True, False, True)
    """

    def __init__(self, given: Iterable[str], file: Path | None = None) -> None:
        self._given = [_digest(_checked(key, "the settings")) for key in given]
        self._file = file
        self._filed: list[bytes] = []
        self._seen: tuple[int, ...] | None = None
        if file is not None:
            # Looked at first: a change while it is read is seen the next time.
            self._seen = _version(file)
            self._filed = _read(file)

    @property
    def are_wanted(self) -> bool:
        """Whether one is needed at all. A file without keys lets nobody in."""
        return bool(self._given) or self._file is not None

    def admit(self, key: str) -> bool:
        """Whether it is one of them; how long that takes does not tell which."""
        if not self.are_wanted:
            return True
        self._look()
        asked = _digest(key)
        matches = [hmac.compare_digest(asked, known) for known in (*self._given, *self._filed)]
        return any(matches)

    def _look(self) -> None:
        if self._file is None:
            return
        version = _version(self._file)
        if version == self._seen:
            return
        try:
            self._filed = _read(self._file)
        except InvalidArgumentError as error:
            # Better nobody than those that were meant to be shut out; perhaps only for a moment.
            self._filed, self._seen = [], None
            get_logger().error("api_keys_lost", problem=error.message)
        else:
            self._seen = version


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", errors="surrogatepass")).digest()


def _read(file: Path) -> list[bytes]:
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"the API keys in {file} cannot be read ({error}); give a text file, a key in each line"
        ) from error
    words = (line.strip() for line in lines)
    keys = [word for word in words if word and not word.startswith("#")]
    return [_digest(_checked(key, str(file))) for key in keys]


def _checked(key: str, where: str) -> str:
    # The key itself is a secret, and is not repeated.
    if not key.isascii() or not key.isprintable():
        raise InvalidArgumentError(
            f"an API key in {where} has characters that no header carries; use printable ASCII"
        )
    return key


def _version(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    # Whatever way a file is changed or replaced, one of them differs.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
