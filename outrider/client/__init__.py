"""The SDK: `Client` and `AsyncClient`. Needs grpcio and protobuf only."""

from outrider.client.aio import AsyncClient, AsyncGeneration
from outrider.client.answer import Result, Started, Token, TokenLogprob
from outrider.client.cluster import Cluster, Service
from outrider.client.stats import DraftStats, Stats
from outrider.client.sync import Client, Generation
from outrider.diagnosis import Diagnosis, DraftingLimits, ServiceDiagnosis
from outrider.host import GpuFacts, HostFacts

__all__ = [
    "AsyncClient",
    "AsyncGeneration",
    "Client",
    "Cluster",
    "Diagnosis",
    "DraftStats",
    "DraftingLimits",
    "Generation",
    "GpuFacts",
    "HostFacts",
    "Result",
    "Service",
    "ServiceDiagnosis",
    "Started",
    "Stats",
    "Token",
    "TokenLogprob",
]
