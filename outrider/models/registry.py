"""Which backend runs which model. Imports a backend only when it is asked for."""

import importlib
from collections.abc import Callable
from typing import cast

from outrider.errors import InvalidArgumentError
from outrider.models.base import CausalModel
from outrider.models.options import ModelOptions

__all__ = ["ModelOptions", "load_model"]

_LOADERS = {
    "hf": "outrider.models.hf:load",
    "ngram": "outrider.models.ngram:load",
    "scripted": "outrider.models.scripted:load",
}


def load_model(spec: str, options: ModelOptions | None = None) -> CausalModel:
    """Loads `backend:argument`, or a bare hub name, folder or packaged model, which `hf` runs.

    >>> load_model("scripted:vocab=16").info.backend
    'scripted'
    """
    backend, separator, argument = spec.partition(":")
    if not separator:
        backend, argument = (spec, "") if spec in _LOADERS and spec != "hf" else ("hf", spec)
    if backend not in _LOADERS:
        raise InvalidArgumentError(
            f"model {spec!r} names the backend {backend!r}; known backends are "
            f"{', '.join(sorted(_LOADERS))}. A hub name (org/name), a folder or a packaged model "
            "(smollm2) needs no backend"
        )
    module, function = _LOADERS[backend].split(":")
    load = cast(
        "Callable[[str, ModelOptions], CausalModel]",
        getattr(importlib.import_module(module), function),
    )
    return load(argument, options or ModelOptions())
