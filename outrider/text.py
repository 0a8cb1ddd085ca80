"""Tokens into text that is certain, and where stop strings end it. Pure; knows no model.

What is held back is the least that can be: the bytes of an incomplete character, and the longest
end of the text that could still become a stop string.
"""

from collections.abc import Sequence

from outrider.errors import InvalidArgumentError
from outrider.vocabulary import TextDecoder, Vocabulary

MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 256


class TextStream:
    """The text of one answer, token by token.

    A stop string ends it with the character that completes one, wherever that lies in a token's
    text; of several completed by the same character the one that starts first (the longest) counts.
    The text then ends before the stop string, or behind it with `include_stop_string`. Stop strings
    are searched in the text that became certain after the first `min_tokens` tokens only.

    >>> stream = TextStream(Vocabulary((b"a", b"EN", b"D."), (False,) * 3), ["END"])
    >>> [stream.push(token) for token in (0, 1, 0, 1, 2)], stream.stop_string
    (['a', '', 'ENa', '', ''], 'END')
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        stop_strings: Sequence[str] = (),
        *,
        include_stop_string: bool = False,
        min_tokens: int = 0,
    ) -> None:
        check_stop_strings(stop_strings)
        self.stop_string: str | None = None
        """The stop string that ended the text, once one did."""
        self._decoder = TextDecoder(vocabulary)
        self._matches = [_Match(text) for text in dict.fromkeys(stop_strings)]
        self._is_included = include_stop_string
        self._unsearched_tokens = min_tokens
        self._held = ""

    def push(self, token: int) -> str:
        """The text that became certain with `token`; nothing after a stop string."""
        if self.stop_string is not None:
            return ""
        text = self._decoder.push(token)
        if self._unsearched_tokens > 0:
            self._unsearched_tokens -= 1
            return text
        return self._search(text) if self._matches else text

    def skip(self, tokens: Sequence[int]) -> bool:
        """Reads tokens whose text is known already, as `push` does, but quickly; whether no stop
        string ends the text before the last of them.
        """
        before = [self._decoder.push(token) for token in tokens[:-1]]
        searched = "".join(before[self._unsearched_tokens :])
        self._unsearched_tokens = max(0, self._unsearched_tokens - len(before))
        if any(match.text in searched for match in self._matches):
            return False
        if self._matches:
            self._search(searched[-MAX_STOP_CHARACTERS:])
        for token in tokens[-1:]:
            self.push(token)
        return True

    def finish(self) -> str:
        """What was held back, with U+FFFD for a character that never became complete, in which no
        stop string is searched; nothing after a stop string.
        """
        if self.stop_string is not None:
            return ""
        held, self._held = self._held, ""
        return held + self._decoder.finish()

    def _search(self, text: str) -> str:
        held, self._held = self._held, ""
        for end, character in enumerate(text, start=1):
            # No shortcut here: every match has to see every character.
            completed = [match for match in self._matches if match.push(character)]
            if completed:
                self.stop_string = max((match.text for match in completed), key=len)
                whole = held + text[:end]
                return whole if self._is_included else whole.removesuffix(self.stop_string)
        whole = held + text
        certain = len(whole) - max(match.length for match in self._matches)
        self._held = whole[certain:]
        return whole[:certain]


class _Match:
    """`length`: how much of `text` the characters so far end with (Knuth, Morris, Pratt 1977)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = 0
        # _shorter[n]: the longest proper prefix of text[:n] that text[:n] also ends with.
        self._shorter = [0, 0]
        length = 0
        for character in text[1:]:
            length = self._longer(length, character)
            self._shorter.append(length)

    def push(self, character: str) -> bool:
        """Whether `character` completes the text. Nothing may be pushed after that."""
        self.length = self._longer(self.length, character)
        return self.length == len(self.text)

    def _longer(self, length: int, character: str) -> int:
        while length and self.text[length] != character:
            length = self._shorter[length]
        return length + 1 if self.text[length] == character else 0


def check_stop_strings(stop_strings: Sequence[str]) -> None:
    """Raises InvalidArgumentError for too many, too long or empty ones."""
    if len(stop_strings) > MAX_STOP_STRINGS:
        raise InvalidArgumentError(
            f"there are {len(stop_strings)} stop strings; give at most {MAX_STOP_STRINGS}"
        )
    for index, text in enumerate(stop_strings):
        if not 0 < len(text) <= MAX_STOP_CHARACTERS:
            raise InvalidArgumentError(
                f"stop string {index} has {len(text)} characters; give 1 to {MAX_STOP_CHARACTERS}"
            )
