"""Fixtures of the draft scheduler's tests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from draft.gated import GatedModel
from draft.scheduled import FakeTime, Start

from draft_service import scheduler as scheduler_module
from draft_service.drafter import Drafter
from draft_service.scheduler import Scheduler
from draft_service.settings import DraftSettings


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime(tick_s=1.0)
    monkeypatch.setattr(scheduler_module, "time", fake)
    return fake


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    schedulers: list[Scheduler] = []

    def make(
        model: str = "vocab=8", kv: int = 4096, **settings: Any
    ) -> tuple[Scheduler, GatedModel]:
        gated = GatedModel(model, kv)
        schedulers.append(Scheduler(Drafter(gated), DraftSettings(**settings)))
        return schedulers[-1], gated

    yield make
    for scheduler in schedulers:
        await scheduler.stop()
