"""Unquantised weights take another kernel for one row than for several; no row may show that."""

from pathlib import Path

import pytest
import torch
from support.tiny_gguf import write_tiny_gguf

from outrider.models.base import TIP, CausalModel, Feed
from outrider.models.llamacpp_quantize import quantize
from outrider.models.options import ModelOptions
from outrider.models.registry import load_model

TEXT = (3, 141, 59, 26, 53, 58, 97, 93, 23, 84)


@pytest.fixture(params=["f32", "f16"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> CausalModel:
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    if request.param != "f32":
        quantize(file, tmp_path / "made.gguf", request.param)
        file = tmp_path / "made.gguf"
    return load_model(str(file), ModelOptions(kv_tokens=64))


def test_tokens_fed_alone_and_together_give_the_same_bits(model: CausalModel) -> None:
    together = model.open(())
    (expected,) = model.forward([Feed.chain(together, TEXT, range(len(TEXT)))])
    alone = model.open(())
    for index, token in enumerate(TEXT):
        (row,) = model.forward([Feed.chain(alone, (token,), (0,))])
        assert torch.equal(row[0], expected[index]), index
        model.keep(alone, [index])


def test_a_row_has_the_same_bits_whichever_other_rows_are_wanted(model: CausalModel) -> None:
    together = model.open(())
    (expected,) = model.forward([Feed.chain(together, TEXT, range(len(TEXT)))])
    for wanted in ((9,), (0,), (4, 9)):
        (rows,) = model.forward([Feed.chain(model.open(()), TEXT, wanted)])
        assert torch.equal(rows, expected[list(wanted)]), wanted


def test_a_lone_row_leaves_nothing_behind(model: CausalModel) -> None:
    """More passes of one token than there are cells, each dropped."""
    sequence = model.open(())
    model.forward([Feed.chain(sequence, TEXT, (9,))])
    model.keep(sequence, range(len(TEXT)))
    (expected,) = model.forward([Feed(sequence, (7,), (TIP,), (0,))])
    for _ in range(400):
        model.keep(sequence, ())
        (row,) = model.forward([Feed(sequence, (7,), (TIP,), (0,))])
    assert torch.equal(row, expected)
