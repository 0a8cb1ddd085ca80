"""What can never fit is refused; what may work is loaded with a warning."""

import pytest

from outrider.errors import CapacityError
from outrider.host import GpuFacts, HostFacts
from outrider.models import room
from outrider.models.footprint import Footprint
from outrider.models.options import ModelOptions
from outrider.models.room import Fit, Place, check_room, judge, judge_together, place_of, room_for

GB = 10**9
HERE = Place("this machine", 16 * GB, 12 * GB)
GPU = Place("a GPU", 8 * GB, 8 * GB, is_gpu=True)


def taking(weights_gb: float, *, mapped: bool = False) -> Footprint:
    return Footprint(int(weights_gb * GB), 100_000, is_mapped=mapped, layers=10)


@pytest.mark.parametrize(
    ("weights_gb", "kv_tokens", "fit"),
    [
        (4, 10_000, Fit.FITS),
        (12.5, 1000, Fit.TIGHT),
        (15, 1000, Fit.TIGHT),
        (17, 1000, Fit.TOO_BIG),
        (4, 130_000, Fit.TOO_BIG),
    ],
)
def test_need_is_weights_and_kv_against_free_and_whole_memory(
    weights_gb: float, kv_tokens: int, fit: Fit
) -> None:
    assert judge("m", taking(weights_gb), kv_tokens, HERE).fit is fit


def test_a_mapped_file_larger_than_memory_is_slow_and_not_refused() -> None:
    assert judge("m", taking(40, mapped=True), 1000, HERE).fit is Fit.SLOW
    assert judge("m", taking(40, mapped=True), 160_000, HERE).fit is Fit.TOO_BIG


def test_graphics_memory_pages_nothing() -> None:
    assert judge("m", taking(9, mapped=True), 1000, GPU).fit is Fit.TOO_BIG


def test_a_refusal_says_how_many_tokens_would_fit() -> None:
    refused = judge("m", taking(4), 130_000, HERE)
    assert "--kv-tokens 104000" in refused.sentence
    assert judge("m", taking(4), 104_000, HERE).fit is not Fit.TOO_BIG


def test_only_the_layers_on_the_gpu_count_there() -> None:
    half = Place("a GPU", 8 * GB, 8 * GB, is_gpu=True, share=0.5)
    assert judge("m", taking(12), 1000, half).fit is Fit.FITS


def test_an_upper_bound_is_called_one() -> None:
    windows = Footprint(GB, 100_000, has_windows=True)
    assert "up to 0.1 GB" in judge("m", windows, 1000, HERE).sentence


def test_what_is_unknown_is_not_judged() -> None:
    known = judge("m", Footprint(None, None, "nobody told"), 1000, HERE)
    assert known.fit is Fit.UNKNOWN and "nobody told" in known.sentence
    assert judge("m", taking(1), 1000, Place("this machine", 0, 0)).fit is Fit.UNKNOWN


def test_two_models_have_to_fit_at_once() -> None:
    def together(*weights_gb: float) -> Fit:
        rooms = [judge("m", taking(gb), 1000, HERE) for gb in weights_gb]
        found = judge_together(rooms, HERE)
        assert found is not None
        return found.fit

    assert together(4, 2) is Fit.FITS
    assert together(8, 5) is Fit.TIGHT
    assert together(10, 9) is Fit.TOO_BIG
    assert judge_together([judge("m", taking(4), 1000, HERE)], HERE) is None


def test_a_model_goes_to_the_gpu_that_its_options_name(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostFacts(
        memory_total_bytes=16 * GB,
        memory_available_bytes=12 * GB,
        gpus=(GpuFacts("small", 4 * GB, 4 * GB), GpuFacts("large", 24 * GB, 20 * GB)),
    )
    monkeypatch.setattr(room, "footprint", lambda *_, **__: taking(6))
    monkeypatch.setattr(room, "_torch_has_cuda", lambda: True)

    def fit(**options: str) -> Fit:
        return room_for("org/m", ModelOptions(kv_tokens=1000, **options), host)[1].fit

    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert fit(device="cpu") is Fit.FITS
    assert fit(device="cuda:0") is Fit.TOO_BIG
    assert fit(device="cuda:1") is Fit.FITS
    assert fit() is Fit.TOO_BIG
    assert fit(device_map="auto") is Fit.FITS
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    assert fit(device="cuda:0") is Fit.FITS, "CUDA's first is the fastest, not the first in place"


def test_a_gguf_goes_to_all_gpus_where_llama_cpp_was_built_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = HostFacts(
        memory_total_bytes=16 * GB,
        memory_available_bytes=12 * GB,
        gpus=(GpuFacts("a", 2 * GB, 2 * GB), GpuFacts("b", 2 * GB, 2 * GB)),
    )
    monkeypatch.setattr(room, "footprint", lambda *_, **__: taking(6, mapped=True))
    monkeypatch.setattr(room, "_llamacpp_offloads", lambda: True)

    def fit(layers: int) -> Fit:
        options = ModelOptions(kv_tokens=1000, n_gpu_layers=layers)
        return room_for("m.gguf", options, host)[1].fit

    assert fit(-1) is Fit.TOO_BIG
    assert fit(0) is Fit.FITS
    assert fit(5) is Fit.FITS
    monkeypatch.setattr(room, "_llamacpp_offloads", lambda: False)
    assert fit(-1) is Fit.FITS


def test_too_big_is_refused_before_loading_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = HostFacts(memory_total_bytes=16 * GB, memory_available_bytes=12 * GB)
    monkeypatch.setattr(room, "footprint", lambda *_, **__: taking(20))
    with pytest.raises(CapacityError, match="--skip-memory-check"):
        check_room("org/m", ModelOptions(), host, is_skipped=False)
    assert check_room("org/m", ModelOptions(), host, is_skipped=True).weights_bytes == 20 * GB


def test_several_gpus_are_one_place() -> None:
    host = HostFacts(gpus=(GpuFacts("a", 4, 3), GpuFacts("b", 6, 5)))
    place = place_of(host, (0, 1))
    assert (place.total_bytes, place.available_bytes, place.is_gpu) == (10, 8, True)
