"""A caller's side of TLS: who calls, and the role that must answer. Knows gRPC; the SDK uses it, so
it needs nothing else.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from outrider.identity import Identity, Role, read_identity


@dataclass(frozen=True, slots=True)
class Secured:
    """How a channel is secured: by the caller's certificate, and to services of one role."""

    identity: Identity
    role: Role

    @property
    def credentials(self) -> grpc.ChannelCredentials:
        """They show the caller's certificate, and trust its CA alone."""
        own = self.identity
        return grpc.ssl_channel_credentials(own.ca, own.key, own.certificate)

    @property
    def options(self) -> Sequence[tuple[str, str]]:
        """By these gRPC takes a certificate of the role, at whatever address: one that has its name
        among its DNS names, a wildcard for it, or, without any such name, as its common name.
        """
        return (("grpc.ssl_target_name_override", self.role.dns_name),)


def secured_by(folder: str | os.PathLike[str], role: Role) -> Secured | None:
    """TLS with the identity in a folder; None, plain text, where the folder is ''.

    Raises InvalidArgumentError where it has no identity that can be used.
    """
    return Secured(read_identity(folder), role) if os.fspath(folder) else None
