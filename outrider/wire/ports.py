"""Ports, before anything heavy is done. Knows sockets; knows no gRPC."""

import errno
import os
import socket

from outrider.errors import UnavailableError


def require_free(host: str, port: int, flag: str = "--port") -> None:
    """Raises UnavailableError where `port` cannot be listened on; 0 is always free. `flag` chooses
    another one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        reason = "the port is in use" if is_taken else os.strerror(error.errno or 0)
        raise UnavailableError(
            f"cannot listen on {host} port {port}: {reason}; stop the other program or choose "
            f"another {flag}"
        ) from error
