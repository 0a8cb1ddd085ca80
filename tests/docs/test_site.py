"""The site is built without a warning, has a page for everything public, and loads nothing from
elsewhere.
"""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from documentation import ROOT, SITE

import outrider
import outrider.client

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""Elements that a browser fetches something for, and the attribute that says what."""


class Page(HTMLParser):
    """What a page makes a browser fetch, and its ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids.add(found.get("id", ""))
        self.classes |= set(found.get("class", "").split())
        if tag in LOADED:
            self.loaded.append(found.get(LOADED[tag], ""))
        elif tag == "link" and found.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(found.get("href", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """The pages by their paths."""
    return {
        path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
    }


def test_every_page_is_built(pages: dict[str, Page]) -> None:
    names = [path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in SITE]
    assert {"index.html" if n == "index" else f"{n}/index.html" for n in names} <= pages.keys()
    assert not [name for name in pages if "notes" in name]


def test_a_browser_fetches_nothing_from_elsewhere(pages: dict[str, Page], site: Path) -> None:
    for name, page in pages.items():
        for address in page.loaded:
            parts = urlsplit(address)
            if parts.scheme == "data":
                continue
            assert not parts.scheme and not parts.netloc, f"{name} loads {address}"
            path = urlsplit(urljoin(f"/{name}", address)).path
            assert (site / path.lstrip("/")).exists(), f"{name} loads {address}, which is not there"
    # The theme fetches a script for these alone.
    assert not [name for name, page in pages.items() if "mermaid" in page.classes]


def test_a_style_sheet_fetches_nothing_from_elsewhere(site: Path) -> None:
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        text = sheet.read_text(encoding="utf-8")
        fetched = re.findall(r"(?:@import\s+|url\()['\"]?((?:https?:)?//[^'\")]*)", text)
        assert fetched == [], sheet.name


def test_everything_public_has_its_place_in_the_reference(pages: dict[str, Page]) -> None:
    ids = {i for name, page in pages.items() if name.startswith("reference/") for i in page.ids}
    names = {f"outrider.client.{name}" for name in outrider.client.__all__}
    names |= {f"outrider.{name}" for name in outrider.__all__ if name.endswith("Error")}
    assert {name for name in names if name not in ids} == set()
    assert "outrider.client.Client.generate" in ids
    assert "outrider.client.AsyncClient.chat" in ids
