"""A transformers checkpoint with every block repeated. Knows its folder and tensors; runs none."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from outrider.errors import InvalidArgumentError, NotFoundError

MODEL_TYPES = ("llama",)
"""Others write more, or something else, into the residual stream than the two scaled tensors."""

KEY = "outrider_deepened"
_BLOCK = re.compile(r"^model\.layers\.(\d+)\.(.+)\.(?:weight|bias)$")
_SCALED = ("self_attn.o_proj", "mlp.down_proj")
_DTYPES = {"f32": torch.float32, "f16": torch.float16}


def write_deepened(source: Path, target: Path, repeats: int, eps: float, dtype: str) -> None:
    """Fills the folder `target`: each block of `source` `repeats` times, the copies' output times
    `eps`, all weights in `dtype`, f32 or f16. `write_agreement` adds what is measured.

    Raises NotFoundError for a folder without config.json or with weights in more or other files
    than model.safetensors, InvalidArgumentError for another model type.
    """
    config = _config(source)
    if config.get("model_type") not in MODEL_TYPES:
        raise InvalidArgumentError(
            f"{source} is of model type {config.get('model_type')!r}; only "
            f"{', '.join(MODEL_TYPES)} can be deepened, whose blocks write into the residual "
            "stream by o_proj and down_proj"
        )
    weights = source / "model.safetensors"
    if not weights.is_file():
        raise NotFoundError(f"{source} has no model.safetensors; give a model with that one file")
    for file in source.iterdir():
        if file.suffix in (".json", ".jinja") and file.name not in ("config.json", "outrider.json"):
            shutil.copy(file, target / file.name)
    config["num_hidden_layers"] *= repeats
    config["dtype"] = str(_DTYPES[dtype]).removeprefix("torch.")
    config[KEY] = {"source": source.name, "repeats": repeats, "eps": eps}
    _write_config(target, config)
    repeated = _repeated(load_file(weights), repeats, eps, _DTYPES[dtype])
    save_file(repeated, target / "model.safetensors", metadata={"format": "pt"})


def write_agreement(folder: Path, greedy: float, overlap: float, positions: int) -> None:
    """Adds what was measured."""
    config = _config(folder)
    measured = {"greedy_agreement": greedy, "overlap": overlap, "positions": positions}
    _write_config(folder, {**config, KEY: {**config[KEY], **measured}})


def read_deepening(folder: Path) -> dict[str, str | int | float]:
    """What a deepened checkpoint tells of itself; empty for another one."""
    told: dict[str, str | int | float] = _config(folder).get(KEY, {})
    return told


def _config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotFoundError(
            f"{folder} has no config.json that can be read ({error}); give a transformers folder"
        ) from error
    return config


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    text = json.dumps(config, indent=1) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")


def _repeated(
    weights: dict[str, torch.Tensor], repeats: int, eps: float, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    repeated: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        block = _BLOCK.match(name)
        if block is None:
            repeated[name] = weight.to(dtype)
            continue
        inside = name.removeprefix(f"model.layers.{block[1]}.")
        for copy in range(repeats):
            scale = eps if copy and block[2] in _SCALED else 1.0
            number = int(block[1]) * repeats + copy
            # Copies of their own: safetensors refuses tensors that share memory.
            repeated[f"model.layers.{number}.{inside}"] = (weight * scale).to(dtype)
    return repeated
