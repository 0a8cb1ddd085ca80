"""Texts drawn by what was measured of a pair behave as the pair does."""

import pytest
from recorded import DEFAULTS, FAR, NEAR, gain, texts

from orchestrator.forecast import forecast
from orchestrator.guesses import OUTCOMES, Guesses
from orchestrator.simulation import Situation
from orchestrator.texts import Drawn, Guess, Profile, found_share
from outrider.nodes import TreeNode

PROFILE = Profile(((0, 0, 0, 0), (10, 30, 5, 55), (90, 3, 1, 6)))
LONG = 20_000


def drawn(acceptance: tuple[float, ...], profile: Profile | None = PROFILE) -> list[Guess]:
    text = Drawn(acceptance, 1, profile)
    return [text.guess(position) for position in range(LONG)]


@pytest.mark.parametrize("acceptance", [(0.7,), (0.3, 0.9), (0.0,), (1.0,)])
def test_the_tokens_are_guessed_as_often_as_it_was_said(acceptance: tuple[float, ...]) -> None:
    found = sum(guess.rank is not None for guess in drawn(acceptance)) / LONG
    assert found == pytest.approx(found_share(acceptance), abs=0.02)


@pytest.mark.parametrize("acceptance", [(0.7,), (0.4,)])
def test_a_drawn_draft_is_as_sure_as_it_is_right(acceptance: tuple[float, ...]) -> None:
    by_chances: dict[tuple[float, ...], list[int | None]] = {}
    for guess in drawn(acceptance):
        by_chances.setdefault(guess.chances, []).append(guess.rank)
    assert len(by_chances) == 2, "a range in which nothing was seen is never drawn"
    for chances, ranks in by_chances.items():
        for rank, chance in enumerate(chances):
            assert ranks.count(rank) / len(ranks) == pytest.approx(chance, abs=0.03)


def test_without_a_profile_there_is_one_guess_as_sure_as_the_mean() -> None:
    guesses = drawn((0.6,), None)
    assert {len(guess.chances) for guess in guesses} == {1}
    assert guesses[0].chances[0] == pytest.approx(0.6)


def test_a_guess_asked_for_twice_is_the_same() -> None:
    text = Drawn((0.6,), 3, PROFILE)
    assert [text.guess(9), text.elsewhere(4)] == [text.guess(9), text.elsewhere(4)]
    assert text.elsewhere(4).rank is None


def measured(met: Situation, temperature: float) -> Situation:
    """The situation as one who saw each guess and its outcome would describe it."""
    guesses = Guesses()
    for text in texts(temperature):
        for position in range(128):
            guess = text.guess(position)
            place = TreeNode(-1, 0)
            for rank, chance in enumerate(guess.chances[: DEFAULTS.width]):
                place.children[rank] = TreeNode(rank, 1, place, chance=chance)
            guesses.note(place, [99 if guess.rank is None else guess.rank])
    rows = [guesses.outcomes[i : i + OUTCOMES] for i in range(0, len(guesses.outcomes), OUTCOMES)]
    shares = [f / max(g, 1) for f, g in zip(guesses.found, guesses.guessed, strict=True)]
    return Situation(
        costs=met.costs,
        acceptance=tuple(shares),
        draft_step_us=met.draft_step_us,
        draft_row_us=met.draft_row_us,
        draft_wire_us=met.draft_wire_us,
        verify_wire_us=met.verify_wire_us,
        pass_overhead_us=met.pass_overhead_us,
        limits=met.limits,
        profile=Profile(tuple(tuple(row) for row in rows)),
    )


@pytest.mark.parametrize("met", [NEAR, FAR])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_forecast_from_counts_is_what_the_recorded_texts_give(
    met: Situation, temperature: float
) -> None:
    real = gain(met, texts(temperature))
    assert forecast(measured(met, temperature)).ratio == pytest.approx(real, rel=0.1)
