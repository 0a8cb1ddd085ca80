"""A stack as child processes: it answers, and whatever ends it, nothing of it stays behind."""

import json
import signal
import socket
import urllib.request

import pytest
from running_commands import Running, run, survivors

SCRIPTED = ("--model", "scripted:vocab=64", "--draft-model", "scripted:vocab=64,drift=0.1")
SLOW = ("--model", "scripted:vocab=64,step_ms=20", "--draft-model", "scripted:vocab=64")
LOCAL = ("--port", "0", "--http-port", "0", "--ray", "local")


def address_of(stack: Running) -> str:
    return stack.stderr.wait_for("ready at ").partition("ready at ")[2].split()[0]


def test_ctrl_c_ends_every_process_also_those_of_ray():
    with Running(["serve", "all", "--port", "0", "--http-port", "0", *SCRIPTED]) as stack:
        address = address_of(stack)
        stack.stderr.wait_for("outrider chat")
        answer = run("generate", "hello", "--address", address, "--max-tokens", "8")
        processes = stack.descendants()
        assert any("raylet" in " ".join(process.cmdline()) for process in processes)
        assert (answer.status, bool(answer.stdout.strip())) == (0, True), answer.stderr
        stack.send(signal.SIGINT)
        assert stack.finished().status == 0
        assert survivors(processes, 5.0) == []


def test_a_mode_is_the_default_of_every_request():
    with Running(["serve", "all", *LOCAL, *SCRIPTED, "--mode", "block"]) as stack:
        ask = ("generate", "hello", "--address", address_of(stack), "--max-tokens", "8", "--json")
        assert json.loads(run(*ask).stdout)["mode"] == "block"
        assert json.loads(run(*ask, "--mode", "auto").stdout)["mode"] == "coupled"


def test_a_stack_speaks_openai_unless_told_otherwise():
    with Running(["serve", "all", *LOCAL, *SCRIPTED]) as stack:
        told = stack.stderr.wait_for("OpenAI-compatible at ")
        base = told.rpartition("OpenAI-compatible at ")[2].split("/v1")[0]
        with urllib.request.urlopen(f"{base}/v1/models", timeout=30) as answer:
            assert json.load(answer)["data"][0]["id"] == "scripted:vocab=64"
    with Running(["serve", "all", *LOCAL, *SCRIPTED, "--no-http"]) as stack:
        stack.stderr.wait_for("outrider chat")
        stack.send(signal.SIGINT)
        assert "OpenAI" not in stack.finished().stderr


def test_a_port_that_is_taken_is_told_before_anything_starts():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = run("serve", "all", "--port", "0", "--http-port", port, *SCRIPTED)
    assert refused.status == 1
    assert f"port {port}: the port is in use" in refused.stderr
    assert "--http-port" in refused.stderr


def test_a_killed_parent_takes_its_children_along():
    with Running(["serve", "all", *LOCAL, *SCRIPTED]) as stack:
        address_of(stack)
        processes = stack.descendants()
        assert len(processes) == 3
        stack.send(signal.SIGKILL)
        assert survivors(processes) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind_when_it_is_ended_while_models_load(number):
    with Running(["serve", "all", *LOCAL, *SCRIPTED]) as stack:
        stack.stderr.wait_for("starting verify")
        processes = stack.descendants()
        stack.send(number)
        assert stack.finished().status == (-number if number == signal.SIGKILL else 0)
        assert survivors(processes) == []


def test_an_answer_goes_on_when_its_draft_is_killed():
    with Running(["serve", "all", *LOCAL, *SLOW]) as stack:
        ask = ["generate", "hi", "--address", address_of(stack), "--seed", "3"]
        stack.stderr.wait_for("outrider chat")
        with Running([*ask, "--max-tokens", "60"]) as answer:
            answer.stdout.wait_for_any()
            stack.child("draft_service").kill()
            told = stack.stderr.wait_for("goes on without it")
            helped = answer.finished()
        alone = run(*ask, "--max-tokens", "60", "--max-drafts", "0")
        assert (helped.status, helped.stdout) == (0, alone.stdout)
        assert "draft scripted was lost" in helped.stderr
        assert "draft scripted (scripted:vocab=64) ended: it was ended by SIGKILL" in told
        stack.send(signal.SIGINT)
        assert stack.finished().status == 0


def test_a_dead_verifier_ends_the_command_with_its_name():
    with Running(["serve", "all", *LOCAL, *SCRIPTED]) as stack:
        address_of(stack)
        processes = stack.descendants()
        stack.child("verify_service").kill()
        ended = stack.finished()
        assert ended.status == 1
        assert (
            "verify (scripted:vocab=64) ended: it was ended by SIGKILL (is there enough memory?) "
            "(log: "
        ) in ended.stderr
        assert "everything stops, because nothing works without it" in ended.stderr.lower()
        assert '{"' not in ended.stderr
        assert survivors(processes, 5.0) == []


def test_a_port_in_use_is_named_before_anything_is_started():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run("serve", "all", "--port", str(port), "--http-port", "0", *SCRIPTED)
    assert refused.status == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in refused.stderr
    assert "starting" not in refused.stderr


@pytest.mark.parametrize(
    ("models", "told"),
    [
        (("--model", "frobnicate:x", "--draft-model", "none"), "verify (frobnicate:x)"),
        (("--model", "scripted:", "--draft-model", "scripted:vocab=x"), "draft scripted ("),
    ],
)
def test_a_model_that_cannot_be_loaded_is_named_with_the_reason(models, told):
    refused = run("serve", "all", *LOCAL, *models)
    assert refused.status == 1
    assert "could not start: " in refused.stderr
    assert told in refused.stderr


def test_a_draft_with_another_tokenizer_is_told_of_and_used():
    models = ("--model", "scripted:vocab=64", "--draft-model", "scripted:vocab=32")
    with Running(["serve", "all", *LOCAL, *models]) as stack:
        stack.stderr.wait_for("outrider chat")
        answer = run("generate", "--address", address_of(stack), "--max-tokens", "4", "hello")
    assert "has another tokenizer: it drafts the 32 tokens that both have" in answer.stderr


def test_a_draft_with_a_damaged_tokenizer_is_told_of_and_not_used():
    models = ("--model", "scripted:vocab=64", "--draft-model", "scripted:vocab=64,rotate=3")
    with Running(["serve", "all", *LOCAL, *models]) as stack:
        text = stack.stderr.wait_for("outrider chat")
        assert "draft scripted is not used: " in text
        assert "another order of ids" in text
        header, verify, draft = run("ps", "--address", address_of(stack)).stdout.splitlines()
    assert header.endswith("PROBLEM")
    assert (verify.split()[2], draft.split()[2]) == ("yes", "no")
    assert "another order of ids" in draft


def test_a_stack_is_reached_by_tls_with_the_certificates_that_the_command_makes(tmp_path):
    ca = str(tmp_path / "ca")
    assert run("certs", "init", ca).status == 0
    for role in ("orchestrator", "client"):
        assert run("certs", "issue", ca, "--role", role).status == 0
    with Running(["serve", "all", *LOCAL, *SCRIPTED, "--tls", f"{ca}/orchestrator"]) as stack:
        address = address_of(stack)
        assert "OpenAI-compatible at https://" in stack.stderr.wait_for("/docs")
        ask = ("generate", "hello", "--address", address, "--max-tokens", "8")
        answer = run(*ask, "--tls", f"{ca}/client")
        assert (answer.status, bool(answer.stdout.strip())) == (0, True), answer.stderr
        assert run(*ask).status == 1
