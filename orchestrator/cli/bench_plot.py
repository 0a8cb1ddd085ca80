"""Plots of figures, for `outrider bench` and the rigs: what is drawn is data, `draw` draws it.

The only module that knows matplotlib, which is loaded when something is drawn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from orchestrator.cli.bench_rows import Row
from outrider.errors import InvalidArgumentError, UnavailableError

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#0b6e99", "#d9730d", "#0f7b6c", "#ad1a72", "#6940a5", "#9b7a01", "#64473a", "#787774")
PANEL_INCHES = (5.2, 3.9)
DOTS_PER_INCH = 120


@dataclass(frozen=True, slots=True)
class Point:
    """A place on a line; `spread` is drawn as a bar to both sides."""

    x: float
    y: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together. A bound is dashed and has no marks; lines of one `colour`
    (an index) belong together, None gives each its own.
    """

    label: str
    points: tuple[Point, ...]
    is_bound: bool = False
    colour: int | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. `level` is a horizontal line to compare with, 1 for ratios."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    is_log_x: bool = False
    level: float | None = None
    ticks: tuple[float, ...] = ()
    is_log_y: bool = False


def require_drawable(path: Path) -> None:
    """Raises before anything is measured: InvalidArgumentError for a name that cannot be drawn to,
    UnavailableError where matplotlib is not installed.
    """
    if path.suffix not in SUFFIXES:
        raise InvalidArgumentError(
            f"--plot is {str(path)!r}; give a file that ends in {', '.join(SUFFIXES)}"
        )
    if find_spec("matplotlib") is None:
        raise UnavailableError(
            "a plot needs matplotlib; install it with: pip install 'outrider[bench]'"
        )


def draw(panels: Sequence[Panel], path: Path, caption: str = "") -> None:
    """Draws the panels side by side into a file; raises as `require_drawable` does."""
    require_drawable(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(panels), height), layout="constrained")
    FigureCanvasAgg(figure)
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), number)
        for index, line in enumerate(panel.lines):
            colour = COLOURS[(index if line.colour is None else line.colour) % len(COLOURS)]
            axes.errorbar(
                [point.x for point in line.points],
                [point.y for point in line.points],
                yerr=None if line.is_bound else [point.spread for point in line.points],
                label=line.label,
                color=colour,
                linestyle="--" if line.is_bound else "-",
                marker="" if line.is_bound else "o",
                markersize=4,
                linewidth=1.4,
                capsize=2,
                alpha=0.7 if line.is_bound else 1.0,
            )
        if panel.level is not None:
            axes.axhline(panel.level, color="#787774", linewidth=0.8, linestyle=":")
        if panel.is_log_x:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(ScalarFormatter())
        if panel.ticks:
            axes.set_xticks(panel.ticks)
        if panel.is_log_y:
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter(ScalarFormatter())
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x_label)
        axes.set_ylabel(panel.y_label)
        axes.grid(alpha=0.25)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if panel.lines:
            axes.legend(fontsize=7.5, frameon=False)
    if caption:
        figure.supxlabel(caption, fontsize=7, color="#787774")
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata=_plain_metadata(path))


def panels_of(rows: Sequence[Row]) -> tuple[Panel, ...]:
    """Speed, and speed against the target alone, over what the sweep varies most: clients, or else
    speculative tokens.
    """
    measured = [row for row in rows if row.tokens]
    clients = sorted({row.concurrency for row in measured})
    lengths = sorted({r.num_speculative_tokens for r in measured if r.num_speculative_tokens})
    is_warm = len({row.temperature for row in measured}) > 1
    is_by_length = len(clients) == 1 and len(lengths) > 1
    if is_by_length:
        x_label, ticks = "speculative tokens", tuple(map(float, lengths))
        lines = _lines(measured, _length, lambda row: _named(row, False, is_warm), lengths)
    else:
        x_label, ticks = "concurrent clients", tuple(map(float, clients))
        has_lengths = len(lengths) > 1
        lines = _lines(measured, _clients, lambda row: _named(row, has_lengths, is_warm), ())
    speeds, ratios = [], []
    for colour, (label, own) in enumerate(lines.items()):  # A label has one colour in both.
        points = tuple(Point(x, row.tokens_per_s, row.tokens_per_s_spread) for x, row in own)
        speeds.append(Line(label, points, colour=colour))
        if all(not row.is_alone and row.ratio_to_target_alone is not None for _, row in own):
            points = tuple(
                Point(x, row.ratio_to_target_alone or 0.0, row.ratio_spread) for x, row in own
            )
            ratios.append(Line(label, points, colour=colour))
    is_log = not is_by_length
    panels = [Panel("speed", x_label, "tokens/s", tuple(speeds), is_log, ticks=ticks)]
    if ratios:
        title = "against the target alone"
        panels.append(Panel(title, x_label, "times", tuple(ratios), is_log, 1.0, ticks))
    return tuple(panels)


def _lines(
    rows: Sequence[Row],
    x_of: Callable[[Row], float],
    label_of: Callable[[Row], str],
    everywhere: Sequence[int],
) -> dict[str, list[tuple[float, Row]]]:
    """The rows of each line by its label; without drafts a row stands at all of `everywhere`."""
    lines: dict[str, list[tuple[float, Row]]] = {}
    for row in rows:
        places = [float(x) for x in everywhere] if row.is_alone and everywhere else [x_of(row)]
        lines.setdefault(label_of(row), []).extend((x, row) for x in places)
    return {label: sorted(own, key=lambda pair: pair[0]) for label, own in lines.items()}


def _clients(row: Row) -> float:
    return float(row.concurrency)


def _length(row: Row) -> float:
    return float(row.num_speculative_tokens or 0)


def _named(row: Row, has_lengths: bool, has_temperatures: bool) -> str:
    parts = ["target alone" if row.is_alone else _drafts(row.max_drafts)]
    if has_lengths and not row.is_alone:
        parts.append(f"{row.num_speculative_tokens} speculative tokens")
    if has_temperatures and row.temperature is not None:
        parts.append(f"temperature {row.temperature:g}")
    return ", ".join(parts)


def _drafts(count: int | None) -> str:
    if count is None:
        return "all drafts"
    return "1 draft" if count == 1 else f"{count} drafts"


def _plain_metadata(path: Path) -> dict[str, str | None]:
    """No version and no date in the file: the same figures give the same bytes."""
    if path.suffix == ".png":
        return {"Software": None}
    return {"Date": None} if path.suffix == ".svg" else {"CreationDate": None}
