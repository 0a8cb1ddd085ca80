"""What a model takes in memory is read from its headers, and is what loading it takes."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from outrider.errors import InvalidArgumentError
from outrider.models.footprint import Footprint, footprint
from outrider.models.footprint_gguf import kv_bytes_per_token
from outrider.models.footprint_hf import kv_numbers_per_token, measured
from outrider.models.gguf_header import read_header
from outrider.models.options import ModelOptions
from outrider.models.packaged import fetch
from outrider.models.packaged_gguf import fetch_gguf
from outrider.models.registry import load_model

LLAMA = {
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
}


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def write_gguf(path: Path, *, split_no: int | None = None, vocabulary: int = 5000) -> Path:
    """A llama of two layers whose second has no heads for keys, with a vocabulary."""
    writer = GGUFWriter(path, "llama")
    if not split_no:
        writer.add_block_count(2)
        writer.add_embedding_length(32)
        writer.add_head_count(4)
        writer.add_head_count_kv([2, 0])
        writer.add_key_length(8)
        writer.add_value_length(16)
        writer.add_token_list([f"token {i}" for i in range(vocabulary)])
        writer.add_token_scores([0.5] * vocabulary)
    writer.add_tensor(f"part{split_no or 0}.weight", np.ones((32, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_checkpoint(folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    tensors = {"a": torch.zeros(10, 6, dtype=dtype), "b": torch.zeros(4, dtype=dtype)}
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_header_has_what_was_written_without_the_vocabulary(tmp_path: Path) -> None:
    header = read_header(write_gguf(tmp_path / "m.gguf"))
    assert header["general.architecture"] == "llama"
    assert header["llama.attention.head_count_kv"] == (2, 0)
    assert not any(key.startswith("tokenizer.ggml.") for key in header)


def test_a_gguf_takes_its_file_and_the_heads_of_each_layer(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    taken = footprint(str(path), ModelOptions())
    assert taken.weights_bytes == path.stat().st_size
    assert taken.kv_bytes_per_token == (2 + 0) * (8 + 16) * 2
    assert taken.is_mapped and taken.layers == 2
    wide = footprint(str(path), ModelOptions(kv_dtype="f32"))
    assert wide.kv_bytes_per_token == 2 * taken.kv_bytes_per_token


def test_all_parts_of_a_split_gguf_count(tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "m-00001-of-00002.gguf")
    second = write_gguf(tmp_path / "m-00002-of-00002.gguf", split_no=1)
    taken = footprint(str(first), ModelOptions())
    assert taken.weights_bytes == first.stat().st_size + second.stat().st_size
    assert taken.kv_bytes_per_token == 96
    second.unlink()
    missing = footprint(str(first), ModelOptions())
    assert missing.is_missing and "m-00002-of-00002.gguf" in missing.unknown


@given(cut=st.integers(0, 500), garbage=st.binary(max_size=64))
def test_a_damaged_header_is_refused_and_never_read_wild(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    path = write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", vocabulary=3)
    path.write_bytes(path.read_bytes()[:cut] + garbage)
    try:
        read_header(path)
    except InvalidArgumentError as error:
        assert "m.gguf" in error.message


def test_another_file_is_called_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(InvalidArgumentError, match="no GGUF file"):
        read_header(path)


def test_heads_and_lengths_left_out_follow_from_the_width() -> None:
    header = {
        "general.architecture": "llama",
        "llama.block_count": 3,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 8,
    }
    assert kv_bytes_per_token(header, "auto") == 3 * 8 * (8 + 8) * 2
    assert kv_bytes_per_token(header, "q8_0") == round(3 * 8 * 16 * 34 / 32)
    assert kv_bytes_per_token({"general.architecture": "llama"}, "auto") is None


def test_a_checkpoint_is_float32_on_a_cpu_and_as_it_is_on_a_gpu(tmp_path: Path) -> None:
    folder = str(write_checkpoint(tmp_path / "m"))
    kv = 30 * 3 * 64 * 2
    on_cpu = footprint(folder, ModelOptions())
    assert (on_cpu.weights_bytes, on_cpu.kv_bytes_per_token) == (64 * 4, kv * 4)
    on_gpu = footprint(folder, ModelOptions(), is_on_gpu=True)
    assert (on_gpu.weights_bytes, on_gpu.kv_bytes_per_token) == (64 * 2, kv * 2)
    asked = footprint(folder, ModelOptions(dtype="float16"))
    assert asked.weights_bytes == 64 * 2


def test_every_file_that_an_index_names_counts(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "x-1.safetensors")
    save_file({"c": torch.zeros(8)}, folder / "x-2.safetensors")
    index = {"weight_map": {"a": "x-1.safetensors", "b": "x-1.safetensors", "c": "x-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert footprint(str(folder), ModelOptions()).weights_bytes == (64 + 8) * 4


def test_what_cannot_be_known_is_unknown_with_the_reason(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    (folder / "config.json").write_text("{}")
    taken = footprint(str(folder), ModelOptions())
    assert taken.kv_bytes_per_token is None and "attention heads" in taken.unknown
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**40))
    damaged = footprint(str(folder), ModelOptions())
    assert damaged.weights_bytes is None and "damaged" in damaged.unknown
    away = footprint("org/never-fetched", ModelOptions())
    assert away.weights_bytes is None and "hub" in away.unknown
    assert footprint(str(tmp_path / "none.gguf"), ModelOptions()).is_missing


def test_models_without_weights_take_nothing() -> None:
    assert footprint("ngram:", ModelOptions()) == Footprint()
    assert footprint("scripted:vocab=8", ModelOptions()) == Footprint()


def test_older_names_of_the_shape_are_known() -> None:
    gpt2 = {"n_layer": 12, "n_head": 12, "n_embd": 768}
    assert kv_numbers_per_token(gpt2) == 12 * 12 * 64 * 2
    nested = {"text_config": {**LLAMA, "sliding_window": 512}}
    taken = measured(nested, {"BF16": 10}, ModelOptions(), is_on_gpu=True)
    assert taken.has_windows and taken.kv_bytes_per_token == 30 * 3 * 64 * 2 * 2


def test_a_quantised_checkpoint_counts_as_its_files() -> None:
    numbers = {"U8": 1000, "BF16": 10}
    config = {**LLAMA, "quantization_config": {"quant_method": "x"}}
    assert measured(config, numbers, ModelOptions(), is_on_gpu=False).weights_bytes == 1020


@pytest.mark.real_model
def test_the_footprint_is_what_loading_takes() -> None:
    fetch("smollm2")
    options = ModelOptions(kv_tokens=128)
    taken = footprint("smollm2", options)
    loaded = load_model("smollm2", replace(options))
    weights = sum(p.numel() * p.element_size() for p in loaded._model.parameters())
    pools = loaded.cache.pools.values()
    kv = sum(t.numel() * t.element_size() for pool in pools for t in (pool.keys, pool.values))
    assert taken.weights_bytes == weights
    assert taken.kv_bytes(128) == kv


@pytest.mark.real_model
def test_the_footprint_of_a_gguf_is_its_file_and_what_its_shape_says() -> None:
    path = fetch_gguf("smollm2.gguf")
    taken = footprint("smollm2.gguf", ModelOptions())
    assert taken.weights_bytes == path.stat().st_size
    assert taken.kv_bytes_per_token == 30 * 3 * 2 * 64 * 2


@pytest.mark.parametrize("layers", [2**32 - 1, float("inf"), float("nan")])
def test_absurd_counts_in_a_header_are_unknown_and_no_work(layers: float) -> None:
    header = {
        "general.architecture": "llama",
        "llama.block_count": layers,
        "llama.attention.head_count": 2,
        "llama.embedding_length": 64,
    }
    assert kv_bytes_per_token(header, "f16") is None


def test_lists_in_lists_without_end_are_a_damaged_header(tmp_path: Path) -> None:
    file = tmp_path / "deep.gguf"
    nested = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000
    file.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + nested)
    with pytest.raises(InvalidArgumentError, match="damaged"):
        read_header(file)


@pytest.mark.parametrize("spec", ["/no/such/folder", "./nowhere", "a/b/c d", "x y/z/m.gguf"])
def test_what_can_be_no_name_is_unusable_and_no_bug(spec: str) -> None:
    assert footprint(spec, ModelOptions()).is_missing
