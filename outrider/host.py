"""Facts of the machine and the process that this runs in: cores, memory, graphics processors,
versions.

Knows no model and no gRPC. What a container may use counts, not what its machine has.
"""

import importlib.metadata
import math
import os
import platform
import sys
import time
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from outrider.types import PROTOCOL_VERSION
from outrider.version import __version__

_CGROUP = Path("/sys/fs/cgroup")
_LIBRARIES = {"grpc": "grpcio", "torch": "torch", "transformers": "transformers"}
_LIBRARIES |= {"llama_cpp": "llama-cpp-python"}
"""Packages whose versions matter, by the module that tells whether they were loaded."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A graphics processor. What it has free changes while others use it."""

    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of main memory that this process could have in all, and still."""

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """What a service's model takes; 0: unknown. `threads` 0 is the model library's own choice."""

    weights_bytes: int = 0
    kv_bytes_per_token: int = 0
    kv_tokens: int = 0
    threads: int = 0
    max_sessions: int = 0


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a service runs on, and what its model takes; 0 stands for unknown, or no model.

    `clock_us` is the machine's clock in microseconds since 1970-01-01 UTC. `versions` are (package,
    version) pairs of what was loaded. `threads` 0 is the model library's own choice.
    """

    version: str = __version__
    protocol_version: int = PROTOCOL_VERSION
    versions: tuple[tuple[str, str], ...] = ()
    system: str = ""
    cpu: str = ""
    cores: int = 0
    memory_total_bytes: int = 0
    memory_available_bytes: int = 0
    gpus: tuple[GpuFacts, ...] = ()
    clock_us: int = 0
    weights_bytes: int = 0
    kv_bytes_per_token: int = 0
    kv_tokens: int = 0
    threads: int = 0
    max_sessions: int = 0


def host_facts(load: ModelLoad | None = None) -> HostFacts:
    """The facts now. Takes milliseconds and reads files: no work for an event loop."""
    load = load or ModelLoad()
    memory = usable_memory()
    return HostFacts(
        versions=_versions(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu_name(),
        cores=usable_cores(),
        memory_total_bytes=memory.total_bytes,
        memory_available_bytes=memory.available_bytes,
        gpus=visible_gpus(),
        clock_us=clock_us(),
        weights_bytes=load.weights_bytes,
        kv_bytes_per_token=load.kv_bytes_per_token,
        kv_tokens=load.kv_tokens,
        threads=load.threads,
        max_sessions=load.max_sessions,
    )


def clock_us() -> int:
    """The machine's clock, in microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


def usable_cores() -> int:
    """Cores that this process may use: its affinity, lowered by its container's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota, _, period_us = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdecimal() and period_us.isdecimal() and int(period_us):
        cores = min(cores, max(1, math.ceil(int(quota) / int(period_us))))
    return cores


def usable_memory() -> Memory:
    """Main memory: the machine's, lowered by the container's limit. Zeros without psutil."""
    try:
        import psutil
    except ImportError:
        return Memory(0, 0)
    machine = psutil.virtual_memory()
    limit = _read(_CGROUP / "memory.max")
    if not limit.isdecimal() or int(limit) >= machine.total:
        return Memory(machine.total, machine.available)
    # Pages of files count as used, and are given back when somebody needs the room.
    stat = dict(line.split(" ", 1) for line in _read(_CGROUP / "memory.stat").splitlines())
    used = int(_read(_CGROUP / "memory.current") or 0) - int(stat.get("inactive_file", 0))
    return Memory(int(limit), max(0, min(machine.available, int(limit) - used)))


def visible_gpus() -> tuple[GpuFacts, ...]:
    """NVIDIA GPUs that this process may use, in the order of their numbers; none without the
    driver or the package nvidia-ml-py.
    """
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_gpu(pynvml, index) for index in _visible(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: object, index: int) -> GpuFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)  # type: ignore[attr-defined]
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)  # type: ignore[attr-defined]
    name = nvml.nvmlDeviceGetName(handle)  # type: ignore[attr-defined]
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return GpuFacts(text, int(memory.total), int(memory.free))


def _visible(count: int) -> list[int]:
    """Indices that CUDA_VISIBLE_DEVICES leaves; where it names devices by UUID, all of them."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return list(range(count))
    words = [word.strip() for word in wanted.split(",") if word.strip()]
    if all(word.lstrip("-").isdecimal() for word in words):
        # CUDA reads up to the first number that names no device.
        return list(takewhile(lambda index: 0 <= index < count, map(int, words)))
    return list(range(count))


def _versions() -> tuple[tuple[str, str], ...]:
    found = [("python", platform.python_version())]
    for module, package in _LIBRARIES.items():
        if module in sys.modules:
            try:
                found.append((package, importlib.metadata.version(package)))
            except importlib.metadata.PackageNotFoundError:
                continue
    return tuple(found)


def _cpu_name() -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
