"""Facts of the machine: what a container may use counts, not what its machine has."""

import os
from pathlib import Path

import psutil
import pytest

from outrider import host
from outrider.host import ModelLoad, host_facts, usable_cores, usable_memory


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    return tmp_path


def test_the_facts_are_the_machines_and_the_models() -> None:
    facts = host_facts(ModelLoad(1, 2, 3, 4, 5))
    assert facts.cpu and facts.system and facts.cores >= 1
    assert 0 < facts.memory_available_bytes <= facts.memory_total_bytes
    assert dict(facts.versions)["python"].startswith("3.")
    told = (facts.weights_bytes, facts.kv_bytes_per_token, facts.kv_tokens, facts.threads)
    assert (*told, facts.max_sessions) == (1, 2, 3, 4, 5)


def test_without_a_limit_the_machine_counts(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "cpu.max").write_text("max 100000\n")
    assert usable_memory().total_bytes == psutil.virtual_memory().total
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert usable_cores() == own


def test_a_container_has_its_limit_less_what_it_uses_but_for_pages_of_files(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text("1000000\n")
    (cgroup / "memory.current").write_text("700000\n")
    (cgroup / "memory.stat").write_text("anon 400000\ninactive_file 300000\n")
    memory = usable_memory()
    assert (memory.total_bytes, memory.available_bytes) == (1_000_000, 600_000)


def test_a_quota_of_processor_time_lowers_the_cores(cgroup: Path) -> None:
    (cgroup / "cpu.max").write_text("50000 100000\n")
    assert usable_cores() == 1


def test_without_a_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml")

    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert host.visible_gpus() == ()


def test_gpus_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0,7")
    assert host._visible(3) == [2, 0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert host._visible(3) == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert host._visible(3) == [0, 1, 2]
