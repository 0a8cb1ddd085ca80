"""Why two sides do not agree on TLS: tries the handshake, because gRPC only says that it failed.

Knows sockets and certificates; calls nothing.
"""

import socket
import ssl

from outrider.wire.tls import Secured

HANDSHAKE_S = 1.0

_EXPIRED, _NOT_YET_VALID, _OTHER_NAME = 10, 9, 62
"""OpenSSL's numbers (X509_V_ERR_*)."""


def tls_problem(address: str, secured: Secured | None, timeout_s: float = HANDSHAKE_S) -> str:
    """What keeps a caller from the service at `address`, with what to do; empty where it is not
    TLS. A caller that is not `secured` speaks plain text.
    """
    host, _, port = address.rpartition(":")
    try:
        context = _context(secured)
    except OSError as error:  # ssl.SSLError is one
        folder = secured.identity.folder if secured is not None else ""
        why = getattr(error, "reason", None) or error.strerror or str(error)
        return f"the certificate in {folder} cannot be used just now ({why}); look at its files"
    try:
        plain = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
    except OSError:
        return ""
    with plain:
        return _met(plain, context, address, secured)


def _met(
    plain: socket.socket, context: ssl.SSLContext, address: str, secured: Secured | None
) -> str:
    wants_tls = (
        f"{address} speaks TLS and this side does not; give a folder with a certificate (--tls; "
        "in Python tls=), made by 'outrider certs issue'"
    )
    try:
        name = None if secured is None else secured.role.dns_name
        with context.wrap_socket(plain, server_hostname=name) as line:
            if secured is None:
                return wants_tls
            # What the other side thinks of our certificate comes after our half of the handshake.
            return "" if line.recv(1) else _refused(address, secured, "")
    except ssl.SSLCertVerificationError as error:
        return _misfit(address, error, secured)
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "ALERT" in reason:
            return wants_tls if secured is None else _refused(address, secured, reason)
        return "" if secured is None else _plain_text(address)
    except TimeoutError:
        return ""
    except OSError:
        return "" if secured is None else _plain_text(address)


def _context(secured: Secured | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if secured is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    own = secured.identity
    context.load_verify_locations(cadata=own.ca.decode("ascii", errors="ignore"))
    context.load_cert_chain(own.files.certificate, own.files.key)
    return context


def _misfit(address: str, error: ssl.SSLCertVerificationError, secured: Secured | None) -> str:
    """Why their certificate is not accepted here; nobody checks one who speaks plain text."""
    if secured is None:
        return ""
    role = secured.role.value
    if error.verify_code == _EXPIRED:
        return (
            f"the certificate of {address} has expired; issue a new one for it (outrider certs "
            "issue --replace)"
        )
    if error.verify_code == _NOT_YET_VALID:
        return f"the certificate of {address} is not valid yet; set the clocks of both machines"
    if error.verify_code == _OTHER_NAME:
        return (
            f"the certificate of {address} is not one of role {role}; correct the address, or "
            f"issue one for it (outrider certs issue --role {role})"
        )
    return (
        f"the certificate of {address} is not of the CA in {secured.identity.files.ca} "
        f"({error.verify_message}); issue the certificates of both sides by one CA"
    )


def _refused(address: str, secured: Secured, reason: str) -> str:
    """Why our certificate is not accepted there."""
    ours = f"the certificate in {secured.identity.folder}"
    if "EXPIRED" in reason:
        return (
            f"{address} refuses {ours}: it has expired; issue a new one (outrider certs issue "
            "--replace)"
        )
    told = reason.partition("ALERT_")[2].lower().replace("_", " ")
    why = f" ({told})" if told else ""
    return (
        f"{address} refuses {ours}{why}: it has expired, or is not of the CA that the service "
        "trusts; outrider certs show tells which"
    )


def _plain_text(address: str) -> str:
    return (
        f"{address} does not speak TLS and this side does; start the service with --tls, or leave "
        "TLS out on both sides where the way between them is trusted"
    )
