"""`outrider demo` with scripted models: it compares, tells the truth, and leaves nothing behind."""

import signal
from dataclasses import replace

import pytest
from running_commands import TIMEOUT_S, Running, Terminal, run, survivors
from test_summary import result
from typer import Exit

from orchestrator.cli.demo import Demo, _compare
from orchestrator.cli.showcase import Showcase
from orchestrator.cli.stack_plan import StackPlan
from outrider.client import Token

TARGET = ("--model", "scripted:vocab=62,step_ms=10", "--ray", "local", "--seed", "5")
GOOD = "scripted:vocab=62,drift=0.1"
HOPELESS = "scripted:vocab=62,seed=9"


def demo(*drafts: str, tokens: int = 40) -> tuple[str, ...]:
    flags = [flag for draft in drafts for flag in ("--draft-model", draft)]
    return ("demo", "hello there", *TARGET, *flags, "--max-tokens", str(tokens))


def test_the_same_answer_is_given_faster_with_good_drafts():
    shown = run(*demo(GOOD, HOPELESS))
    assert shown.status == 0, shown.stderr
    prompt, answer, sentence, measured, proof = [line for line in shown.stdout.splitlines() if line]
    assert prompt == "hello there"
    assert len(answer) == 40
    assert sentence.startswith("40 tokens took ")
    assert "times as fast" in sentence
    assert measured.startswith("On average a target pass took ")
    assert proof.startswith(
        "Both times the tokens are the same, one by one (temperature 0.7, seed 5)."
    )


def test_without_drafts_it_still_answers_and_says_so():
    shown = run(*demo("none"))
    assert shown.status == 0, shown.stderr
    assert "40 tokens took 40 target passes, 1.0 tokens a pass: no draft took part" in shown.stdout
    assert "the difference is noise" in shown.stdout
    assert "as fast" not in shown.stdout
    assert "the target answers at its own speed" in shown.stderr


def test_a_divergence_is_told_with_what_can_be_its_cause(capsys):
    drafted, alone = result(passes=1, seconds=1), result(passes=1, seconds=1)
    tokens = tuple(Token(id_, "x") for id_ in (1, 2))
    shown = Demo(StackPlan("m", ()), Showcase("m", (), "hi"), {"temperature": 0.7})
    with pytest.raises(Exit):
        _compare(shown, replace(drafted, tokens=tokens), replace(alone, tokens=tokens[:1]))
    told = capsys.readouterr().err
    assert "differs from token 2 on. On a CPU in float32 that must never be" in told
    assert "docs/exactness.md" in told


def test_ctrl_c_in_the_middle_of_the_answer_leaves_no_process():
    with Running(demo(GOOD, tokens=8000)) as shown:
        shown.stdout.wait_for("hello there\n\n")
        processes = shown.descendants()
        assert len(processes) == 3
        shown.send(signal.SIGINT)
        assert shown.finished().status == 130
        assert survivors(processes, 5.0) == []


def test_a_terminal_shows_who_wrote_which_token():
    with Terminal(*demo(GOOD), term="xterm-256color") as shown:
        assert shown.process.wait(TIMEOUT_S) == 0
        text = shown.screen.whole()
    assert "\x1b[32m■ drafted by scripted, accepted by the target" in text
    assert text.count("\x1b[32m") > 5


@pytest.mark.real_model
def test_the_gguf_pair_answers_a_question_with_the_targets_own_tokens():
    arguments = ("--ray", "local", "--max-tokens", "24", "--threads", "2")
    shown = run("demo", *arguments, timeout_s=300)
    assert shown.status == 0, shown.stderr
    assert "verify (smollm2-f32.gguf)" in shown.stderr
    assert "Why is the sky blue?" in shown.stdout
    assert "24 tokens took " in shown.stdout
    assert "The target had 1 thread in both, the draft 1 of its own" in shown.stdout
    assert "The draft is SmolLM2-135M in 4 bits" in shown.stdout
