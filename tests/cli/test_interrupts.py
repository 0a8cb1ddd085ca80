"""Ctrl-C, SIGTERM and a closed terminal: each stops once, and one more makes stopping hurry."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.cli.child import end_all
from orchestrator.cli.interrupts import STOPPING, Interrupts


class Stubborn:
    """A child that ends by force only; asked to end, it gets its parent the signals `then`."""

    def __init__(self, *then: signal.Signals) -> None:
        self.is_alive = True
        self.terminated = 0
        self._then = then

    def terminate(self) -> None:
        self.terminated += 1
        for number in self._then:
            signal.raise_signal(number)

    def kill(self) -> None:
        self.is_alive = False


def end(interrupts: Interrupts, within_s: float, *children: Any) -> None:
    end_all(children, within_s, interrupts)


@pytest.fixture
def heeded() -> Iterator[None]:
    """A run without a terminal may have been started with some of them ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in STOPPING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", STOPPING)
def test_every_signal_that_means_stop_interrupts_until_stopping_has_begun(
    number: signal.Signals,
) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert interrupts.status == 128 + number
        assert not interrupts.is_repeated
        interrupts.defer()
        assert not interrupts.is_repeated
        signal.raise_signal(number)
        assert interrupts.is_repeated
    assert signal.getsignal(number) == before


def test_one_more_signal_ends_at_once_what_was_only_asked_to_end() -> None:
    children = [Stubborn(signal.SIGTERM), Stubborn()]
    with Interrupts() as interrupts:
        interrupts.defer()
        end(interrupts, 1e9, *children)
    assert [(child.is_alive, child.terminated) for child in children] == [(False, 1)] * 2


def test_a_child_that_does_not_end_in_time_is_ended_by_force() -> None:
    child = Stubborn()
    with Interrupts() as interrupts:
        interrupts.defer()
        end(interrupts, 0.0, child)
        end(interrupts, 1e9, child)  # which has ended, and is not asked again
    assert (child.is_alive, child.terminated) == (False, 1)
