"""A stream that ends while something is written to it: its real error is told, drafts or none."""

import asyncio

from support.local import Local

from outrider import InvalidArgumentError

MODEL = "scripted:vocab=48,seed=6,order=1"


async def test_the_verifiers_error_is_the_same_with_drafts_that_keep_writing(local: Local) -> None:
    """After six letters nothing may follow: chunks and policies are under way at that moment."""
    verify, good, careless = await asyncio.gather(
        local.verify(MODEL, max_sessions=32),
        local.draft(f"{MODEL},drift=0.15", max_sessions=32),
        local.draft(f"{MODEL},tokenizer=any", max_sessions=32),
    )
    client = await local.orchestrator(verify, {"a": good, "b": careless})
    for round_ in range(12):
        outcomes = await asyncio.gather(
            *(
                client.generate(
                    [9],
                    max_tokens=20,
                    seed=8 * round_ + seed,
                    regex="[a-c]{6}x",
                    allowed_token_ids=[0, 1, 2],
                    width=3,
                ).result()
                for seed in range(8)
            ),
            return_exceptions=True,
        )
        assert {type(outcome) for outcome in outcomes} == {InvalidArgumentError}, outcomes
