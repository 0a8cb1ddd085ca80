"""What `outrider bench` measures, and in which order. Pure: knows no client and no clock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from outrider.errors import InvalidArgumentError

T = TypeVar("T")

MOST_CLIENTS = 1024
MOST_DRAFTS = 127


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to ask. None leaves a value to the deployment; `max_drafts` 0 is the target alone."""

    concurrency: int
    temperature: float | None
    max_drafts: int | None
    num_speculative_tokens: int | None

    @property
    def is_alone(self) -> bool:
        """Whether no draft takes part."""
        return self.max_drafts == 0

    @property
    def alone(self) -> "Configuration":
        """The same without drafts: what this configuration is compared with."""
        return Configuration(self.concurrency, self.temperature, 0, None)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Every combination of these values; `has_baseline` adds the target alone for each."""

    concurrency: tuple[int, ...]
    temperature: tuple[float | None, ...] = (None,)
    max_drafts: tuple[int | None, ...] = (None,)
    num_speculative_tokens: tuple[int | None, ...] = (None,)
    has_baseline: bool = True

    def configurations(self) -> tuple[Configuration, ...]:
        """Each once; the target alone comes before what is compared with it.

        >>> sweep = Sweep((1,), (0.0,), (None,), (2, 4))
        >>> [(c.max_drafts, c.num_speculative_tokens) for c in sweep.configurations()]
        [(0, None), (None, 2), (None, 4)]
        """
        found: list[Configuration] = []
        for clients, temperature in product(self.concurrency, self.temperature):
            if self.has_baseline:
                found.append(Configuration(clients, temperature, 0, None))
            found += [
                # Without drafts there is no length to speculate.
                Configuration(clients, temperature, drafts, None if drafts == 0 else tokens)
                for drafts, tokens in product(self.max_drafts, self.num_speculative_tokens)
            ]
        return tuple(dict.fromkeys(found))


def rounds(configurations: Sequence[T], repetitions: int) -> Iterator[tuple[int, T]]:
    """(repetition, configuration): all configurations once, then all again, each time beginning
    with another one, so that a machine that slows down or warms up favours none.

    >>> list(rounds("ab", 2))
    [(0, 'a'), (0, 'b'), (1, 'b'), (1, 'a')]
    """
    for repetition in range(repetitions):
        first = repetition % len(configurations)
        for configuration in (*configurations[first:], *configurations[:first]):
            yield repetition, configuration


def requests_of(concurrency: int, wanted: int | None) -> int:
    """Requests of one measurement: as asked, else two a client and at least four; never fewer than
    clients.
    """
    return max(concurrency, max(4, 2 * concurrency) if wanted is None else wanted)


def whole_numbers(flag: str, text: str, least: int, most: int) -> tuple[int, ...]:
    """The numbers of a list like `1,4,16`, each once.

    Raises InvalidArgumentError that names the flag.

    >>> whole_numbers("--concurrency", "1, 4,4", 1, 64)
    (1, 4)
    """
    return tuple(
        int(value)
        for value in _numbers(flag, text, least, most, "whole numbers")
        if _is_whole(flag, value)
    )


def numbers(flag: str, text: str, least: float, most: float) -> tuple[float, ...]:
    """As `whole_numbers`, with fractions."""
    return _numbers(flag, text, least, most, "numbers")


def _numbers(flag: str, text: str, least: float, most: float, kind: str) -> tuple[float, ...]:
    wanted = f"give {kind} from {least:g} to {most:g}, separated by commas"
    values: list[float] = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            raise InvalidArgumentError(f"{flag} has {part.strip()!r}; {wanted}") from None
        if not least <= value <= most:
            raise InvalidArgumentError(f"{flag} has {part.strip()}; {wanted}")
        values.append(value)
    return tuple(dict.fromkeys(values))


def _is_whole(flag: str, value: float) -> bool:
    if value != int(value):
        raise InvalidArgumentError(f"{flag} has {value:g}; give whole numbers")
    return True
