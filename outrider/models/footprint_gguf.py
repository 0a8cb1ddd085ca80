"""Weights and KV of a GGUF model: the sizes of its files, and the shape in its header."""

from collections.abc import Mapping
from pathlib import Path

from outrider.errors import NotFoundError
from outrider.models.footprint import Footprint, unknown
from outrider.models.gguf_header import Value, read_header
from outrider.models.llamacpp_sizes import PASS_ROWS, SPARE_SHARE
from outrider.models.llamacpp_source import Part
from outrider.models.options import ModelOptions

KV_BYTES = {"auto": 2.0, "f16": 2.0, "f32": 4.0, "q8_0": 34 / 32}
"""Bytes of a number in the KV cache; q8_0 has a scale of two bytes for each block of 32."""


_MOST, _MOST_LAYERS = 2**32, 4096
"""A damaged header is no reason to run out of memory."""


def gguf_footprint(argument: str, options: ModelOptions) -> Footprint:
    """Of a file, a packaged model that was fetched before, or a file of a hub repository.

    Raises NotFoundError for what is none of them, InvalidArgumentError for a damaged header.
    """
    path = _local(argument, options)
    if path is None:
        return _on_hub(argument, options)
    parts = _parts_of(path)
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise NotFoundError(f"{missing[0]}, a part of {path.name}, is missing beside it")
    header = read_header(parts[0])
    kv_bytes = kv_bytes_per_token(header, options.kv_dtype)
    return Footprint(
        weights_bytes=sum(part.stat().st_size for part in parts),
        kv_bytes_per_token=kv_bytes,
        unknown="" if kv_bytes is not None else f"{path.name} does not tell its attention heads",
        is_mapped=True,
        has_windows=bool(_of(header, "attention.sliding_window")),
        layers=_whole(_of(header, "block_count")),
        spare_share=1 / SPARE_SHARE,
        # Logits of the rows of a pass, and the graph's own copy of them.
        work_bytes=2 * PASS_ROWS * _whole(_of(header, "vocab_size")) * 4,
    )


def kv_bytes_per_token(header: Mapping[str, Value], kv_dtype: str) -> int | None:
    """Keys and values of every layer for one token: heads x (key length + value length) x bytes.

    None where the header lacks the shape. Heads may differ by layer.
    """
    layers = _whole(_of(header, "block_count"))
    query_heads = _per_layer(_of(header, "attention.head_count"), layers)
    heads = _per_layer(_of(header, "attention.head_count_kv"), layers) or query_heads
    if not layers or not heads or not query_heads:
        return None
    width = _whole(_of(header, "embedding_length")) // max(max(query_heads), 1)
    key = _whole(_of(header, "attention.key_length")) or width
    value = _whole(_of(header, "attention.value_length")) or width
    if not key or not value:
        return None
    return round(sum(heads) * (key + value) * KV_BYTES[kv_dtype])


def _parts_of(path: Path) -> list[Path]:
    """All files of a split model, of which `path` is one; of any other file itself."""
    part = Part.of(path.name)
    return [path] if part is None else [path.with_name(name) for name in part.names()]


def _of(header: Mapping[str, Value], key: str) -> Value | None:
    return header.get(f"{header.get('general.architecture', '')}.{key}")


def _whole(value: Value | None) -> int:
    return value if isinstance(value, int) and value < _MOST else 0


def _per_layer(value: Value | None, layers: int) -> list[int]:
    if isinstance(value, tuple):
        return [_whole(number) for number in value]
    return [_whole(value)] * layers if value and layers <= _MOST_LAYERS else []


def _local(argument: str, options: ModelOptions) -> Path | None:
    """The file that `argument` names, where it is on this machine already."""
    from outrider.models.footprint_hf import in_hub_cache
    from outrider.models.packaged_gguf import PACKAGED_GGUF, cached_gguf

    path = Path(argument).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise NotFoundError(f"{argument!r} is a folder; name a file in it")
    if argument in PACKAGED_GGUF:
        return cached_gguf(argument)
    repository, _, name = _hub_parts(argument)
    if not repository:
        raise NotFoundError(f"there is no file {argument!r}")
    return in_hub_cache(repository, name, options.revision or None)


def _on_hub(argument: str, options: ModelOptions) -> Footprint:
    from outrider.models.footprint_hf import file_sizes

    repository, _, name = _hub_parts(argument)
    if not repository:
        return unknown(f"{argument} was not fetched yet; it is when it is served")
    sizes = file_sizes(repository, options)
    wanted = [part.as_posix() for part in _parts_of(Path(name))]
    if any(part not in sizes for part in wanted):
        raise NotFoundError(f"{repository} on the hub has no file {name}")
    return Footprint(
        weights_bytes=sum(sizes[part] for part in wanted),
        kv_bytes_per_token=None,
        unknown=f"the KV of {name} is known once it was fetched",
        is_mapped=True,
    )


def _hub_parts(argument: str) -> tuple[str, str, str]:
    """Repository and file of `org/name/path/file.gguf`; empty where it has no such form."""
    words = argument.split("/")
    if len(words) < 3 or not all(words):
        return "", "", ""
    return "/".join(words[:2]), "/", "/".join(words[2:])
