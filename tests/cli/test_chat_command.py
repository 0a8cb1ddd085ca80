"""`outrider chat`: over a pipe line by line, and on a terminal."""

import os
import pty
import signal
import subprocess

import pytest
from running_commands import COMMAND, TIMEOUT_S, Output, run

from outrider import Client


def talk(address: str, *lines: str, arguments: tuple[str, ...] = ()):
    ask = ("chat", "--address", address, "--max-tokens", "12", "--seed", "5", *arguments)
    return run(*ask, text="".join(f"{line}\n" for line in lines))


def test_each_turn_sees_the_turns_before_it(address):
    spoken = talk(address, "hello", "and then?")
    messages = []
    with Client(address) as client:
        for text in ("hello", "and then?"):
            messages.append({"role": "user", "content": text})
            answer = client.chat(messages, max_tokens=12, seed=5).result().text
            messages.append({"role": "assistant", "content": answer})
    answers = [message["content"] for message in messages if message["role"] == "assistant"]
    assert (spoken.status, spoken.stdout.splitlines()) == (0, answers)
    assert spoken.stderr == ""


def test_new_forgets_the_conversation(address):
    first, second = talk(address, "hello", "/new", "hello").stdout.splitlines()
    assert first == second


def test_seed_and_temperature_hold_from_then_on(address):
    lines = ("/temperature 0", "hello", "/new", "/seed 6", "hello", "/temperature 1", "/new")
    greedy, other_seed, warm = talk(address, *lines, "hello").stdout.splitlines()
    assert greedy == other_seed
    assert warm != greedy


def test_stats_tell_about_the_last_answer(address):
    told = talk(address, "/stats", "hello", "/stats").stderr.splitlines()
    assert told[0] == "outrider: there is no answer yet"
    assert told[1].startswith("outrider: 12 tokens in ")


def test_quit_ends_before_the_next_line(address):
    spoken = talk(address, "/quit", "hello")
    assert (spoken.status, spoken.stdout) == (0, "")


def test_help_lists_every_command(address):
    told = talk(address, "/help").stderr
    for name in ("/new", "/seed", "/temperature", "/stats", "/quit"):
        assert name in told


def test_a_doubled_slash_sends_one(address):
    with Client(address) as client:
        expected = client.generate("/hello", max_tokens=12, seed=5).result().text
    assert talk(address, "//hello", arguments=("--raw",)).stdout == expected + "\n"


@pytest.mark.parametrize(
    ("line", "told_why"),
    [
        ("/frobnicate", "/frobnicate is no command"),
        ("/seed x", "seed is x"),
        ("/seed -1", "seed is -1"),
        ("/temperature hot", "temperature is hot"),
        ("/temperature -1", "temperature is -1"),
        ("/temperature inf", "temperature is inf"),
        ("x" * 9000, "the model's context is 8192"),
    ],
)
def test_a_mistake_in_a_pipe_ends_the_chat_with_status_1(address, line, told_why):
    spoken = talk(address, line, "hello")
    assert (spoken.status, spoken.stdout.strip()) == (1, "")
    assert told_why in spoken.stderr


def test_on_a_terminal_ctrl_c_stops_the_answer_and_ctrl_d_leaves(address):
    terminal, inside = pty.openpty()
    command = [*COMMAND, "chat", "--address", address, "--max-tokens", "8000", "--seed", "5"]
    environment = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(
        command, stdin=inside, stdout=inside, stderr=inside, env=environment
    ) as chat:
        os.close(inside)
        screen = Output(terminal)
        screen.wait_for("/help lists the commands")
        screen.wait_for("> ")
        os.write(terminal, b"/new\r")
        screen.wait_for("a new conversation")
        os.write(terminal, b"hello\r")
        screen.wait_for_more(40)
        chat.send_signal(signal.SIGINT)
        screen.wait_for("stopped after ")
        os.write(terminal, b"/stats\r")
        screen.wait_for("there is no answer yet")
        os.write(terminal, b"\x04")
        assert chat.wait(TIMEOUT_S) == 0
    os.close(terminal)
