"""Weights and KV of a transformers checkpoint: the headers of its safetensors files, and the shape
in its config.json.
"""

import json
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.errors import InvalidArgumentError, NotFoundError, UnavailableError
from outrider.models.footprint import Footprint
from outrider.models.options import ModelOptions

BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_SAFETENSORS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2}
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_MOST_HEADER_BYTES = 2**27
_INDEX = "model.safetensors.index.json"
_ONE_FILE = "model.safetensors"

Numbers = Mapping[str, int]
"""How many numbers a checkpoint has of each safetensors type."""


def hf_footprint(argument: str, options: ModelOptions, *, is_on_gpu: bool) -> Footprint:
    """Of a folder, a packaged model that was fetched before, or a hub name, from the hub's cache or
    from what the hub tells.

    Raises UnavailableError where none of them knows, InvalidArgumentError for damaged files.
    """
    folder = _folder(argument, options)
    if folder is not None:
        return measured(_config(folder / "config.json"), _numbers(folder), options, is_on_gpu)
    config, numbers = _from_hub(argument, options)
    return measured(config, numbers, options, is_on_gpu)


def measured(
    config: Mapping[str, Any], numbers: Numbers, options: ModelOptions, is_on_gpu: bool
) -> Footprint:
    """The footprint of a checkpoint with this configuration and so many numbers of each type. Pure.

    A quantised one is counted as its files are; loading may need more for a moment.
    """
    stored = sum(count * _SAFETENSORS.get(kind, 1) for kind, count in numbers.items())
    checkpoint = _FLOATS.get(_most_common(numbers), "float32")
    dtype = options.dtype
    is_quantised = bool(options.quantization or config.get("quantization_config"))
    if dtype == "auto":
        dtype = checkpoint if is_on_gpu or is_quantised else "float32"
    if dtype not in BYTES:
        raise InvalidArgumentError(f"dtype is {dtype!r}; give auto or {', '.join(BYTES)}")
    kept = sum(n * _SAFETENSORS.get(k, 1) for k, n in numbers.items() if k not in _FLOATS)
    floats = sum(count for kind, count in numbers.items() if kind in _FLOATS)
    text = config.get("text_config") or config
    kv = kv_numbers_per_token(text)
    return Footprint(
        weights_bytes=stored if is_quantised else floats * BYTES[dtype] + kept,
        kv_bytes_per_token=None if kv is None else kv * BYTES[dtype],
        unknown="" if kv is not None else "config.json does not tell its attention heads",
        has_windows=bool(text.get("sliding_window"))
        and text.get("use_sliding_window") is not False,
        layers=_first(text, "num_hidden_layers", "n_layer"),
    )


def kv_numbers_per_token(config: Mapping[str, Any]) -> int | None:
    """Layers x KV heads x head size x 2; None where the configuration lacks one of them."""
    layers = _first(config, "num_hidden_layers", "n_layer")
    heads = _first(config, "num_attention_heads", "n_head")
    kv_heads = _first(config, "num_key_value_heads") or heads
    size = _first(config, "head_dim")
    if not size and heads:
        size = _first(config, "hidden_size", "n_embd") // heads
    return 2 * layers * kv_heads * size or None


def file_sizes(repository: str, options: ModelOptions) -> dict[str, int]:
    """Bytes of each file of a hub repository, as the hub tells them."""
    return {file.rfilename: int(file.size or 0) for file in _hub_info(repository, options).siblings}


def _folder(argument: str, options: ModelOptions) -> Path | None:
    """Where the checkpoint lies on this machine; None where it is not here, or not all of it."""
    from outrider.models.packaged import PACKAGED, cached

    if argument in PACKAGED:
        folder = cached(argument)
        if folder is None:
            raise UnavailableError(f"{argument} was not fetched yet; it is when it is served")
        return folder
    path = Path(argument).expanduser()
    if path.is_dir():
        return path
    revision = options.revision or None
    for name in (_INDEX, _ONE_FILE):
        found = in_hub_cache(argument, name, revision)
        if found is not None and _is_whole(found):
            return found.parent
    return None


def in_hub_cache(repository: str, name: str, revision: str | None) -> Path | None:
    """A file of a hub repository that was fetched before.

    Raises NotFoundError for what can be no name of a repository.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repository, name, revision=revision)
    except HFValidationError as error:
        raise NotFoundError(f"there is no {repository!r} here and none on the hub") from error
    return Path(found) if isinstance(found, str) else None


def _is_whole(path: Path) -> bool:
    """Whether the configuration and every file that an index names lie beside it."""
    return (path.parent / "config.json").is_file() and all(
        file.is_file() for file in _weight_files(path.parent)
    )


def _weight_files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.is_file():
        names = _json(index).get("weight_map", {}).values()
        return [folder / name for name in sorted(set(names))]
    one = folder / _ONE_FILE
    return [one] if one.is_file() else sorted(folder.glob("*.safetensors"))


def _numbers(folder: Path) -> Numbers:
    files = _weight_files(folder)
    if not files:
        raise UnavailableError(f"{folder.name} has no safetensors weights")
    counts: Counter[str] = Counter()
    for file in files:
        counts.update(_numbers_of(file))
    return counts


def _numbers_of(path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            if size > _MOST_HEADER_BYTES:
                raise ValueError("its header is too long")
            header = json.loads(file.read(size))
        for name, tensor in header.items():
            if name != "__metadata__":
                count = 1
                for length in tensor["shape"]:
                    count *= length
                counts[tensor["dtype"]] += count
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"{path.name} is damaged or cut off in its header ({error}); fetch it again"
        ) from error
    return counts


def _from_hub(name: str, options: ModelOptions) -> tuple[Mapping[str, Any], Numbers]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    info = _hub_info(name, options)
    if info.safetensors is None:
        raise UnavailableError(f"the hub does not tell how many weights {name} has")
    try:
        config = hf_hub_download(name, "config.json", revision=options.revision or None)
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise UnavailableError(f"config.json of {name} cannot be had: {error}") from error
    return _config(Path(config)), dict(info.safetensors.parameters)


def _hub_info(name: str, options: ModelOptions) -> Any:
    from huggingface_hub import HfApi

    from outrider.models.hf_source import HUB_TIMEOUT_S

    try:
        return HfApi().model_info(
            name,
            revision=options.revision or None,
            timeout=HUB_TIMEOUT_S,
            files_metadata=True,
        )
    except (
        Exception
    ) as error:  # the hub's client changes its HTTP library, and errors, now and then
        raise UnavailableError(
            f"the hub does not tell the size of {name} ({type(error).__name__})"
        ) from error


def _config(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise UnavailableError(f"{path.parent.name} has no config.json")
    return _json(path)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidArgumentError(f"{path.name} is no valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"{path.name} holds no JSON object")
    return value


def _first(config: Mapping[str, Any], *names: str) -> int:
    return next((config[name] for name in names if isinstance(config.get(name), int)), 0)


def _most_common(numbers: Numbers) -> str:
    floats = {kind: count for kind, count in numbers.items() if kind in _FLOATS}
    return max(floats, key=floats.__getitem__, default="F32")
