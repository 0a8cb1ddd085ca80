"""How a model is loaded; imports nothing heavy, so that settings can be read quickly."""

from dataclasses import dataclass, fields

from outrider.errors import InvalidArgumentError

HONOURED = {
    "hf": (
        *("dtype", "device", "device_map", "quantization", "threads", "kv_tokens"),
        *("context_tokens", "revision", "trust_remote_code"),
    ),
    "llamacpp": ("threads", "n_gpu_layers", "kv_dtype", "kv_tokens", "context_tokens", "revision"),
    "ngram": ("kv_tokens", "context_tokens"),
    "scripted": ("kv_tokens", "context_tokens"),
}
"""The options of each backend."""

DTYPES = ("float32", "bfloat16", "float16", "float64")
KV_DTYPES = ("f16", "f32", "q8_0")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is loaded; each backend refuses what it cannot honour."""

    dtype: str = "auto"
    device: str = "auto"
    device_map: str = ""
    quantization: str = ""
    threads: int = 0
    n_gpu_layers: int = -1
    kv_dtype: str = "auto"
    kv_tokens: int = 16384
    context_tokens: int = 0
    revision: str = ""
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        lowest = (("threads", 0), ("n_gpu_layers", -1), ("kv_tokens", 1), ("context_tokens", 0))
        for name, low in lowest:
            value = getattr(self, name)
            if value < low:
                raise InvalidArgumentError(
                    f"{name} is {value}; give a whole number of at least {low}"
                )
        for name, known in (("dtype", DTYPES), ("kv_dtype", KV_DTYPES)):
            value = getattr(self, name)
            if value not in ("auto", *known):
                raise InvalidArgumentError(f"{name} is {value!r}; give auto or {', '.join(known)}")


def changed(options: ModelOptions) -> list[str]:
    """Names of the options that are not as they are by default."""
    return [o.name for o in fields(options) if getattr(options, o.name) != o.default]


def refuse_options(backend: str, options: ModelOptions) -> None:
    """Raises InvalidArgumentError naming the options that are set and `backend` cannot honour."""
    refused = [name for name in changed(options) if name not in HONOURED[backend]]
    if refused:
        raise InvalidArgumentError(
            f"the {backend} backend cannot honour {', '.join(refused)}; leave it unset, or use "
            "another backend"
        )


def lowered_context(model_tokens: int, wanted_tokens: int) -> int:
    """The context to use: the model's own, or the lower one that `context_tokens` asks for.

    >>> lowered_context(8192, 0), lowered_context(8192, 4096)
    (8192, 4096)
    """
    if wanted_tokens > model_tokens:
        raise InvalidArgumentError(
            f"context_tokens is {wanted_tokens}; give 1 to {model_tokens}, the model's own "
            "context, "
            "or 0 for that"
        )
    return wanted_tokens or model_tokens
