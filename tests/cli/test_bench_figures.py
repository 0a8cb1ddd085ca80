"""What `outrider bench` says follows from what was measured, and from nothing else."""

import csv
import io
import json
from pathlib import Path

import pytest

from orchestrator.cli.bench_plan import Configuration, Sweep, requests_of, rounds
from orchestrator.cli.bench_plot import Line, Panel, Point, draw, panels_of
from orchestrator.cli.bench_prompts import SAMPLES, read_prompts
from orchestrator.cli.bench_rows import Answer, Measurement, arrival_gaps, percentile, rows
from orchestrator.cli.bench_text import as_csv, as_json, markdown, problems, report, sentence
from outrider.client import Stats
from outrider.errors import InvalidArgumentError

ALONE = Configuration(4, 0.0, 0, None)
SIX = Configuration(4, 0.0, None, 6)
TWO = Configuration(4, 0.0, None, 2)


def stats(tokens: int, passes: int, seconds: float) -> Stats:
    return Stats(
        prompt_tokens=5,
        cached_tokens=4,
        emitted_tokens=tokens,
        target_passes=passes,
        verified_tokens=2 * (tokens - passes),
        accepted_tokens=tokens - passes,
        drafts=(),
        first_token_us=1000,
        total_us=int(seconds * 1e6),
        messages=3 * passes,
        wire_bytes=100 * passes,
        resumes=0,
        wait_us=(2_000,) * passes,
        pass_rows=(),
        forward_us=(7_000,) * passes,
        drafted_passes=passes,
        accepted_per_position=(),
        queue_us=0,
        accept_us=1_000 * passes,
        reconcile_us=0,
        gap_us=(1_500,) * passes,
    )


def measured(
    configuration: Configuration, repetition: int, seconds: float, passes: int
) -> Measurement:
    """Two answers of 40 tokens at the same time, the last token after `seconds`."""
    token_s = tuple(10 + seconds * (i + 1) / 40 for i in range(40))
    answer = Answer(10.0, token_s, stats(40, passes, seconds))
    return Measurement(configuration, repetition, (answer, answer))


MEASURED = (
    measured(ALONE, 0, 2.0, 40),
    measured(SIX, 0, 1.0, 10),
    measured(TWO, 0, 1.6, 20),
    measured(SIX, 1, 0.8, 10),
    measured(TWO, 1, 1.6, 20),
    measured(ALONE, 1, 1.6, 40),
)


def test_every_combination_is_measured_once_and_the_target_alone_for_each_of_them():
    sweep = Sweep((1, 4), (0.0, 1.0), (0, 1), (2, 4))
    found = sweep.configurations()
    assert len(found) == len(set(found)) == 2 * 2 * (1 + 2)
    assert all(c.num_speculative_tokens is None for c in found if c.is_alone)
    assert all(c.alone in found for c in found)
    assert not any(c.is_alone for c in Sweep((1,), has_baseline=False).configurations())


def test_each_repetition_has_every_configuration_and_begins_with_another():
    order = list(rounds([ALONE, SIX, TWO], 3))
    assert [order[i][1] for i in (0, 3, 6)] == [ALONE, SIX, TWO]
    assert {(r, c) for r, c in order} == {(r, c) for r in range(3) for c in (ALONE, SIX, TWO)}
    assert len(order) == 9


def test_no_client_is_without_a_request():
    assert [requests_of(n, None) for n in (1, 2, 16)] == [4, 4, 32]
    assert [requests_of(n, 8) for n in (1, 16)] == [8, 16]


def test_a_row_has_the_figures_of_its_repetitions():
    alone, six, two = rows(MEASURED)
    assert (alone.is_alone, six.num_speculative_tokens, two.num_speculative_tokens) == (True, 6, 2)
    assert six.tokens_per_s == pytest.approx((80 / 1.0 + 80 / 0.8) / 2)
    assert six.tokens_per_s_spread == pytest.approx(14.142, abs=1e-3)
    assert (six.acceptance_length, six.passes_per_token) == (4.0, 0.25)
    assert six.target_idle_share == pytest.approx(0.15)
    assert (six.acceptance_rate, six.bytes_per_round, six.messages_per_round) == (0.5, 100, 3)
    assert six.ttft_p50_ms == pytest.approx((1000 / 40 + 800 / 40) / 2)
    assert six.itl_p95_ms == pytest.approx(1000 / 40)
    assert (six.repetitions, six.requests, six.failed) == (2, 4, 0)
    assert alone.tokens_per_s_per_request == pytest.approx((20 + 25) / 2)


def test_a_ratio_is_that_of_one_repetition_at_a_time():
    alone, six, two = rows(MEASURED)
    assert alone.ratio_to_target_alone == 1.0
    assert six.ratio_to_target_alone == pytest.approx(2.0)
    assert six.ratio_spread == pytest.approx(0.0)
    assert two.ratio_to_target_alone == pytest.approx((2.0 / 1.6 + 1.0) / 2)
    assert two.ratio_spread > 0


def test_without_the_target_alone_there_is_no_ratio():
    (row,) = rows([measured(SIX, 0, 1.0, 10)])
    assert row.ratio_to_target_alone is None
    assert "nothing was measured to compare it with" in sentence([row])
    assert "None" not in markdown([row])


def test_tokens_of_one_message_are_one_arrival():
    assert arrival_gaps([1.0, 1.00002, 1.00004, 1.2, 1.20001]) == [pytest.approx(0.19996)]
    assert arrival_gaps([1.0]) == []


def test_a_percentile_lies_between_its_neighbours():
    assert percentile(range(101), 95) == 95
    assert percentile([0.0, 10.0], 25) == 2.5


def test_requests_that_fail_are_counted_and_told():
    broken = Measurement(TWO, 0, (), ("no room",) * 8)
    _, six, two = rows([*MEASURED[:2], broken])
    assert (two.requests, two.failed, two.tokens) == (8, 8, 0)
    assert problems([six, two]) == ["at 4 clients 8 of 8 requests failed: no room"]
    assert "| failed |" in markdown([six, two])
    assert {len(line.split("|")) for line in markdown([six, two]).splitlines()} == {16}
    assert sentence([two]) == "Nothing was measured."


def test_the_sentence_names_clients_gain_spread_and_the_best_length():
    assert sentence(rows(MEASURED)) == (
        "At 4 clients drafts make it 2.0x as fast (90 ± 14 tokens/s against 45 ± 7), accepting "
        "3.0 drafted tokens a pass; best: 6 speculative tokens."
    )


def test_the_sentence_says_what_most_clients_get_and_what_else_was_best():
    crowd = Configuration(16, 0.0, None, 6)
    hot = Configuration(4, 1.0, None, 6)
    more = [
        measured(crowd, 0, 4.0, 10),
        measured(crowd.alone, 0, 2.0, 40),
        measured(hot, 0, 1.9, 20),
        measured(hot.alone, 0, 2.0, 40),
    ]
    told = sentence(rows([*MEASURED[:2], *more]))
    assert told.startswith("At 4 clients drafts make it 2.0x as fast")
    assert told.endswith(
        "; best: temperature 0; at 16 clients 0.5x. One repetition is a hint, no more."
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (2.1, "drafts neither help nor hurt (0.95x)"),
        (4.0, "drafts do not pay: 0.50x the speed of the target alone"),
    ],
)
def test_the_sentence_says_as_plainly_where_drafts_do_not_pay(seconds, said):
    told = sentence(rows([MEASURED[0], measured(SIX, 0, seconds, 10)]))
    assert said in told
    assert "±" not in told  # One repetition has no spread.
    assert "best" not in told


def test_the_three_forms_have_the_same_figures():
    all_rows = rows(MEASURED)
    assert report(all_rows, "md", {}).startswith(sentence(all_rows) + "\n\n| clients |")
    whole = json.loads(as_json(all_rows, {"address": "a:1"}))
    assert (whole["sentence"], whole["address"]) == (sentence(all_rows), "a:1")
    lines = list(csv.DictReader(io.StringIO(as_csv(all_rows))))
    for row, plain, line in zip(all_rows, whole["rows"], lines, strict=True):
        assert float(line["tokens_per_s"]) == plain["tokens_per_s"] == row.tokens_per_s
        assert f"| {row.tokens_per_s:.1f} ±" in markdown([row])


@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ('{"question_id": 1, "turns": ["First.", "Second."]}', "First."),
        ('{"prompt": "First."}', "First."),
        ('{"text": "First."}', "First."),
        ('"First."', "First."),
        ("  First.  ", "First."),
    ],
)
def test_a_prompt_is_read_from_lines_of_several_forms(line, prompt, tmp_path):
    file = tmp_path / "prompts"
    file.write_text(f"\n{line}\n\nAnother.\n", encoding="utf-8")
    assert read_prompts(file) == (prompt, "Another.")
    assert read_prompts(file, 1) == (prompt,)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\n \n", "has no prompt"),
        (b'{"turns": []}', "line 1 of"),
        (b'ok\n{"prompt": 3}', "line 2 of"),
        (b'{"prompt"', "begins like JSON"),
        (b"\xff", "are not UTF-8"),
    ],
)
def test_a_file_without_prompts_is_refused_with_its_line(content, told, tmp_path):
    file = tmp_path / "prompts"
    file.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=told):
        read_prompts(file)


def test_the_samples_are_all_different():
    assert len(set(SAMPLES)) == len(SAMPLES)


def test_the_plot_has_a_line_for_each_length_and_one_for_the_target_alone():
    speed, ratio = panels_of(rows(MEASURED))
    assert speed.x_label == ratio.x_label == "speculative tokens"
    alone, drafted = speed.lines
    assert [point.x for point in alone.points] == [2, 6]
    assert len({point.y for point in alone.points}) == 1
    assert [(p.x, p.y) for p in drafted.points] == [(2, pytest.approx(50)), (6, pytest.approx(90))]
    assert [line.label for line in ratio.lines] == ["all drafts"]
    assert ratio.lines[0].colour == drafted.colour


def test_over_several_numbers_of_clients_each_length_has_a_line():
    more = [
        measured(Configuration(8, c.temperature, c.max_drafts, c.num_speculative_tokens), 0, 1, 20)
        for c in (ALONE, SIX, TWO)
    ]
    speed, _ = panels_of(rows([*MEASURED, *more]))
    assert speed.x_label == "concurrent clients"
    assert [line.label for line in speed.lines] == [
        "target alone",
        "all drafts, 6 speculative tokens",
        "all drafts, 2 speculative tokens",
    ]
    assert all([point.x for point in line.points] == [4, 8] for line in speed.lines)


def test_a_plot_is_drawn_the_same_each_time(tmp_path: Path):
    points = (Point(1, 2, 0.5), Point(2, 3, 0.1))
    panel = Panel("a", "x", "y", (Line("b", points), Line("c", points, True)), True, 1.0, (1, 2))
    for name in ("one.png", "two.png"):
        draw([panel, panel], tmp_path / name, "caption")
    first, second = ((tmp_path / name).read_bytes() for name in ("one.png", "two.png"))
    assert first.startswith(b"\x89PNG")
    assert first == second
    draw([panel], tmp_path / "three.svg")
    assert (tmp_path / "three.svg").read_text(encoding="utf-8").startswith("<?xml")
