"""Whether a model fits where it is to be loaded: weights and KV cache against the memory there is.

What can never fit is refused before it is loaded. What may work is loaded with a warning: memory
that others have now may be free in a minute, and the weights of a mapped file can be read again.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from outrider.errors import CapacityError
from outrider.host import HostFacts
from outrider.models.footprint import WEIGHTLESS, Footprint, footprint
from outrider.models.options import ModelOptions
from outrider.models.registry import split_spec
from outrider.telemetry.logs import get_logger

NEARLY = 0.9
"""From this share of the memory on there is hardly room left for anything else."""

_OFFLOADING = ("cuda", "hip", "vulkan", "sycl", "metal")


class Fit(Enum):
    """How a model fits."""

    FITS = "fits"
    TIGHT = "tight"
    SLOW = "slow"
    TOO_BIG = "too big"
    UNKNOWN = "unknown"
    MISSING = "unusable"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model goes: main memory, or graphics memory, which pages nothing.

    `share` of the model goes there. Total 0: unknown.
    """

    name: str
    total_bytes: int
    available_bytes: int
    is_gpu: bool = False
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Room:
    """The outcome for one model and one place; `sentence` has need, have and what to do."""

    fit: Fit
    sentence: str
    need_bytes: int = 0
    is_gpu: bool = False


def judge(model: str, taken: Footprint, kv_tokens: int, place: Place) -> Room:
    """Whether a model with this footprint fits. Pure.

    Only what exceeds the whole memory is too big: what others have of it now may be given back. A
    mapped file is judged by its KV cache alone, and is slow where the file does not fit.
    """
    kv_bytes = taken.kv_bytes(kv_tokens)
    if taken.is_missing:
        return Room(Fit.MISSING, f"{model} cannot be used: {taken.unknown}")
    if taken.weights_bytes == 0 and kv_bytes == 0:
        return Room(Fit.FITS, f"{model} has no weights and no KV cache worth counting")
    if taken.weights_bytes is None or kv_bytes is None:
        return Room(Fit.UNKNOWN, f"whether {model} fits is unknown: {taken.unknown}")
    need = int((taken.weights_bytes + kv_bytes) * place.share) + taken.work_bytes
    needed = (
        f"{model} needs {_size(need)} (weights {_size(taken.weights_bytes)}, KV cache of "
        f"{kv_tokens} tokens {'up to ' if taken.has_windows else ''}{_size(kv_bytes)}"
        f"{f', {place.share:.0%} of it there' if place.share < 1 else ''})"
    )
    if not place.total_bytes:
        return Room(Fit.UNKNOWN, f"{needed}; how much memory there is, is unknown", need)
    have = f"{place.name} has {_size(place.total_bytes)}, {_size(place.available_bytes)} of it free"
    if need > place.total_bytes:
        if taken.is_mapped and not place.is_gpu and kv_bytes <= NEARLY * place.total_bytes:
            return Room(
                Fit.SLOW,
                f"{needed} and {have}: it would be read from the disk again in every pass, which "
                "takes seconds a token; use a smaller or more quantised model",
                need,
            )
        return Room(Fit.TOO_BIG, f"{needed} and {have}: {_remedy(taken, kv_bytes, place)}", need)
    if need > place.available_bytes:
        return Room(
            Fit.TIGHT, f"{needed} and {have}: end what else runs there, or lower --kv-tokens", need
        )
    if need > NEARLY * place.total_bytes:
        return Room(
            Fit.TIGHT,
            f"{needed} and {have}: that leaves hardly anything for the work itself; lower "
            "--kv-tokens",
            need,
        )
    return Room(Fit.FITS, f"{needed}; {have}", need)


def judge_together(rooms: Sequence[Room], place: Place) -> Room | None:
    """Whether all models that go to main memory fit there at once; None where they are fewer than
    two, or one of them is unknown or does not fit by itself. Pure.
    """
    here = [room for room in rooms if room.need_bytes and not room.is_gpu]
    if len(here) < 2 or not all(room.fit in (Fit.FITS, Fit.TIGHT) for room in here):
        return None
    need = sum(room.need_bytes for room in here)
    told = (
        f"all of them need {_size(need)}; {place.name} has {_size(place.total_bytes)}, "
        f"{_size(place.available_bytes)} of it free"
    )
    if need > place.total_bytes:
        return Room(Fit.TOO_BIG, f"{told}: put the draft on another machine", need)
    if need > min(place.available_bytes, NEARLY * place.total_bytes):
        return Room(Fit.TIGHT, f"{told}: end what else runs here, or lower --kv-tokens", need)
    return Room(Fit.FITS, told, need)


def check_room(spec: str, options: ModelOptions, host: HostFacts, *, is_skipped: bool) -> Footprint:
    """Logs one line about need and have, and returns the footprint.

    Raises CapacityError for what is too big, unless the check `is_skipped`.
    """
    backend, _ = split_spec(spec)
    if backend in WEIGHTLESS:
        return Footprint()
    taken, room = room_for(spec, options, host)
    if options.threads > host.cores > 0:
        get_logger().warning("threads", threads=options.threads, cores=host.cores)
    log = (
        get_logger().info
        if room.fit in (Fit.FITS, Fit.UNKNOWN, Fit.MISSING)
        else get_logger().warning
    )
    log("memory", fit=room.fit.value, told=room.sentence)
    if room.fit is Fit.TOO_BIG and not is_skipped:
        raise CapacityError(f"{room.sentence}. --skip-memory-check loads it all the same")
    return taken


def room_for(spec: str, options: ModelOptions, host: HostFacts) -> tuple[Footprint, Room]:
    """The footprint of a model, and whether it fits where the options put it on this host."""
    indices = _gpus_for(spec, options, host)
    taken = footprint(spec, options, is_on_gpu=bool(indices))
    place = place_of(host, indices, _share(taken, options))
    room = judge(spec, taken, options.kv_tokens, place)
    return taken, replace(room, is_gpu=place.is_gpu)


def place_of(host: HostFacts, gpus: tuple[int, ...] = (), share: float = 1.0) -> Place:
    """Main memory of a host, or those of its graphics processors together."""
    if not gpus:
        return Place("this machine", host.memory_total_bytes, host.memory_available_bytes)
    chosen = [host.gpus[index] for index in gpus]
    name = chosen[0].name if len(chosen) == 1 else f"{len(chosen)} GPUs together"
    return Place(
        name,
        sum(gpu.total_bytes for gpu in chosen),
        sum(gpu.free_bytes for gpu in chosen),
        is_gpu=True,
        share=share,
    )


def _gpus_for(spec: str, options: ModelOptions, host: HostFacts) -> tuple[int, ...]:
    """Indices of the graphics processors that the model goes to; none: to main memory."""
    if not host.gpus:
        return ()
    everywhere = tuple(range(len(host.gpus)))
    backend, _ = split_spec(spec)
    if backend == "llamacpp":
        return everywhere if options.n_gpu_layers and _llamacpp_offloads() else ()
    if options.device_map:
        return everywhere
    kind, _, number = options.device.partition(":")
    if kind == "auto":
        return _numbered(0, host) if _torch_has_cuda() else ()
    if kind != "cuda":
        return ()
    index = int(number) if number.isdecimal() else 0
    return _numbered(index, host)


def _numbered(index: int, host: HostFacts) -> tuple[int, ...]:
    """CUDA numbers devices by their speed unless told to go by their place, as the driver's facts
    do: where they differ, the largest is meant, so that nothing that fits is refused.
    """
    by_place = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    sizes = [gpu.total_bytes for gpu in host.gpus]
    if index >= len(sizes):
        return ()
    return (index,) if by_place or len(set(sizes)) == 1 else (sizes.index(max(sizes)),)


def _share(taken: Footprint, options: ModelOptions) -> float:
    """How much of a model goes to the GPU where only some of its layers do."""
    if options.n_gpu_layers > 0 and taken.layers:
        return min(1.0, options.n_gpu_layers / taken.layers)
    return 1.0


def _torch_has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def _llamacpp_offloads() -> bool:
    """Whether llama.cpp was built for GPUs, told by the libraries that came with it."""
    if sys.platform == "darwin":
        return True
    found = find_spec("llama_cpp")
    folders = found.submodule_search_locations if found is not None else None
    names = [file.name.lower() for folder in folders or () for file in Path(folder).glob("lib/*")]
    return any(word in name for name in names for word in _OFFLOADING)


def _remedy(taken: Footprint, kv_bytes: int, place: Place) -> str:
    weights = taken.weights_bytes or 0
    if weights * place.share < NEARLY * place.total_bytes and taken.kv_bytes_per_token:
        room = NEARLY * place.total_bytes / place.share - weights
        tokens = int(room / taken.kv_bytes_per_token) // 64 * 64
        if tokens >= 64:
            return f"it cannot be loaded; --kv-tokens {tokens} would fit"
    if place.is_gpu and taken.is_mapped:
        return "it cannot be loaded; give fewer --n-gpu-layers, or a smaller model"
    return "it cannot be loaded; use a smaller or more quantised model"


def _size(count: float) -> str:
    """Bytes for people.

    >>> _size(3_900_000_000), _size(250_000)
    ('3.9 GB', '0.2 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
