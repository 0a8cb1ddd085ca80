"""For how long the target stood idle before passes, by a clock that the model moves."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from draft.gated import GatedModel
from support.waiting import until
from torch import Tensor

from outrider.models.base import Feed, ModelSequence
from outrider.plans import ReadinessPolicy
from outrider.types import SamplingParams, StopConditions, VerifyOpening
from verify_service import scheduler as scheduler_module
from verify_service import verifier as verifier_module
from verify_service.scheduler import Scheduler
from verify_service.settings import VerifySettings
from verify_service.verifier import Verifier

FORWARD_S = 10
KEEP_S = 1
BUDGET = 16


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter_ns(self) -> int:
        return int(self.now * 1e9)


class SlowModel(GatedModel):
    """A pass takes 10 s, and what comes after it 1 s: the target stands idle for that."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("vocab=8", 4096)
        self._clock = clock

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        self._clock.now += FORWARD_S
        return super().forward(feeds)

    def keep(
        self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int] = ()
    ) -> None:
        self._clock.now += KEEP_S
        super().keep(sequence, path, surviving)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(scheduler_module, "time", clock)
    monkeypatch.setattr(verifier_module, "time", clock)
    yield clock


async def test_idle_time_before_passes_that_only_read_a_prompt_is_told_with_the_next_verdict(
    clock: Clock,
) -> None:
    settings: dict[str, Any] = {"kv_tokens": 4096, "max_pass_tokens": BUDGET}
    model = SlowModel(clock)
    scheduler = Scheduler(Verifier(model), VerifySettings(**settings, idle_timeout_s=10_000))
    try:
        session = await scheduler.open(
            VerifyOpening(
                "s",
                (1,) * (4 * BUDGET),
                (),
                SamplingParams(temperature=0, seed=0),
                StopConditions(3, ignore_eos=True),
                ReadinessPolicy(max_rows=0),
            )
        )
        await until(lambda: session.finish_reason is not None, "the answer")
        verdicts = session.read()
    finally:
        await scheduler.stop()
    assert len(model.passes) == 4 + 2
    assert [v.timing.gap_us / 1e6 for v in verdicts] == [3 * KEEP_S, KEEP_S, KEEP_S]
    assert [v.timing.queue_us for v in verdicts] == [0, 0, 0], "nobody else was served"
