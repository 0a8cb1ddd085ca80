import signal
from collections.abc import Iterator

import pytest
from running_commands import Running

MODEL = "scripted:vocab=62,step_ms=4"
DRAFT = "scripted:vocab=62,drift=0.2"


@pytest.fixture(scope="package")
def address() -> Iterator[str]:
    """Of an orchestrator with a slow scripted target and a quick draft that often agrees."""
    models = ("--model", MODEL, "--draft-model", DRAFT)
    with Running(
        ["serve", "all", "--port", "0", "--http-port", "0", "--ray", "local", *models]
    ) as stack:
        ready = stack.stderr.wait_for("outrider chat")
        yield ready.partition("ready at ")[2].split()[0]
        stack.send(signal.SIGINT)
        assert stack.finished().status == 0
