"""Loading: every way in which it fails says what was got and what would work."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from transformers import AutoModelForCausalLM, LlamaConfig, T5Config

from outrider.errors import InvalidArgumentError, NotFoundError, OutriderError, UnavailableError
from outrider.models import hf_checkpoint, hf_source, packaged
from outrider.models.base import TIP, Feed
from outrider.models.options import ModelOptions
from outrider.models.registry import load_model

from .steps import PROMPT, prefill, same
from .tiny import HF_BACKENDS, MakeModel, Oracle


def copied(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target / "copy"))


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("spec", ["./missing", "/missing/model", "~/missing-model", "a/b/c"])
def test_a_missing_folder_is_not_found_and_says_what_works(spec: str) -> None:
    with pytest.raises(NotFoundError, match=r"no folder.*hub name.*smollm2") as caught:
        load_model(spec)
    assert spec in caught.value.message


def test_no_name_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"no model is named.*smollm2"):
        load_model("hf:")


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'gguf'.*hf, llamacpp, ngram, scripted"):
        load_model("gguf:model")


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(InvalidArgumentError, match=r"is a file.*folder with config\.json"):
        load_model(f"hf:{tmp_path}/model.gguf")


def test_an_empty_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"config\.json"):
        load_model(str(tmp_path))


def test_a_folder_without_weights_is_not_found(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(checkpoints["llama"], tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(NotFoundError, match="safetensors"):
        load_model(str(folder))


def test_pickled_weights_are_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(checkpoints["llama"], tmp_path)
    (folder / "model.safetensors").unlink()
    model = AutoModelForCausalLM.from_pretrained(checkpoints["llama"])
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(NotFoundError, match="safetensors"):
        load_model(str(folder))


def test_a_folder_without_tokenizer_is_not_found(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(checkpoints["llama"], tmp_path)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(NotFoundError, match="tokenizer"):
        load_model(str(folder))


def test_an_unknown_architecture_is_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(checkpoints["llama"], tmp_path)
    edit_config(folder, model_type="nobody-knows", architectures=["Nobody"])
    with pytest.raises(InvalidArgumentError, match="nobody-knows"):
        load_model(str(folder))


def test_custom_code_is_refused_unless_trusted(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(checkpoints["llama"], tmp_path)
    code = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"}
    edit_config(folder, model_type="own", auto_map=code)
    with pytest.raises(InvalidArgumentError, match="trust_remote_code"):
        load_model(str(folder))


@pytest.mark.parametrize("layer", ["linear_attention", "chunked_attention"])
def test_layers_whose_state_cannot_be_rolled_back_are_refused(layer: str) -> None:
    config = LlamaConfig(num_hidden_layers=2)
    config.layer_types = ["full_attention", layer]
    with pytest.raises(InvalidArgumentError, match=layer):
        hf_checkpoint.layer_windows(config)


def test_an_encoder_decoder_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="t5 is an encoder-decoder"):
        hf_checkpoint.layer_windows(T5Config())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype is 'float8'.*float32"),
        ({"device": "cuda:7"}, "device is 'cuda:7'"),
        ({"device": "abacus"}, "device is 'abacus'"),
        ({"device": "meta"}, "device is 'meta'"),
        ({"device": "cpu", "device_map": "auto"}, "only one"),
        ({"device_map": "{nonsense"}, "device_map is no valid JSON"),
        ({"device_map": "everywhere"}, "cannot be loaded"),
        ({"quantization": "{nonsense"}, "quantization is no valid JSON"),
        ({"quantization": '{"bits": 4}'}, "quant_method None.*bitsandbytes"),
        ({"quantization": '{"quant_method": "magic"}'}, "'magic'.*bitsandbytes"),
        ({"threads": -1}, "threads"),
        ({"kv_tokens": 0}, "kv_tokens"),
        ({"context_tokens": 100_000}, "context_tokens"),
        ({"revision": "main"}, "revision"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused_by_name(
    make_model: MakeModel, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make_model("llama", **options)


def test_a_missing_quantisation_package_is_named(make_model: MakeModel) -> None:
    settings = '{"quant_method": "bitsandbytes", "load_in_4bit": true}'
    with pytest.raises(InvalidArgumentError, match="bitsandbytes"):
        make_model("llama", quantization=settings)


def test_quantisation_settings_are_read_from_a_file(make_model: MakeModel, tmp_path: Path) -> None:
    path = tmp_path / "quantization.json"
    path.write_text('{"quant_method": "magic"}')
    with pytest.raises(InvalidArgumentError, match="'magic'"):
        make_model("llama", quantization=str(path))
    with pytest.raises(NotFoundError, match="neither a JSON object nor a file"):
        make_model("llama", quantization=str(tmp_path / "missing.json"))


def test_missing_accelerate_is_named(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf_checkpoint, "find_spec", lambda _: None)
    with pytest.raises(InvalidArgumentError, match="device_map needs the package accelerate"):
        make_model("llama", device_map="auto")


@pytest.mark.parametrize("device_map", ["auto", '{"": "cpu"}'])
def test_a_device_map_is_honoured(
    make_model: MakeModel, make_oracle: object, device_map: str
) -> None:
    oracle: Oracle = make_oracle("gemma3")  # type: ignore[operator]
    model = make_model("gemma3", device_map=device_map, dtype="float32")
    _, row = prefill(model, PROMPT)
    assert same(row, oracle(PROMPT))


@pytest.mark.parametrize("name", HF_BACKENDS)
def test_in_float64_a_row_hardly_depends_on_the_batch(make_model: MakeModel, name: str) -> None:
    """Chain, tree and one token at a time agree far below what a log-probability shows."""
    model = make_model(name, dtype="float64")
    assert {pool.keys.dtype for pool in model.cache.pools.values()} == {torch.float64}
    tokens = [5, 17, 40, 41, 8, 90]
    chain = model.open(tokens)
    (whole,) = model.forward([Feed.chain(chain, tokens, range(6))])
    assert whole.dtype == torch.float64
    model.close(chain)
    model = model.resized(256)
    sequence = model.open(tokens)
    for index, token in enumerate(tokens):
        tree = Feed(sequence, (11, token, 13, 5), (TIP, TIP, TIP, TIP), (1,))
        first = sequence.next_node
        (row,) = model.forward([tree])
        assert torch.allclose(row[0], whole[index], atol=1e-6, rtol=0)
        model.keep(sequence, [first + 1])


def test_float64_is_refused_where_the_device_has_none() -> None:
    with pytest.raises(InvalidArgumentError, match=r"float64.*mps does not have"):
        hf_checkpoint._dtype(ModelOptions(dtype="float64"), torch.device("mps"))


def test_the_dtype_is_honoured(make_model: MakeModel) -> None:
    model = make_model("llama", dtype="bfloat16")
    _, row = prefill(model, PROMPT)
    assert {pool.keys.dtype for pool in model.cache.pools.values()} == {torch.bfloat16}
    assert row.dtype == torch.float32


def test_threads_are_honoured(make_model: MakeModel) -> None:
    before = torch.get_num_threads()
    try:
        make_model("llama", threads=before + 1)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def hub_answers(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def model_info(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(HfApi, "model_info", model_info)


def refused_by_hub(kind: type[Exception]) -> Exception:
    """The hub client's error for a missing model, made without the HTTP library of its version."""
    error = kind.__new__(kind)
    error.args = ("404",)
    return error


def no_route() -> Exception:
    """A connection error of the hub client's HTTP library, whichever that is."""
    kind = type("ConnectError", (Exception,), {"__module__": "httpx2._exceptions"})
    return kind("no route")


def test_no_access_to_the_hub_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub_answers(monkeypatch, no_route())
    with pytest.raises(UnavailableError, match=r"'nobody/nothing'.*hub cannot be reached.*smollm2"):
        load_model("nobody/nothing")


@pytest.mark.parametrize(
    ("kind", "message"),
    [(RepositoryNotFoundError, "no model on the hub"), (RevisionNotFoundError, "no revision 'v9'")],
)
def test_a_name_that_the_hub_does_not_know_is_not_found(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], message: str
) -> None:
    hub_answers(monkeypatch, refused_by_hub(kind))
    with pytest.raises(NotFoundError, match=message):
        load_model("nobody/nothing", ModelOptions(revision="v9"))


def test_without_access_a_model_from_the_hub_cache_is_used(
    monkeypatch: pytest.MonkeyPatch, checkpoints: dict[str, Path]
) -> None:
    config = str(checkpoints["llama"] / "config.json")
    hub_answers(monkeypatch, no_route())
    monkeypatch.setattr(hf_source, "try_to_load_from_cache", lambda *_, **__: config)
    source = hf_source.find("org/name", ModelOptions(revision="v1"))
    assert source == hf_source.Source("org/name", "org/name", "v1", local_files_only=True)


def test_a_model_on_the_hub_is_loaded_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HfApi, "model_info", lambda *_, **__: None)
    source = hf_source.find("org/name", ModelOptions())
    assert source == hf_source.Source("org/name", "org/name", None, local_files_only=False)


def test_a_bug_in_the_hub_client_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    hub_answers(monkeypatch, ZeroDivisionError("bug"))
    with pytest.raises(ZeroDivisionError):
        load_model("nobody/nothing")


def test_a_packaged_name_loads_the_fetched_folder_under_its_own_name(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaged, "fetch", lambda name: checkpoints["llama"])
    model = load_model("smollm2", ModelOptions(kv_tokens=64))
    assert (model.info.model_name, model.info.backend) == ("smollm2", "hf")
    source = hf_source.find("smollm2", ModelOptions())
    assert source.location == str(checkpoints["llama"])


def test_a_local_folder_named_like_a_packaged_model_needs_a_dot(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(checkpoints["llama"], tmp_path / "smollm2")
    monkeypatch.chdir(tmp_path)
    assert load_model("./smollm2", ModelOptions(kv_tokens=64)).info.model_name == "./smollm2"

    def refuse(name: str) -> Path:
        raise UnavailableError(f"{name} was to be fetched")

    monkeypatch.setattr(packaged, "fetch", refuse)
    with pytest.raises(OutriderError, match="was to be fetched"):
        load_model("smollm2")


@pytest.mark.parametrize("option", [{"n_gpu_layers": 3}, {"kv_dtype": "q8_0"}])
def test_options_of_gguf_files_are_refused_by_name(option: dict[str, object]) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"hf backend cannot honour {next(iter(option))}"
    ):
        load_model("anything", ModelOptions(**option))
