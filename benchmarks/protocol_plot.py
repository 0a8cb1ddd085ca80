"""How the figures of the scale rig are drawn. Pure: JSON in, panels out."""

from collections.abc import Callable, Sequence

from benchmarks.protocol_figures import ALONE, OUTRIDER, Figure
from benchmarks.protocol_report import NAMES, SHOWN_CLIENTS, Result, figures_of, spread_out
from orchestrator.cli.bench_plot import Line, Panel, Point


def panels(result: Result) -> tuple[Panel, ...]:
    """Throughput and gain over clients, and gain over drafts, each with its bound."""
    found = figures_of(result)
    base = result["settings"]["acceptance"][0]
    clients = tuple(float(c) for c in sorted({f.clients for f in found}))
    single = [f for f in found if f.drafts <= 1 and f.acceptance in (0.0, base)]
    speed, gain = [], []
    for index, (label, own) in enumerate(_by_mode(single).items()):
        speed.append(Line(label, _points(own, lambda f: f.tokens_per_s, True), colour=index))
        if own[0].mode != ALONE:
            gain.append(Line(label, _points(own, lambda f: f.ratio_to_target_alone), colour=index))
    bounded = [f for f in single if f.mode == OUTRIDER and f.rtt_ms == single[-1].rtt_ms]
    speed += [
        Line("bound", _points(bounded, lambda f: f.bound_tokens_per_s), True, 7),
        Line(
            "run-ahead bound", _points(bounded, lambda f: f.run_ahead_bound_tokens_per_s), True, 6
        ),
    ]
    shown = [
        Panel(
            "throughput",
            "concurrent clients",
            "tokens/s",
            tuple(speed),
            is_log_x=True,
            ticks=clients,
            is_log_y=True,
        ),
        Panel(
            "against the target alone",
            "concurrent clients",
            "times",
            tuple(gain),
            is_log_x=True,
            level=1.0,
            ticks=clients,
        ),
    ]
    if (by_drafts := _by_drafts(result, found)) is not None:
        shown.append(by_drafts)
    return tuple(shown)


def _by_drafts(result: Result, figures: Sequence[Figure]) -> Panel | None:
    """Gain over the number of drafts at the base point; None where only one number was measured."""
    settings = result["settings"]
    counts = tuple(float(count) for count in sorted(settings["drafts"]))
    if len(counts) < 2:
        return None
    rtt_ms, acceptance = settings["rtt_ms"][0], settings["acceptance"][0]
    base = [
        f
        for f in figures
        if (f.mode, f.rtt_ms, f.acceptance) == (OUTRIDER, rtt_ms, acceptance) and f.drafts in counts
    ]
    lines = []
    for clients in spread_out(sorted({f.clients for f in base}), SHOWN_CLIENTS):
        own = sorted((f for f in base if f.clients == clients), key=lambda f: f.drafts)
        points = tuple(Point(f.drafts, f.ratio_to_target_alone) for f in own)
        lines.append(Line("1 client" if clients == 1 else f"{clients} clients", points))
    title = f"several drafts, {rtt_ms:g} ms"
    return Panel(title, "drafts", "times the target alone", tuple(lines), True, 1.0, counts)


def caption(result: Result) -> str:
    """Below the plot: what was measured, and what it is not."""
    settings = result["settings"]
    costs = settings["costs"]
    return (
        f"scripted models: target {costs['target_step_ms']:g} ms + {costs['target_row_ms']:g} ms a "
        f"row, draft {costs['draft_step_ms']:g} ms, acceptance {settings['acceptance'][0]:g}; "
        f"{result['machine']['cores']} cores for all processes; commit "
        f"{result['machine']['commit']}; no real models, no real network"
    )


def _by_mode(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    lines: dict[str, list[Figure]] = {}
    for f in figures:
        label = NAMES[f.mode] if f.mode == ALONE else f"{NAMES[f.mode]}, {f.rtt_ms:g} ms"
        lines.setdefault(label, []).append(f)
    return {label: sorted(own, key=lambda f: f.clients) for label, own in lines.items()}


def _points(
    figures: Sequence[Figure], value: Callable[[Figure], float], has_spread: bool = False
) -> tuple[Point, ...]:
    return tuple(
        Point(f.clients, value(f), f.tokens_per_s_spread if has_spread else 0.0) for f in figures
    )
