"""GGUF models behind real services: the target's own tokens, whatever drafts, seeds and formats."""

from pathlib import Path

import pytest
from models.plain_decode import PlainDecode
from support.local import Local
from support.tiny_gguf import write_tiny_gguf

from outrider import AsyncClient
from outrider.client import Result
from outrider.models.llamacpp_quantize import quantize
from outrider.models.packaged_gguf import fetch_gguf

PROMPT = [5, 17, 40, 41, 8, 90, 17, 40, 33]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "target.gguf")


@pytest.fixture(scope="module")
def draft(target: Path) -> Path:
    """The same weights in Q8_0: right most of the time."""
    quantize(target, target.with_name("draft.gguf"), "q8_0")
    return target.with_name("draft.gguf")


async def answer(client: AsyncClient, prompt: list[int] | str, **options: object) -> Result:
    async with client.generate(prompt, **options) as generation:
        return await generation.result()


def ids(result: Result) -> list[int]:
    return [token.id for token in result.tokens]


async def test_seeded_and_greedy_tokens_are_the_targets_own_whatever_drafts(
    target: Path, draft: Path
) -> None:
    settings = {"threads": 1, "kv_tokens": 1024}
    async with Local() as local:
        verify = await local.verify(str(target), **settings)
        near = await local.draft(str(draft), **settings)
        other = await local.draft(str(write_tiny_gguf(target.with_name("other.gguf"), seed=8)))
        drafts = {"near": near, "other": other}
        client = await local.orchestrator(verify, drafts)
        # The target is as quick as its drafts: unless it waits, it is done before they begin.
        waits = {"wait_nodes": 6, "max_wait_ms": 5000, "adaptive": False}
        wide = await local.orchestrator(verify, drafts, width=3, **waits)
        for options in ({"temperature": 0.0}, *({"temperature": 1.0, "seed": s} for s in (1, 2))):
            alone = await answer(client, PROMPT, max_tokens=40, max_drafts=0, **options)
            assert alone.stats.accepted_tokens == 0
            for drafted in (
                await answer(client, PROMPT, max_tokens=40, **options),
                await answer(wide, PROMPT, max_tokens=40, **options),
                await answer(wide, PROMPT, max_tokens=40, max_drafts=1, **options),
            ):
                assert ids(drafted) == ids(alone)
            assert drafted.stats.accepted_tokens > 10, "the draft is right most of the time"


@pytest.mark.parametrize("mode", ["rejection", "block", "match"])
async def test_other_rules_run_on_gguf_models_too(target: Path, draft: Path, mode: str) -> None:
    async with Local() as local:
        verify = await local.verify(str(target), threads=1, kv_tokens=1024)
        near = await local.draft(str(draft), threads=1, kv_tokens=1024)
        client = await local.orchestrator(verify, {"near": near}, wait_nodes=2, adaptive=False)
        result = await answer(client, PROMPT, max_tokens=40, temperature=1.0, mode=mode, seed=3)
        assert result.stats.emitted_tokens == 40 or result.finish_reason == "stop"
        assert result.stats.accepted_tokens > 0


@pytest.mark.real_model
@pytest.mark.timeout(900)
async def test_greedy_text_of_a_gguf_target_is_the_librarys_own() -> None:
    """SmolLM2 in Q4_1 answers, SmolLM2 in Q8_0 drafts; llama.cpp's own class is the oracle."""
    original = fetch_gguf("smollm2.gguf")
    library = PlainDecode(original, threads=1, context=512)
    async with Local() as local:
        verify = await local.verify("smollm2.gguf", threads=1, kv_tokens=2048)
        draft = await local.draft("smollm2-q8_0.gguf", threads=1, kv_tokens=2048)
        client = await local.orchestrator(verify, {"draft": draft}, wait_nodes=3, adaptive=False)
        messages = [{"role": "user", "content": "Why do leaves turn red in autumn?"}]
        result = await answer(client, messages, max_tokens=64, temperature=0.0)
        tokenizer = verify.model.tokenizer
        assert tokenizer is not None
        prompt = tokenizer.encode_chat([("user", messages[0]["content"])])
        expected: list[int] = []
        for token in library.library.generate(prompt, temp=0.0, repeat_penalty=1.0):
            expected.append(token)
            if len(expected) == 64:
                break
        assert ids(result) == expected[: len(ids(result))]
        assert len(ids(result)) == 64 or result.finish_reason == "stop"
        assert result.stats.tokens_per_pass > 2


@pytest.mark.real_model
@pytest.mark.timeout(900)
async def test_a_gguf_draft_helps_a_transformers_target_without_translation() -> None:
    async with Local() as local:
        verify = await local.verify("smollm2", threads=1, kv_tokens=1024)
        draft = await local.draft("smollm2.gguf", threads=1, kv_tokens=1024)
        client = await local.orchestrator(verify, {"draft": draft}, wait_nodes=3, adaptive=False)
        messages = [{"role": "user", "content": "Name three rivers of Europe."}]
        drafted = await answer(client, messages, max_tokens=32, temperature=0.0)
        alone = await answer(client, messages, max_tokens=32, temperature=0.0, max_drafts=0)
        assert ids(drafted) == ids(alone)
        assert drafted.stats.tokens_per_pass > 2
        assert not drafted.notices
