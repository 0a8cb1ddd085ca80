"""`outrider doctor --model`: whether models fit this machine, before anything is loaded."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from orchestrator.cli.console import FAILED, write
from orchestrator.doctor.report import machine_line
from outrider.errors import InvalidArgumentError
from outrider.host import host_facts
from outrider.models.options import HONOURED, ModelOptions, changed
from outrider.models.registry import known_backend
from outrider.models.room import Fit, judge_together, place_of, room_for

BAD = (Fit.TOO_BIG, Fit.SLOW, Fit.MISSING)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model that somebody thinks of serving here, and as what."""

    role: str
    spec: str
    options: ModelOptions


def examine_models(wanted: Sequence[Wanted], *, show_json: bool) -> None:
    """Prints whether each model fits, and all together; status 1 where one does not.

    Raises InvalidArgumentError for a model or an option that could not be served.
    """
    backends = {known_backend(model.spec) for model in wanted}
    for model in wanted:
        for name in changed(model.options):
            if not any(name in HONOURED[backend] for backend in backends):
                raise InvalidArgumentError(f"{model.spec} takes no {name}; leave it out")
    host = host_facts()
    rooms = [(model.role, room_for(model.spec, model.options, host)[1]) for model in wanted]
    if len(rooms) > 1:
        together = judge_together([room for _, room in rooms], place_of(host))
        if together is not None:
            rooms.append(("together", together))
    if show_json:
        shown = [
            {"role": role, "fit": r.fit.value, "told": r.sentence, "need_bytes": r.need_bytes}
            for role, r in rooms
        ]
        write(json.dumps({"models": shown}, ensure_ascii=False) + "\n")
    else:
        write(f"this machine: {machine_line(host)}\n")
        for role, room in rooms:
            write(f"{role}: {room.fit.value}: {room.sentence}\n")
    if any(room.fit in BAD for _, room in rooms):
        raise typer.Exit(FAILED)
