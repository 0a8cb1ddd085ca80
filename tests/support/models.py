"""The scripted model as an oracle, and a wrapper that counts what a service asks of its model."""

from collections.abc import Iterable, Sequence

from torch import Tensor

from outrider.models.base import CausalModel, Feed, ModelSequence
from outrider.models.scripted import ScriptedLaw, scripted_logits
from outrider.sampling.history import History
from outrider.sampling.noise import PhiloxNoise, Stream
from outrider.sampling.processing import distribution
from outrider.types import SamplingParams

GREEDY = SamplingParams(temperature=0)


class Watched:
    """A model that counts: sequences opened, passes, tokens run, sequences closed."""

    def __init__(self, model: CausalModel) -> None:
        self.model = model
        self.info = model.info
        self.tokenizer = model.tokenizer
        self.opened = 0
        self.closed = 0
        self.passes = 0
        self.deciding_passes = 0
        """Passes of which at least one row of logits was asked for."""
        self.tokens = 0

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        self.opened += 1
        return self.model.open(token_ids)

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        self.passes += 1
        self.deciding_passes += any(feed.rows for feed in feeds)
        self.tokens += sum(len(feed.tokens) for feed in feeds)
        return self.model.forward(feeds)

    def keep(
        self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int] = ()
    ) -> None:
        self.model.keep(sequence, path, surviving)

    def close(self, sequence: ModelSequence) -> None:
        self.closed += not sequence.is_closed
        self.model.close(sequence)


def alone(
    law: ScriptedLaw,
    prompt: Sequence[int],
    count: int,
    sampling: SamplingParams = GREEDY,
    history: History | None = None,
) -> list[int]:
    """What the target says by itself: greedy, or coupled with the seed of `sampling`.

    Computed without any service: logits, processing after `history`, warping, one race a position.
    """
    noise = PhiloxNoise(sampling.seed or 0)
    history = history or History.of(sampling, prompt)
    tokens = list(prompt)
    for position in range(len(prompt), len(prompt) + count):
        p = distribution(scripted_logits(law, [tokens])[0], sampling, history)
        tokens.append(noise.choose(p, position, Stream.COUPLED))
        history = history.after(tokens[-1:])
    return tokens[len(prompt) :]
