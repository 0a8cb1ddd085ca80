"""Deepened targets: the original at eps 0, farther from it with eps, and told so in the file."""

import json
import threading
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from models.tiny import save_checkpoints
from support.tiny_gguf import BLOCKS, write_tiny_gguf

from benchmarks import deepen, deepen_gguf, deepen_hf
from benchmarks.agreement import Agreement, agreement, sample_texts
from benchmarks.deepen import Deepening, deepened, deepened_gguf, main
from outrider.errors import InvalidArgumentError, NotFoundError
from outrider.models.base import CausalModel, Feed
from outrider.models.llamacpp_quantize import quantize
from outrider.models.registry import load_model

SCALED = ("attn_output", "ffn_down")
TEXT = (5, 6, 7, 8, 9, 20, 21)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_checkpoints(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf")


def rows(model: CausalModel) -> torch.Tensor:
    sequence = model.open(())
    (logits,) = model.forward([Feed.chain(sequence, TEXT, range(len(TEXT)))])
    model.close(sequence)
    return logits


def tensors(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}


def metadata(path: Path) -> dict[str, object]:
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def test_every_block_of_a_file_is_repeated_and_only_what_its_copies_write_is_scaled(
    file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "deep.gguf"
    deepen_gguf.write_deepened(file, target, 3, 0.25, "f32")
    before, after = tensors(file), tensors(target)
    blocks = {name for name in before if name.startswith("blk.")}
    assert len(after) == len(before) + 2 * len(blocks)
    for name, values in before.items():
        if name not in blocks:
            assert np.array_equal(after[name], values)
            continue
        _, number, rest = name.split(".", 2)
        for copy in range(3):
            factor = 0.25 if copy and rest.split(".")[0] in SCALED else 1
            made = after[f"blk.{int(number) * 3 + copy}.{rest}"]
            assert np.array_equal(made, values * np.float32(factor)), (name, copy)


def test_the_metadata_of_a_file_passes_through_but_for_what_changed(
    file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "deep.gguf"
    deepen_gguf.write_deepened(file, target, 3, 0.25, "f32")
    before, after = metadata(file), metadata(target)
    changed = {name for name in before if before[name] != after.get(name)}
    assert {name for name in changed if not name.startswith("GGUF.")} == {"llama.block_count"}
    assert after["llama.block_count"] == 3 * BLOCKS
    assert after["tokenizer.chat_template"] == before["tokenizer.chat_template"]
    told = {name for name in after if name.startswith("outrider.")}
    assert {name for name in after if name not in before} == told
    assert after["outrider.deepened.eps"] == 0.25


def test_a_quantised_file_is_deepened_as_what_its_weights_are(file: Path, tmp_path: Path) -> None:
    quantised, wide, target = (tmp_path / f"{name}.gguf" for name in ("q8", "f32", "deep"))
    quantize(file, quantised, "q8_0")
    quantize(quantised, wide, "f32")
    deepen_gguf.write_deepened(quantised, target, 1, 0.25, "f32")
    expected, made = tensors(wide), tensors(target)
    assert expected.keys() == made.keys()
    assert all(np.array_equal(made[name], values) for name, values in expected.items())
    assert metadata(target)["general.file_type"] == 0
    assert "general.quantization_version" not in metadata(target)


def test_half_the_bytes_are_written_as_f16_with_vectors_as_they_are(
    file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "deep.gguf"
    deepen_gguf.write_deepened(file, target, 2, 0.5, "f16")
    kinds = {name: values.dtype.name for name, values in tensors(target).items()}
    assert kinds["blk.3.ffn_down.weight"] == kinds["token_embd.weight"] == "float16"
    assert kinds["blk.3.ffn_norm.weight"] == "float32"
    assert metadata(target)["general.file_type"] == 1


@pytest.mark.parametrize("kind", ["gguf", "hf"])
def test_at_eps_zero_it_is_the_original_and_drifts_from_it_with_eps(
    kind: str, file: Path, checkpoints: dict[str, Path]
) -> None:
    source, make = (file, deepened_gguf) if kind == "gguf" else (checkpoints["llama"], deepened)
    original = load_model(str(source))
    overlaps = []
    for eps in (0.0, 0.2, 1.0):
        made = make(source, Deepening(3, eps))
        deeper = load_model(str(made))
        if eps == 0:
            assert torch.allclose(rows(deeper), rows(original), atol=1e-6, rtol=0)
        else:
            assert not torch.allclose(rows(deeper), rows(original), atol=1e-2)
        overlaps.append(agreement(original, deeper, [list(TEXT)]).overlap)
    assert overlaps[0] == pytest.approx(1.0, abs=1e-6)
    assert 1.0 > overlaps[1] > overlaps[2] > 0


@pytest.mark.parametrize("kind", ["gguf", "hf"])
def test_the_model_tells_what_was_done_to_it_and_how_far_it_measured_from_the_original(
    kind: str, file: Path, checkpoints: dict[str, Path]
) -> None:
    source, make = (file, deepened_gguf) if kind == "gguf" else (checkpoints["llama"], deepened)
    made = make(source, Deepening(2, 0.2))
    told = (deepen_gguf if kind == "gguf" else deepen_hf).read_deepening(made)
    original = load_model(str(source))
    found = agreement(original, load_model(str(made)), sample_texts(original))
    assert told == {
        "source": source.name,
        "repeats": 2,
        "eps": 0.2,
        "greedy_agreement": round(found.greedy, 3),
        "overlap": round(found.overlap, 3),
        "positions": found.positions,
    }
    assert 0 < found.overlap < 1
    assert found.positions > 100


def test_agreement_is_counted_over_all_positions() -> None:
    target = load_model("scripted:vocab=16,seed=1")
    texts = [[1, 2, 3], [4, 5]]
    assert agreement(target, target, texts) == Agreement(1.0, pytest.approx(1.0), 5)
    other = agreement(load_model("scripted:vocab=16,seed=2"), target, texts)
    assert other.greedy in {0, 0.2, 0.4, 0.6, 0.8}
    assert other.overlap < 0.99


@pytest.mark.parametrize("kind", ["gguf", "hf"])
def test_the_same_inputs_give_the_same_bytes_and_nothing_is_made_twice(
    kind: str,
    file: Path,
    checkpoints: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    source, make = (file, deepened_gguf) if kind == "gguf" else (checkpoints["llama"], deepened)
    first = make(source, Deepening(2, 0.1))
    weights = first if kind == "gguf" else first / "model.safetensors"
    content = weights.read_bytes()
    stamp = weights.stat().st_mtime_ns
    assert make(source, Deepening(2, 0.1)) == first
    assert weights.stat().st_mtime_ns == stamp
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path / "another"))
    again = make(source, Deepening(2, 0.1))
    assert again.is_relative_to(tmp_path / "another")
    assert (again if kind == "gguf" else again / "model.safetensors").read_bytes() == content


def test_other_weights_under_the_same_name_are_deepened_anew(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = write_tiny_gguf(tmp_path / "other" / "tiny.gguf", seed=8)
    assert deepened_gguf(file, Deepening()) != deepened_gguf(other, Deepening())


def test_two_at_once_make_it_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_writing, may_go_on = threading.Event(), threading.Event()
    calls: list[Path] = []

    def slow(source: Path, target: Path, *_: Deepening) -> None:
        calls.append(target)
        is_writing.set()
        assert may_go_on.wait(timeout=30)
        target.write_bytes(b"GGUF")

    monkeypatch.setattr(deepen, "write_file", slow)
    made: list[Path] = []
    threads = [
        threading.Thread(target=lambda: made.append(deepened_gguf(file, Deepening())))
        for _ in range(2)
    ]
    threads[0].start()
    assert is_writing.wait(timeout=30)
    threads[1].start()
    may_go_on.set()
    for thread in threads:
        thread.join(timeout=30)
    assert (len(made), len(set(made)), len(calls)) == (2, 1, 1)


def test_what_cannot_be_deepened_is_refused_with_the_reason(
    file: Path, checkpoints: dict[str, Path], tmp_path: Path, cache: Path
) -> None:
    gemma = write_tiny_gguf(tmp_path / "gemma.gguf", architecture="gemma3")
    with pytest.raises(InvalidArgumentError, match="architecture 'gemma3'; only llama"):
        deepened_gguf(gemma, Deepening())
    with pytest.raises(InvalidArgumentError, match="model type 'gpt2'; only llama"):
        deepened(checkpoints["gpt2"], Deepening())
    file.write_bytes(file.read_bytes()[:9000])
    with pytest.raises(InvalidArgumentError, match=r"cannot be read as GGUF .*damaged"):
        deepened_gguf(file, Deepening())
    with pytest.raises(NotFoundError, match="is not there; give a GGUF file"):
        deepened_gguf(tmp_path / "none.gguf", Deepening())
    with pytest.raises(NotFoundError, match="is not there; give a GGUF file, or a folder"):
        deepened(tmp_path, Deepening())
    assert {path.suffix for path in cache.iterdir()} == {".lock"}


@pytest.mark.parametrize("wrong", [(0, 0.1, "f32"), (2, -0.1, "f32"), (2, 1.1, "f32"), (2, 0, "x")])
def test_a_deepening_that_means_nothing_is_refused(wrong: tuple[int, float, str]) -> None:
    with pytest.raises(InvalidArgumentError, match="give at least 1, a number from 0 to 1"):
        Deepening(*wrong)


def test_the_command_writes_where_it_is_told_and_shows_what_it_measured(
    checkpoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["--model", str(checkpoints["llama"]), "--repeats", "2", "--out", str(out)]
    assert main(arguments) == 0
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["num_hidden_layers"] == 4
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == str(out)
    assert f"  overlap: {config['outrider_deepened']['overlap']:g}" in shown
    assert main(arguments) == 1
    assert "is there already" in capsys.readouterr().err


def test_the_command_writes_gguf_for_gguf(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.gguf"
    assert main(["--model", str(file), "--repeats", "2", "--eps", "0", "--out", str(out)]) == 0
    assert {"  greedy_agreement: 1", "  overlap: 1"} <= set(capsys.readouterr().out.splitlines())
    assert main(["--model", str(file), "--format", "hf"]) == 1
    assert "model.safetensors is not there" in capsys.readouterr().err
