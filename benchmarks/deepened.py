"""A bigger target with a controllable draft, made out of a small checkpoint.

Every transformer block is repeated, and the copies write less into the residual stream: their
attention output and MLP down projections are scaled by `eps`. So the target has `repeats` times the
blocks and the time, and drifts from the original, its draft, as `eps` grows.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from outrider.models.base import CausalModel, Feed
from outrider.models.packaged_cache import cache_folder

_BLOCK = re.compile(r"^model\.layers\.(\d+)\.(.+)$")
_SCALED = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


@dataclass(frozen=True)
class Deepening:
    """How often each block occurs, and the scale of what its copies write."""

    repeats: int = 2
    eps: float = 0.1


def deepened(source: Path, deepening: Deepening) -> Path:
    """The folder of the deepened checkpoint, made where it is missing.

    `source` is a folder that transformers loads, of a Llama-like model in one safetensors file.
    """
    name = f"{source.name}-deepened-{deepening.repeats}-{deepening.eps:g}"
    folder = cache_folder() / name
    if folder.exists():
        return folder
    partial = Path(tempfile.mkdtemp(prefix=f"{name}.partial-", dir=folder.parent))
    try:
        for file in source.iterdir():
            if file.suffix in (".json", ".jinja"):
                shutil.copy(file, partial / file.name)
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        config["num_hidden_layers"] *= deepening.repeats
        (partial / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
        weights = _repeated(load_file(source / "model.safetensors"), deepening)
        save_file(weights, partial / "model.safetensors", metadata={"format": "pt"})
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _repeated(weights: dict[str, torch.Tensor], deepening: Deepening) -> dict[str, torch.Tensor]:
    repeated: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        block = _BLOCK.match(name)
        if block is None:
            repeated[name] = weight
            continue
        for copy in range(deepening.repeats):
            scale = deepening.eps if copy > 0 and block[2] in _SCALED else 1.0
            number = int(block[1]) * deepening.repeats + copy
            repeated[f"model.layers.{number}.{block[2]}"] = weight * scale
    return repeated


def overlap(draft: CausalModel, target: CausalModel, texts: Sequence[Sequence[int]]) -> float:
    """Mean of 1 - TV(p, q) = sum of min(p, q) over all positions of the texts, at temperature 1."""
    both = []
    for token_ids in texts:
        rows = [_rows(model, token_ids) for model in (draft, target)]
        width = min(row.shape[-1] for row in rows)
        q, p = (row[:, :width].double().softmax(dim=-1) for row in rows)
        both.append(torch.minimum(p, q).sum(dim=-1))
    return float(torch.cat(both).mean())


def _rows(model: CausalModel, token_ids: Sequence[int]) -> torch.Tensor:
    sequence = model.open(())
    (rows,) = model.forward([Feed.chain(sequence, token_ids, range(len(token_ids)))])
    model.close(sequence)
    return rows
