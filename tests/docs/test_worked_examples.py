"""The numbers that the pages work out are those that the production code gives."""

import re
from collections.abc import Iterator

import pytest
import torch
from documentation import ROOT, text_of

from orchestrator.forecast import bound, chain_tokens, synchronous_ratio
from orchestrator.planner import Limits
from orchestrator.simulation import PassCosts, Situation
from outrider.sampling.noise import exponential_race
from outrider.sampling.rules import accepts, residual_after

HOW = text_of(ROOT / "docs" / "how-it-works.md")
CHOOSING = text_of(ROOT / "docs" / "choosing-a-draft.md")


def table(page: str, heading: str) -> dict[str, list[float]]:
    """The numbers of the table whose head begins with `heading`, by the word in front of them."""

    def rows() -> Iterator[tuple[str, list[float]]]:
        lines = page[page.index(f"| {heading} ") :].splitlines()[2:]
        for line in lines:
            if not line.startswith("|"):
                return
            name, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
            yield name, [float(number) for number in numbers if re.fullmatch(r"[\d.]+", number)]

    return dict(rows())


def test_the_worked_example_of_rejection_is_what_the_rule_does() -> None:
    rows = list(table(HOW, "word").values())
    p, q, kept, both, left, after, refused, total = (
        torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)
    )
    assert p.sum() == q.sum() == pytest.approx(1)
    for word, chance in enumerate(kept.tolist()):
        # `accepts` compares u with p/q: the chance is where it changes.
        assert accepts(chance - 1e-9, float(q[word]), float(p[word]))
        assert chance == 1 or not accepts(chance + 1e-9, float(q[word]), float(p[word]))
    assert both.tolist() == pytest.approx((q * kept).tolist())
    residual = residual_after(p, torch.arange(len(rows)), q)
    assert residual is not None
    assert left.tolist() == pytest.approx((p - q).clamp(min=0).tolist())
    assert after.tolist() == pytest.approx(residual.tolist())
    refusal = 1 - float(both.sum())
    assert refused.tolist() == pytest.approx((refusal * residual).tolist())
    assert total.tolist() == pytest.approx((both + refused).tolist())
    assert total.tolist() == pytest.approx(p.tolist())
    assert f"a chance of {refusal:.2f}" in HOW
    assert f"keeps {float(both.sum()):.0%} of its drafts" in HOW
    assert f"at least {(1 - refusal) / (1 + refusal):.0%}" in HOW


@pytest.mark.parametrize("heading", ["race one", "race two"])
def test_the_worked_races_are_those_that_noise_runs(heading: str) -> None:
    p, q = ([row[i] for row in table(HOW, "word").values()] for i in (0, 1))
    rows = table(HOW, heading)
    times, target, draft = zip(*rows.values(), strict=True)
    numbers = 1 - torch.exp(-torch.tensor(times, dtype=torch.float64))
    for weights, shown in ((p, target), (q, draft)):
        race = exponential_race(torch.tensor(weights, dtype=torch.float64), numbers, 3)
        assert [shown[word] for word, _ in race] == sorted(shown)
        assert [shown[word] for word, _ in race] == pytest.approx([t for _, t in race], abs=5e-3)
    words = list(rows)
    said, guessed = words[target.index(min(target))], words[draft.index(min(draft))]
    assert f"the target says *{said}*, the draft's first guess is *{guessed}*" in HOW


def test_the_worked_break_even_is_what_the_forecast_computes() -> None:
    def situation(round_trip_ms: float) -> Situation:
        return Situation(
            costs=PassCosts((1, 5), (100_000.0, 120_000.0)),
            acceptance=(0.8,),
            draft_step_us=10_000.0,
            draft_wire_us=round_trip_ms * 1000,
            limits=Limits(num_speculative_tokens=4, width=1, proposal_top_k=64),
        )

    assert f"{chain_tokens((0.8,), 4):.2f} tokens" in CHOOSING
    assert f"**{synchronous_ratio(situation(20)):.2f} times**" in CHOOSING
    assert f"**{bound(situation(20)):.2f} times**" in CHOOSING
    even_ms = chain_tokens((0.8,), 4) * 100 - 40 - 120
    assert synchronous_ratio(situation(even_ms)) == pytest.approx(1)
    assert f"**{even_ms:.0f} ms**" in CHOOSING
