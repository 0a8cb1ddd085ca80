"""Tables on standard output: fitted to a terminal, a line a row elsewhere."""

from collections.abc import Sequence

from orchestrator.cli.console import is_colourful, write

PIPED_WIDTH = 400


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()
) -> None:
    """Prints rows under their headers; the columns named in `numbers` stand to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, justify="right" if header in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(no_color=not is_colourful())
    if console.is_terminal:
        console.print(table)
        return
    console.width = PIPED_WIDTH
    with console.capture() as captured:
        console.print(table)
    write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
