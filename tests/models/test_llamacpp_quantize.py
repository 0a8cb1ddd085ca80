"""A GGUF file in another format holds the same weights, as far as the format can."""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from support.tiny_gguf import write_tiny_gguf

from outrider.errors import InvalidArgumentError
from outrider.models import llamacpp_quantize
from outrider.models.llamacpp_quantize import quantize
from outrider.models.packaged_gguf import PACKAGED_GGUF, fetch_gguf

COMMAND = (sys.executable, "-m", llamacpp_quantize.__name__)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf")


def weights(path: Path) -> dict[str, np.ndarray]:
    return {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
    }


def assert_same_weights(made: Path, source: Path, atol: float = 0.0) -> None:
    expected, found = weights(source), weights(made)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert np.allclose(found[name], values, rtol=0, atol=atol), name


def test_a_wider_format_changes_no_weight(file: Path, tmp_path: Path) -> None:
    narrow, wide = tmp_path / "q8_0.gguf", tmp_path / "f32.gguf"
    quantize(file, narrow, "q8_0")
    assert narrow.stat().st_size < file.stat().st_size
    quantize(narrow, wide, "f32")
    assert {t.tensor_type.name for t in gguf.GGUFReader(wide).tensors} == {"F32"}
    assert_same_weights(wide, narrow)


@pytest.mark.parametrize(("wanted", "atol"), [("f16", 1e-3), ("q8_0", 1e-2)])
def test_a_narrower_one_rounds(file: Path, tmp_path: Path, wanted: str, atol: float) -> None:
    quantize(file, tmp_path / "made.gguf", wanted)
    assert_same_weights(tmp_path / "made.gguf", file, atol)
    kinds = {t.tensor_type.name for t in gguf.GGUFReader(tmp_path / "made.gguf").tensors}
    assert kinds == {"F32", wanted.upper()}


def test_an_unknown_format_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="format 'q9' is unknown; give f32, f16, q8_0"):
        quantize(file, tmp_path / "made.gguf", "q9")


def test_the_command_tells_by_its_exit_status_what_went_wrong(file: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)

    made = tmp_path / "made.gguf"
    assert run(str(file), str(made), "f16").returncode == 0
    assert made.is_file()
    file.write_bytes(b"no GGUF at all")
    refused = run(str(file), str(made), "f16")
    assert refused.returncode == 1
    assert f"outrider: llama.cpp could not read {file}" in refused.stderr.splitlines()[-1]
    assert run(str(file)).returncode == 2


@pytest.mark.real_model
def test_the_packaged_f32_file_has_the_weights_of_the_original() -> None:
    assert_same_weights(fetch_gguf("smollm2-f32.gguf"), fetch_gguf("smollm2.gguf"))


def test_every_packaged_format_is_one_that_can_be_made() -> None:
    formats = {packaged.format for packaged in PACKAGED_GGUF.values()} - {""}
    assert formats == llamacpp_quantize.FORMATS.keys()
