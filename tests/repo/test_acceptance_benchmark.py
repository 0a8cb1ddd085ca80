"""The acceptance benchmark counts what a target pass emits, the same under every rule."""

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.acceptance import (
    NUM_SPECULATIVE_TOKENS,
    Answer,
    measure,
    pooled,
    read_prompts,
    samplings,
)
from outrider.models.base import CausalModel
from outrider.models.registry import load_model
from outrider.types import SamplingParams

TARGET = "scripted:vocab=16,seed=1,sharpness=2"
PROMPT = (1, 2, 3)
TOKENS = 30


def model(spec: str = TARGET) -> CausalModel:
    return load_model(spec)


@pytest.mark.parametrize(
    "sampling", list(samplings()), ids=lambda s: f"{s.mode.value}-{s.temperature}"
)
def test_a_draft_that_is_the_target_has_its_whole_chain_accepted(sampling: SamplingParams) -> None:
    answer = measure(model(), model(), PROMPT, sampling, TOKENS)
    passes = TOKENS // (NUM_SPECULATIVE_TOKENS + 1)
    if sampling.mode.value == "match" and not sampling.is_greedy:
        assert passes < answer.passes <= TOKENS  # it proposes the likeliest token, p draws its own
        return
    assert answer == Answer(TOKENS, passes, passes * NUM_SPECULATIVE_TOKENS)


@pytest.mark.parametrize(
    "sampling", list(samplings()), ids=lambda s: f"{s.mode.value}-{s.temperature}"
)
def test_every_pass_verifies_a_whole_chain_and_every_run_gives_the_same(
    sampling: SamplingParams,
) -> None:
    draft = f"{TARGET},drift=0.6"
    first = measure(model(draft), model(), PROMPT, sampling, TOKENS)
    assert first.drafted == first.passes * NUM_SPECULATIVE_TOKENS
    assert first.passes > TOKENS // (NUM_SPECULATIVE_TOKENS + 1)
    assert measure(model(draft), model(), PROMPT, sampling, TOKENS) == first


def test_answers_are_pooled_by_passes() -> None:
    figure = pooled("d", "t", SamplingParams(), [Answer(10, 2, 8), Answer(10, 8, 32)])
    assert (figure.tokens_per_pass, figure.spread) == (2.0, 2.65)
    assert figure.accepted == 0.25


def test_prompts_are_the_first_short_ones_of_each_category(tmp_path: Path) -> None:
    rows = [("a", "x" * 9), ("a", "x" * 99), ("a", "yy"), ("a", "zz"), ("b", "ww"), ("b", "vv")]
    file = tmp_path / "question.jsonl"
    lines = [json.dumps({"category": c, "turns": [text, "second"]}) for c, text in rows]
    file.write_text("\n".join(lines), encoding="utf-8")
    options = argparse.Namespace(limit=3, max_prompt_tokens=60)
    prompts = list(read_prompts(file, 2, model(), options))
    assert [p.text for p in prompts] == ["x" * 9, "yy", "ww"]
