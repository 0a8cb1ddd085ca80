"""The questions that `outrider doctor` asks a deployment to measure it by: asks and records."""

from collections.abc import Callable, Sequence

from orchestrator.cli.console import NO_CHAT_TEMPLATE
from orchestrator.cli.prompts import as_messages
from orchestrator.doctor.measurements import Probe
from orchestrator.doctor.samples import Sample
from outrider.client import Client
from outrider.errors import InvalidArgumentError

SEED = 7
DEEP = 16
"""So deep a tree shows what long passes cost, whatever the deployment's default is."""

DEEP_TOKENS = 32


def ask(
    client: Client,
    sample: Sample,
    *,
    max_tokens: int,
    temperature: float = 0.0,
    num_speculative_tokens: int | None = None,
    with_drafts: bool = True,
    seed: int = SEED,
) -> Probe:
    """One answer, drafted for in the deployment's own way but for what is given."""

    def answer(is_raw: bool) -> Probe:
        with client.generate(
            sample.prompt if is_raw else as_messages(sample.prompt),
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            max_drafts=None if with_drafts else 0,
            num_speculative_tokens=num_speculative_tokens,
        ) as generation:
            result = generation.result()
        return Probe.of(sample.kind, temperature, with_drafts, result.stats, result.tokens)

    try:
        return answer(is_raw=False)
    except InvalidArgumentError as error:
        if NO_CHAT_TEMPLATE not in error.message:
            raise
        return answer(is_raw=True)


def probe_deployment(
    client: Client,
    samples: Sequence[Sample],
    *,
    temperature: float,
    max_tokens: int,
    tell: Callable[[str], None],
) -> list[Probe]:
    """Every sample with drafts and without. `tell` is told what is being asked."""
    probes = []
    for sample in samples:
        for with_drafts in (True, False):
            tell(f"measuring: {sample.kind} {'with' if with_drafts else 'without'} drafts")
            probes.append(
                ask(
                    client,
                    sample,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    with_drafts=with_drafts,
                )
            )
    return probes


def probe_deep(client: Client, sample: Sample) -> Probe:
    """An answer by deep trees: it shows what passes of many rows cost."""
    return ask(client, sample, max_tokens=DEEP_TOKENS, num_speculative_tokens=DEEP)
