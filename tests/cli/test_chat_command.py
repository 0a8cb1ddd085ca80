"""`outrider chat`: over a pipe line by line, and on a terminal."""

import signal

import pytest
from running_commands import TIMEOUT_S, Terminal, run
from stub_orchestrator import StubOrchestrator

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


def test_what_was_held_back_for_a_stop_string_is_shown_and_kept_in_the_conversation(address):
    """The answers end with the first character of a stop string that never becomes complete."""
    plain = talk(address, "hello").stdout.rstrip("\n")
    stop = ("--stop", plain[-1] + "never said")
    spoken = talk(address, "hello", "and then?", arguments=stop)
    with Client(address) as client:
        said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": plain}]
        messages = [*said, {"role": "user", "content": "and then?"}]
        then = client.chat(messages, max_tokens=12, seed=5).result().text
    assert spoken.stdout.splitlines() == [plain, then]


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
    assert " of them in the target's cache" in told[2]


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


def test_on_a_terminal_ctrl_c_stops_the_answer_and_ctrl_d_leaves():
    with StubOrchestrator() as stub, Terminal("chat", "--address", stub.address) as chat:
        chat.screen.expect("/help lists the commands")
        for typed, shown in (("/new", "a new conversation"), ("hello", "ab")):
            chat.screen.expect("> ")
            chat.type(f"{typed}\r")
            chat.screen.expect(shown)
        chat.process.send_signal(signal.SIGINT)
        chat.screen.expect("stopped after 2 tokens")
        assert stub.was_cancelled.wait(TIMEOUT_S)
        chat.screen.expect("> ")
        chat.type("/stats\r")
        chat.screen.expect("there is no answer yet")
        chat.screen.expect("> ")
        assert chat.type_until_it_ends("\x04") == 0


@pytest.mark.parametrize("typed", ["\x04", "/stats\r\x04", "\x04\x03"])
def test_ctrl_d_during_an_answer_ends_the_chat_after_it(typed):
    with StubOrchestrator() as stub, Terminal("chat", "--address", stub.address) as chat:
        chat.screen.expect("> ")
        chat.type("hello\r")
        chat.screen.expect("ab")
        chat.type(typed)
        chat.process.send_signal(signal.SIGINT)
        chat.screen.expect("stopped after 2 tokens")
        assert chat.process.wait(TIMEOUT_S) == 0
