"""Which backend runs which model. Imports a backend only when it is asked for."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from outrider.errors import InvalidArgumentError
from outrider.models.base import CausalModel


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is loaded; each backend refuses what it cannot honour."""

    dtype: str = "auto"
    device: str = "auto"
    device_map: str = ""
    quantization: str = ""
    threads: int = 0
    kv_tokens: int = 16384
    context_tokens: int = 0
    revision: str = ""
    trust_remote_code: bool = False


_LOADERS = {
    "hf": "outrider.models.hf:load",
    "ngram": "outrider.models.ngram:load",
    "scripted": "outrider.models.scripted:load",
}


def load_model(spec: str, options: ModelOptions | None = None) -> CausalModel:
    """Loads `backend:argument`, or a bare hub name, folder or packaged model, which the `hf` backend runs.

    >>> load_model("scripted:vocab=16").info.backend
    'scripted'
    """
    backend, separator, argument = spec.partition(":")
    if not separator:
        backend, argument = (spec, "") if spec in _LOADERS and spec != "hf" else ("hf", spec)
    if backend not in _LOADERS:
        raise InvalidArgumentError(
            f"model {spec!r} names the backend {backend!r}; known backends are {', '.join(sorted(_LOADERS))}. "
            "A hub name (org/name), a folder or a packaged model (smollm2) needs no backend"
        )
    module, function = _LOADERS[backend].split(":")
    load = cast(
        "Callable[[str, ModelOptions], CausalModel]",
        getattr(importlib.import_module(module), function),
    )
    return load(argument, options or ModelOptions())
