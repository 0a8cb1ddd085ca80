"""Tables, page and plot of the home-lab rig, drawn from its figures. Measures nothing."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import goals
from benchmarks.homelab_figure import Figure
from benchmarks.homelab_plan import (
    ALONE,
    LLAMACPP,
    LLAMACPP_ALONE,
    OUTRIDER,
    OVER_A_WIRE,
    SYNCHRONOUS,
    TRANSFORMERS,
)
from orchestrator.cli.bench_plot import require_drawable

NAMES = {
    ALONE: "target alone",
    SYNCHRONOUS: "synchronous",
    OUTRIDER: "Outrider",
    LLAMACPP_ALONE: "llama.cpp, no drafts",
    LLAMACPP: "llama.cpp, in process",
    TRANSFORMERS: "transformers, in process",
}
COLOURS = {
    SYNCHRONOUS: "#d9730d",
    OUTRIDER: "#0b6e99",
    LLAMACPP: "#0f7b6c",
    TRANSFORMERS: "#ad1a72",
}
DOTS_PER_INCH = 120
NOT_KNOWN = "–"


def command(settings: Mapping[str, Any]) -> str:
    """What measures such figures again."""
    prompts = "--quick" if settings["is_quick"] else f"--limit {settings['prompts']}"
    return f"python -m benchmarks.homelab {prompts} --json docs/benchmarks/homelab.json"


def table(figures: Sequence[Figure]) -> str:
    """Markdown: what each configuration gives, as the README shows it."""
    head = (
        *("mode", "round trip ms", "T", "tokens/s", "× target alone", "of bound"),
        *("tokens per pass", "TTFT ms", "p50 ms", "p95 ms"),
    )
    return _markdown(
        head,
        (
            (
                NAMES[f.mode],
                _rtt(f),
                f"{f.temperature:g}",
                f"{f.tokens_per_s:.2f} ± {f.spread:.2f}",
                f"{f.ratio_to_target_alone:.2f}",
                _number(f.ratio_to_bound, 2),
                f"{f.acceptance_length:.2f}",
                f"{f.ttft_ms:.0f}",
                f"{f.itl_p50_ms:.0f}",
                f"{f.itl_p95_ms:.0f}",
            )
            for f in figures
        ),
    )


def phase_table(figures: Sequence[Figure]) -> str:
    """Markdown: where the time of a round goes, and what it sends; ours only."""
    head = (
        *("mode", "round trip ms", "T", "verify", "waiting", "draft", "wire", "queue"),
        *("accept", "reconcile", "rows", "bytes"),
    )
    return _markdown(
        head,
        (
            (
                NAMES[f.mode],
                _rtt(f),
                f"{f.temperature:g}",
                _number(f.verify_ms, 1),
                _number(f.waiting_ms, 1),
                _number(f.draft_ms, 1) if f.mode in OVER_A_WIRE else NOT_KNOWN,
                _number(f.wire_ms, 2),
                _number(f.queue_ms, 2),
                _number(f.accept_ms, 2),
                _number(f.reconcile_ms, 2),
                _number(f.rows_per_pass, 2),
                NOT_KNOWN if f.bytes_per_round is None else f"{f.bytes_per_round:.0f}",
            )
            for f in figures
            if f.verify_ms is not None
        ),
    )


def acceptance_table(figures: Sequence[Figure]) -> str:
    """Markdown: how many of the tested nodes at each position were accepted."""
    drafted = [f for f in figures if f.acceptance_per_position]
    depth = max((len(f.acceptance_per_position or ()) for f in drafted), default=0)
    return _markdown(
        ("mode", "round trip ms", "T", *(str(i + 1) for i in range(depth))),
        ((NAMES[f.mode], _rtt(f), f"{f.temperature:g}", *_padded(f, depth)) for f in drafted),
    )


def page(result: Mapping[str, Any]) -> str:
    """The Markdown page of one run's JSON."""
    machine, settings = result["machine"], result["settings"]
    figures = figures_of(result)
    versions = ", ".join(
        f"{name} {machine[name]}"
        for name in ("llama-cpp-python", "xllamacpp", "transformers", "torch", "grpcio")
        if name in machine
    )
    errors = result.get("errors") or []
    lossless = (
        "At temperature 0 every answer over a wire was the target's own, token for token."
        if not errors
        else f"**{len(errors)} answers at temperature 0 were not the target's own.**"
    )
    bounds = "; ".join(
        f"T = {f.temperature:g}: {f.bound:.2f} at {f.bound_nodes} drafted tokens a pass"
        for f in figures
        if f.mode == OUTRIDER and f.rtt_ms == _first_rtt(figures) and f.bound is not None
    )
    answered = max((f.prompts for f in figures), default=0)
    return f"""# The home lab: two machines of one core each

Measured {machine["measured_at"]} on {machine["cpu"]}, {machine["cores"]} cores,
{machine["system"]}, Python {machine["python"]}, {versions}; commit {machine["commit"]}; load before
the run {machine["load_before"]}.
`{command(settings)}`,
drawn by `python -m benchmarks.report`.

Target {settings["model"]} on one core with one thread; draft {settings["draft_model"]}, the wires
(proxies that delay), the orchestrators and the client on the other core. {answered} of
{settings["prompts"]} prompts of Spec-Bench ({", ".join(settings["categories"])}; those that the
time was too short for are left out), at most {settings["tokens"]} tokens each, all
configurations one after the other for every prompt, each time in another order. Longest chains:
{_chains(settings["longest_chain"])}. The peers have both models on the target's core:
llama.cpp the same two files, sampled drafts, accepted by rejection; transformers
{settings["hf_model"] or "was not run"} with the assistant {settings["hf_draft_model"] or "–"}, both
float32, drafts ending below a confidence of 0.4.

{lossless}

![Speed-up over the target alone by round-trip time](homelab.png)

## Speed

{table(figures)}
Tokens/s: median over the prompts ± interquartile range, counted from the first token to the last.
Ratio: median of the ratios prompt by prompt to the target alone, measured in the same run. TTFT:
time to the first token, the prompt being cached (transformers caches none: its TTFT has the whole
prompt). p50, p95: time between two tokens as the client sees them; tokens of one pass arrive
together, hence medians near 0. Tokens per pass: what a target pass emits, its own token counted.

The bound is what drafts would give that cost nothing, were always there and took no time besides
the target's passes: the maximum over chain lengths n of E(n) t(1) / t(1 + n), with E(n) from the
acceptance by position and t from the passes of this run ({bounds or "not known"}).
The target alone is Outrider's verify service without drafts; "llama.cpp, no drafts" is the same
file in llama.cpp's own server, so the two differ by what the service costs and by the second row
that a lone one of unquantised weights gets for its bits (docs/exactness.md).
Peers are held to the same bound; transformers' own passes are slower than llama.cpp's, so its ratio
holds its engine too.

What this does not show: a GPU, whose passes hardly take longer with more rows; a real network,
which loses packets; a draft and a target that were trained as such, instead of a deepened copy;
several requests at once; drafts in parallel. The target alone is Outrider's own: for rows that are
the same with drafts and without it pairs each lone row of unquantised weights with a second one,
keeps values in bf16 and leaves llama.cpp's tiled products off, which costs it some speed that
llama.cpp's server, without drafts, would have.

## What it was to show

{goals.table(goals.home_lab(figures))}
Ratios of two modes are those of their medians. A figure that falls short is explained by the next
table: what of *waiting* is left, and how much longer *verify* is with the rows of a pass than the
bound supposes.

What this does not show: other pairs of models; the goals were set for this one.

## Where the time of a round goes

{phase_table(figures)}
Milliseconds a pass. Verify: the target's forward pass. Waiting: from a verdict to the start of the
next pass; it holds whatever of draft, wire and orchestrator was not hidden behind the pass before.
Draft: the draft's own forward passes, also those whose tokens came to nothing; with run-ahead most
of it happens while the target computes. Wire: one pure round trip between orchestrator and draft.
Queue: waiting for the model while other sessions had it.
Bytes: between orchestrator and both services.

What this does not show: phases overlap, so they do not add up to a round; the wires' proxies and
the client share the draft's core and take some of it, which two real machines would not have to.

## Acceptance by position

{acceptance_table(figures)}
Of the nodes at this place whose predecessors were all accepted and that the target verified: how
many it accepted. Positions that were tested fewer than five times are left out.

What this does not show: texts of other kinds; the later positions rest on few passes.
"""


def figures_of(result: Mapping[str, Any]) -> list[Figure]:
    """The figures in a run's JSON."""
    return [Figure(**figure) for figure in result["figures"]]


def plot(figures: Sequence[Figure], path: Path) -> None:
    """Draws the speed-up over the target alone by round-trip time, a panel a temperature."""
    require_drawable(path)
    from matplotlib.figure import Figure as Canvas

    temperatures = sorted({f.temperature for f in figures})
    canvas = Canvas(figsize=(5.2 * len(temperatures), 3.9), dpi=DOTS_PER_INCH, layout="constrained")
    panels = canvas.subplots(1, len(temperatures), sharey=True, squeeze=False)[0]
    for axes, temperature in zip(panels, temperatures, strict=True):
        own = [f for f in figures if f.temperature == temperature]
        for mode in OVER_A_WIRE:
            line = sorted((f for f in own if f.mode == mode), key=lambda f: f.rtt_ms)
            if line:
                axes.errorbar(
                    [f.rtt_ms for f in line],
                    [f.ratio_to_target_alone for f in line],
                    yerr=[f.ratio_spread / 2 for f in line],
                    marker="o",
                    capsize=3,
                    color=COLOURS[mode],
                    label=NAMES[mode],
                )
        for f in own:
            if f.mode in (LLAMACPP, TRANSFORMERS):
                axes.axhline(
                    f.ratio_to_target_alone,
                    color=COLOURS[f.mode],
                    linestyle="-.",
                    label=NAMES[f.mode],
                )
        bounds = [f.bound for f in own if f.mode == OUTRIDER and f.bound is not None]
        if bounds:
            axes.axhline(bounds[0], color="#787774", linestyle="--", label="bound")
        axes.axhline(1.0, color="#37352f", linewidth=0.8, label=NAMES[ALONE])
        axes.set_xscale("log")
        rtts = sorted({f.rtt_ms for f in own if f.mode in OVER_A_WIRE})
        axes.set_xticks(rtts, [f"{rtt:g}" for rtt in rtts])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_title(f"T = {temperature:g}")
        axes.set_xlabel("round-trip time to the draft, ms")
    panels[0].set_ylabel("speed-up over the target alone")
    panels[-1].legend(fontsize="small")
    # Without the date and version of the library: same figures, same bytes.
    canvas.savefig(path, metadata={"Software": None})


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(head), "|" + "---|" * len(head) + "\n", *map(_row, rows)]
    return "".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _rtt(figure: Figure) -> str:
    return f"{figure.rtt_ms:g}" if figure.mode in OVER_A_WIRE else NOT_KNOWN


def _number(value: float | None, digits: int) -> str:
    return NOT_KNOWN if value is None else f"{value:.{digits}f}"


def _padded(figure: Figure, depth: int) -> list[str]:
    rates = figure.acceptance_per_position or ()
    return [f"{rate:.2f}" for rate in rates] + [NOT_KNOWN] * (depth - len(rates))


def _first_rtt(figures: Sequence[Figure]) -> float | None:
    return min((f.rtt_ms for f in figures if f.mode == OUTRIDER), default=None)


def _chains(longest: Mapping[str, int]) -> str:
    return ", ".join(f"{NAMES[mode]} {tokens}" for mode, tokens in longest.items() if tokens)
