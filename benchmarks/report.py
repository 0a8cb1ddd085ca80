"""Draws anew whatever is shown of the figures: a page and a plot beside each JSON, and the README.

    python -m benchmarks.report [NAME…]

Reads docs/benchmarks/NAME.json (all there are, without a name), writes NAME.md and NAME.png
beside it and what the README shows between `<!-- benchmarks:NAME -->` and `<!-- /benchmarks:NAME
-->`. Every rig calls `redraw` after it has written its JSON. Measures nothing.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import (
    acceptance_report,
    forecast_report,
    homelab_report,
    protocol_plot,
    protocol_report,
)
from benchmarks.machine import ROOT, provenance
from orchestrator.cli.bench_plot import draw
from outrider.errors import InvalidArgumentError, NotFoundError, OutriderError

FOLDER = ROOT / "docs/benchmarks"
README = ROOT / "README.md"

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rig:
    """How one rig's JSON is shown; `plot` None: it has none."""

    page: Callable[[Result], str]
    readme: Callable[[Result], str]
    plot: Callable[[Result, Path], None] | None = None


def _plot_protocol(result: Result, path: Path) -> None:
    draw(protocol_plot.panels(result), path, protocol_plot.caption(result))


def _plot_homelab(result: Result, path: Path) -> None:
    homelab_report.plot(homelab_report.figures_of(result), path)


def _homelab_in_readme(result: Result) -> str:
    table = homelab_report.table(homelab_report.figures_of(result))
    command = homelab_report.command(result["settings"])
    return f"""{provenance(result["machine"], command)}

{table}
![speed-up over the target alone by round-trip time](docs/benchmarks/homelab.png)

[docs/benchmarks/homelab.md](docs/benchmarks/homelab.md) says how each figure is measured and what
it does not show, and has acceptance by position and where the time of a round goes.
"""


RIGS: dict[str, Rig] = {
    "acceptance": Rig(acceptance_report.page, acceptance_report.readme),
    "vocabularies": Rig(acceptance_report.page, acceptance_report.readme),
    "homelab": Rig(homelab_report.page, _homelab_in_readme, _plot_homelab),
    "forecast": Rig(forecast_report.page, forecast_report.readme),
    "protocol": Rig(protocol_report.page, protocol_report.readme, _plot_protocol),
}


def main(arguments: Sequence[str]) -> int:
    """Draws the named rigs anew, or all that have been measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RIGS))
    options = parser.parse_args(arguments)
    measured = [name for name in RIGS if (FOLDER / f"{name}.json").exists()]
    return max(
        (redraw(name, FOLDER / f"{name}.json") for name in options.names or measured), default=0
    )


def redraw(name: str, path: Path) -> int:
    """Page and plot beside the JSON at `path`, and the README where that is the documented one.

    Returns an exit status: 1 where something could not be drawn, which standard error tells.
    """
    try:
        rig = rig_of(name)
        result = read(path)
        page = rig.page(result).replace(f"]({name}.png)", f"]({path.stem}.png)")
        _write(path.with_suffix(".md"), page)
        if path.resolve() == (FOLDER / f"{name}.json").resolve():
            text = README.read_text(encoding="utf-8")
            _write(README, filled(text, name, rig.readme(result)))
        if rig.plot is not None:
            rig.plot(result, path.with_suffix(".png"))
            sys.stderr.write(f"drawn: {path.with_suffix('.png')}\n")
    except OutriderError as error:
        sys.stderr.write(f"python -m benchmarks.report: {error.message}\n")
        return 1
    return 0


def rig_of(name: str) -> Rig:
    """The rig of that name. Raises NotFoundError that names the others."""
    if name not in RIGS:
        raise NotFoundError(f"there is no rig {name!r}; there are {', '.join(RIGS)}")
    return RIGS[name]


def read(path: Path) -> Result:
    """The JSON of a run. Raises NotFoundError where there is none, InvalidArgumentError where it is
    none.
    """
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist; run its benchmark first") from None
    except ValueError as error:
        raise InvalidArgumentError(
            f"{path} is no JSON ({error}); run its benchmark again"
        ) from None
    if not isinstance(result, dict) or not {"machine", "figures"} <= result.keys():
        raise InvalidArgumentError(f"{path} has no machine and figures; run its benchmark again")
    return result


def filled(text: str, name: str, block: str) -> str:
    """`text` with `block` between the marks of `name`. Raises InvalidArgumentError without them.

    >>> filled("a <!-- benchmarks:x -->old<!-- /benchmarks:x --> z", "x", "new\\n")
    'a <!-- benchmarks:x -->\\nnew\\n<!-- /benchmarks:x --> z'
    """
    begin, end = f"<!-- benchmarks:{name} -->", f"<!-- /benchmarks:{name} -->"
    before, is_begun, rest = text.partition(begin)
    _, is_ended, after = rest.partition(end)
    if not is_begun or not is_ended:
        raise InvalidArgumentError(f"the README lacks {begin} and {end}; put them where it belongs")
    return f"{before}{begin}\n{block}{end}{after}"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    sys.stderr.write(f"drawn: {path}\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
