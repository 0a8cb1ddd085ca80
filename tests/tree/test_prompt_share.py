"""What prompts get of a pass, and how they share it."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.pass_times import PassTimes
from outrider.prompt_share import LEAST_PROMPT_TOKENS, equal_shares, prompt_tokens

wants = st.lists(st.integers(1, 5000), max_size=20)


@given(wants, st.integers(0, 2000))
def test_shares_use_the_room_and_nobody_gets_more_than_it_wants(
    wants: list[int], room: int
) -> None:
    shares = equal_shares(wants, room)
    assert sum(shares) == min(room, sum(wants))
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))


@given(wants, st.integers(0, 2000))
def test_who_does_not_get_all_gets_as_much_as_any_other(wants: list[int], room: int) -> None:
    shares = equal_shares(wants, room)
    for share, want in zip(shares, wants, strict=True):
        assert share == want or share >= max(shares) - 1


def test_where_there_is_too_little_for_all_those_that_are_done_soon_get_it() -> None:
    """However many long ones came before: sixteen of them would keep a short one for ever."""
    assert equal_shares([500, 3, 500, 1], 2) == [0, 1, 0, 1]
    assert equal_shares([4000] * 16 + [8], 16)[-1] == 1


@given(st.integers(1, 200), st.integers(1, 10_000), st.integers(1, 1000), st.integers(0, 600))
def test_prompts_at_most_double_the_time_of_a_pass(
    rows: int, base_us: int, row_us: int, room: int
) -> None:
    times = PassTimes()
    for n in (1, 2, 4, 64, 512):
        times = times.add(n, base_us + n * row_us)
    tokens = prompt_tokens(times, rows, room)
    assert 0 <= tokens <= room
    if tokens > LEAST_PROMPT_TOKENS:
        assert times.predict(rows + tokens) <= 2 * times.predict(rows) * (1 + 1e-6)
    elif tokens < room:
        assert tokens == LEAST_PROMPT_TOKENS


def test_prompts_have_a_pass_to_themselves_where_nobody_else_needs_it() -> None:
    times = PassTimes().add(1, 100).add(11, 200)
    assert prompt_tokens(times, 0, 512) == 512
    assert prompt_tokens(PassTimes(), 7, 512) == 512, "what a row costs is not known"
