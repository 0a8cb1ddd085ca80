"""`outrider models`: what lies on this machine, and fetching more ahead of time."""

import json
from pathlib import Path

import typer

from orchestrator.cli.console import FAILED, INTERRUPTED, MISUSED, errors_told, say, write
from orchestrator.cli.fetching import fetch
from orchestrator.cli.interrupts import Interrupts
from orchestrator.cli.progress import sized
from orchestrator.cli.tables import print_table
from outrider.errors import InvalidArgumentError, UnavailableError
from outrider.models.llamacpp_source import Part
from outrider.models.stored import StoredModel, stored_models


def show_models(*, show_json: bool) -> None:
    """Prints a row for each model."""
    with errors_told():
        found = stored_models()
    if show_json:
        shown = [
            {
                "name": model.name,
                "source": model.source,
                "is_here": model.path is not None,
                "size_bytes": model.size_bytes,
                "path": None if model.path is None else str(model.path),
            }
            for model in found
        ]
        write(json.dumps({"models": shown}, ensure_ascii=False) + "\n")
    else:
        print_table(("NAME", "SOURCE", "SIZE", "WHERE"), [_cells(m) for m in found], ("SIZE",))


def pull_model(name: str, revision: str | None, *, show_json: bool) -> None:
    """Fetches a model, and prints where it lies. Ctrl-C ends it with status 130."""
    with Interrupts():
        try:
            (path,) = fetch([name], revision)
        except KeyboardInterrupt:
            say("stopped; the same command goes on with what is here")
            raise typer.Exit(INTERRUPTED) from None
        except (InvalidArgumentError, UnavailableError) as error:  # the fetcher has told the reason
            is_misuse = isinstance(error, InvalidArgumentError)
            raise typer.Exit(MISUSED if is_misuse else FAILED) from error
    size = _size(path)
    if show_json:
        told = {"name": name, "path": str(path), "size_bytes": size}
        write(json.dumps(told, ensure_ascii=False) + "\n")
    else:
        write(f"{name}: {sized(size)} in {path}\n")


def _cells(model: StoredModel) -> tuple[str, ...]:
    if model.path is None:
        return (model.name, model.source, "", f"not here; {sized(model.size_bytes)} to fetch")
    return (model.name, model.source, sized(model.size_bytes), str(model.path))


def _size(path: Path) -> int:
    """Of a folder, or of a file with the other parts of what it begins."""
    part = Part.of(path.name)
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
    else:
        files = [path] if part is None else [path.with_name(name) for name in part.names()]
    return sum(file.stat().st_size for file in files)
