"""Asks every service what it runs on, and measures the lines to them. Knows peers; no sessions."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from orchestrator.peers import DraftPeer, Peer, Peers, VerifyPeer
from orchestrator.planner import Limits
from outrider.diagnosis import Diagnosis, DraftingLimits, ServiceDiagnosis
from outrider.errors import DeadlineError, OutriderError, UnavailableError
from outrider.host import host_facts
from outrider.wire.diagnosing import Ask, measure_bandwidth, measure_line
from outrider.wire.reach import Obstacle, explained, obstacle

T = TypeVar("T")

CALL_TIMEOUT_S = 10.0
LINE_TIMEOUT_S = 15.0
"""For all calls that measure one thing about one service."""


async def diagnose(peers: Peers, limits: Limits, *, with_bandwidth: bool) -> Diagnosis:
    """All services at once; then, if asked for, the bandwidth of one after another, so that none
    takes from the line that another one is measured by.
    """
    await peers.probe()
    everyone: tuple[VerifyPeer | DraftPeer, ...] = (peers.verify, *peers.drafts)
    found = list(await asyncio.gather(*map(_service, everyone)))
    if with_bandwidth:
        found = [
            await _with_bandwidth(peer, service)
            for peer, service in zip(everyone, found, strict=True)
        ]
    host = await asyncio.to_thread(host_facts)
    drafting = DraftingLimits(
        limits.num_speculative_tokens,
        limits.width,
        limits.run_ahead,
        limits.adaptive,
        limits.wait_nodes,
        limits.max_wait_us,
    )
    return Diagnosis(host, found[0], tuple(found[1:]), drafting)


async def _service(peer: VerifyPeer | DraftPeer) -> ServiceDiagnosis:
    try:
        line = await _in_time(peer, measure_line(_ask(peer)))
    except OutriderError as error:
        return ServiceDiagnosis(peer.name, peer.address, await _why(peer, error))
    return ServiceDiagnosis(
        peer.name,
        peer.address,
        host=line.host,
        model=peer.info,
        round_trip_us=line.round_trip_us,
        clock_offset_us=line.clock_offset_us,
        is_encrypted=peer.is_encrypted,
    )


async def _with_bandwidth(
    peer: VerifyPeer | DraftPeer, service: ServiceDiagnosis
) -> ServiceDiagnosis:
    if service.problem:
        return service
    try:
        sent, received = await _in_time(peer, measure_bandwidth(_ask(peer), service.round_trip_us))
    except OutriderError as error:
        return replace(service, problem=error.message)
    return replace(service, sent_bytes_per_s=sent, received_bytes_per_s=received)


def _ask(peer: VerifyPeer | DraftPeer) -> Ask:
    return partial(peer.client.diagnose, timeout_s=CALL_TIMEOUT_S)


async def _why(peer: Peer, error: OutriderError) -> str:
    """What is in the way, where the call only knows that nothing answers."""
    if not isinstance(error, UnavailableError):
        return error.message
    found = await obstacle(peer.address)
    if found is not Obstacle.NONE:
        return explained(found, peer.address)
    if problem := await peer.tls_problem():
        return problem
    return explained(found, peer.address) if peer.info is None else error.message


async def _in_time(peer: Peer, measuring: Coroutine[Any, Any, T]) -> T:
    # Not `wait_for`: before Python 3.12 it swallows a cancellation that comes with the result.
    task = asyncio.ensure_future(measuring)
    try:
        await asyncio.wait({task}, timeout=LINE_TIMEOUT_S)
        if not task.done():
            raise DeadlineError(
                f"{peer.address} answers so slowly that {LINE_TIMEOUT_S:.0f} s were not enough"
            )
        return task.result()
    finally:
        task.cancel()
