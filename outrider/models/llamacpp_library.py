"""llama.cpp's C API as the backend needs it: models, contexts, passes. Knows no sequences of ours.

Everything that is loaded is freed when its object goes. What llama.cpp logs is kept for error
messages, and otherwise lost.
"""

import contextlib
import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import llama_cpp.llama_cpp as api
import numpy as np
import numpy.typing as npt

from outrider.errors import CapacityError, InternalError, InvalidArgumentError
from outrider.models.llamacpp_arena import MOVING
from outrider.models.llamacpp_sizes import PASS_ROWS, PASS_TOKENS
from outrider.models.options import ModelOptions

MAX_IDS = 256
"""Sequence ids of a context: llama.cpp's own limit (LLAMA_MAX_SEQ)."""

KEPT_LINES = 8
_WARN, _ERROR, _CONTINUED = 3, 4, 5

BF16 = 30
"""ggml's number of the type, which the Python package does not name."""

KV_TYPES = {"f32": api.GGML_TYPE_F32, "f16": api.GGML_TYPE_F16, "q8_0": api.GGML_TYPE_Q8_0}


class _Log:
    """The last warnings and errors. llama.cpp calls it from any thread."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._level = 0
        self._lock = threading.Lock()
        # Without a reference the callback would be freed, and the next line would be a crash.
        self.callback = api.llama_log_callback(self._take)

    def _take(self, level: int, text: bytes, _: ctypes.c_void_p) -> None:
        with self._lock:
            self._level = self._level if level == _CONTINUED else level
            if self._level in (_WARN, _ERROR):
                self._lines.append(text.decode("utf-8", "replace").strip())

    def clear(self) -> None:
        with self._lock:
            self._lines.clear()

    def told(self) -> str:
        """What was said, as the end of a sentence."""
        with self._lock:
            lines = [line for line in self._lines if line]
        return f": {'; '.join(lines)}" if lines else ""


# One more way to multiply, taken from some number of rows on; it rounds differently.
os.environ.setdefault("GGML_CPU_TILED_MM", "0")

# Its backtrace of an abort would start a debugger and hide the reason behind its pages.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

_log = _Log()
_begun = threading.Lock()
_has_begun = False


def begin() -> None:
    """Takes over the log and starts the backends, once."""
    global _has_begun
    with _begun:
        if not _has_begun:
            api.llama_log_set(_log.callback, ctypes.c_void_p(0))
            api.llama_backend_init()
            _has_begun = True


@contextlib.contextmanager
def own_log() -> Iterator[_Log]:
    """What is logged from here on."""
    begin()
    _log.clear()
    yield _log


def has_gpu() -> bool:
    """Whether this build of llama.cpp can compute on a GPU."""
    return bool(api.llama_supports_gpu_offload())


class LoadedModel:
    """Weights and vocabulary of a GGUF file, and of the other parts that belong to it.

    With `pairs_rows`, contexts made from then on run no token alone and compute no row alone.
    """

    def __init__(self, path: Path, options: ModelOptions) -> None:
        self.on_cpu = options.n_gpu_layers == 0 or not has_gpu()
        with own_log() as log:
            parameters = api.llama_model_default_params()
            parameters.n_gpu_layers = options.n_gpu_layers
            # llama.cpp's kernels for AMX crash on some machines that have it.
            parameters.use_extra_bufts = b"AMX_INT8 = 1" not in api.llama_print_system_info()
            handle = api.llama_model_load_from_file(str(path).encode(), parameters)
            if not handle:
                raise InvalidArgumentError(
                    f"llama.cpp cannot load {path}{log.told()}; fetch the file again if it is "
                    "damaged, or use another model if this llama.cpp does not know its kind"
                )
        self.handle = handle
        self.vocabulary = api.llama_model_get_vocab(handle)
        self.vocab_size = int(api.llama_vocab_n_tokens(self.vocabulary))
        self.pairs_rows = False
        weakref.finalize(self, api.llama_model_free, handle)

    @property
    def context_tokens(self) -> int:
        """The context that it was trained for."""
        return int(api.llama_model_n_ctx_train(self.handle))

    @property
    def window(self) -> int:
        """Tokens that layers with a sliding window look back; 0: there are none."""
        return int(api.llama_model_n_swa(self.handle))

    def text(self, key: str) -> str:
        """A value of the file's metadata as text; empty where there is none."""
        size = 2**10
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = int(api.llama_model_meta_val_str(self.handle, key.encode(), buffer, size))
            if length < size:
                return buffer.value.decode("utf-8", "replace") if length > 0 else ""
            size = length + 1

    def unfitting(self) -> str:
        """Why it cannot run branches; empty where it can."""
        handle = self.handle
        for is_so, why in (
            (api.llama_model_has_encoder(handle), "has an encoder"),
            (not api.llama_model_has_decoder(handle), "has no decoder"),
            (api.llama_model_is_recurrent(handle), "keeps a state that cannot be rolled back"),
            (api.llama_model_is_hybrid(handle), "keeps a state that cannot be rolled back"),
            (api.llama_model_is_diffusion(handle), "does not write from left to right"),
            (api.llama_vocab_type(self.vocabulary) == 0, "has no tokenizer"),
        ):
            if is_so:
                return why
        return ""


class Context:
    """A KV cache of `cells` cells over a model, and the passes that fill it."""

    def __init__(self, model: LoadedModel, cells: int, threads: int, kv_dtype: str) -> None:
        self.model = model
        self._pairs_rows = model.pairs_rows
        parameters = api.llama_context_default_params()
        parameters.n_ctx = cells + (1 if self._pairs_rows else 0)
        parameters.n_batch = parameters.n_ubatch = PASS_TOKENS
        parameters.n_outputs_max = PASS_ROWS
        parameters.n_seq_max = MAX_IDS
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.kv_unified = True
        parameters.swa_full = True
        parameters.no_perf = True
        # Else long passes of a model without a layer on the GPU are computed there all the same.
        parameters.op_offload = not model.on_cpu
        parameters.type_k, parameters.type_v = kv_types(kv_dtype, model.on_cpu)
        with own_log() as log:
            handle = api.llama_init_from_model(model.handle, parameters)
            if not handle:
                raise CapacityError(
                    f"llama.cpp cannot make a KV cache of {cells} cells{log.told()}; lower "
                    "kv_tokens, or use another kv_dtype"
                )
        self._handle = handle
        self._memory = api.llama_get_memory(handle)
        self._batch = api.llama_batch_init(PASS_TOKENS, 0, MAX_IDS)
        # The model must outlive its contexts, so the finaliser holds it.
        weakref.finalize(self, _free, handle, self._batch, model)
        if not self._memory:
            raise InvalidArgumentError(
                "the model has no KV cache: it embeds texts and writes none; use another model"
            )

    def run(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        ids: Sequence[Sequence[int]],
        wanted: Sequence[int],
    ) -> dict[int, npt.NDArray[np.float32]]:
        """Runs tokens under their sequence ids; logits [vocab_size] for each index in `wanted`.

        On an error some of the tokens may be in the cache.
        """
        rows: dict[int, npt.NDArray[np.float32]] = {}
        want = set(wanted)
        start = 0
        while start < len(tokens):
            stop, outputs = start, 0
            while stop < len(tokens) and stop - start < PASS_TOKENS:
                outputs += stop in want
                if outputs > PASS_ROWS:
                    break
                stop += 1
            outputs_wanted = [index in want for index in range(start, stop)]
            self._decode(tokens[start:stop], positions[start:stop], ids[start:stop], outputs_wanted)
            for index in range(start, stop):
                if index in want:
                    row = api.llama_get_logits_ith(self._handle, index - start)
                    rows[index] = np.ctypeslib.as_array(row, (self.model.vocab_size,)).copy()
            start = stop
        return rows

    def _decode(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        ids: Sequence[Sequence[int]],
        wanted: list[bool],
    ) -> None:
        has_twin = self._pairs_rows and len(tokens) == 1
        if has_twin:
            # A second row, of a sequence of its own, so that the kernel for several is taken.
            tokens, positions, ids = [*tokens, *tokens], [*positions, 0], [*ids, [MOVING]]
            wanted = wanted * 2
        elif self._pairs_rows and sum(wanted) == 1:
            # The last block and the head run for wanted rows only.
            wanted[wanted.index(False)] = True
        try:
            self._decode_as_is(tokens, positions, ids, wanted)
        finally:
            if has_twin:
                self.remove(MOVING, 0, -1)

    def _decode_as_is(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        ids: Sequence[Sequence[int]],
        wanted: Sequence[bool],
    ) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, (token, position, owners) in enumerate(zip(tokens, positions, ids, strict=True)):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = len(owners)
            for number, owner in enumerate(owners):
                batch.seq_id[index][number] = owner
            batch.logits[index] = wanted[index]
        with own_log() as log:
            status = api.llama_decode(self._handle, batch)
            if status == 1:
                raise CapacityError(
                    f"llama.cpp has no room for {len(tokens)} tokens{log.told()}; lower kv_tokens"
                )
            if status != 0:
                raise InternalError(
                    f"llama.cpp failed a pass of {len(tokens)} tokens ({status}){log.told()}"
                )

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """See `Memory`."""
        api.llama_memory_seq_cp(self._memory, source, target, start, stop)

    def remove(self, sequence: int, start: int, stop: int) -> None:
        """See `Memory`."""
        api.llama_memory_seq_rm(self._memory, sequence, start, stop)

    def clear(self) -> None:
        """See `Memory`."""
        api.llama_memory_clear(self._memory, False)

    def save(self, sequence: int) -> bytes:
        """See `Memory`."""
        size = int(api.llama_state_seq_get_size(self._handle, sequence))
        buffer = (ctypes.c_uint8 * size)()
        written = int(api.llama_state_seq_get_data(self._handle, buffer, size, sequence))
        if written == 0:
            raise InternalError("llama.cpp could not hand out the cells of a sequence")
        return bytes(memoryview(buffer)[:written])

    def restore(self, sequence: int, state: bytes) -> None:
        """See `Memory`."""
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        with own_log() as log:
            if not api.llama_state_seq_set_data(self._handle, buffer, len(state), sequence):
                raise InternalError(f"llama.cpp could not take cells back{log.told()}")


def kv_types(kv_dtype: str, on_cpu: bool) -> tuple[int, int]:
    """What keys and values are stored as.

    On the CPU llama.cpp computes attention over values of f16 in one of three ways, by the length
    of the pass, the cells in use and the threads, and they round differently; where values are bf16
    there is one way for all, which adds up in float32. So that is `auto` there: rows then depend on
    no other sequence, no plan and no thread. On a GPU it is f16.
    """
    if kv_dtype == "auto":
        return api.GGML_TYPE_F16, BF16 if on_cpu else api.GGML_TYPE_F16
    return KV_TYPES[kv_dtype], KV_TYPES[kv_dtype]


def _free(handle: int, batch: api.llama_batch, model: LoadedModel) -> None:
    del model
    api.llama_batch_free(batch)
    api.llama_free(handle)
