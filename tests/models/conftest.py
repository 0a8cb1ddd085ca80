"""One model of every backend, and an oracle that computes its rows without cache, tree or batch."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from support.tiny_gguf import write_tiny_gguf
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from outrider.models.base import CausalModel
from outrider.models.hf_model import HfModel
from outrider.models.llamacpp_model import LlamaCppModel
from outrider.models.llamacpp_quantize import quantize
from outrider.models.options import ModelOptions
from outrider.models.registry import load_model
from outrider.models.scripted import ScriptedLaw, scripted_logits

from .plain_decode import PlainDecode
from .tiny import BACKENDS, CONTEXT, MakeModel, Oracle, save_checkpoints


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models gain nothing from threads, and lose much where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_checkpoints(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="session")
def libraries(checkpoints: dict[str, Path]) -> dict[str, PreTrainedModel]:
    """The same checkpoints as transformers runs them."""
    return {
        name: AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
        for name, folder in checkpoints.items()
    }


@pytest.fixture(scope="session")
def loaded(checkpoints: dict[str, Path]) -> dict[str, HfModel]:
    """Every checkpoint as the backend loads it; tests get copies with an empty cache."""
    options = ModelOptions(kv_tokens=256)
    return {name: load_model(str(folder), options) for name, folder in checkpoints.items()}


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In Q8_0, whose rows have the same bits in every batch, which those of F32 do not."""
    folder = tmp_path_factory.mktemp("gguf")
    wide = write_tiny_gguf(folder / "tiny-f32.gguf")
    quantize(wide, folder / "tiny.gguf", "q8_0")
    return folder / "tiny.gguf"


@pytest.fixture(scope="session")
def loaded_gguf(tiny_gguf: Path) -> LlamaCppModel:
    """As the backend loads it; tests get copies with an empty cache."""
    return load_model(str(tiny_gguf), ModelOptions(threads=1, kv_tokens=256))


@pytest.fixture
def make_model(
    checkpoints: dict[str, Path], loaded: dict[str, HfModel], request: pytest.FixtureRequest
) -> MakeModel:
    def make(backend: str, kv_tokens: int = 256, **options: object) -> CausalModel:
        settings = ModelOptions(kv_tokens=kv_tokens, **options)
        if backend == "scripted":
            return load_model(f"scripted:vocab=300,order=9,context={CONTEXT}", settings)
        if backend == "llamacpp":
            if options:
                return load_model(str(request.getfixturevalue("tiny_gguf")), settings)
            return request.getfixturevalue("loaded_gguf").resized(kv_tokens, spare=0)
        if options:
            return load_model(str(checkpoints[backend]), settings)
        return loaded[backend].resized(kv_tokens)

    return make


@pytest.fixture
def make_oracle(
    libraries: dict[str, PreTrainedModel], request: pytest.FixtureRequest
) -> Callable[[str], Oracle]:
    """For a backend: the row after the last of some tokens, computed without any cache or tree."""

    def make(backend: str) -> Oracle:
        if backend == "llamacpp":
            return PlainDecode(request.getfixturevalue("tiny_gguf"))

        @torch.inference_mode()
        def row(tokens: Sequence[int]) -> Tensor:
            if backend == "scripted":
                return scripted_logits(ScriptedLaw(vocab=300, order=9), [tokens])[0]
            return libraries[backend](torch.tensor([list(tokens)]), use_cache=False).logits[0, -1]

        return row

    return make


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(backend: str, make_model: MakeModel) -> CausalModel:
    return make_model(backend)


@pytest.fixture
def oracle(backend: str, make_oracle: Callable[[str], Oracle]) -> Oracle:
    return make_oracle(backend)
