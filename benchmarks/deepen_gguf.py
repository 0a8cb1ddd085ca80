"""A GGUF file with every block repeated. Knows GGUF metadata and tensors; runs no model."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from outrider.errors import InvalidArgumentError, NotFoundError

ARCHITECTURES = ("llama",)
"""Others write more, or something else, into the residual stream than the two scaled tensors."""

PREFIX = "outrider.deepened."
_BLOCK = re.compile(r"^blk\.(\d+)\.(.+)$")
_SCALED = ("attn_output", "ffn_down")
_FILE_TYPES = {"f32": 0, "f16": 1}
_REWRITTEN = (
    "general.architecture",
    "general.alignment",
    "general.file_type",
    "general.quantization_version",
    "general.size_label",
)


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of the new file: which one of the source it is, and its factor."""

    name: str
    source: Any
    scale: float
    dtype: type[np.floating[Any]]


def write_deepened(source: Path, target: Path, repeats: int, eps: float, dtype: str) -> None:
    """Writes `target`: each block of `source` `repeats` times, what the copies write times `eps`.

    Every tensor is `dtype`, f32 or f16 (vectors always f32), whatever it was in `source`. All
    metadata passes through but what speaks of the file's form; the block count is multiplied.
    Fields for the measured agreement are there and empty: `write_agreement` fills them. Raises
    NotFoundError or InvalidArgumentError for a file that is not there, no GGUF, of another
    architecture, or one part of several.
    """
    reader = _read(source)
    architecture = _text(reader, "general.architecture")
    if architecture not in ARCHITECTURES:
        raise InvalidArgumentError(
            f"{source} is of architecture {architecture!r}; only {', '.join(ARCHITECTURES)} can be "
            "deepened, whose blocks write into the residual stream by attn_output and ffn_down"
        )
    writer = gguf.GGUFWriter(target, architecture)
    _copy_metadata(reader, writer, f"{architecture}.block_count", repeats)
    writer.add_file_type(_FILE_TYPES[dtype])
    writer.add_string(f"{PREFIX}source", source.name)
    writer.add_uint32(f"{PREFIX}repeats", repeats)
    writer.add_float64(f"{PREFIX}eps", eps)
    writer.add_float64(f"{PREFIX}greedy_agreement", 0.0)
    writer.add_float64(f"{PREFIX}overlap", 0.0)
    writer.add_uint32(f"{PREFIX}positions", 0)
    tensors = list(_planned(reader, source, repeats, eps, dtype))
    for tensor in tensors:
        shape = [int(size) for size in reversed(tensor.source.shape)]
        elements = int(np.prod(shape))
        kind = np.dtype(tensor.dtype)
        writer.add_tensor_info(tensor.name, shape, kind, elements * kind.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(_values(tensor))
    writer.close()


def write_agreement(file: Path, greedy: float, overlap: float, positions: int) -> None:
    """Fills in what was measured, in the place that `write_deepened` left for it."""
    reader = gguf.GGUFReader(file, "r+")
    for name, value in (
        ("greedy_agreement", greedy),
        ("overlap", overlap),
        ("positions", positions),
    ):
        field = reader.get_field(f"{PREFIX}{name}")
        if field is None:
            raise InvalidArgumentError(f"{file} is no deepened model: it has no {PREFIX}{name}")
        field.parts[field.data[0]][0] = value
    reader.data.flush()


def read_deepening(file: Path) -> dict[str, str | int | float]:
    """What a deepened file tells of itself, by name without the prefix; empty for another one."""
    reader = _read(file)
    return {
        name.removeprefix(PREFIX): field.contents()
        for name, field in reader.fields.items()
        if name.startswith(PREFIX)
    }


def _read(source: Path) -> gguf.GGUFReader:
    if not source.is_file():
        raise NotFoundError(f"{source} is no file; give a GGUF file")
    try:
        return gguf.GGUFReader(source, "r")
    except (ValueError, IndexError, KeyError) as error:
        raise InvalidArgumentError(
            f"{source} cannot be read as GGUF ({error}); it is damaged, or another kind of file"
        ) from error


def _text(reader: gguf.GGUFReader, name: str) -> str:
    field = reader.get_field(name)
    return "" if field is None else str(field.contents())


def _copy_metadata(
    reader: gguf.GGUFReader, writer: gguf.GGUFWriter, block_count: str, repeats: int
) -> None:
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in _REWRITTEN:
            continue
        value, kind = field.contents(), field.types[0]
        is_array = kind == gguf.GGUFValueType.ARRAY
        if is_array and not value:
            continue  # The writer has no empty arrays; readers take a missing one for empty.
        if name == block_count:
            value *= repeats
        writer.add_key_value(name, value, kind, sub_type=field.types[-1] if is_array else None)


def _planned(
    reader: gguf.GGUFReader, source: Path, repeats: int, eps: float, dtype: str
) -> Iterator[_Tensor]:
    split = reader.get_field("split.count")
    if split is not None and split.contents() > 1:
        raise InvalidArgumentError(
            f"{source} is one of {split.contents()} parts; join them first with "
            "llama-gguf-split --merge"
        )
    wide = np.float32 if dtype == "f32" else np.float16
    blocks: dict[int, list[tuple[str, Any]]] = {}
    for tensor in reader.tensors:
        block = _BLOCK.match(tensor.name)
        if block is not None:
            blocks.setdefault(int(block[1]), []).append((block[2], tensor))
        else:
            yield _Tensor(tensor.name, tensor, 1.0, wide if len(tensor.shape) > 1 else np.float32)
    for number in sorted(blocks):
        present = {name.partition(".")[0] for name, _ in blocks[number]}
        if not present.issuperset(_SCALED):
            raise InvalidArgumentError(
                f"block {number} of {source} has no {' and no '.join(set(_SCALED) - present)}: "
                "such blocks, a mixture of experts for one, cannot be deepened"
            )
        for copy in range(repeats):
            for name, tensor in blocks[number]:
                scale = eps if copy and name.partition(".")[0] in _SCALED else 1.0
                kind = wide if len(tensor.shape) > 1 else np.float32
                yield _Tensor(f"blk.{number * repeats + copy}.{name}", tensor, scale, kind)


def _values(tensor: _Tensor) -> NDArray[np.floating[Any]]:
    values: NDArray[np.float32] = gguf.dequantize(tensor.source.data, tensor.source.tensor_type)
    if tensor.scale != 1.0:
        values = values * np.float32(tensor.scale)
    return values.astype(tensor.dtype, copy=False)
