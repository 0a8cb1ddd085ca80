"""The rig from its command line to its JSON, with scripted models and real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from measured import answer

from benchmarks import homelab
from benchmarks.homelab_answer import Answer
from benchmarks.homelab_figure import Difference
from benchmarks.homelab_lab import LabPlan, orchestrator_flags
from benchmarks.homelab_plan import Turn
from benchmarks.spec_bench import Prompt

ROOT = Path(__file__).resolve().parents[2]
TARGET = "scripted:vocab=64,step_ms=10"
DRAFT = "scripted:vocab=64,drift=0.1,step_ms=1"
RTTS_MS = (0.2, 10.0)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "question.jsonl"
    lines = [json.dumps({"category": c, "turns": [f"tell me about {c}"]}) for c in ("a", "b")]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def command(prompts: Path, *arguments: str) -> list[str]:
    return [
        *(sys.executable, "-m", "benchmarks.homelab", "--prompts", str(prompts)),
        *("--model", TARGET, "--draft-model", DRAFT, "--rtt-ms", "0.2,10", "--tokens", "12"),
        *("--modes", "synchronous,outrider", *arguments),
    ]


def our_processes(mark: int) -> list[int]:
    """Processes that the rig started: they have its environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"HOMELAB_TEST={mark}\0".encode() in text:
                found.append(int(entry.name))
    return found


def test_every_configuration_is_measured_and_no_process_is_left(
    prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "homelab.json"
    mark = os.getpid()
    run = subprocess.run(
        command(prompts, "--json", str(out)),
        cwd=ROOT,
        env={**os.environ, "HOMELAB_TEST": str(mark)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert our_processes(mark) == []
    result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    figures = result["figures"]
    asked = {(f["mode"], f["rtt_ms"], f["temperature"]) for f in figures}
    wired = {(m, r, t) for m in ("synchronous", "outrider") for r in RTTS_MS for t in (0, 1)}
    assert asked == wired | {("target_alone", 0, 0), ("target_alone", 0, 1)}
    assert len(figures) == len(asked)
    for figure in figures:
        assert figure["prompts"] == figure["identical"] == 2
        assert figure["tokens"] == 24
        assert figure["tokens_per_s"] > 0
        assert figure["acceptance_length"] >= 1
        assert figure["ratio_to_target_alone"] > 0
    synchronous = [f for f in figures if f["mode"] == "synchronous"]
    assert all(f["acceptance_length"] > 1 for f in synchronous)
    assert all(f["wire_ms"] >= f["rtt_ms"] for f in synchronous)
    assert (result["errors"], result["differences"]) == ([], [])
    assert str(tmp_path) not in out.read_text(encoding="utf-8")
    assert "| Outrider | 10 | 1 |" in run.stdout


def test_ctrl_c_in_the_middle_leaves_no_process(prompts: Path) -> None:
    mark = os.getpid() + 1_000_000
    process = subprocess.Popen(
        command(prompts, "--tokens", "5000"),
        cwd=ROOT,
        env={**os.environ, "HOMELAB_TEST": str(mark)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = []
    while not (said and "all processes are up" in said[-1]):
        said.append(process.stderr.readline())
        assert said[-1], "".join(said)
    assert len(our_processes(mark)) > 5
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == homelab.INTERRUPTED
    process.stderr.close()
    assert our_processes(mark) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--modes", "eager"), "mode is 'eager'; give some of"),
        (("--modes", "llamacpp_speculation"), "runs GGUF files"),
        (("--cores", "0,0"), "give two different ones"),
        (("--tokens", "0"), "at least 1"),
        (("--rtt-ms", "-1"), "0 or more"),
        (("--synchronous-tokens", "0"), "at least 1"),
        (("--json", "/proc/none/homelab.json"), "cannot be made"),
    ],
)
def test_bad_arguments_are_told_before_anything_starts(
    prompts: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert homelab.main(command(prompts, *arguments)[3:]) == homelab.MISUSED
    assert told in capsys.readouterr().err


def test_missing_prompts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert homelab.main(command(tmp_path / "none.jsonl")[3:]) == 1
    assert "there is no file" in capsys.readouterr().err


def test_only_differences_at_temperature_zero_are_errors() -> None:
    found = [Difference("outrider", 5.0, t, 2, 9) for t in (0.0, 1.0)]
    assert homelab.errors_of(found) == [
        "outrider at 5 ms, prompt 3, temperature 0: token 10 is not the target's own"
    ]


class Answering:
    """A lab of scripted answers: each takes a second of a clock of its own."""

    plan = LabPlan(
        *(TARGET, DRAFT, "", "", ("target_alone",), RTTS_MS, 0, 1),
        synchronous_tokens=5,
        llamacpp_tokens=5,
        transformers_tokens=5,
    )


def test_no_prompt_is_begun_that_would_not_be_through_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]

    def ask(lab: Any, work: homelab.Work, turn: Turn) -> Answer:
        clock[0] += 1.0
        return answer(prompt=turn.prompt, temperature=turn.configuration.temperature)

    monkeypatch.setattr(homelab.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(homelab, "_asked", ask)
    monkeypatch.setattr(homelab, "_warm_up", lambda *_: None)

    def prompts_within(within_s: float) -> int:
        work = homelab.Work((Prompt("a", "x"),) * 5, (0.0, 1.0), 8, within_s)
        batches = list(homelab.measured(Answering(), work, clock[0]))  # type: ignore[arg-type]
        assert all(len(batch) == 2 for batch in batches)
        return len(batches)

    assert [prompts_within(s) for s in (0.5, 3.9, 4.0, 7.0, 1000.0)] == [1, 1, 2, 3, 5]


def test_synchronous_orchestrators_wait_for_whole_chains_and_ours_are_told_nothing() -> None:
    flags = orchestrator_flags(Answering.plan, "synchronous", 20.0)
    assert "--no-run-ahead" in flags
    assert flags[flags.index("--wait-nodes") + 1] == "5"
    assert flags[flags.index("--max-wait-ms") + 1] == "520"
    assert orchestrator_flags(Answering.plan, "outrider", 20.0) == ()
