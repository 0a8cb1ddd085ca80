"""Which backend runs which model. Imports a backend only when it is asked for."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from outrider.errors import InvalidArgumentError
from outrider.models.options import ModelOptions

if TYPE_CHECKING:
    from outrider.models.base import CausalModel

__all__ = ["ModelOptions", "load_model"]

_LOADERS = {
    "hf": "outrider.models.hf:load",
    "llamacpp": "outrider.models.llamacpp:load",
    "ngram": "outrider.models.ngram:load",
    "scripted": "outrider.models.scripted:load",
}


def split_spec(spec: str) -> tuple[str, str]:
    """The backend that runs `spec`, and what it is told.

    >>> split_spec("org/model"), split_spec("org/model/file.gguf"), split_spec("ngram:n=4")
    (('hf', 'org/model'), ('llamacpp', 'org/model/file.gguf'), ('ngram', 'n=4'))
    """
    backend, separator, argument = spec.partition(":")
    if separator and not _is_path(spec):
        return backend, argument
    if spec in ("ngram", "scripted"):
        return spec, ""
    return ("llamacpp" if spec.lower().endswith(".gguf") else "hf"), spec


def _is_path(spec: str) -> bool:
    """A file or folder may have a colon in its name."""
    return spec.startswith(("/", "./", "../", "~"))


def known_backend(spec: str) -> str:
    """The backend that runs `spec`; raises InvalidArgumentError where none has the name."""
    backend, _ = split_spec(spec)
    if backend not in _LOADERS:
        raise InvalidArgumentError(
            f"model {spec!r} names the backend {backend!r}; known backends are "
            f"{', '.join(sorted(_LOADERS))}. A hub name (org/name), a folder, a GGUF file or a "
            "packaged model (smollm2, smollm2.gguf) needs no backend"
        )
    return backend


def load_model(spec: str, options: ModelOptions | None = None) -> "CausalModel":
    """Loads `backend:argument`, or a bare name: `llamacpp` runs what ends in .gguf, `hf` the rest.

    >>> load_model("scripted:vocab=16").info.backend
    'scripted'
    """
    _, argument = split_spec(spec)
    backend = known_backend(spec)
    module, function = _LOADERS[backend].split(":")
    load = cast(
        "Callable[[str, ModelOptions], CausalModel]",
        getattr(importlib.import_module(module), function),
    )
    return load(argument, options or ModelOptions())
