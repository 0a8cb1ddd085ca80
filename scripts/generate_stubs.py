"""Generates outrider/v1 from protos/outrider/v1. `python scripts/generate_stubs.py [output
folder]`.
"""

import importlib.resources
import sys
from pathlib import Path

from grpc_tools import protoc

PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
ROOT = Path(__file__).resolve().parent.parent


def generate(output: Path) -> None:
    """Writes the stubs below `output`, as the package outrider.v1."""
    protos = sorted((ROOT / "protos").rglob("*.proto"))
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"-I{ROOT / 'protos'}",
        f"-I{well_known}",
        f"--python_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_out=readable_stubs:{output}",
        f"--mypy_grpc_out=readable_stubs:{output}",
        # Beside the interpreter, so that an environment need not be activated.
        *(f"--plugin={name}={Path(sys.executable).parent / name}" for name in PLUGINS),
        *map(str, protos),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed; its message is above")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
