"""A GGUF file in another format: `python -m outrider.models.llamacpp_quantize SOURCE TARGET FORM`.

Knows llama.cpp's quantizer; knows neither names nor the cache. Meant for a process of its own: it
writes its log to standard error, and a damaged file can end the process.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import llama_cpp

from outrider.errors import InvalidArgumentError, OutriderError, UnavailableError

FORMATS = {
    "f32": llama_cpp.LLAMA_FTYPE_ALL_F32,
    "f16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
    "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
}


def quantize(source: Path, target: Path, wanted: str) -> None:
    """Writes the model in `source`, whatever its format, to `target` in the `wanted` one.

    From a quantised source nothing is gained: its weights are what they are. Raises
    InvalidArgumentError for an unknown format, UnavailableError where llama.cpp refuses.
    """
    if wanted not in FORMATS:
        raise InvalidArgumentError(f"format {wanted!r} is unknown; give {', '.join(FORMATS)}")
    llama_cpp.llama_backend_init()
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = FORMATS[wanted]
    settings.allow_requantize = True
    status = llama_cpp.llama_model_quantize(
        os.fsencode(source), os.fsencode(target), ctypes.byref(settings)
    )
    if status != 0:
        raise UnavailableError(f"llama.cpp could not read {source} or write {target}")


def main(arguments: Sequence[str]) -> int:
    """Quantizes as told, tells what went wrong, returns the exit status."""
    try:
        source, target, wanted = arguments
        quantize(Path(source), Path(target), wanted)
    except ValueError:
        sys.stderr.write(f"outrider: give SOURCE TARGET FORM, one of {', '.join(FORMATS)}\n")
        return 2
    except OutriderError as error:
        sys.stderr.write(f"outrider: {error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
