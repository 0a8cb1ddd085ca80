"""The cluster as watchers get it: how its services are, and what was counted of its work. Pure.

Counters run from the orchestrator's start; who wants rates compares two states. A draft that was
given no name has its address for one, and a problem's text may have one, too.
"""

from typing import Literal, TypedDict

from orchestrator.gateway.outcomes import Shape
from orchestrator.requests import ClusterView, ServiceView
from orchestrator.traffic import DraftTraffic, Traffic


class Service(Shape):
    """How a service is; `problem` says why it cannot be used. `model` null: it never answered."""

    name: str
    model: str | None
    backend: str | None
    context_tokens: int | None
    usable: bool
    problem: str | None
    round_trip_ms: float | None


class Draft(Service):
    """A draft, and its work: `written_tokens` are those of answers. The others are of requests that
    have ended: nodes it sent, nodes that were accepted, and the mean time of its steps.
    """

    written_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    step_ms: float | None


class Work(Shape):
    """Of all requests: tokens, target passes, those of them with drafted tokens, how many drafted
    tokens they verified and accepted, passes whose accepted path is longer than each position. A
    pass for several requests counts once for each. And the seconds that the passes took, and for
    which the target stood idle though it could have run.
    """

    running_requests: int
    emitted_tokens: int
    target_passes: int
    drafted_passes: int
    verified_tokens: int
    accepted_tokens: int
    accepted_per_position: list[int]
    forward_seconds: float
    idle_seconds: float


class Cluster(Shape):
    """Of /v1/cluster. `at` is when it was looked at, `since` when the counters began, in seconds
    since 1970.
    """

    object: Literal["cluster"] = "cluster"
    at: float
    since: float
    draining: bool
    verify: Service
    drafts: list[Draft]
    work: Work


def cluster_of(
    view: ClusterView, traffic: Traffic, *, running: int, is_draining: bool, at: float, since: float
) -> Cluster:
    """What is sent."""
    return Cluster(
        at=at,
        since=since,
        draining=is_draining,
        verify=Service(**_service(view.verify)),
        drafts=[_draft(draft, traffic.drafts.get(draft.name)) for draft in view.drafts],
        work=Work(
            running_requests=running,
            emitted_tokens=traffic.emitted_tokens,
            target_passes=traffic.target_passes,
            drafted_passes=traffic.drafted_passes,
            verified_tokens=traffic.verified_tokens,
            accepted_tokens=traffic.accepted_tokens,
            accepted_per_position=list(traffic.accepted_per_position),
            forward_seconds=traffic.forward_us / 1e6,
            idle_seconds=traffic.gap_us / 1e6,
        ),
    )


class _ServiceFields(TypedDict):
    name: str
    model: str | None
    backend: str | None
    context_tokens: int | None
    usable: bool
    problem: str | None
    round_trip_ms: float | None


def _service(view: ServiceView) -> _ServiceFields:
    model = view.model
    # What was measured before says nothing of a service that does not answer.
    is_measured = view.usable and view.round_trip_us > 0
    return _ServiceFields(
        name=view.name,
        model=None if model is None else model.model_name,
        backend=None if model is None else model.backend,
        context_tokens=None if model is None else model.context_tokens,
        usable=view.usable,
        problem=view.problem or None,
        round_trip_ms=view.round_trip_us / 1000 if is_measured else None,
    )


def _draft(view: ServiceView, found: DraftTraffic | None) -> Draft:
    traffic = found or DraftTraffic()
    return Draft(
        **_service(view),
        written_tokens=traffic.written_tokens,
        drafted_tokens=traffic.drafted_tokens,
        accepted_tokens=traffic.accepted_tokens,
        step_ms=traffic.step_us / traffic.steps / 1000 if traffic.steps else None,
    )
