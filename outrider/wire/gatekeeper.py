"""Who may connect to a server and call it: certificates of one CA, looked at again for every
connection because they are renewed while it serves, and the roles in them.

Health and reflection are for everybody with a certificate of the CA.
"""

import asyncio
import time
from typing import Any

import grpc

from outrider.errors import InvalidArgumentError, NotAllowedError
from outrider.identity import CALLERS, Identity, Role, examine, read_identity, roles_of
from outrider.telemetry.logs import get_logger

WARN_DAYS = 30
DAY_S = 24 * 3600.0


class Renewals:
    """The identity in a folder, and the one that takes its place."""

    def __init__(self, folder: str, role: Role) -> None:
        """Raises InvalidArgumentError where it is not one of a service of `role`."""
        self._folder = folder
        self._role = role
        self.current, self.expires_at = self._read()

    def take(self) -> Identity | None:
        """The new identity, if its files were replaced and are sound; else None, and a line in the
        log where they are not. Never raises: it is called within handshakes.
        """
        if not self.current.is_outdated:
            return None
        try:
            self.current, self.expires_at = self._read()
        except InvalidArgumentError as error:
            get_logger().warning("certificate_not_renewed", problem=error.message)
            return None
        get_logger().info("certificate_renewed", days_left=self.days_left)
        return self.current

    @property
    def days_left(self) -> int:
        """Whole days until the current one runs out."""
        return int((self.expires_at - time.time()) // DAY_S)

    def _read(self) -> tuple[Identity, float]:
        identity = read_identity(self._folder)
        examined = examine(identity)
        if examined.roles != {self._role}:
            has = ", ".join(sorted(role.value for role in examined.roles)) or "no role of ours"
            raise InvalidArgumentError(
                f"the certificate in {self._folder} has {has}, and this service is "
                f"{self._role.value}; give it its own (outrider certs issue --role "
                f"{self._role.value})"
            )
        return identity, examined.expires_at


class Gatekeeper:
    """Lets in who has a certificate of the CA, and to each method who has a role for it."""

    def __init__(self, folder: str, role: Role) -> None:
        """`role` is that of the service; raises InvalidArgumentError where the folder is not for
        it.
        """
        self._renewals = Renewals(folder, role)
        self._role = role
        self._callers = CALLERS[role]

    def credentials(self) -> grpc.ServerCredentials:
        """What a port is opened with."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._renewals.current),
            self._renewed,  # type: ignore[arg-type]  # the stubs know no None, for no change
            require_client_authentication=True,
        )

    def admit(self, context: grpc.aio.ServicerContext[Any, Any], method: str) -> None:
        """Raises NotAllowedError where the caller's certificate has no role for this service."""
        # DNS names only: whoever may choose another kind of name must not choose a role with it.
        told = context.auth_context().get("peer_dns", ())
        names = [name.decode("utf-8", errors="replace") for name in told]
        roles = roles_of(names)
        if len(roles) == 1 and roles <= self._callers:
            return
        get_logger().warning("caller_refused", method=method, peer=context.peer(), names=names)
        has = " and ".join(sorted(role.value for role in roles)) or "none"
        wanted = " or ".join(sorted(role.value for role in self._callers))
        raise NotAllowedError(
            f"the caller's certificate has the role {has}, and a service of role "
            f"{self._role.value} takes calls of {wanted} only; call it with such a certificate "
            "(outrider certs issue --role)"
        )

    async def watch(self) -> None:
        """Says in the log, once a day, when the certificate will run out soon."""
        while True:
            days_left = self._renewals.days_left
            if days_left < WARN_DAYS:
                get_logger().warning(
                    "certificate_expires",
                    days_left=days_left,
                    folder=self._renewals.current.folder,
                    remedy="outrider certs issue --replace; taken over without a restart",
                )
            await asyncio.sleep(DAY_S)

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        renewed = self._renewals.take()
        return None if renewed is None else _configuration(renewed)


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(identity.key, identity.certificate)], identity.ca
    )
