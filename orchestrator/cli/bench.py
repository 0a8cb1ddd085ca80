"""`outrider bench`: measures a deployment that runs, with drafts and without, in turns."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import typer

from orchestrator.cli.bench_plan import (
    MOST_CLIENTS,
    MOST_DRAFTS,
    Configuration,
    Sweep,
    numbers,
    requests_of,
    rounds,
    whole_numbers,
)
from orchestrator.cli.bench_plot import draw, panels_of, require_drawable
from orchestrator.cli.bench_prompts import SAMPLES, read_prompts
from orchestrator.cli.bench_rows import Answer, Measurement, Row
from orchestrator.cli.bench_rows import rows as rows_of
from orchestrator.cli.bench_text import Format, problems, report, sentence
from orchestrator.cli.checks import require_valid
from orchestrator.cli.console import (
    FAILED,
    INTERRUPTED,
    MISUSED,
    errors_told,
    fail,
    misuse_told,
    say,
    write,
)
from orchestrator.cli.progress import Progress
from orchestrator.cli.prompts import as_messages
from orchestrator.cli.summary import counted
from outrider.client import AsyncClient
from outrider.client.arguments import MAX_SPECULATIVE_TOKENS
from outrider.client.channel import checked_address, checked_tls
from outrider.client.prompt import Prompt
from outrider.client.request import GenerateOptions
from outrider.errors import InvalidArgumentError, OutriderError
from outrider.version import __version__

WARM_UP_TOKENS = 8
FORMATS: tuple[Format, ...] = ("md", "csv", "json")


@dataclass(frozen=True, slots=True)
class Bench:
    """What is asked, how often, and what becomes of it. `requests` None: as many as suit."""

    address: str
    sweep: Sweep
    prompts: tuple[Prompt, ...]
    options: GenerateOptions
    repetitions: int
    requests: int | None
    form: Format
    output: Path | None
    plot: Path | None
    tls: str = ""

    def asks(self, configuration: Configuration, index: int) -> tuple[Prompt, GenerateOptions]:
        """Request `index` of a measurement: the same prompt and seed in every configuration."""
        return self.prompts[index % len(self.prompts)], {
            **self.options,
            "seed": (self.options.get("seed") or 0) + index,
            "temperature": configuration.temperature,
            "max_drafts": configuration.max_drafts,
            "num_speculative_tokens": configuration.num_speculative_tokens,
        }


def bench(
    address: str,
    *,
    tls: str,
    prompts: Path | None,
    raw: bool,
    concurrency: str,
    num_speculative_tokens: str | None,
    temperature: str | None,
    max_drafts: str | None,
    has_baseline: bool,
    repetitions: int,
    requests: int | None,
    form: str,
    output: Path | None,
    plot: Path | None,
    options: GenerateOptions,
) -> None:
    """Reads the flags, measures, reports. Ctrl-C reports what was measured and ends with 130."""
    with errors_told(), misuse_told():
        checked_address(address)
        checked_tls(tls, None)
        texts = SAMPLES if prompts is None else read_prompts(prompts)
        sweep = Sweep(
            whole_numbers("--concurrency", concurrency, 1, MOST_CLIENTS),
            (None,) if temperature is None else numbers("--temperature", temperature, 0, 1000),
            _whole("--max-drafts", max_drafts, 0, MOST_DRAFTS),
            _whole("--num-speculative-tokens", num_speculative_tokens, 1, MAX_SPECULATIVE_TOKENS),
            has_baseline,
        )
        if plot is not None:
            require_drawable(plot)
        sent = tuple(text if raw else as_messages(text) for text in texts)
        planned = Bench(
            address, sweep, sent, options, repetitions, requests, _known(form), output, plot, tls
        )
    run(planned)


def run(planned: Bench) -> None:
    """Measures and reports."""
    for path in (planned.output, planned.plot):
        if path is not None and not path.parent.is_dir():
            fail(f"there is no folder {path.parent}; make it first", MISUSED)
    configurations = planned.sweep.configurations()
    for configuration in configurations:
        require_valid(*planned.asks(configuration, 0))
    measurements: list[Measurement] = []
    about: dict[str, object] = {}
    with errors_told():
        try:
            asyncio.run(_measure_all(planned, configurations, measurements, about))
        except KeyboardInterrupt:
            wanted = len(configurations) * planned.repetitions
            say(f"stopped after {len(measurements)} of {counted(wanted, 'measurement')}")
            if measurements:
                _tell(planned, rows_of(measurements), about)
            raise typer.Exit(INTERRUPTED) from None
        rows = rows_of(measurements)
        _tell(planned, rows, about)
    if any(row.failed for row in rows):
        raise typer.Exit(FAILED)


async def _measure_all(
    planned: Bench,
    configurations: Sequence[Configuration],
    measurements: list[Measurement],
    about: dict[str, object],
) -> None:
    """Fills `measurements` as they come, so that an interrupted run keeps what it has."""
    async with AsyncClient(planned.address, tls=planned.tls) as client:
        cluster = await client.get_cluster()
        about.update(
            {
                "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "outrider": __version__,
                "cluster": asdict(cluster),
                "sweep": asdict(planned.sweep),
                "repetitions": planned.repetitions,
                "prompts": len(planned.prompts),
                "max_tokens": planned.options.get("max_tokens"),
            }
        )
        count = len(configurations)
        with Progress() as progress:
            progress.says(
                f"measuring {counted(count, 'configuration')}, "
                f"{counted(planned.repetitions, 'time')} each"
            )
            progress.waits_for("warming up")
            await _warm_up(planned, client)
            for repetition, configuration in rounds(configurations, planned.repetitions):
                progress.waits_for(
                    f"{len(measurements) + 1} of {count * planned.repetitions}: "
                    f"{counted(configuration.concurrency, 'client')}, {_drafting(configuration)}"
                )
                measurements.append(await measure(planned, client, configuration, repetition))


async def measure(
    planned: Bench, client: AsyncClient, configuration: Configuration, repetition: int
) -> Measurement:
    """Clients that each ask again as soon as they are answered, until no request is left."""
    indices = iter(range(requests_of(configuration.concurrency, planned.requests)))
    answers: list[Answer] = []
    errors: list[str] = []

    async def ask_on() -> None:
        for index in indices:  # Shared: each request has one client.
            try:
                answers.append(await _answer(planned, client, configuration, index))
            except OutriderError as error:
                errors.append(error.message)

    asking = [asyncio.ensure_future(ask_on()) for _ in range(configuration.concurrency)]
    try:
        await asyncio.gather(*asking)
    finally:
        for task in asking:
            task.cancel()
    return Measurement(configuration, repetition, tuple(answers), tuple(errors))


async def _answer(
    planned: Bench, client: AsyncClient, configuration: Configuration, index: int
) -> Answer:
    prompt, options = planned.asks(configuration, index)
    token_s: list[float] = []
    sent_s = time.perf_counter()
    async with client.generate(prompt, **options) as generation:
        async for _ in generation:
            token_s.append(time.perf_counter())
        result = await generation.result()
    return Answer(sent_s, tuple(token_s), result.stats)


async def _warm_up(planned: Bench, client: AsyncClient) -> None:
    """Every prompt once, with drafts: what is measured later finds all of them equally warm."""
    most = max(requests_of(c, planned.requests) for c in planned.sweep.concurrency)
    found = planned.sweep.configurations()
    any_of = next((one for one in reversed(found) if not one.is_alone), found[-1])
    for index in range(min(most, len(planned.prompts))):
        prompt, options = planned.asks(any_of, index)
        length = min(WARM_UP_TOKENS, options.get("max_tokens") or WARM_UP_TOKENS)
        short: GenerateOptions = {**options, "max_tokens": length}
        async with client.generate(prompt, **short) as generation:
            await generation.result()


def _tell(planned: Bench, rows: Sequence[Row], about: dict[str, object]) -> None:
    text = report(rows, planned.form, about)
    if planned.output is not None:
        _write(planned.output, text)
        write(f"{sentence(rows)}\n")
    else:
        if planned.form != "md":
            say(sentence(rows))  # Standard output is for programs then.
        write(text)
    for problem in problems(rows):
        say(problem)
    if planned.plot is not None and any(row.tokens for row in rows):
        try:
            draw(panels_of(rows), planned.plot, sentence(rows))
        except OSError as error:
            fail(f"{planned.plot} cannot be written ({error.strerror})")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        write(text)
        fail(f"{path} cannot be written ({error.strerror}); the report is above")


def _drafting(configuration: Configuration) -> str:
    if configuration.is_alone:
        return "the target alone"
    length = configuration.num_speculative_tokens
    told = "" if length is None else f", {counted(length, 'speculative token')}"
    count = configuration.max_drafts
    return ("all drafts" if count is None else counted(count, "draft")) + told


def _whole(flag: str, text: str | None, least: int, most: int) -> tuple[int | None, ...]:
    return (None,) if text is None else whole_numbers(flag, text, least, most)


def _known(form: str) -> Format:
    for known in FORMATS:
        if form == known:
            return known
    raise InvalidArgumentError(f"--format is {form!r}; give one of {', '.join(FORMATS)}")
