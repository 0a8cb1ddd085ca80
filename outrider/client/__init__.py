"""The SDK: `Client` and `AsyncClient`. Needs grpcio and protobuf only."""

from outrider.client.aio import AsyncClient, AsyncGeneration
from outrider.client.answer import Result, Started, Token, TokenLogprob
from outrider.client.cluster import Cluster, Service
from outrider.client.stats import DraftStats, Stats
from outrider.client.sync import Client, Generation

__all__ = [
    "AsyncClient",
    "AsyncGeneration",
    "Client",
    "Cluster",
    "DraftStats",
    "Generation",
    "Result",
    "Service",
    "Started",
    "Stats",
    "Token",
    "TokenLogprob",
]
