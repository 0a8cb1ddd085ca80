"""`outrider certs`: a CA and certificates as files. What is in them is `outrider.certificates`'."""

import contextlib
import json
import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import typer

from orchestrator.cli.console import FAILED, fail, misuse_told, write
from outrider.certificates import Described, Pair, describe, issue, make_authority
from outrider.errors import InvalidArgumentError
from outrider.identity import Role, files_of

CA = "ca.pem"
CA_KEY = "ca.key"
CERTIFICATE = "cert.pem"
KEY = "key.pem"


def make_authority_in(folder: Path, name: str, days: int, *, show_json: bool) -> None:
    """Writes a new CA; refuses a folder that has one."""
    with misuse_told():
        if any(os.path.exists(folder / file) for file in (CA, CA_KEY)):
            raise InvalidArgumentError(
                f"{folder} has a CA already, which signed what your services trust; choose another "
                "folder"
            )
        made = make_authority(name, days, _now())
    _write(folder / CA_KEY, made.key, is_private=True)
    _write(folder / CA, made.certificate)
    _tell(describe(made.certificate), folder, show_json)


def issue_in(
    folder: Path,
    role: str,
    name: str,
    hosts: Sequence[str],
    days: int,
    out: Path | None,
    *,
    replaces: bool,
    show_json: bool,
) -> None:
    """Writes a node's folder; refuses one that has a certificate unless it `replaces` that."""
    with misuse_told():
        authority = _authority(folder)
        made = issue(authority, _role(role), name, hosts, days, _now())
        goal = folder / name if out is None else out
        if not replaces and any(os.path.exists(goal / file) for file in (CERTIFICATE, KEY)):
            raise InvalidArgumentError(
                f"{goal} has a certificate already; add --replace, or choose another --name or "
                "--out"
            )
    _write(goal / KEY, made.key, is_private=True)
    _write(goal / CERTIFICATE, made.certificate)
    _write(goal / CA, authority.certificate)
    _tell(describe(made.certificate), goal, show_json)


def show(path: Path, *, show_json: bool) -> None:
    """Tells about a certificate, or the one in a folder; status 1 where it has expired."""
    with misuse_told():
        file = path
        if os.path.isdir(path):
            file = path / CA if os.path.exists(path / CA_KEY) else files_of(path).certificate
        described = describe(_read(file))
    _tell(described, file, show_json)
    if described.not_after < _now():
        raise typer.Exit(FAILED)


def _authority(folder: Path) -> Pair:
    if not all(os.path.exists(folder / file) for file in (CA, CA_KEY)):
        raise InvalidArgumentError(
            f"there is no CA in {folder} ({CA}, {CA_KEY}); make one: outrider certs init {folder}"
        )
    return Pair(_read(folder / CA), _read(folder / CA_KEY))


def _role(role: str) -> Role:
    try:
        return Role(role)
    except ValueError:
        names = ", ".join(known.value for known in Role)
        raise InvalidArgumentError(f"role is {role!r}; give one of {names}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read ({error.strerror})") from error


def _write(path: Path, content: bytes, *, is_private: bool = False) -> None:
    """All or nothing: a service may read the file at any time."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o600 if is_private else 0o644
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        fail(f"{path} cannot be written ({error.strerror})")


def _tell(described: Described, where: Path, show_json: bool) -> None:
    left = described.days_left(_now())
    if show_json:
        told = {
            "kind": described.kind,
            "name": described.name,
            "roles": described.roles,
            "hosts": described.hosts,
            "issuer": described.issuer,
            "not_before": described.not_before.isoformat(),
            "not_after": described.not_after.isoformat(),
            "days_left": left,
            "sha256": described.fingerprint,
            "path": str(where),
        }
        write(json.dumps(told, ensure_ascii=False) + "\n")
        return
    roles = f", role {' and '.join(described.roles)}" if described.roles else ""
    hosts = f"  hosts      {', '.join(described.hosts)}\n" if described.hosts else ""
    state = f"{left} days left" if described.not_after >= _now() else "EXPIRED"
    write(
        f"{described.kind} {described.name}{roles}\n"
        f"{hosts}"
        f"  signed by  {described.issuer}\n"
        f"  valid      {described.not_before:%Y-%m-%d} to {described.not_after:%Y-%m-%d}, {state}\n"
        f"  SHA-256    {described.fingerprint}\n"
        f"  path       {where}\n"
    )


def _now() -> datetime:
    return datetime.now(timezone.utc)
