"""Processes have the core that they were given, and do not outlive who started them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import pinned
from benchmarks.pinned import LineProcess, chosen_cores, started_on
from outrider.errors import InvalidArgumentError, UnavailableError

MODULE = "tests.benchmarks.echo_lines"
WAIT_S = 20.0


@pytest.fixture
def core() -> int:
    return max(os.sched_getaffinity(0))


@pytest.fixture
def process(core: int, tmp_path: Path) -> Iterator[LineProcess]:
    started = LineProcess(MODULE, (), core, tmp_path / "log")
    yield started
    started.end()


def test_a_process_runs_on_its_core_and_talks_in_lines(process: LineProcess, core: int) -> None:
    assert process.line(WAIT_S) == f"[{core}]"
    process.tell("hello")
    assert process.line(WAIT_S) == "hello"
    process.end()
    assert not process.is_alive


def test_starting_on_a_core_leaves_this_process_where_it_was(core: int) -> None:
    before = os.sched_getaffinity(0)
    with started_on(core):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before


def test_a_process_that_fails_is_told_with_its_last_words(process: LineProcess) -> None:
    process.line(WAIT_S)
    process.tell("fail")
    with pytest.raises(UnavailableError, match="ended: it was told to fail"):
        process.line(WAIT_S)
    process.process.wait(WAIT_S)
    with pytest.raises(UnavailableError, match="ended: it was told to fail"):
        process.tell("more")


def test_silence_is_an_error(process: LineProcess) -> None:
    process.line(WAIT_S)
    with pytest.raises(UnavailableError, match="said nothing"):
        process.line(0.01)


def test_two_different_usable_cores_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5})
    assert chosen_cores() == (2, 3)
    assert chosen_cores((5, 2)) == (5, 2)
    for asked in ((2, 2), (2, 4), (3,)):
        with pytest.raises(InvalidArgumentError, match="give two different ones of 2, 3, 5"):
            chosen_cores(asked)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    with pytest.raises(InvalidArgumentError, match="1 core is usable here; the rig needs two"):
        chosen_cores()


def test_a_system_without_affinity_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pinned.os, "sched_getaffinity")
    with pytest.raises(InvalidArgumentError, match="run it on Linux"):
        chosen_cores()
