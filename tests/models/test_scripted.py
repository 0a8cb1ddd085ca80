"""The scripted law is a pure function with known parts, and its settings do what they say."""

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from outrider.errors import InvalidArgumentError
from outrider.models import scripted
from outrider.models.base import TIP, Feed
from outrider.models.options import ModelOptions
from outrider.models.registry import load_model
from outrider.models.scripted import ScriptedLaw, scripted_logits

GOLDEN_ROW = [
    "-0x1.38af800000000p-2",
    "-0x1.3742000000000p-3",
    "0x1.4d09b00000000p+0",
    "-0x1.6f92c00000000p-2",
]


def law_of(**changes: float) -> ScriptedLaw:
    return ScriptedLaw(**{"vocab": 32, "seed": 1, **changes})


def test_a_row_depends_on_the_last_tokens_only() -> None:
    rows = scripted_logits(law_of(order=2), [[9, 1, 2], [1, 2], [8, 8, 8, 1, 2], [9, 2], [1, 3]])
    assert torch.equal(rows[0], rows[1])
    assert torch.equal(rows[0], rows[2])
    assert not torch.equal(rows[0], rows[3])
    assert not torch.equal(rows[0], rows[4])


def test_a_short_context_differs_from_a_padded_one() -> None:
    rows = scripted_logits(law_of(order=2), [[], [0], [0, 0]])
    assert len({tuple(row.tolist()) for row in rows}) == 3


def test_order_zero_is_one_constant_law() -> None:
    rows = scripted_logits(law_of(order=0), [[], [1], [5, 6]])
    assert torch.equal(rows[0], rows[1])
    assert torch.equal(rows[0], rows[2])


def test_rows_do_not_depend_on_the_batch() -> None:
    contexts = [[i, 3 * i] for i in range(40)]
    together = scripted_logits(law_of(drift=0.37), contexts)
    alone = [scripted_logits(law_of(drift=0.37), [context])[0] for context in contexts]
    assert torch.equal(together, torch.stack(alone))


def test_laws_drift_towards_the_law_of_their_drift_seed() -> None:
    contexts = [[i] for i in range(64)]
    target, one, other = (
        scripted_logits(law_of(drift=drift, drift_seed=seed), contexts).double().flatten()
        for drift, seed in ((0.0, 0), (0.5, 1), (0.5, 2))
    )
    errors = torch.corrcoef(torch.stack([one - 0.5 * target, other - 0.5 * target]))
    assert abs(float(errors[0, 1])) < 0.1  # 2,048 numbers: independent within 4 deviations.
    undrifted = scripted_logits(law_of(drift_seed=9), contexts).double().flatten()
    assert torch.equal(undrifted, target)


def test_rows_keep_their_bits_from_release_to_release() -> None:
    row = scripted_logits(ScriptedLaw(vocab=4, seed=5, drift=0.5, sharpness=2.0), [[1, 2]])[0]
    assert [value.hex() for value in row.tolist()] == GOLDEN_ROW


def test_logits_have_the_stated_scale() -> None:
    rows = scripted_logits(law_of(vocab=512, sharpness=3.0), [[i] for i in range(200)])
    assert abs(float(rows.mean())) < 0.05
    assert float(rows.std()) == pytest.approx(3.0, rel=0.02)
    assert float(rows.abs().max()) <= 9.0


def test_drift_goes_from_the_same_law_to_an_independent_one() -> None:
    contexts = [[i, i + 1] for i in range(200)]
    target = scripted_logits(law_of(), contexts)
    assert torch.equal(target, scripted_logits(law_of(drift=0.0), contexts))
    far = scripted_logits(law_of(drift=1.0), contexts)
    assert abs(float(torch.corrcoef(torch.stack([target.flatten(), far.flatten()]))[0, 1])) < 0.05
    middle = scripted_logits(law_of(drift=0.25), contexts)
    assert torch.allclose(middle, 0.75 * target + 0.25 * far, atol=1e-6)


def test_seeds_give_independent_laws() -> None:
    assert not torch.equal(
        scripted_logits(law_of(seed=1), [[1]]), scripted_logits(law_of(seed=2), [[1]])
    )


def test_the_model_follows_the_law_along_the_path() -> None:
    model = load_model("scripted:vocab=32,seed=1,order=3,drift=0.1")
    sequence = model.open([1, 2])
    (rows,) = model.forward([Feed(sequence, (1, 2, 3, 4), (TIP, 0, 1, TIP), (2, 3))])
    expected = scripted_logits(law_of(order=3, drift=0.1), [[1, 2, 3], [4]])
    assert torch.equal(rows, expected)


def test_a_row_is_cheap_without_step_time() -> None:
    model = load_model("scripted:vocab=32")
    sequence = model.open([1])
    feed = Feed(sequence, (1,) * 16, (TIP,) * 16, tuple(range(16)))
    durations = []
    for _ in range(20):
        start = time.perf_counter()
        model.forward([feed])
        durations.append(time.perf_counter() - start)
        model.keep(sequence, ())
        feed = Feed(sequence, (1,) * 16, (TIP,) * 16, tuple(range(16)))
    assert min(durations) / 16 < 100e-6


@pytest.mark.parametrize(("arithmetic_s", "left_s"), [(0.0, 0.012), (0.002, 0.01), (0.02, None)])
def test_step_time_is_per_pass_and_per_fed_token(
    monkeypatch: pytest.MonkeyPatch, arithmetic_s: float, left_s: float | None
) -> None:
    slept: list[float] = []
    clock = iter((100.0, 100.0 + arithmetic_s))
    fake = SimpleNamespace(sleep=slept.append, perf_counter=lambda: next(clock))
    monkeypatch.setattr(scripted, "time", fake)
    model = load_model("scripted:step_ms=10,row_ms=0.5")
    first, second = model.open([1]), model.open([2])
    model.forward([Feed.chain(first, [1, 2, 3], [2]), Feed.chain(second, [1], [0])])
    assert slept == ([] if left_s is None else [pytest.approx(left_s)])


def test_models_that_share_a_device_compute_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "device"
    computing, most = 0, 0
    both_wait = threading.Barrier(2)
    lock = threading.Lock()

    def compute(seconds: float) -> None:
        nonlocal computing, most
        with lock:
            computing += 1
            most = max(most, computing)
        wait_for_another.wait(seconds)
        with lock:
            computing -= 1

    # Nobody sets it: a pass is as long as it says, so that a second one could fall into it.
    wait_for_another = threading.Event()
    monkeypatch.setattr(scripted.time, "sleep", compute)

    def passes(spec: str) -> None:
        model = load_model(spec)
        sequence = model.open([1])
        both_wait.wait(10)
        for token in range(5):
            model.forward([Feed.chain(sequence, [token], [0])])

    def run(specs: list[str]) -> int:
        nonlocal most
        most = 0
        threads = [threading.Thread(target=passes, args=(spec,)) for spec in specs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return most

    shared = f"scripted:step_ms=20,device={device}"
    assert run([shared, shared]) == 1
    assert run([shared, f"scripted:step_ms=20,device={tmp_path / 'other'}"]) == 2
    assert run([shared, "scripted:step_ms=20"]) == 2


def test_a_device_is_free_again_after_a_pass_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"scripted:step_ms=1,device={tmp_path / 'device'}"
    broken, other = load_model(spec), load_model(spec)

    def fail(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scripted.time, "sleep", fail)
        with pytest.raises(KeyboardInterrupt):
            broken.forward([Feed.chain(broken.open([1]), [1], [0])])
    assert len(other.forward([Feed.chain(other.open([1]), [1], [0])])) == 1


def test_a_device_that_cannot_be_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (tmp_path, tmp_path / "no" / "device"):
        with pytest.raises(InvalidArgumentError, match=f"device={path} cannot be opened"):
            load_model(f"scripted:device={path}")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(InvalidArgumentError, match="cannot lock files"):
        load_model(f"scripted:device={tmp_path / 'device'}")
    assert load_model("scripted").info.backend == "scripted"


def test_text_is_encoded_byte_by_byte_and_pieces_are_printable_and_distinct() -> None:
    model = load_model("scripted:vocab=100,eos=7")
    assert model.tokenizer is not None
    assert model.tokenizer.encode("aé") == [ord("a"), 0xC3 % 100, 0xA9 % 100]
    vocabulary = model.tokenizer.vocabulary
    assert len(set(vocabulary.pieces)) == 100
    assert all(piece.decode().isprintable() for piece in vocabulary.pieces)
    assert [i for i in range(100) if vocabulary.control[i]] == [7]
    assert model.info.eos_token_ids == (7,)
    chat = model.tokenizer.encode_chat([("user", "hi")])
    assert chat == model.tokenizer.encode("user: hi\nassistant:")
    with pytest.raises(InvalidArgumentError, match="no messages"):
        model.tokenizer.encode_chat([])


def test_tokenizer_hashes_tell_what_fits() -> None:
    own = load_model("scripted:vocab=16,seed=1").info
    draft = load_model("scripted:vocab=16,seed=1,drift=0.5").info
    salted = load_model("scripted:vocab=16,hash_salt=x").info
    free = load_model("scripted:vocab=16,tokenizer=any")
    assert own.tokenizer_hash == draft.tokenizer_hash
    assert len({own.tokenizer_hash, salted.tokenizer_hash, ""}) == 3
    assert (free.info.tokenizer_hash, free.info.vocab_size, free.tokenizer) == ("", 0, None)
    sequence = free.open([49_000])
    (rows,) = free.forward([Feed.chain(sequence, [49_000], [0])])
    assert rows.shape == (1, 16)


def test_defaults_are_the_documented_ones() -> None:
    model = load_model("scripted")
    assert model.info.model_name == "scripted"
    assert (model.info.vocab_size, model.info.context_tokens) == (16, 8192)
    assert model.info.eos_token_ids == ()
    assert load_model("scripted:eos=none").info.eos_token_ids == ()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("vocap=16", r"vocap; known keys are vocab, seed, order, drift.*hash_salt"),
        ("vocab", "'vocab'.*key=value"),
        ("vocab=16,vocab=17", "each key once"),
        ("vocab=16,", "key=value"),
        ("vocab=1", "vocab=1; give a whole number from 2"),
        ("vocab=x", "vocab=x"),
        ("seed=-1", "seed=-1"),
        ("seed=18446744073709551616", "seed="),
        ("drift=1.5", "drift=1.5; give a number from 0 to 1"),
        ("drift=nan", "drift=nan"),
        ("sharpness=inf", "sharpness=inf"),
        ("eos=16", "eos=16"),
        ("eos=no", "eos=no"),
        ("step_ms=-1", "step_ms=-1"),
        ("tokenizer=mine", "own or any"),
        ("context=0", "context=0"),
        ("order=65", "order=65"),
        ("device=", "each key once"),
    ],
)
def test_bad_settings_are_refused_by_name(argument: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        load_model(f"scripted:{argument}")


@pytest.mark.parametrize("backend", ["scripted", "ngram"])
@pytest.mark.parametrize(
    "option", [{"dtype": "float16"}, {"device": "cpu"}, {"threads": 1}, {"revision": "main"}]
)
def test_options_that_mean_nothing_here_are_refused(
    backend: str, option: dict[str, object]
) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"{backend} backend cannot honour {next(iter(option))}"
    ):
        load_model(backend, ModelOptions(**option))
