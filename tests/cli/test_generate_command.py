"""`outrider generate` against a stack of scripted models."""

import json
import signal
import socket
import subprocess

import pytest
from running_commands import COMMAND, TIMEOUT_S, Running, Terminal, run
from stub_orchestrator import SEED, StubOrchestrator
from typer import Exit

from orchestrator.cli.app import main
from orchestrator.cli.console import errors_told, told
from outrider import Client
from outrider.errors import InternalError, InvalidArgumentError, UnavailableError
from outrider.v1 import common_pb2

LONG = ("--max-tokens", "8000")


def test_the_text_alone_is_on_standard_output_and_the_summary_on_standard_error(address):
    answer = run("generate", "hello", "--address", address, "--max-tokens", "40", "--seed", "5")
    with Client(address) as client:
        messages = [{"role": "user", "content": "hello"}]
        expected = client.generate(messages, max_tokens=40, seed=5).result()
    assert (answer.status, answer.stdout) == (0, expected.text + "\n")
    assert answer.stderr.startswith("outrider: 40 tokens in ")
    assert answer.stderr.rstrip().endswith("seed 5, cut off at its length limit")
    assert answer.stderr.count("\n") == 1


def test_a_piped_prompt_is_the_prompt(address):
    ask = ("--address", address, "--max-tokens", "20", "--seed", "5")
    outputs = {
        run("generate", "grüß dich", *ask).stdout,
        run("generate", "-", *ask, text="grüß dich\n").stdout,
        run("generate", *ask, text="grüß dich\n").stdout,
    }
    assert len(outputs) == 1


def test_raw_sends_the_text_without_the_chat_template(address):
    ask = ("--address", address, "--max-tokens", "20", "--seed", "5")
    with Client(address) as client:
        expected = client.generate("hello", max_tokens=20, seed=5).result().text
    assert run("generate", "--raw", "hello", *ask).stdout == expected + "\n"


def test_json_is_one_object_with_everything(address):
    ask = ("generate", "hello", "--address", address, "--max-tokens", "20", "--seed", "5")
    answer = run(*ask, "--json")
    result = json.loads(answer.stdout)
    assert result["text"] + "\n" == run(*ask).stdout
    assert len(result["ids"]) == 20
    assert (result["finish_reason"], result["seed"], result["notices"]) == ("length", 5, [])
    assert result["stats"]["emitted_tokens"] == 20
    assert result["stats"]["tokens_per_pass"] == 20 / result["stats"]["target_passes"]
    assert answer.stderr == ""


def test_a_seed_gives_the_same_text_with_and_without_drafts(address):
    ask = ("generate", "hello", "--address", address, "--max-tokens", "64", "--seed", "5")
    helped, alone = run(*ask), run(*ask, "--max-drafts", "0")
    assert helped.stdout == alone.stdout
    assert "64 tokens in 64 target passes, no draft took part" in alone.stderr


def test_a_stop_string_ends_the_text_and_is_told_in_json(address):
    ask = ("generate", "hello", "--address", address, "--max-tokens", "40", "--seed", "5")
    text = run(*ask).stdout.rstrip("\n")
    stop = text[20:22]
    cut = run(*ask, "--stop", stop, "--stop", "never said", "--json")
    result = json.loads(cut.stdout)
    assert result["text"] == text[: text.find(stop)]
    assert (result["finish_reason"], result["stop_string"]) == ("stop", stop)
    assert len(result["ids"]) == result["stats"]["emitted_tokens"] < 40


def test_several_answers_are_independent_and_each_is_repeated_by_its_number(address):
    ask = ("generate", "hello", "--address", address, "--max-tokens", "20", "--seed", "5")
    lines = run(*ask, "-n", "3", "--json").stdout.splitlines()
    results = [json.loads(line) for line in lines]
    assert [result["choice_index"] for result in results] == [0, 1, 2]
    assert len({result["text"] for result in results}) == 3
    assert {result["seed"] for result in results} == {5}
    assert run(*ask).stdout == results[0]["text"] + "\n"
    assert run(*ask, "--choice-index", "2").stdout == results[2]["text"] + "\n"
    plain = run(*ask, "--answers", "3")
    assert plain.stdout == "".join(result["text"] + "\n" for result in results)
    assert [line.partition(":")[2].split()[:4] for line in plain.stderr.splitlines()] == [
        ["answer", str(index), "of", "0"] for index in range(3)
    ]


def test_a_mode_is_used_and_told(address):
    ask = ("generate", "hello", "--address", address, "--max-tokens", "20", "--json")
    assert json.loads(run(*ask).stdout)["mode"] == "coupled"
    assert json.loads(run(*ask, "--mode", "auto").stdout)["mode"] == "coupled"
    assert json.loads(run(*ask, "--mode", "match").stdout)["mode"] == "match"


def test_every_flag_reaches_the_orchestrator(tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "string"}')
    with StubOrchestrator() as stub:
        stub.refusal = InvalidArgumentError("no")
        ask = ("generate", "hello", "--address", stub.address, "--json")
        for more in (
            (
                *("--min-tokens", "3", "--repetition-penalty", "1.5"),
                *("--frequency-penalty", "0.5", "--presence-penalty", "-0.5"),
                *("--logit-bias", "3=-5", "--logit-bias", "4=0.5"),
                *("--banned-token", "6", "--banned-token", "7"),
                *("--allowed-token", "8", "--allowed-token", "9"),
                *("--stop-token", "2", "--stop-token", "1", "--ignore-eos", "--include-stop"),
                *("--json-schema", str(schema), "--stop", "END", "--stop", "é"),
                *("--logprobs", "2", "--mode", "block", "--choice-index", "3", "--seed", "6"),
            ),
            ("--regex", "a+"),
            ("--choice", "yes", "--choice", "no"),
            ("--json-schema", '{"type": "null"}'),
        ):
            assert main([*ask, *more]) == 1
    whole, *grammars = stub.requests
    sampling = whole.sampling
    assert whole.stop.min_tokens == 3
    assert sampling.repetition_penalty == 1.5
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.5, -0.5)
    assert [(entry.id, entry.bias) for entry in sampling.logit_bias] == [(3, -5), (4, 0.5)]
    assert list(sampling.banned_token_ids) == [6, 7]
    assert sampling.grammar.json_schema == '{"type": "string"}'
    assert list(sampling.allowed_token_ids.ids) == [8, 9]
    assert (list(whole.stop.stop_token_ids), whole.stop.ignore_eos) == ([1, 2], True)
    assert (list(whole.stop_strings), whole.include_stop_string) == (["END", "é"], True)
    assert not grammars[0].sampling.HasField("allowed_token_ids")
    assert not grammars[0].stop.ignore_eos
    assert (whole.logprobs, whole.choice_index) == (2, 3)
    assert sampling.mode == common_pb2.ACCEPTANCE_MODE_BLOCK
    assert [request.sampling.grammar for request in grammars] == [
        common_pb2.Grammar(regex="a+"),
        common_pb2.Grammar(choice=common_pb2.GrammarChoice(choices=["yes", "no"])),
        common_pb2.Grammar(json_schema='{"type": "null"}'),
    ]


def test_ctrl_c_keeps_what_came_and_ends_the_answer_on_the_server():
    with (
        StubOrchestrator() as stub,
        Running(["generate", "hello", "--address", stub.address]) as answer,
    ):
        answer.stdout.wait_for("ab")
        answer.send(signal.SIGINT)
        finished = answer.finished()
        assert stub.was_cancelled.wait(TIMEOUT_S)
    assert (finished.status, finished.stdout) == (130, "ab\n")
    assert (
        finished.stderr
        == f"outrider: mind the gap\noutrider: stopped after 2 tokens, seed {SEED}\n"
    )


def test_ctrl_c_leaves_whole_json():
    ask = ["generate", "hello", "--json", "--logprobs", "1", "--address"]
    with StubOrchestrator() as stub, Running([*ask, stub.address]) as answer:
        answer.stderr.wait_for("mind the gap")
        assert stub.has_begun.wait(TIMEOUT_S)
        answer.send(signal.SIGINT)
        finished = answer.finished()
    partial = json.loads(finished.stdout)
    assert (partial["finish_reason"], partial["seed"]) == (None, SEED)
    assert "ab".startswith(partial["text"])
    assert (partial["mode"], partial["request_id"]) == ("match", "r1")
    logprobs = [{"id": i, "logprob": -0.5, "bytes": list(b"ab"[i - 1 : i])} for i in partial["ids"]]
    told = [{**entry, "top": [entry]} for entry in logprobs]
    assert partial.get("logprobs", []) == told
    assert (finished.status, finished.stderr.count("stopped after")) == (130, 1)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_ctrl_c_keeps_what_came_of_several_answers(form):
    ask = ["generate", "hello", "-n", "2", "--seed", "3", *form, "--address"]
    with StubOrchestrator() as stub, Running([*ask, stub.address]) as answers:
        assert stub.has_begun.wait(TIMEOUT_S)
        stub.both_have_begun.wait(TIMEOUT_S)
        answers.send(signal.SIGINT)
        finished = answers.finished()
    assert finished.status == 130
    assert finished.stderr.endswith("outrider: stopped; 0 of 2 answers had come to their end\n")
    lines = finished.stdout.splitlines()
    assert len(lines) == 2
    for index, line in enumerate(lines):
        text = line
        if form:
            partial = json.loads(line)
            assert (partial["choice_index"], partial["finish_reason"]) == (index, None)
            text = partial["text"]
        assert "ab".startswith(text)


def test_an_answer_that_fails_keeps_what_came_of_the_others():
    ask = ["generate", "hello", "-n", "2", "--seed", "3", "--timeout", "3", "--json", "--address"]
    with StubOrchestrator() as stub, Running([*ask, stub.address]) as answers:
        assert stub.both_have_begun.wait(TIMEOUT_S)
        finished = answers.finished()
    assert finished.status == 1
    assert "took longer than 3 s" in finished.stderr
    partials = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [partial["choice_index"] for partial in partials] == [0, 1]
    assert all("ab".startswith(partial["text"]) for partial in partials)


def test_a_reader_that_leaves_ends_the_answer_quietly(address):
    command = [*COMMAND, "generate", "hello", "--address", address, *LONG]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as answer:
        answer.stdout.read(1)
        answer.stdout.close()
        stderr = answer.stderr.read()
        assert (answer.wait(TIMEOUT_S), stderr) == (1, b"")


@pytest.mark.parametrize(
    ("arguments", "told_why"),
    [
        (("--model", "other"), "model 'other' is not served here"),
        ((*LONG, "--timeout", "0.3"), "took longer than 0.3 s"),
    ],
)
def test_what_the_server_refuses_ends_with_status_1_and_one_line(address, arguments, told_why):
    refused = run("generate", "hello", "--address", address, *arguments)
    assert refused.status == 1
    assert told_why in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_prompt_longer_than_the_context_is_refused_with_both_lengths(address):
    refused = run("generate", "-", "--address", address, text="x" * 9000)
    assert refused.status == 1
    assert "and the model's context is 8192" in refused.stderr


def test_nobody_listening_is_told_with_the_address_and_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    for command in (("generate", "hi"), ("ps",), ("chat",)):
        refused = run(*command, "--address", f"127.0.0.1:{port}")
        assert refused.status == 1
        assert f"nothing answers at 127.0.0.1:{port}" in refused.stderr
        assert refused.stderr.endswith("outrider serve all\n")


def test_a_model_without_a_chat_template_is_told_with_the_way_out():
    with StubOrchestrator() as stub:
        stub.refusal = InvalidArgumentError("the model has no chat template; give a prompt")
        refused = run("generate", "hello", "--address", stub.address)
    assert refused.status == 1
    assert refused.stderr.endswith("give a prompt. Here: --raw sends the text as it is\n")


def test_a_connection_that_breaks_is_told_in_one_line_without_words_for_programs():
    with (
        StubOrchestrator() as stub,
        Running(["generate", "hello", "--address", stub.address]) as answer,
    ):
        answer.stdout.wait_for("ab")
        stub.break_off()
        finished = answer.finished()
    assert (finished.status, finished.stdout) == (1, "ab\n")
    notice, problem = finished.stderr.splitlines()
    assert notice == "outrider: mind the gap"
    assert problem.endswith("; 2 tokens had arrived")


@pytest.mark.parametrize(
    ("address", "is_ours"),
    [("localhost:7070", True), ("[::1]:7070", True), ("big:7070", False), ("10.1.2.3:70", False)],
)
def test_starting_everything_here_helps_with_addresses_of_this_machine_only(address, is_ours):
    line = told(UnavailableError(f"nothing answers at {address}; is it running? (gRPC: no)"))
    assert line.startswith(f"nothing answers at {address}; is it running?")
    assert ("outrider serve all" in line) is is_ours


def test_what_the_server_says_about_parameters_names_the_flags(capsys):
    with pytest.raises(Exit), errors_told():
        raise InvalidArgumentError("max_tokens is 9; max_drafts 0 turns drafting off")
    assert capsys.readouterr().err == (
        "outrider: --max-tokens is 9; --max-drafts 0 turns drafting off\n"
    )


def test_an_internal_error_is_told_with_its_request():
    assert told(InternalError("internal error 1", request_id="r7")).endswith("(request r7)")


def test_a_terminal_shows_that_the_prompt_is_read_and_nothing_of_it_stays(address):
    ask = ("generate", "hello", "--address", address, "--max-tokens", "4", "--seed", "5")
    with Terminal(*ask, term="xterm") as shown:
        assert shown.process.wait(TIMEOUT_S) == 0
        text = shown.screen.whole()
    assert "reading the prompt" in text or "asking the orchestrator" in text
    last = text.rpartition("\x1b[?25h")[2]
    assert "prompt" not in last
    assert run(*ask).stdout.strip() in last
