"""Where text ends and what of it is certain, against a slow reader of the whole text."""

import codecs

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outrider.errors import InvalidArgumentError
from outrider.text import TextStream
from outrider.vocabulary import Vocabulary

PIECES = (
    b"a",
    b"b",
    b"ab",
    b"aab",
    b"bab\n",
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xc3",
    b"\xa9",
    b"",
    b"z",
)
VOCABULARY = Vocabulary((*PIECES, b"<end>"), (False,) * len(PIECES) + (True,))
ids = st.lists(st.integers(0, len(VOCABULARY)), max_size=14)
stops = st.lists(st.text("abé😀\n", min_size=1, max_size=5), max_size=4)


def decoded(tokens: list[int]) -> str:
    """All characters that are complete, from the bytes at once."""
    data = b"".join(VOCABULARY.piece(token) for token in tokens)
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)


class Reader:
    """What is known after `tokens`: looks at the whole text each time, with `str.find` alone."""

    def __init__(self, tokens: list[int], stop_strings: list[str], min_tokens: int) -> None:
        self.text = decoded(tokens)
        self.unsearched = len(decoded(tokens[:min_tokens]))
        searched = self.text[self.unsearched :]
        found = [
            (searched.find(stop) + len(stop), searched.find(stop), stop)
            for stop in stop_strings
            if searched.find(stop) >= 0
        ]
        self.stop = min(found)[2] if found else None
        self.end = self.unsearched + min(found)[0] if found else None
        self.held = max(
            (
                searched[-length:]
                for length in range(1, len(searched) + 1)
                if any(stop.startswith(searched[-length:]) for stop in stop_strings)
            ),
            key=len,
            default="",
        )

    def shown(self, is_included: bool) -> str:
        """What has to be told by now."""
        if self.end is None or self.stop is None:
            return self.text.removesuffix(self.held)
        return self.text[: self.end if is_included else self.end - len(self.stop)]


@settings(deadline=None, max_examples=600)
@given(ids, stops, st.integers(0, 4), st.booleans())
@example([0, 0, 0, 3], ["aaab", "ab"], 0, False)
@example([5, 6, 5, 6], ["😀😀"], 1, False)
@example([1, 5, 0], ["b\ufffda"], 0, True)
def test_after_each_token_everything_certain_is_told_and_nothing_else(
    tokens: list[int], stop_strings: list[str], min_tokens: int, is_included: bool
) -> None:
    stream = TextStream(
        VOCABULARY, stop_strings, include_stop_string=is_included, min_tokens=min_tokens
    )
    told = ""
    for count, token in enumerate(tokens, start=1):
        told += stream.push(token)
        reader = Reader(tokens[:count], stop_strings, min_tokens)
        assert told == reader.shown(is_included)
        assert stream.stop_string == reader.stop
        if reader.stop is not None:
            assert (stream.push(0), stream.finish()) == ("", ""), "nothing follows a stop string"
            return
    data = b"".join(VOCABULARY.piece(token) for token in tokens)
    assert told + stream.finish() == data.decode("utf-8", errors="replace")


@settings(deadline=None, max_examples=300)
@given(ids, stops.filter(bool))
def test_every_held_character_could_still_be_cut(
    tokens: list[int], stop_strings: list[str]
) -> None:
    """Minimal hold-back: some text to come would complete a stop string that begins right there."""
    stream = TextStream(VOCABULARY, stop_strings)
    told = "".join(stream.push(token) for token in tokens)
    held = decoded(tokens).removeprefix(told)
    if stream.stop_string is not None or not held:
        return
    assert any(stop.startswith(held) and stop != held for stop in stop_strings)


def texts(stream: TextStream, *tokens: int) -> list[str]:
    return [stream.push(token) for token in tokens]


def test_without_stop_strings_only_an_incomplete_character_is_held() -> None:
    stream = TextStream(VOCABULARY)
    assert texts(stream, 0, 5, 6, 11, 7, 99) == ["a", "", "😀", "", "", ""]
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""


def test_a_stop_string_that_is_never_completed_comes_out_at_the_end() -> None:
    stream = TextStream(VOCABULARY, ["abé"])
    assert texts(stream, 10, 2, 7) == ["z", "", ""]
    assert stream.finish() == "ab\ufffd"
    assert stream.stop_string is None


def test_of_stop_strings_completed_by_one_character_the_one_that_starts_first_counts() -> None:
    stream = TextStream(VOCABULARY, ["b", "aab", "ab"])
    assert texts(stream, 10, 3) == ["z", ""]
    assert stream.stop_string == "aab"


def test_the_stop_string_completed_first_ends_the_text_though_a_longer_one_started_before() -> None:
    stream = TextStream(VOCABULARY, ["abab", "ba"])
    assert texts(stream, 2, 2) == ["", "a"]
    assert stream.stop_string == "ba"


def test_a_stop_string_can_cut_a_token_whose_rest_is_dropped() -> None:
    for is_included, text in ((False, "b"), (True, "ba")):
        stream = TextStream(VOCABULARY, ["a"], include_stop_string=is_included)
        assert texts(stream, 4, 0) == [text, ""]
        assert stream.finish() == ""


def test_stop_strings_are_searched_behind_the_first_tokens_only() -> None:
    stream = TextStream(VOCABULARY, ["ab"], min_tokens=2)
    assert texts(stream, 2, 0, 1, 2) == ["ab", "a", "b", ""]
    assert stream.stop_string == "ab"


def test_a_character_completed_behind_the_first_tokens_is_searched() -> None:
    stream = TextStream(VOCABULARY, ["😀"], min_tokens=1)
    assert texts(stream, 5, 6) == ["", ""]
    assert stream.stop_string == "😀"


def test_a_stop_string_as_long_as_may_be_is_found_across_many_tokens() -> None:
    stream = TextStream(VOCABULARY, ["a" * 255 + "b"])
    assert texts(stream, *[0] * 300) == [""] * 255 + ["a"] * 45
    assert texts(stream, 1) == [""]
    assert stream.stop_string == "a" * 255 + "b"


@pytest.mark.parametrize(
    ("stop_strings", "says"),
    [
        (["x"] * 17, "there are 17 stop strings; give at most 16"),
        (["x", ""], "stop string 1 has 0 characters; give 1 to 256"),
        (["x" * 257], "stop string 0 has 257 characters"),
    ],
)
def test_what_is_out_of_bounds_is_refused(stop_strings: list[str], says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        TextStream(VOCABULARY, stop_strings)


def test_the_bounds_themselves_are_allowed() -> None:
    TextStream(VOCABULARY, ["x" * 256] * 16)


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(0, 40), st.integers(0, 6), st.data())
def test_a_text_that_was_told_already_is_skipped_to_the_same_state(
    tokens: list[int], cut: int, min_tokens: int, data: st.DataObject
) -> None:
    pieces = (b"a", b"b", b"ab", "é".encode()[:1], "é".encode()[1:], b"aba")
    vocabulary = Vocabulary(pieces, (False,) * 6)
    stops = data.draw(st.lists(st.text("abé", min_size=1, max_size=5), max_size=3))
    read, skipped = (
        TextStream(vocabulary, stops, min_tokens=min_tokens, include_stop_string=True)
        for _ in range(2)
    )
    known, rest = tokens[:cut], tokens[cut:]
    ended = []
    for token in known:
        read.push(token)
        ended.append(read.stop_string)
    is_sound = not any(ended[:-1])
    assert skipped.skip(known) == is_sound
    if is_sound:
        assert skipped.stop_string == read.stop_string
        assert [skipped.push(t) for t in rest] == [read.push(t) for t in rest]
        assert skipped.stop_string == read.stop_string
        assert skipped.finish() == read.finish()
