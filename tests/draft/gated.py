"""A model that counts, remembers its passes, and can be held in the middle of a call."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from outrider.models.base import Feed, ModelSequence
from outrider.models.registry import ModelOptions, load_model
from outrider.models.scripted import ScriptedModel

HOLD_S = 20.0


def scripted(argument: str = "vocab=8", kv_tokens: int = 4096) -> ScriptedModel:
    """A scripted model by its argument."""
    model = load_model(f"scripted:{argument}", ModelOptions(kv_tokens=kv_tokens))
    assert isinstance(model, ScriptedModel)
    return model


class GatedModel:
    """`hold("forward")` makes the next such call wait until `release`."""

    def __init__(self, argument: str = "vocab=8", kv_tokens: int = 4096) -> None:
        self.model = scripted(argument, kv_tokens)
        self.info = self.model.info
        self.tokenizer = self.model.tokenizer
        self.opened = 0
        self.closed = 0
        self.passes: list[dict[int, tuple[int, ...]]] = []
        """Of each pass the tokens of each sequence, by its place in the order of opening."""
        self.breaks: Callable[[Sequence[Feed]], Exception | None] = lambda feeds: None
        """What a pass raises, if anything."""
        self._places: dict[int, int] = {}
        self._sequences: list[ModelSequence] = []
        self._held = ""
        self._entered = threading.Event()
        self._released = threading.Event()

    @property
    def pinned(self) -> int:
        """Cells of sequences that are not closed."""
        return self.model.cells.pinned

    def hold(self, name: str) -> None:
        """The next call of `name` waits."""
        self._held = name
        self._entered.clear()
        self._released.clear()

    async def wait_held(self) -> None:
        """Returns once that call has begun."""
        assert await asyncio.to_thread(self._entered.wait, HOLD_S), f"{self._held} was not called"

    def release(self) -> None:
        """Lets it go on."""
        self._released.set()

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        self._gate("open")
        sequence = self.model.open(token_ids)
        self._places[id(sequence)] = self.opened
        self._sequences.append(sequence)
        self.opened += 1
        return sequence

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        self._gate("forward")
        error = self.breaks(feeds)
        if error is not None:
            raise error
        logits = self.model.forward(feeds)
        self.passes.append({self._places[id(f.sequence)]: f.tokens for f in feeds})
        return logits

    def keep(
        self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int] = ()
    ) -> None:
        self.model.keep(sequence, path, surviving)

    def close(self, sequence: ModelSequence) -> None:
        self.closed += not sequence.is_closed
        self.model.close(sequence)

    def _gate(self, name: str) -> None:
        if self._held == name:
            self._held = ""
            self._entered.set()
            assert self._released.wait(HOLD_S), f"{name} was never released"
