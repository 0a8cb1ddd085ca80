"""Who a service is: its role, and the folder of files that proves it. Knows files and TLS's own
checks; knows no gRPC, and makes no certificates (`outrider.certificates` does).

A role is a DNS name in the certificate: `verify.outrider.internal`. Callers ask TLS for the name of
the role that they want, so that a draft's certificate can never stand in for the verifier's, and
no host or address need be in a certificate: machines may move. Services read the caller's role
from the same names. The one thing that this does not tell apart is two services of one role.
"""

import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from outrider.errors import InvalidArgumentError

DOMAIN = "outrider.internal"


class Role(str, Enum):
    """What a certificate lets its owner be."""

    DRAFT = "draft"
    VERIFY = "verify"
    ORCHESTRATOR = "orchestrator"
    CLIENT = "client"

    @property
    def dns_name(self) -> str:
        """How a certificate says so."""
        return f"{self.value}.{DOMAIN}"


CALLERS = {
    Role.DRAFT: frozenset({Role.ORCHESTRATOR}),
    Role.VERIFY: frozenset({Role.ORCHESTRATOR}),
    Role.ORCHESTRATOR: frozenset({Role.CLIENT, Role.ORCHESTRATOR}),
}
"""Who may call a service of each role."""

_FILES = (
    ("cert.pem", "key.pem", "ca.pem"),
    ("tls.crt", "tls.key", "ca.crt"),  # a secret of Kubernetes, as cert-manager writes it
    ("fullchain.pem", "privkey.pem", "chain.pem"),  # certbot
)


@dataclass(frozen=True, slots=True)
class Files:
    """Where certificate, key and CA are."""

    certificate: Path
    key: Path
    ca: Path

    @property
    def stamp(self) -> tuple[object, ...]:
        """Changes whenever one of them is written, replaced or removed."""
        return tuple(map(_stamp, (self.certificate, self.key, self.ca)))


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate, the key that proves it, and the CA whose word counts; all PEM."""

    folder: str
    files: Files
    stamp: tuple[object, ...]
    certificate: bytes
    key: bytes = field(repr=False)
    ca: bytes

    @property
    def is_outdated(self) -> bool:
        """Whether its files are no longer those that were read: they were renewed, perhaps."""
        return self.files.stamp != self.stamp


@dataclass(frozen=True, slots=True)
class Examined:
    """What a certificate says: roles, and until when, in seconds since the epoch."""

    roles: frozenset[Role]
    expires_at: float


def roles_of(names: Iterable[str]) -> frozenset[Role]:
    """The roles among the names of a certificate.

    >>> sorted(role.value for role in roles_of(["attic", "draft.outrider.internal"]))
    ['draft']
    """
    found = set(names)
    return frozenset(role for role in Role if role.dns_name in found)


def files_of(folder: str | os.PathLike[str]) -> Files:
    """The files in a folder, by whichever of the known names; raises InvalidArgumentError where
    certificate or key is missing.
    """
    base = Path(folder)
    for certificate, key, ca in _FILES:
        if os.path.exists(base / certificate) and os.path.exists(base / key):
            return Files(base / certificate, base / key, base / ca)
    if not os.path.isdir(base):
        raise InvalidArgumentError(
            f"there is no folder {base}; give one with certificate, key and CA, as 'outrider certs "
            "issue' writes it"
        )
    wanted = ", or ".join(f"{certificate} and {key}" for certificate, key, _ in _FILES)
    raise InvalidArgumentError(
        f"{base} has no certificate with a key ({wanted}); give a folder that 'outrider certs "
        "issue' wrote"
    )


def read_identity(folder: str | os.PathLike[str]) -> Identity:
    """The identity in a folder; raises InvalidArgumentError where files are missing or do not
    belong together.
    """
    files = files_of(folder)
    if not os.path.exists(files.ca):
        raise InvalidArgumentError(
            f"{folder} has no {files.ca.name}, the certificate of the CA that signed those of all "
            "services; add it"
        )
    stamp = files.stamp
    require_pair(files)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(files.ca)
    except OSError as error:
        raise InvalidArgumentError(
            f"{files.ca} cannot be used ({_reason(error)}); give the certificate of the CA, in PEM"
        ) from error
    parts = (_read(path) for path in (files.certificate, files.key, files.ca))
    identity = Identity(str(folder), files, stamp, *parts)
    if identity.is_outdated:
        raise InvalidArgumentError(f"the files in {folder} changed while they were read; try again")
    return identity


def require_pair(files: Files) -> None:
    """Raises InvalidArgumentError unless certificate and key can be read and are a pair."""
    try:
        # Without a password callback OpenSSL would ask the terminal for the one of the key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            files.certificate, files.key, password=lambda: ""
        )
    except OSError as error:  # ssl.SSLError is one
        raise InvalidArgumentError(
            f"{files.certificate} and {files.key} cannot be used ({_reason(error)}); give a "
            "certificate and its own key, both PEM, without a password, readable by this user"
        ) from error


def examine(identity: Identity) -> Examined:
    """What the certificate of a service says.

    It is found by a handshake with itself, in memory, as a peer would do it: raises
    InvalidArgumentError for whatever a peer would not accept.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(identity.files.certificate, identity.files.key)
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        calling.load_verify_locations(cadata=identity.ca.decode("ascii", errors="ignore"))
        client = calling.wrap_bio(to_client, to_server)
        server = serving.wrap_bio(to_server, to_client, server_side=True)
        for side in (client, server) * 3:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLCertVerificationError as error:
        raise InvalidArgumentError(
            f"the certificate in {identity.folder} is not accepted by those who trust its CA: "
            f"{error.verify_message}; issue a new one (outrider certs issue)"
        ) from error
    except (ssl.SSLError, ValueError) as error:
        raise InvalidArgumentError(
            f"the files in {identity.folder} cannot be used ({_reason(error)}); issue new ones "
            "(outrider certs issue)"
        ) from error
    told = client.getpeercert() or {}
    names = [entry[1] for entry in told.get("subjectAltName", ()) if entry[0] == "DNS"]
    return Examined(roles_of(map(str, names)), ssl.cert_time_to_seconds(str(told["notAfter"])))


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read ({error.strerror})") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)
