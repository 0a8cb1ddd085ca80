"""What the demonstration shows: the best pair that runs here, or what the user names."""

import sys
from pathlib import Path

import pytest

from orchestrator.cli import showcase
from orchestrator.cli.showcase import POEM, QUESTION, chosen, llamacpp_problem
from outrider.models.packaged import packaged_name


def test_where_llamacpp_runs_a_gguf_pair_answers_a_plain_question():
    shown = chosen(None, (), None, None)
    assert (shown.model, shown.drafts) == ("smollm2-f32.gguf", ("smollm2.gguf",))
    assert (shown.prompt, shown.notice) == (QUESTION, "")
    assert "the target the same weights written in 32" in shown.about


def test_where_it_does_not_the_reason_is_told_and_the_draft_looks_up():
    shown = chosen(None, (), None, "llama.cpp is not installed")
    assert (shown.model, shown.drafts, shown.prompt) == ("smollm2", ("ngram:",), POEM)
    assert shown.notice.startswith("llama.cpp is not installed, so this shows smollm2 with PyTorch")
    assert shown.about.startswith("This prompt suits the draft ngram:")


@pytest.mark.parametrize("problem", [None, "llama.cpp is not installed"])
def test_every_model_of_its_own_choice_is_one_that_can_be_fetched(problem):
    shown = chosen(None, (), None, problem)
    assert packaged_name(shown.model)
    assert all(packaged_name(draft) or draft == "ngram:" for draft in shown.drafts)


def test_what_the_user_names_is_shown():
    named = chosen("org/big", ("org/small",), "hello", "llama.cpp is not installed")
    assert (named.model, named.drafts, named.prompt) == ("org/big", ("org/small",), "hello")
    assert (named.notice, named.about) == ("", "")
    assert chosen(None, ("none",), None, None).drafts == ("none",)
    assert chosen(None, ("ngram:n=2",), None, None).prompt == POEM
    assert chosen("org/big", (), None, None).drafts == ("ngram:",)


def test_the_notice_names_the_draft_that_is_used():
    shown = chosen(None, ("smollm2",), None, "llama.cpp is not installed")
    assert "and the draft smollm2, not" in shown.notice and "ngram" not in shown.notice


def test_a_prompt_of_the_users_is_not_said_to_suit_the_draft():
    assert chosen(None, (), "hello", "llama.cpp is not installed").about == ""


def test_llamacpp_that_is_missing_or_broken_is_told(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(showcase, "has_llamacpp", lambda: False)
    assert llamacpp_problem() == "llama.cpp is not installed"
    monkeypatch.setattr(showcase, "has_llamacpp", lambda: True)
    interpreter = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(interpreter))
    for status, problem in (
        (1, "llama.cpp cannot be loaded (OSError: libgomp.so.1 is missing)"),
        (0, None),
    ):
        interpreter.write_text(
            "#!/bin/sh\necho noise >&2\necho 'OSError: libgomp.so.1 is missing' >&2\n"
            f"exit {status}\n"
        )
        interpreter.chmod(0o755)
        assert llamacpp_problem() == problem
