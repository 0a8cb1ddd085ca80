"""What is generated is what is committed."""

import filecmp
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_committed_stubs_are_what_the_protos_generate(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "generate_stubs.py"), str(tmp_path)],
        check=True,
        capture_output=True,
    )
    generated = tmp_path / "outrider" / "v1"
    names = sorted(path.name for path in generated.iterdir())
    committed = sorted(p.name for p in (ROOT / "outrider" / "v1").glob("*_pb2*"))
    _, different, missing = filecmp.cmpfiles(generated, ROOT / "outrider" / "v1", names, False)
    assert (names, different, missing) == (committed, [], []), "run `make stubs` and commit"


def test_every_proto_is_in_the_folder_of_its_package() -> None:
    for proto in (ROOT / "protos").rglob("*.proto"):
        assert "package outrider.v1;" in proto.read_text(), proto
