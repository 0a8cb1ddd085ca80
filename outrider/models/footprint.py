"""What a model takes in memory, told before it is loaded: bytes of weights, and of KV cache for
each token.

Reads headers and configurations only, and never fetches weights. What cannot be known that way is
unknown, with the reason; it is never guessed.
"""

from dataclasses import dataclass, replace

from outrider.errors import InvalidArgumentError, NotFoundError, OutriderError
from outrider.host import ModelLoad
from outrider.models.options import ModelOptions
from outrider.models.registry import split_spec

WEIGHTLESS = ("ngram", "scripted")


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes; None: unknown, for the reason in `unknown`.

    `is_mapped` says that weights in main memory are pages of their file, which the system may drop
    and read again. `has_windows` says that layers with a sliding window are counted as if they kept
    every token: an upper bound. `layers` 0: unknown. `is_missing`: there is no such model, or it is
    damaged. Of KV there is `spare_share` more than is asked for, and `work_bytes` are for the
    passes themselves.
    """

    weights_bytes: int | None = 0
    kv_bytes_per_token: int | None = 0
    unknown: str = ""
    is_mapped: bool = False
    has_windows: bool = False
    layers: int = 0
    is_missing: bool = False
    spare_share: float = 0.0
    work_bytes: int = 0

    def kv_bytes(self, kv_tokens: int) -> int | None:
        """Bytes of a KV cache of `kv_tokens` tokens."""
        if self.kv_bytes_per_token is None:
            return None
        return round(self.kv_bytes_per_token * kv_tokens * (1 + self.spare_share))

    def load(self, kv_tokens: int, threads: int, max_sessions: int) -> ModelLoad:
        """What a service with this model tells of it."""
        return ModelLoad(
            self.weights_bytes or 0, self.kv_bytes_per_token or 0, kv_tokens, threads, max_sessions
        )


def footprint(spec: str, options: ModelOptions, *, is_on_gpu: bool = False) -> Footprint:
    """What the model `spec` takes when it is loaded by `options`.

    `is_on_gpu` matters to transformers checkpoints: on a CPU they are computed in float32 unless
    the options say otherwise. May ask the hub for sizes, for some seconds. Raises nothing for a
    model that does not exist: loading it says that better.
    """
    backend, argument = split_spec(spec)
    if backend in WEIGHTLESS:
        return Footprint()
    try:
        if backend == "llamacpp":
            from outrider.models.footprint_gguf import gguf_footprint

            return gguf_footprint(argument, options)
        if backend == "hf":
            from outrider.models.footprint_hf import hf_footprint

            return hf_footprint(argument, options, is_on_gpu=is_on_gpu)
    except (NotFoundError, InvalidArgumentError) as error:
        return replace(unknown(error.message), is_missing=True)
    except OutriderError as error:
        return unknown(error.message)
    except (OSError, ImportError) as error:
        return unknown(str(error))
    return unknown(f"{spec!r} names no backend that is known here")


def unknown(reason: str) -> Footprint:
    """A footprint of which nothing is known."""
    return Footprint(None, None, reason)
