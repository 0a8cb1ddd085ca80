"""Why an address cannot be reached: its name, its port, or the way there. Knows sockets only."""

import asyncio
import errno
import socket
from enum import Enum

REACH_S = 2.0


class Obstacle(Enum):
    """Where the way to a service ends; NONE: a connection can be made."""

    NONE = "none"
    NAME = "name"
    REFUSED = "refused"
    SILENT = "silent"
    NO_ROUTE = "no route"


_NO_ROUTE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL}


async def obstacle(address: str, timeout_s: float = REACH_S) -> Obstacle:
    """What a TCP connection to `host:port` meets."""
    host, _, port = address.rpartition(":")
    connecting = asyncio.ensure_future(asyncio.open_connection(host.strip("[]"), int(port)))
    try:
        done, _ = await asyncio.wait({connecting}, timeout=timeout_s)
        if not done:
            return Obstacle.SILENT
        _, writer = connecting.result()
    except socket.gaierror:
        return Obstacle.NAME
    except OSError as error:
        return _of(error)
    finally:
        connecting.cancel()
    writer.close()
    return Obstacle.NONE


def explained(found: Obstacle, address: str) -> str:
    """The obstacle as a sentence that says what to do."""
    host, _, port = address.rpartition(":")
    if found is Obstacle.NAME:
        return f"the name {host} is not known here; correct it, or give an IP address"
    if found is Obstacle.REFUSED:
        told = f"{host} refuses port {port}: no service listens there; start it"
        if host in ("localhost", "127.0.0.1", "[::1]"):
            return f"{told}, or correct the port"
        return (
            f"{told}, correct the port, or let it listen beyond loopback (--host 0.0.0.0 --tls "
            "FOLDER)"
        )
    if found is Obstacle.SILENT:
        return (
            f"{address} does not answer at all: the machine is off, or a firewall drops what is "
            f"sent to port {port}"
        )
    if found is Obstacle.NO_ROUTE:
        return f"there is no way to {host} from here; check network, VPN and routes"
    return (
        f"something listens at {address}, but it is no Outrider service that answers; check the "
        "port, and the log of the service"
    )


def _of(error: OSError) -> Obstacle:
    if error.errno in _NO_ROUTE:
        return Obstacle.NO_ROUTE
    # Of a name with several addresses, asyncio tells all failures in one error without a number.
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return Obstacle.REFUSED
    if isinstance(error, TimeoutError):
        return Obstacle.SILENT
    return Obstacle.NO_ROUTE
