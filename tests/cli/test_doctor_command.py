"""`outrider doctor`: a report on a deployment, or on models before they are loaded."""

import json
import signal
import socket

import pytest
from running_commands import Running, run
from stub_orchestrator import StubOrchestrator


def test_it_says_what_to_expect_and_what_came_of_it(address):
    shown = run("doctor", "--address", address, "--max-tokens", "16", timeout_s=180)
    assert shown.stderr == "" and shown.status in (0, 1)
    first = shown.stdout.splitlines()[0]
    assert first.startswith("drafting") and ("expected at depth" in first or "not pay" in first)
    for part in ("machines", "measured", "target pass:", "question:", "translation:", "came of it"):
        assert part in shown.stdout
    is_healthy = "problem:" not in shown.stdout
    assert shown.status == (0 if is_healthy else 1)


def test_json_has_the_measurements_and_the_findings(address):
    asked = ("--max-tokens", "16", "--temperature", "0", "--json")
    shown = run("doctor", "--address", address, *asked, timeout_s=180)
    report = json.loads(shown.stdout)
    assert report["healthy"] is (shown.status == 0)
    assert report["expected"]["draft_step_us"] > 0
    assert set(report["expected"]["by_kind"]) == {
        "question",
        "code",
        "summary",
        "story",
        "translation",
    }
    assert report["diagnosis"]["verify"]["model"]["vocab_size"] == 62


def test_without_measuring_only_facts_are_looked_at(address):
    shown = run("doctor", "--address", address, "--no-measure")
    assert "machines" in shown.stdout and "expected" not in shown.stdout
    assert (shown.status, shown.stderr) == (0, "")


def test_an_orchestrator_that_is_not_there_is_a_problem_with_its_cause():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    shown = run("doctor", "--address", f"127.0.0.1:{port}")
    assert shown.status == 1
    assert f"127.0.0.1 refuses port {port}" in shown.stdout
    named = run("doctor", "--address", "no-such-name.invalid:7070")
    assert named.status == 1 and "is not known here" in named.stdout
    assert "Traceback" not in shown.stderr + named.stderr


def test_an_orchestrator_without_diagnose_is_told():
    with StubOrchestrator() as stub:
        shown = run("doctor", "--address", stub.address)
    assert shown.status == 1 and "does not offer this call" in shown.stdout


def test_ctrl_c_ends_it_quietly(address):
    with Running(["doctor", "--address", address, "--max-tokens", "4096"]) as doctor:
        ps = run("ps", "--address", address)
        assert ps.status == 0
        doctor.send(signal.SIGINT)
        finished = doctor.finished()
    assert finished.status == 130
    assert "Traceback" not in finished.stderr


def test_wrong_arguments_are_misuse():
    assert run("doctor", "--address", "nowhere").status == 2
    assert run("doctor", "--max-tokens", "1").status == 2
    for unused in (("--kv-tokens", "64"), ("--model", "ngram:", "--address", "localhost:7070")):
        refused = run("doctor", *unused)
        assert refused.status == 2 and f"outrider: {unused[-2]} " in refused.stderr
    assert run("doctor", "--model", "m.gguf", "--n-gpu-layers", "-5").status == 2


def test_models_are_judged_before_anything_is_loaded():
    fits = run("doctor", "--model", "scripted:vocab=8", "--draft-model", "ngram:")
    assert (fits.status, fits.stderr) == (0, "")
    assert "target: fits" in fits.stdout and "draft: fits" in fits.stdout
    missing = run("doctor", "--model", "/nowhere/m.gguf", "--json")
    assert missing.status == 1
    assert json.loads(missing.stdout)["models"][0]["fit"] == "unusable"


def test_a_model_that_cannot_fit_is_a_problem(tmp_path):
    from safetensors.torch import save_file
    from torch import zeros

    config = {"num_hidden_layers": 100, "num_attention_heads": 100, "hidden_size": 12800}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"a": zeros(4)}, tmp_path / "model.safetensors")
    shown = run("doctor", "--model", str(tmp_path), "--kv-tokens", "64000000")
    assert shown.status == 1 and "target: too big" in shown.stdout


def test_a_service_refuses_a_model_that_cannot_fit_before_it_loads_it(tmp_path):
    from safetensors.torch import save_file
    from torch import zeros

    config = {"num_hidden_layers": 100, "num_attention_heads": 100, "hidden_size": 12800}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"a": zeros(4)}, tmp_path / "model.safetensors")
    flags = ("--model", str(tmp_path), "--kv-tokens", "64000000", "--port", "0")
    for service in ("verify", "draft"):
        refused = run("serve", service, *flags)
        assert refused.status == 1
        assert "--skip-memory-check loads it all the same" in refused.stderr + refused.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--model", "nope:x"), "names the backend 'nope'"),
        (("--model", "smollm2.gguf", "--kv-dtype", "foo"), "kv_dtype is 'foo'; give auto"),
        (("--model", "smollm2", "--dtype", "foo"), "dtype is 'foo'; give auto"),
        (("--model", "smollm2.gguf", "--device", "cuda"), "smollm2.gguf takes no device"),
        (("--model", "ngram:", "--kv-dtype", "q8_0"), "ngram: takes no kv_dtype"),
    ],
)
def test_what_could_not_be_served_is_a_mistake(arguments: tuple[str, ...], told: str) -> None:
    result = run("doctor", *arguments)
    assert result.status == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr
