"""Certificates that are renewed while they are served over HTTP. Knows no server."""

import ssl
from collections.abc import Callable

from outrider.errors import InvalidArgumentError
from outrider.identity import Files, require_pair
from outrider.telemetry.logs import get_logger


def renewing(
    context: ssl.SSLContext, files: Files, what: str
) -> Callable[[ssl.SSLObject, str, ssl.SSLContext], None]:
    """A callback for names (SNI) that looks at the files whenever somebody connects: from the next
    connection on a renewed certificate is shown. `what` begins the names of its log events.
    """
    known = files.stamp

    def look(connection: ssl.SSLObject, name: str, chosen: ssl.SSLContext) -> None:
        nonlocal known
        stamp = files.stamp
        if stamp == known:
            return
        try:
            require_pair(files)
            context.load_cert_chain(files.certificate, files.key)
        except (InvalidArgumentError, OSError) as error:
            get_logger().warning(f"{what}_certificate_not_renewed", problem=str(error))
            return
        known = stamp
        get_logger().info(f"{what}_certificate_renewed")

    return look
