"""Addresses, `host:port`. Knows no sockets."""

import ipaddress


def is_loopback(address: str) -> bool:
    """Whether `host:port` stays on this machine.

    >>> is_loopback("[::1]:7071"), is_loopback("attic:7071")
    (True, False)
    """
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
