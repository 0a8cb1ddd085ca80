"""Channels to other services: options, TLS, and what a call does when nobody answers."""

import asyncio
from collections.abc import Sequence

import grpc

from outrider.errors import UnavailableError
from outrider.wire.tls import Secured

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

CHANNEL_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Sessions of one orchestrator to one service must not share one TCP window with another peer.
    ("grpc.use_local_subchannel_pool", 1),
)

SERVER_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # With SO_REUSEPORT a second service on the same port would silently take half of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


def open_channel(address: str, secured: Secured | None = None) -> grpc.aio.Channel:
    """A channel to `host:port`, in plain text where it is not secured."""
    if secured is None:
        return grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS))
    options = [*CHANNEL_OPTIONS, *secured.options]
    return grpc.aio.secure_channel(address, secured.credentials, options=options)


async def wait_connected(channel: grpc.aio.Channel, address: str, timeout_s: float) -> None:
    """Returns once the peer is connected; calls made before that fail while gRPC backs off.

    Raises UnavailableError where nothing answers for `timeout_s`.
    """
    # Not `wait_for`: before Python 3.12 it swallows a cancellation that comes with the connection.
    ready = asyncio.ensure_future(channel.channel_ready())
    try:
        await asyncio.wait({ready}, timeout=timeout_s)
        if not ready.done():
            raise UnavailableError(f"nothing answers at {address}; is it running?")
        ready.result()
    finally:
        ready.cancel()
