"""Tables, page and plot show what the JSON has."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.homelab_figure import Figure
from benchmarks.homelab_plan import MODES, OVER_A_WIRE, configurations
from benchmarks.homelab_report import figures_of, page, phase_table, plot, table

FIGURE = Figure(
    mode="outrider",
    rtt_ms=20.0,
    temperature=0.0,
    prompts=3,
    tokens=300,
    tokens_per_s=11.5,
    spread=0.75,
    ratio_to_target_alone=2.345,
    ratio_spread=0.2,
    ratio_to_bound=0.8,
    bound=2.93,
    bound_nodes=5,
    acceptance_length=3.1,
    passes_per_token=0.32,
    acceptance_per_position=(0.9, 0.8),
    accepted_per_position=(0.85, 0.7),
    rows_per_pass=5.5,
    ttft_ms=210.4,
    itl_p50_ms=0.1,
    itl_p95_ms=260.0,
    bytes_per_round=512.0,
    draft_ms=88.8,
    queue_ms=0.01,
    wire_ms=20.25,
    verify_ms=240.0,
    accept_ms=1.25,
    reconcile_ms=0.5,
    waiting_ms=12.5,
    identical=3,
)


def run() -> list[Figure]:
    return [
        replace(
            FIGURE,
            mode=c.mode,
            rtt_ms=c.rtt_ms,
            temperature=c.temperature,
            bound=None if c.mode == "target_alone" else 2.93,
            verify_ms=None if c.mode not in ("target_alone", *OVER_A_WIRE) else 240.0,
        )
        for temperature in (0.0, 1.0)
        for c in configurations(MODES, (0.2, 20.0), temperature)
    ]


def result(**changed: Any) -> dict[str, Any]:
    machine = dict.fromkeys(
        ("measured_at", "cpu", "cores", "system", "python", "commit", "load_before"), "here"
    )
    settings = {
        "model": "big.gguf",
        "draft_model": "small.gguf",
        "hf_model": "",
        "hf_draft_model": "",
        "prompts": 3,
        "categories": ["qa"],
        "tokens": 128,
        "longest_chain": {"synchronous": 5, "outrider": 7},
        "is_quick": False,
    }
    made = {
        "machine": machine,
        "settings": settings,
        "figures": [asdict(f) for f in run()],
        "errors": [],
    }
    return json.loads(json.dumps({**made, **changed}))


def test_the_table_has_a_row_for_each_configuration() -> None:
    rows = table(run()).splitlines()
    assert len(rows) == 2 + 2 * (1 + 2 + 2 + 1 + 1 + 1)
    assert len({row.count("|") for row in rows}) == 1
    assert "| Outrider | 20 | 0 | 11.50 ± 0.75 | 2.35 | 0.80 | 3.10 | 210 | 0 | 260 |" in rows
    assert any(row.startswith("| target alone | – | 1 |") for row in rows)


def test_phases_are_told_of_those_that_have_them() -> None:
    rows = phase_table(run()).splitlines()
    assert len(rows) == 2 + 2 * 5
    assert (
        "| Outrider | 20 | 0 | 240.0 | 12.5 | 88.8 | 20.25 | 0.01 | 1.25 | 0.50 | 5.50 | 512 |"
        in (rows)
    )


def test_figures_survive_their_json() -> None:
    back = figures_of(result())
    assert [f.mode for f in back] == [f.mode for f in run()]
    assert table(back) == table(run())


def test_the_page_says_what_each_figure_does_not_show_and_which_bound_it_is_held_to() -> None:
    text = page(result())
    assert text.count("What this does not show") == text.count("\n## ")
    assert "T = 0: 2.93 at 5 drafted tokens a pass" in text
    assert "token for token" in text


def test_the_page_owns_up_to_texts_that_differ() -> None:
    text = page(result(errors=["outrider at 5 ms: token 3"]))
    assert "**1 answers at temperature 0 were not the target's own.**" in text
    assert "token for token" not in text


@pytest.mark.parametrize("modes", [MODES, ("target_alone", "outrider"), ("target_alone",)])
def test_a_plot_is_drawn_whatever_was_measured_and_the_same_each_time(
    tmp_path: Path, modes: tuple[str, ...]
) -> None:
    files = [tmp_path / "one.png", tmp_path / "two.png"]
    for file in files:
        plot([f for f in run() if f.mode in modes], file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes().startswith(b"\x89PNG")
