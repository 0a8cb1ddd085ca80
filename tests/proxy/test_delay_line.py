"""A line delays and never changes: proved on a clock of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.delay_line import PIECE_BYTES, DelayLine, Link

links = st.builds(
    Link,
    one_way_ms=st.floats(0, 200),
    jitter_ms=st.floats(0, 50),
    bytes_per_s=st.one_of(st.just(0.0), st.floats(1e3, 1e9)),
)
traffic = st.lists(st.tuples(st.floats(0, 0.5), st.binary(max_size=3 * PIECE_BYTES)), max_size=12)
"""Pauses in seconds and what is said after each."""


def run(
    link: Link, said: list[tuple[float, bytes]], seed: int = 0
) -> tuple[list[tuple[float, bytes]], list[tuple[float, bytes]]]:
    """What entered and what came out, each with its time, the line being asked whenever it is due.

    Everything enters before anything is taken where the pauses allow no other order.
    """
    line = DelayLine(link, seed)
    entered: list[tuple[float, bytes]] = []
    out: list[tuple[float, bytes]] = []
    now_s = 0.0
    for pause_s, data in said:
        now_s += pause_s
        out += _due(line, now_s)
        line.put(now_s, data)
        entered.append((now_s, data))
    out += _due(line, float("inf"))
    assert line.in_flight_bytes == 0
    return entered, out


def _due(line: DelayLine, until_s: float) -> list[tuple[float, bytes]]:
    out: list[tuple[float, bytes]] = []
    while (next_s := line.next_s) is not None and next_s <= until_s:
        out += [(next_s, piece) for piece in line.take(next_s)]
    return out


@given(links, traffic, st.integers(0, 9))
def test_bytes_come_out_unchanged_in_order_and_marks_in_their_turn(
    link: Link, said: list[tuple[float, bytes]], seed: int
) -> None:
    entered, out = run(link, said, seed)
    assert b"".join(piece for _, piece in out) == b"".join(data for _, data in entered)
    assert [at for at, _ in out] == sorted(at for at, _ in out)
    assert _marks(out) == _marks(entered)


@given(links, traffic, st.integers(0, 9))
def test_nothing_is_faster_than_asked(
    link: Link, said: list[tuple[float, bytes]], seed: int
) -> None:
    entered, out = run(link, said, seed)
    ends = _ends(entered)
    came = 0
    for at_s, piece in out:
        came += len(piece)
        # The time at which the last byte of this piece had entered.
        entered_s = next(
            (at for at, end in ends if end >= came and (piece or end == came)), ends[-1][0]
        )
        assert at_s >= entered_s + link.one_way_ms / 1000 - 1e-9


@given(links, traffic)
def test_no_more_bytes_a_second_come_out_than_asked(
    link: Link, said: list[tuple[float, bytes]]
) -> None:
    entered, out = run(link, said)
    if not link.bytes_per_s or not entered:
        return
    began_s = entered[0][0] + link.one_way_ms / 1000
    came = 0
    for at_s, piece in out:
        came += len(piece)
        assert came <= link.bytes_per_s * (at_s - began_s) * (1 + 1e-9) + 1e-3


@given(links, traffic, st.integers(0, 9))
def test_nothing_waits_longer_than_delay_jitter_and_bandwidth_make_it(
    link: Link, said: list[tuple[float, bytes]], seed: int
) -> None:
    entered, out = run(link, said, seed)
    sent_s = 0.0
    bound_s = {}
    total = 0
    for at_s, data in entered:
        sent_s = max(at_s, sent_s)
        if link.bytes_per_s:
            sent_s += len(data) / link.bytes_per_s
        total += len(data)
        bound_s[total] = sent_s + (link.one_way_ms + link.jitter_ms) / 1000
    came = 0
    for at_s, piece in out:
        came += len(piece)
        assert at_s <= next(at for end, at in bound_s.items() if end >= came) + 1e-9


def test_jitter_varies_and_its_seed_repeats_it() -> None:
    said = [(0.2, b"x")] * 20
    times = [[at for at, _ in run(Link(5, 20), said, seed)[1]] for seed in (1, 1, 2)]
    assert times[0] == times[1] != times[2]
    late_ms = [1000 * (at - 0.2 * (i + 1)) - 5 for i, at in enumerate(times[0])]
    assert max(late_ms) - min(late_ms) > 10


def test_a_narrow_line_hands_on_what_has_passed_before_the_rest_has() -> None:
    line = DelayLine(Link(bytes_per_s=1000 * PIECE_BYTES))
    line.put(0.0, bytes(3 * PIECE_BYTES))
    assert [len(piece) for piece in line.take(0.001)] == [PIECE_BYTES]
    assert line.in_flight_bytes == 2 * PIECE_BYTES
    assert line.next_s == pytest.approx(0.002)


def test_a_cleared_line_is_empty() -> None:
    line = DelayLine(Link(1))
    line.put(0.0, b"abc")
    line.clear()
    assert (line.in_flight_bytes, line.next_s, line.take(9.0)) == (0, None, [])


@pytest.mark.parametrize("name", ["one_way_ms", "jitter_ms", "bytes_per_s"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_impossible_links_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Link(**{name: value})


def _ends(entered: list[tuple[float, bytes]]) -> list[tuple[float, int]]:
    """When each write entered and how many bytes had entered with it."""
    total = 0
    ends = []
    for at_s, data in entered:
        total += len(data)
        ends.append((at_s, total))
    return ends


def _marks(pieces: list[tuple[float, bytes]]) -> list[int]:
    """How many bytes come before each empty piece."""
    return [
        sum(len(data) for _, data in pieces[:i]) for i, (_, data) in enumerate(pieces) if not data
    ]
