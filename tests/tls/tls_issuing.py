"""A CA of a test and what it signs, made by the code that users run."""

import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from outrider.certificates import issue, make_authority
from outrider.identity import Role

YEAR = timedelta(days=365)


class Issuer:
    """One CA; `folder` writes a node's files as `outrider certs issue` does."""

    def __init__(self, parent: Path, name: str = "test CA") -> None:
        self._parent = parent
        self._count = 0
        # Two years old, so that it can have signed what has expired meanwhile.
        self.authority = make_authority(name, 3650, datetime.now(timezone.utc) - 2 * YEAR)

    def folder(self, role: str, *, days: int = 90, hosts: Sequence[str] = ()) -> str:
        """A node that is valid from now on."""
        self._count += 1
        folder = self._parent / f"{role}-{self._count}"
        folder.mkdir(parents=True)
        self.write(folder, role, days=days, hosts=hosts)
        return str(folder)

    def expired(self, role: str) -> str:
        """A node that was valid until a year ago."""
        folder = self.folder(role)
        self.write(Path(folder), role, days=30, at=datetime.now(timezone.utc) - YEAR)
        return folder

    def write(
        self,
        folder: Path | str,
        role: str,
        *,
        days: int = 90,
        hosts: Sequence[str] = (),
        at: datetime | None = None,
    ) -> None:
        """Replaces what is in a folder."""
        now = at or datetime.now(timezone.utc)
        made = issue(self.authority, Role(role), role, hosts, days, now)
        for name, content in (
            ("key.pem", made.key),
            ("cert.pem", made.certificate),
            ("ca.pem", self.authority.certificate),
        ):
            (Path(folder) / name).write_bytes(content)

    def as_secret(self, role: str) -> str:
        """A node by the names that cert-manager uses."""
        folder = Path(self.folder(role))
        for name, other in (("key.pem", "tls.key"), ("cert.pem", "tls.crt"), ("ca.pem", "ca.crt")):
            shutil.move(folder / name, folder / other)
        return str(folder)
