"""The pages of the documentation and what stands in them: code, commands, links, flags."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FRONT = (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
SITE = sorted(
    path for path in (ROOT / "docs").rglob("*.md") if path.parent != ROOT / "docs" / "notes"
)
PAGES = (*FRONT, *SITE)

_FENCE = re.compile(r"^ *```(\S*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_INDENTED = re.compile(r"^ {4,}(.*)$", re.MULTILINE)
_COMMAND = re.compile(r"(?:[\w-]*\$ +)?((?:[A-Z_]+=\S+ +)*outrider +\S.*)")
_LINK = re.compile(r"!?\[[^][]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Fence:
    """A fenced block of code."""

    page: str
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """An `outrider` command, with the variables set before it."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """As a shell reads it, without a comment behind it."""
        return shlex.split(self.text, comments=True)

    @property
    def arguments(self) -> list[str]:
        """What stands behind `outrider`."""
        return self.words[self.words.index("outrider") + 1 :]

    @property
    def variables(self) -> list[str]:
        """What is set before it."""
        return [word.partition("=")[0] for word in self.words[: self.words.index("outrider")]]


def name_of(page: Path) -> str:
    """Its path in the repository."""
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    """All of it."""
    return page.read_text(encoding="utf-8")


def fences(page: Path) -> list[Fence]:
    """The fenced blocks of a page."""
    return [Fence(name_of(page), *found) for found in _FENCE.findall(text_of(page))]


def spans(page: Path) -> list[str]:
    """Code within sentences, in one line each."""
    prose = _FENCE.sub("", text_of(page))
    return [" ".join(span.split()) for span in _SPAN.findall(prose)]


def commands(page: Path) -> Iterator[Command]:
    """The `outrider` commands of a page, wherever code stands."""
    blocks = [fence.text for fence in fences(page)]
    blocks += _INDENTED.findall(_FENCE.sub("", text_of(page)))
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            if found := _COMMAND.fullmatch(line.strip()):
                yield Command(name_of(page), found[1])
    for span in spans(page):
        if found := _COMMAND.fullmatch(span):
            yield Command(name_of(page), found[1])


def links(page: Path) -> list[str]:
    """Where the links and pictures of a page lead."""
    return _LINK.findall(_SPAN.sub("", _FENCE.sub("", text_of(page))))


def anchors(page: Path) -> set[str]:
    """What a link may name in a page: its headings, spelled as web sites of repositories do."""
    headings = re.findall(r"^#+ +(.*)$", _FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
