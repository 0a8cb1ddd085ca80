"""The engine in a Ray actor: the same answers, and nothing left behind."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.models import alone
from support.processes import Processes, ServiceProcess
from support.waiting import until, until_asked

from outrider import AsyncClient
from outrider.client import Result
from outrider.errors import OutriderError, UnavailableError
from outrider.models.scripted import ScriptedLaw
from outrider.types import AcceptanceMode, SamplingParams

LAW = ScriptedLaw(vocab=64)
SLOW = "scripted:vocab=64,step_ms=10"
PROMPT = [7]

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def services(module_processes: Processes) -> Iterator[dict[str, ServiceProcess]]:
    verify = module_processes.verify(SLOW, "--max-sessions", "2")
    draft = module_processes.draft("scripted:vocab=64")
    http = ("--http-port", "0", "--http-ready-file", str(module_processes.folder / "http"))
    orchestrator = module_processes.orchestrator(verify, {"a": draft}, *http, ray="embedded")
    yield {"verify": verify, "draft": draft, "orchestrator": orchestrator}


def descendants(root: int) -> dict[int, str]:
    """Process ids below `root`, and their command lines."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            names[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ").strip()
        except OSError:
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {root}
    grew = True
    while grew:
        below = {pid for pid, parent in parents.items() if parent in found} - found
        found |= below
        grew = bool(below)
    return {pid: names[pid] for pid in found - {root} if pid in names}


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_http_reaches_the_actor(
    services: dict[str, ServiceProcess], module_processes: Processes
) -> None:
    assert services["orchestrator"].address
    base = f"http://{(module_processes.folder / 'http').read_text()}"
    async with httpx.AsyncClient(base_url=base, timeout=60) as http:
        body = {"prompt": PROMPT, "max_tokens": 12, "seed": 3, "return_token_ids": True}
        answer = (await http.post("/v1/completions", json=body)).json()
        ids = alone(LAW, PROMPT, 12, SamplingParams(seed=3))
        assert answer["choices"][0]["token_ids"] == ids
        text = (await http.post("/detokenize", json={"tokens": ids})).json()["prompt"]
        assert text == answer["choices"][0]["text"]
        tokens = (await http.post("/tokenize", json={"prompt": "ab"})).json()["tokens"]
        assert len(tokens) == 2
        refused = await http.post("/v1/completions", json={**body, "prompt": [64]})
        assert refused.status_code == 400
        assert "outrider_emitted_tokens_total 12.0" in (await http.get("/metrics")).text


async def test_an_answer_through_an_actor_is_the_targets(
    services: dict[str, ServiceProcess],
) -> None:
    async with AsyncClient(services["orchestrator"].address, timeout_s=60) as client:
        result = await client.generate(PROMPT, max_tokens=64, temperature=1.0, seed=4).result()
        info = await client.get_model_info()
        cluster = await client.get_cluster()
    sampling = SamplingParams(temperature=1.0, seed=4)
    assert [t.id for t in result.tokens] == alone(LAW, PROMPT, 64, sampling)
    assert result.stats.target_passes < 64
    assert info.model_name == SLOW
    assert cluster.drafts[0].usable


async def test_a_request_with_everything_is_answered_through_an_actor_as_without_ray(
    services: dict[str, ServiceProcess], module_processes: Processes
) -> None:
    """Greedy, so that under block, too, the drafts cannot change the text."""
    plain = module_processes.orchestrator(services["verify"], {"a": services["draft"]})
    everything: dict[str, Any] = {
        "max_tokens": 64,
        "min_tokens": 3,
        "temperature": 0,
        "seed": 4,
        "choice_index": 3,
        "mode": "block",
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.3,
        "presence_penalty": 0.2,
        "logit_bias": {1: 2.0, 5: -3.0},
        "allowed_token_ids": range(26),
        "banned_token_ids": [0, 8],
        "regex": "[a-z]{40,60}",
        "stop_token_ids": [25],
        "ignore_eos": True,
        "logprobs": 2,
    }
    answers = []
    for orchestrator in (services["orchestrator"], plain):
        async with AsyncClient(orchestrator.address, timeout_s=60) as client:
            whole = await client.generate(PROMPT, **everything).result()
            stop = whole.text[12:14]
            cut = await client.generate(
                PROMPT, **everything, stop=[stop], include_stop=True
            ).result()
            assert cut.text == whole.text[: whole.text.find(stop, 3) + 2]
            assert cut.stats.accepted_tokens > 0, "the draft was idle"
            answers.append([_what_is_the_targets(result) for result in (whole, cut)])
    assert answers[0] == answers[1]
    [whole, cut] = answers[0]
    assert (cut.stop_string, cut.mode, cut.seed) == (stop, AcceptanceMode.BLOCK, 4)
    assert all(len(token.top_logprobs) == 2 for token in whole.tokens)


def _what_is_the_targets(result: Result) -> Result:
    """Without what depends on when drafts came."""
    tokens = tuple(replace(token, draft="") for token in result.tokens)
    return replace(result, tokens=tokens, stats=None, request_id="")


async def test_errors_come_through_an_actor_as_they_are(
    services: dict[str, ServiceProcess],
) -> None:
    async with AsyncClient(services["orchestrator"].address, timeout_s=60) as client:
        with pytest.raises(OutriderError, match="gpt-9") as failure:
            await client.generate(PROMPT, max_tokens=4, model="gpt-9").result()
    assert type(failure.value).__name__ == "NotFoundError"
    assert failure.value.request_id


async def test_cancelling_through_an_actor_frees_the_verifier(
    services: dict[str, ServiceProcess],
) -> None:
    """Of two places at the verifier, five cancelled answers leave both free."""
    async with AsyncClient(services["orchestrator"].address, timeout_s=60) as client:
        for _ in range(5):
            async with client.generate(PROMPT, max_tokens=5000, max_drafts=0) as generation:
                await anext(aiter(generation))

            async def both_are_free() -> bool:
                try:
                    async with client.generate([1], max_tokens=400, max_drafts=0) as one:
                        await anext(aiter(one))
                        await client.generate([2], max_tokens=1, max_drafts=0).result()
                except OutriderError:
                    return False
                return True

            await until_asked(both_are_free, "two free places")


async def test_an_actor_that_dies_is_replaced_and_the_drafts_are_used_again(
    services: dict[str, ServiceProcess],
) -> None:
    orchestrator = services["orchestrator"]
    actors = {
        pid for pid, name in descendants(orchestrator.process.pid).items() if "EngineActor" in name
    }
    assert len(actors) == 1
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        os.kill(actors.pop(), signal.SIGKILL)
        # Before its first token a request is tried again; at worst it says that it was not.
        deadline = time.monotonic() + 60
        while True:
            try:
                result = await client.generate(PROMPT, max_tokens=32, temperature=0).result()
                break
            except UnavailableError:
                assert time.monotonic() < deadline
        assert [t.id for t in result.tokens] == alone(LAW, PROMPT, 32)

        async def uses_its_draft() -> bool:
            answer = await client.generate(PROMPT, max_tokens=32, temperature=0).result()
            return answer.stats.accepted_tokens > 0

        await until_asked(uses_its_draft, "the use of the draft after the restart")


async def test_no_process_of_ray_is_left_after_sigterm(
    services: dict[str, ServiceProcess],
) -> None:
    orchestrator = services["orchestrator"]
    below = descendants(orchestrator.process.pid)
    assert any("raylet" in name for name in below.values())
    assert any("gcs_server" in name for name in below.values())
    assert orchestrator.terminate() == 0
    await until(lambda: not any(map(is_alive, below)), "the end of every process of Ray")
