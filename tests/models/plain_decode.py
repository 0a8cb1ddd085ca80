"""Rows of a GGUF file as llama.cpp's own Python class computes them, in a sequence of their own."""

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import llama_cpp
import numpy as np
import torch
from torch import Tensor

from outrider.models.llamacpp_library import BF16

_DEFAULTS = llama_cpp.llama_model_default_params


def plain_parameters() -> llama_cpp.llama_model_params:
    """Without the kernels that crash on some machines; the class has no argument for it."""
    parameters = _DEFAULTS()
    parameters.use_extra_bufts = False
    return parameters


class PlainDecode:
    """Feeds tokens one by one or all at once; every row starts from an empty cache."""

    def __init__(
        self, path: Path, *, threads: int = 1, context: int = 0, value_type: int = BF16
    ) -> None:
        with mock.patch.object(llama_cpp.llama_cpp, "llama_model_default_params", plain_parameters):
            self.library = llama_cpp.Llama(
                str(path),
                n_ctx=context,
                n_threads=threads,
                n_threads_batch=threads,
                n_gpu_layers=0,
                type_v=value_type,
                flash_attn=True,
                logits_all=True,
                verbose=False,
            )

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """The row after the last token, all of them fed at once."""
        self.library.reset()
        self.library.eval(list(tokens))
        return self._row()

    def one_by_one(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[Tensor]:
        """The rows after each of `tokens`, fed alone, once the prompt was fed at once."""
        self.library.reset()
        self.library.eval(list(prompt))
        rows = []
        for token in tokens:
            self.library.eval([token])
            rows.append(self._row())
        return rows

    def _row(self) -> Tensor:
        rows = self.library.scores
        return torch.from_numpy(np.array(rows[self.library.n_tokens - 1], dtype=np.float32))
