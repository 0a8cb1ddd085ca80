"""Python in the documentation: on the site only programs of `examples/`, which are type-checked
with the rest and run here; in the README snippets whose names exist.
"""

import ast
import asyncio
import importlib
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import grpc
import pytest
from client.scripted_orchestrator import (
    RunningOrchestrator,
    ScriptedOrchestrator,
    finished,
    started,
    tokens,
)
from documentation import FRONT, ROOT, SITE, Fence, fences
from support.local import Local
from support.saying import SayingModel, as_bytes

from examples import json_schema, several_at_once
from outrider.errors import CapacityError, InvalidArgumentError, UnavailableError
from outrider.v1.orchestrator_pb2_grpc import add_OrchestratorServiceServicer_to_server

MODEL = "scripted:vocab=62,seed=3"
DRAFT = f"{MODEL},drift=0.3"
WAITING = {"wait_nodes": 2, "max_wait_ms": 5000}
"""The target takes no time: it would be done before the draft has begun."""
SHOWN = re.compile(r"--8<--\n(\w+)\.py\n--8<--")
EXAMPLES = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"}

Serve = Callable[[], Awaitable[str]]


@dataclass(frozen=True)
class Ran:
    """What came of a program."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it printed, where it ended well."""
        assert self.status == 0, self.err
        return self.out.splitlines()


async def run(example: str, address: str) -> Ran:
    """Runs an example as its readers do, while this event loop serves it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "examples" / f"{example}.py"), address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


@pytest.fixture
def serve(local: Local) -> Serve:
    """Begins to serve a scripted target and a draft; the orchestrator's address."""

    async def begin() -> str:
        verify, draft = await local.verify(MODEL), await local.draft(DRAFT)
        return (await local.orchestrator(verify, {"a": draft}, **WAITING)).address

    return begin


def of_python(fence: Fence) -> bool:
    return fence.language in ("python", "py", "pycon")


@pytest.mark.parametrize(
    "fence", [f for page in SITE for f in fences(page) if of_python(f)], ids=lambda f: f.page
)
def test_python_on_the_site_is_a_program_of_examples(fence: Fence) -> None:
    found = SHOWN.fullmatch(fence.text.strip())
    assert found, "write it into examples/, and its name between two lines of --8<--"
    assert found[1] in EXAMPLES


def test_every_example_is_shown() -> None:
    shown = {name for page in SITE for f in fences(page) for name in SHOWN.findall(f.text)}
    assert shown == EXAMPLES


@pytest.mark.parametrize(
    "fence", [f for page in FRONT for f in fences(page) if of_python(f)], ids=lambda f: f.text[:20]
)
def test_python_in_the_readme_is_valid_and_imports_what_there_is(fence: Fence) -> None:
    for node in ast.walk(ast.parse(fence.text)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)


async def test_the_stream_shows_the_answer_and_what_was_drafted(serve: Serve) -> None:
    text, told = (await run("stream", await serve())).lines
    assert len(text) == 64, "one letter a token"
    drafted = re.fullmatch(r"(\d+) of 64 tokens were drafted; the seed was 7", told)
    assert drafted
    assert int(drafted[1]) > 0


async def test_several_answers_come_at_once_and_whole(serve: Serve) -> None:
    lines = (await run("several_at_once", await serve())).lines
    told, texts = lines[:-3], lines[-3:]
    for question, line in zip(several_at_once.QUESTIONS, texts, strict=True):
        pieces = [t.removeprefix(f"{question} ") for t in told if t.startswith(question)]
        assert line == f"{question} {''.join(map(ast.literal_eval, pieces))}"
        assert len(pieces) == 32


async def test_four_choices_differ_and_one_is_repeated(serve: Serve) -> None:
    *answers, last = (await run("choices", await serve())).lines
    assert len({answer.partition(": ")[2] for answer in answers}) == 4
    assert last == "number 2 once more: the same"


async def test_json_is_asked_for_and_read(local: Local) -> None:
    before = [b"."] * (len(json_schema.QUESTION) - 1)
    target = SayingModel([*before, *as_bytes('{"name": "Danube", "km": 2850}')])
    client = await local.orchestrator(await local.verify(target))
    assert (await run("json_schema", client.address)).lines == ["Danube is 2850 km long"]


async def test_log_probabilities_are_shown_for_each_token(serve: Serve) -> None:
    lines = (await run("logprobs", await serve())).lines
    assert len(lines) == 5
    for line in lines:
        own, _, likeliest = line.partition("; likeliest: ")
        assert likeliest.split(", ")[0] == own, "greedy takes the likeliest"
        assert len(likeliest.split(", ")) == 3


async def test_openais_client_streams_and_tells_what_was_drafted(local: Local) -> None:
    verify, draft = await local.verify(MODEL), await local.draft(DRAFT)
    base = await local.gateway(verify, {"a": draft}, **WAITING)
    text, told = (await run("openai_client", f"{base}/v1")).lines
    assert len(text) == 64
    drafted = re.fullmatch(r"(\d+) of 64 tokens were drafted", told)
    assert drafted
    assert int(drafted[1]) > 0


@pytest.fixture
async def scripted() -> AsyncIterator[RunningOrchestrator]:
    """An orchestrator that answers as it is told to."""
    servicer = ScriptedOrchestrator()
    server = grpc.aio.server()
    add_OrchestratorServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield RunningOrchestrator(servicer, server, f"127.0.0.1:{port}")
    await server.stop(None)


async def test_a_full_service_and_a_broken_connection_cost_no_token(
    scripted: RunningOrchestrator,
) -> None:
    scripted.servicer.attempts = [
        (CapacityError("full", retry_after_s=0.01),),
        (started(), tokens((11, "The", ""), (12, " s", "")), UnavailableError("it broke")),
        (started(delivered_tokens=2), tokens((13, "ea.", "")), finished()),
    ]
    assert (await run("errors", scripted.address)).lines == [
        "The sea.",
        "tokens that had arrived when the connection broke: 2",
    ]


async def test_what_does_not_get_better_is_told(scripted: RunningOrchestrator) -> None:
    scripted.servicer.script = (started(), CapacityError("it is full", request_id="r-1"))
    ran = await run("errors", scripted.address)
    assert ran == Ran(1, "", "CapacityError: it is full (request r-1)\n")
    scripted.servicer.script = (InvalidArgumentError("the prompt is too long; shorten it"),)
    ran = await run("errors", scripted.address)
    assert ran == Ran(1, "", "this can never work: the prompt is too long; shorten it\n")
