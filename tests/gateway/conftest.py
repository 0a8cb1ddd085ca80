"""An HTTP endpoint over real services, and OpenAI's own client for it."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from support.local import Local

MODEL = "scripted:vocab=62,seed=3"
DRAFT = f"{MODEL},drift=0.3"


class Front:
    """Endpoints of a test, and clients that are closed with it."""

    def __init__(self, local: Local) -> None:
        self.local = local
        self._clients: list[httpx.AsyncClient | AsyncOpenAI] = []

    async def open(self, model: str = MODEL, draft: str | None = DRAFT, **settings: Any) -> str:
        """The base address of a new endpoint."""
        verify = await self.local.verify(model)
        if draft is not None:
            # The target takes no time: it would be done before the draft has begun.
            settings = {"wait_nodes": 2, "max_wait_ms": 5000, **settings}
        drafts = {} if draft is None else {"a": await self.local.draft(draft)}
        return await self.local.gateway(verify, drafts, **settings)

    def openai(self, base: str, **options: Any) -> AsyncOpenAI:
        """OpenAI's client, which does not try again unless it is told to."""
        given = {"api_key": "none", "max_retries": 0, "timeout": 60, **options}
        client = AsyncOpenAI(base_url=f"{base}/v1", **given)
        self._clients.append(client)
        return client

    def http(self, base: str, **options: Any) -> httpx.AsyncClient:
        """A plain client."""
        client = httpx.AsyncClient(base_url=base, timeout=60, **options)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Closes the clients."""
        for client in self._clients:
            await (client.close() if isinstance(client, AsyncOpenAI) else client.aclose())


@pytest.fixture
async def front(local: Local) -> AsyncIterator[Front]:
    """Endpoints and clients."""
    made = Front(local)
    yield made
    await made.close()
