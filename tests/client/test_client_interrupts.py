"""Ctrl-C in a program that waits for an answer: whatever it interrupts, the client stays whole."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
import pytest
from scripted_orchestrator import HANG, WHOLE_ANSWER, RunningOrchestrator
from support.waiting import until

from outrider.client import Client
from outrider.client.apart import READ_AHEAD
from outrider.errors import OutriderError

GRPC = str(Path(grpc.__file__).parent)

HAMMER = """
import os, random, signal, sys, threading, time
from outrider.client import Client

rounds, address = int(sys.argv[1]), sys.argv[2]
draw = random.Random(7)
begun = threading.Semaphore(0)

def interrupt():
    for _ in range(rounds):
        begun.acquire()
        time.sleep(draw.random() * 0.01)
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
client = Client(address, timeout_s=30)
for _ in range(rounds):
    try:
        begun.release()
        while True:
            with client.generate("hi") as generation:
                for token in generation:
                    pass
            client.get_cluster()
    except KeyboardInterrupt:
        pass
print(client.generate("hi").result().text)
client.close()
print("closed")
"""


def grpc_frames(calls: Callable[[], object]) -> set[str]:
    """The functions of gRPC that `calls` runs in its own thread."""
    found = set()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_filename.startswith(GRPC):
            found.add(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}")

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        calls()
    finally:
        sys.settrace(before)
    return found


async def test_a_thread_that_waits_never_runs_grpc(orchestrator: RunningOrchestrator) -> None:
    """There an interruption could leave a lock held for ever."""

    def every_call() -> None:
        client = Client(orchestrator.address)
        with client.generate("hi") as generation:
            generation.wait_started()
            for _ in generation:
                pass
        client.chat([{"role": "user", "content": "hi"}]).result()
        client.generate_choices("hi", 3)
        client.get_cluster()
        client.get_model_info()
        given_up = client.generate("hi")
        next(given_up)
        given_up.cancel()
        with pytest.raises(OutriderError):
            given_up.result()
        client.close()

    assert await asyncio.to_thread(grpc_frames, every_call) == set()

    def grpc_itself() -> None:
        grpc.insecure_channel(orchestrator.address).close()

    assert await asyncio.to_thread(grpc_frames, grpc_itself), "this would find some"


async def test_a_client_that_is_interrupted_again_and_again_answers_on_and_closes(
    orchestrator: RunningOrchestrator,
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HAMMER, "150", orchestrator.address),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), 120)
    except asyncio.TimeoutError:
        process.kill()
        raise
    assert said.decode().split("\n")[-2] == "closed"
    assert process.returncode == 0


async def test_an_answer_that_nobody_reads_waits_at_the_server(
    orchestrator: RunningOrchestrator,
) -> None:
    """What is read ahead is bounded, and given up with the answer."""
    started, tokens, *_ = WHOLE_ANSWER
    orchestrator.servicer.script = (started, *[tokens] * 64, HANG)
    client = Client(orchestrator.address)
    generation = client.generate("hi")
    await orchestrator.servicer.hanging.wait()
    assert generation._stream is not None
    arrivals = generation._stream._arrivals
    await until(lambda: arrivals.qsize() == READ_AHEAD, "the end of reading ahead")
    await asyncio.to_thread(next, generation)
    await until(lambda: arrivals.qsize() == READ_AHEAD, "reading on")
    await asyncio.to_thread(generation.cancel)
    await asyncio.wait_for(orchestrator.servicer.cancelled.wait(), 10)
    with pytest.raises(OutriderError):
        await asyncio.to_thread(generation.result)
    await asyncio.to_thread(client.close)
