"""GGUF files: found, whole, of a kind that can be used; options; limits of llama.cpp."""

import random
from pathlib import Path

import gguf
import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import (
    EntryNotFoundError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from support import tiny_gguf as tiny_gguf_module
from support.tiny_gguf import CONTEXT, write_tiny_gguf

from outrider.errors import (
    CapacityError,
    InvalidArgumentError,
    NotFoundError,
    OutriderError,
    UnavailableError,
)
from outrider.models import llamacpp_library, llamacpp_source
from outrider.models.base import TIP, Feed
from outrider.models.llamacpp_model import LlamaCppModel
from outrider.models.llamacpp_quantize import quantize
from outrider.models.llamacpp_tokenizer import MOST_ALIKE
from outrider.models.options import ModelOptions
from outrider.models.registry import load_model, split_spec

from .steps import PROMPT, prefill

SMALL = ModelOptions(threads=1, kv_tokens=64)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("model.gguf", ("llamacpp", "model.gguf")),
        ("/a/b.GGUF", ("llamacpp", "/a/b.GGUF")),
        ("org/name/file.gguf", ("llamacpp", "org/name/file.gguf")),
        ("./a:b/model.gguf", ("llamacpp", "./a:b/model.gguf")),
        ("llamacpp:x", ("llamacpp", "x")),
        ("org/name", ("hf", "org/name")),
        ("smollm2", ("hf", "smollm2")),
        ("smollm2.gguf", ("llamacpp", "smollm2.gguf")),
        ("./folder", ("hf", "./folder")),
        ("ngram", ("ngram", "")),
        ("ngram:n=3", ("ngram", "n=3")),
    ],
)
def test_the_backend_is_chosen_by_what_is_given(spec: str, expected: tuple[str, str]) -> None:
    assert split_spec(spec) == expected


def test_a_file_is_loaded_with_its_facts(tiny_gguf: Path) -> None:
    model = load_model(str(tiny_gguf), ModelOptions(kv_tokens=64))
    assert model.info.backend == "llamacpp"
    assert model.info.model_name == str(tiny_gguf)
    assert model.info.vocab_size == 260
    assert model.info.context_tokens == 64, "no more than the KV cache holds"
    assert model.info.eos_token_ids == (1,)
    assert model.tokenizer is not None
    assert model.tokenizer.bos_token_id is None
    assert bytes(model.tokenizer.vocabulary.piece(t)[0] for t in model.tokenizer.encode("é a"))
    ids = model.tokenizer.encode_chat([("user", "hi")])
    assert b"".join(map(model.tokenizer.vocabulary.piece, ids)) == b"user: hi\nassistant:"


def test_text_becomes_tokens_and_text_again(tiny_gguf: Path) -> None:
    tokenizer = load_model(str(tiny_gguf), SMALL).tokenizer
    assert tokenizer is not None
    for text in ("the there", "é漢😀", " \n\t", ""):
        ids = tokenizer.encode_within(text)
        assert b"".join(map(tokenizer.vocabulary.piece, ids)).decode() == text
    assert tokenizer.encode("a</s>")[-1] == 1, "control tokens are read in prompts"


def test_a_conversation_needs_a_message_and_a_template(tmp_path: Path, tiny_gguf: Path) -> None:
    tokenizer = load_model(str(tiny_gguf), SMALL).tokenizer
    assert tokenizer is not None
    with pytest.raises(InvalidArgumentError, match="no messages"):
        tokenizer.encode_chat([])
    bare = load_model(str(write_tiny_gguf(tmp_path / "bare.gguf", chat_template="")), SMALL)
    assert bare.tokenizer is not None
    with pytest.raises(InvalidArgumentError, match="no chat template"):
        bare.tokenizer.encode_chat([("user", "hi")])
    picky = "{{ raise_exception('no tools here') }}"
    model = load_model(str(write_tiny_gguf(tmp_path / "p.gguf", chat_template=picky)), SMALL)
    assert model.tokenizer is not None
    with pytest.raises(InvalidArgumentError, match=r"refuses.*roles tool: no tools here"):
        model.tokenizer.encode_chat([("tool", "hi")])


def test_a_template_that_cannot_be_read_spoils_conversations_only(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "broken.gguf", chat_template="{% for m in messages %}")
    tokenizer = load_model(str(file), SMALL).tokenizer
    assert tokenizer is not None
    assert tokenizer.encode("a")
    with pytest.raises(InvalidArgumentError, match="template cannot be read"):
        tokenizer.encode_chat([("user", "hi")])


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 / 0 }}",
        "{% for i in range(10 ** 12) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_chat_template_that_fails_is_told(tmp_path: Path, template: str) -> None:
    file = write_tiny_gguf(tmp_path / "t.gguf", chat_template=template)
    tokenizer = load_model(str(file), SMALL).tokenizer
    assert tokenizer is not None
    with pytest.raises(InvalidArgumentError, match="chat template refuses"):
        tokenizer.encode_chat([("user", "hi")])


@pytest.mark.parametrize("character", ["a", "1", " ", ".", "_", "漢"])
def test_a_text_that_would_overflow_llama_cpps_stack_is_refused(
    tiny_gguf: Path, character: str
) -> None:
    tokenizer = load_model(str(tiny_gguf), SMALL).tokenizer
    assert tokenizer is not None
    for encode in (tokenizer.encode, tokenizer.encode_within):
        with pytest.raises(InvalidArgumentError, match="in a row"):
            encode("x " + character * (MOST_ALIKE + 1))
        assert encode(character * MOST_ALIKE)


@pytest.mark.parametrize("options", [{"context_tokens": 3}, {"kv_tokens": 8}])
def test_a_context_may_be_shorter_than_the_check_needs(
    tiny_gguf: Path, options: dict[str, int]
) -> None:
    model = load_model(str(tiny_gguf), ModelOptions(**{"threads": 1, "kv_tokens": 64, **options}))
    assert model.info.context_tokens == min(options.values())


def test_a_file_without_a_context_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_gguf_module, "CONTEXT", 0)
    with pytest.raises(InvalidArgumentError, match="damaged: it gives a context of 0"):
        load_model(str(write_tiny_gguf(tmp_path / "none.gguf")), SMALL)


def test_a_split_model_is_loaded_from_any_of_its_parts(tmp_path: Path, tiny_gguf: Path) -> None:
    parts = split(tiny_gguf, tmp_path)
    assert len(parts) > 1
    whole = load_model(str(tiny_gguf), SMALL)
    for part in (parts[0], parts[-1]):
        model = load_model(str(part), SMALL)
        assert torch.equal(prefill(model, PROMPT)[1], prefill(whole, PROMPT)[1])
        whole = whole.resized(64)
    parts[-1].unlink()
    with pytest.raises(NotFoundError, match=rf"{parts[-1].name} is not beside it"):
        load_model(str(parts[0]), SMALL)


def split(source: Path, folder: Path) -> list[Path]:
    """As llama.cpp's own tool splits: all metadata in the first part, some tensors in each."""
    reader = gguf.GGUFReader(source)
    count = 3
    paths = [folder / f"tiny-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    for number, path in enumerate(paths):
        writer = gguf.GGUFWriter(path, "llama")
        if number == 0:
            for field in reader.fields.values():
                if field.name.startswith("GGUF.") or field.name == "general.architecture":
                    continue
                kind = field.types[0]
                inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(field.name, field.contents(), kind, inner)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[number::count]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


@pytest.mark.parametrize("share", [0.0, 0.0005, 0.02, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, tiny_gguf: Path, share: float) -> None:
    data = tiny_gguf.read_bytes()
    damaged = tmp_path / "cut.gguf"
    damaged.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(InvalidArgumentError, match=r"cut\.gguf.*fetch"):
        load_model(str(damaged), SMALL)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_header_is_refused_or_harmless(
    tmp_path: Path, tiny_gguf: Path, seed: int
) -> None:
    draw = random.Random(seed)
    data = bytearray(tiny_gguf.read_bytes())
    for _ in range(3):
        data[draw.randrange(4, 3000)] = draw.randrange(256)
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(bytes(data))
    try:
        load_model(str(damaged), SMALL)
    except OutriderError as error:
        assert "damaged.gguf" in error.message or "branches" in error.message


def test_what_is_no_gguf_file_is_refused_by_what_it_is(tmp_path: Path, tiny_gguf: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(InvalidArgumentError, match=r"no GGUF file: it begins with b'PK"):
        load_model(str(other), SMALL)
    with pytest.raises(InvalidArgumentError, match=r"is a folder; name a file in it \(other\.gguf"):
        load_model(f"llamacpp:{tmp_path}", SMALL)
    with pytest.raises(NotFoundError, match=r"no file '\./nowhere\.gguf'.*smollm2\.gguf"):
        load_model("./nowhere.gguf", SMALL)
    with pytest.raises(InvalidArgumentError, match="no model is named"):
        load_model("llamacpp:", SMALL)
    with pytest.raises(InvalidArgumentError, match=r"is a file.*folder with config"):
        load_model(f"hf:{tiny_gguf}", SMALL)


def test_an_unknown_architecture_is_refused_with_llama_cpps_reason(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "strange.gguf", architecture="strange")
    with pytest.raises(InvalidArgumentError, match=r"strange\.gguf.*unknown model architecture"):
        load_model(str(file), SMALL)


def test_a_model_without_branches_is_refused(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for question, why in (
        ("llama_model_is_recurrent", "cannot be rolled back"),
        ("llama_model_has_encoder", "has an encoder"),
        ("llama_model_is_diffusion", "left to right"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(llamacpp_library.api, question, lambda handle: True)
            with pytest.raises(InvalidArgumentError, match=why):
                load_model(str(tiny_gguf), SMALL)


def test_a_model_without_a_kv_cache_is_refused(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llamacpp_library.api, "llama_get_memory", lambda context: None)
    with pytest.raises(InvalidArgumentError, match="embeds texts"):
        load_model(str(tiny_gguf), SMALL)


def test_a_model_that_mixes_branches_up_is_refused(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = llamacpp_library.Context.run

    def mixed(context, tokens, positions, ids, wanted):  # type: ignore[no-untyped-def]
        return run(context, tokens[::-1], positions, ids, wanted)

    monkeypatch.setattr(llamacpp_library.Context, "run", mixed)
    with pytest.raises(InvalidArgumentError, match="does not keep branches apart"):
        load_model(str(tiny_gguf), SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "llamacpp backend cannot honour dtype"),
        ({"quantization": "{}"}, "cannot honour quantization"),
        ({"device": "cpu"}, "cannot honour device"),
        ({"kv_dtype": "f8"}, "kv_dtype is 'f8'; give auto"),
        ({"revision": "main"}, "leave revision unset"),
        ({"context_tokens": CONTEXT + 1}, f"1 to {CONTEXT}"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused_by_name(
    tiny_gguf: Path, options: dict[str, object], message: str
) -> None:
    settings = {"kv_tokens": 256, **options}
    with pytest.raises(InvalidArgumentError, match=message):
        load_model(str(tiny_gguf), ModelOptions(**settings))


def test_options_reach_llama_cpp(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = llamacpp_library.api
    seen: dict[str, int] = {}
    load, make = api.llama_model_load_from_file, api.llama_init_from_model

    def loading(path, parameters):  # type: ignore[no-untyped-def]
        seen["n_gpu_layers"] = parameters.n_gpu_layers
        return load(path, parameters)

    def making(model, parameters):  # type: ignore[no-untyped-def]
        names = ("n_threads", "n_threads_batch", "n_ctx", "type_k", "type_v", "kv_unified")
        seen.update({name: getattr(parameters, name) for name in names})
        return make(model, parameters)

    monkeypatch.setattr(api, "llama_model_load_from_file", loading)
    monkeypatch.setattr(api, "llama_init_from_model", making)
    options = ModelOptions(threads=3, n_gpu_layers=5, kv_dtype="q8_0", kv_tokens=1000)
    load_model(str(tiny_gguf), options)
    assert (seen["n_gpu_layers"], seen["n_threads"], seen["n_threads_batch"]) == (5, 3, 3)
    assert seen["type_k"] == seen["type_v"] == api.GGML_TYPE_Q8_0
    assert 1000 < seen["n_ctx"] <= 1000 + 125 + 256
    assert seen["kv_unified"]


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "q8_0"])
def test_every_kind_of_kv_cache_keeps_branches_apart(tiny_gguf: Path, kv_dtype: str) -> None:
    model = load_model(str(tiny_gguf), ModelOptions(threads=1, kv_tokens=64, kv_dtype=kv_dtype))
    sequence, _ = prefill(model, PROMPT)
    first = sequence.next_node
    (rows,) = model.forward([Feed(sequence, (3, 4, 5), (TIP, TIP, first + 1), (2,))])
    alone = model.open([99])
    (expected,) = model.forward([Feed.chain(alone, [*PROMPT, 4, 5], [len(PROMPT) + 1])])
    assert torch.allclose(rows, expected, atol=1e-3)


def test_where_branches_run_out_cached_sequences_give_way(loaded_gguf: LlamaCppModel) -> None:
    model = loaded_gguf.resized(64, ids=6)
    for start in (10, 20, 30):
        model.close(prefill(model, [start, start + 1])[0])
    sequence = model.open([50])
    (rows,) = model.forward([Feed(sequence, (1, 2, 3), (TIP,) * 3, (0, 1, 2))])
    assert rows.shape[0] == 3
    with pytest.raises(CapacityError, match="1 more branches are wanted and 0 of 4 are free"):
        model.forward([Feed(sequence, (4,), (TIP,), (0,))])
    with pytest.raises(CapacityError, match="all sequences and branches"):
        model.open([60])
    model.keep(sequence, [0])
    assert model.open([60]).tokens == []


def test_whoever_is_let_in_can_run_a_token(loaded_gguf: LlamaCppModel) -> None:
    model = loaded_gguf.resized(64, ids=6)
    live = [model.open([start]) for start in (10, 20, 30)]
    with pytest.raises(CapacityError, match="all sequences and branches"):
        model.open([40])
    for sequence in live:
        model.forward([Feed(sequence, (1,), (TIP,), (0,))])
        model.keep(sequence, [0])


def test_after_moving_a_shorter_prefix_has_all_that_a_window_shows_it(tmp_path: Path) -> None:
    model = load_model(str(write_tiny_gguf(tmp_path / "w.gguf", window=8)), SMALL)
    assert isinstance(model, LlamaCppModel)
    tokens = [2 + 7 * i % 250 for i in range(40)]
    sequence, _ = prefill(model, tokens)
    model._arena.compact()
    short = [*tokens[:20], 9]
    reused, row = prefill(model, short)
    assert torch.equal(row, prefill(model.resized(64), short)[1])
    assert reused.tokens == short and sequence.tokens == tokens


def test_a_pass_longer_than_llama_cpps_batch_is_run_in_pieces(
    loaded_gguf: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, pieces = loaded_gguf.resized(256), loaded_gguf.resized(256)
    tokens = [2 + i % 50 for i in range(100)]
    (whole,) = model.forward([Feed.chain(model.open(tokens), tokens, range(100))])
    monkeypatch.setattr(llamacpp_library, "PASS_TOKENS", 7)
    monkeypatch.setattr(llamacpp_library, "PASS_ROWS", 3)
    (same,) = pieces.forward([Feed.chain(pieces.open(tokens), tokens, range(100))])
    assert torch.equal(same, whole)


def test_a_pass_that_fails_leaves_everything_as_it_was(
    loaded_gguf: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded_gguf.resized(64)
    sequence, _ = prefill(model, PROMPT)
    first = sequence.next_node
    model.forward([Feed(sequence, (3, 4), (TIP, first), ())])
    decode = llamacpp_library.api.llama_decode
    monkeypatch.setattr(llamacpp_library, "PASS_TOKENS", 2)
    calls = []

    def failing(context, batch):  # type: ignore[no-untyped-def]
        calls.append(batch.n_tokens)
        return decode(context, batch) if len(calls) == 1 else -3

    with monkeypatch.context() as patch:
        patch.setattr(llamacpp_library.api, "llama_decode", failing)
        with pytest.raises(OutriderError, match=r"llama\.cpp failed a pass"):
            model.forward([Feed(sequence, (5, 6, 7), (first + 1, TIP, first), (0,))])
    assert len(calls) == 2, "some of the tokens had been run"
    assert set(sequence.nodes) == {first, first + 1}
    other = loaded_gguf.resized(64)
    twin, _ = prefill(other, PROMPT)
    feed = ((5, 6), (first + 1, TIP), (0, 1))
    (rows,) = model.forward([Feed(sequence, *feed)])
    other.forward([Feed(twin, (3, 4), (TIP, first), ())])
    (expected,) = other.forward([Feed(twin, *feed)])
    assert torch.equal(rows, expected)


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (RepositoryNotFoundError, NotFoundError, "no model 'org/name' on the hub"),
        (EntryNotFoundError, NotFoundError, "has no file 'file.gguf'"),
        (LocalEntryNotFoundError, UnavailableError, "hub cannot be reached"),
        (ConnectionError, UnavailableError, "hub cannot be reached"),
    ],
)
def test_errors_of_the_hub_are_told_by_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    raised: type[OutriderError],
    message: str,
) -> None:
    def refuse(*arguments: object, **more: object) -> str:
        raise error.__new__(error)

    monkeypatch.setattr(llamacpp_source, "hf_hub_download", refuse)
    with pytest.raises(raised, match=message):
        load_model("org/name/file.gguf", SMALL)


def test_all_parts_of_a_file_on_the_hub_are_fetched(
    tmp_path: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = split(tiny_gguf, tmp_path)
    asked: list[tuple[str, str, str | None]] = []

    def fetch(repo: str, file: str, revision: str | None) -> str:
        asked.append((repo, file, revision))
        return str(tmp_path / Path(file).name)

    monkeypatch.setattr(llamacpp_source, "hf_hub_download", fetch)
    options = ModelOptions(threads=1, kv_tokens=64, revision="v2")
    load_model(f"org/name/deep/{parts[1].name}", options)
    assert asked == [("org/name", f"deep/{part.name}", "v2") for part in parts]
    assert huggingface_hub.hf_hub_download is not fetch


def test_two_formats_of_one_model_are_nearly_the_same(tmp_path: Path) -> None:
    wide = write_tiny_gguf(tmp_path / "wide.gguf")
    quantize(wide, tmp_path / "narrow.gguf", "q8_0")
    files = (wide, tmp_path / "narrow.gguf")
    rows = [prefill(load_model(str(file), SMALL), PROMPT)[1] for file in files]
    assert 0 < float((rows[0] - rows[1]).abs().max()) < 1.0
