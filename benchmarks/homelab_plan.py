"""What the home-lab rig measures and in which order. Pure: knows no process and no clock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.errors import InvalidArgumentError

ALONE = "target_alone"
SYNCHRONOUS = "synchronous"
OUTRIDER = "outrider"
LLAMACPP_ALONE = "llamacpp_alone"
LLAMACPP = "llamacpp_speculation"
TRANSFORMERS = "transformers_assisted"

MODES = (ALONE, SYNCHRONOUS, OUTRIDER, LLAMACPP_ALONE, LLAMACPP, TRANSFORMERS)
OVER_A_WIRE = (SYNCHRONOUS, OUTRIDER)
OURS = (ALONE, *OVER_A_WIRE)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to answer. `rtt_ms` is the asked round trip to the draft; 0: no wire is involved."""

    mode: str
    rtt_ms: float
    temperature: float


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer that is to be measured: of prompt number `prompt`."""

    prompt: int
    configuration: Configuration


def checked_modes(modes: Sequence[str]) -> tuple[str, ...]:
    """The modes in the order of `MODES`; the target alone is always among them, since every ratio
    is to it.

    Raises:
        InvalidArgumentError: a mode is unknown.
    """
    for mode in modes:
        if mode not in MODES:
            raise InvalidArgumentError(f"mode is {mode!r}; give some of {', '.join(MODES)}")
    return tuple(mode for mode in MODES if mode == ALONE or mode in modes)


def configurations(
    modes: Sequence[str], rtts_ms: Sequence[float], temperature: float
) -> tuple[Configuration, ...]:
    """All configurations at one temperature; only drafts over a wire have round-trip times.

    >>> [(c.mode, c.rtt_ms) for c in configurations(("target_alone", "outrider"), (5, 20), 0.0)]
    [('target_alone', 0.0), ('outrider', 5), ('outrider', 20)]
    """
    return tuple(
        Configuration(mode, rtt_ms, temperature)
        for mode in modes
        for rtt_ms in (rtts_ms if mode in OVER_A_WIRE else (0.0,))
    )


def turns(
    prompts: int, modes: Sequence[str], rtts_ms: Sequence[float], temperatures: Sequence[float]
) -> Iterator[Turn]:
    """Prompt by prompt all configurations, each time beginning one further on, so that a machine
    that slows down or speeds up in the middle of a run favours none of them."""
    shift = 0
    for prompt in range(prompts):
        for temperature in temperatures:
            row = configurations(modes, rtts_ms, temperature)
            for place in range(len(row)):
                yield Turn(prompt, row[(place + shift) % len(row)])
            shift += 1
