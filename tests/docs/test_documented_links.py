"""Links of the pages that are read in the repository lead somewhere; `make docs` checks those of
the site. Other people's addresses are looked at, not called.
"""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from documentation import FRONT, PAGES, anchors, links, name_of


@pytest.mark.parametrize("page", FRONT, ids=name_of)
def test_a_link_within_the_repository_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in links(page):
        if urlsplit(link).scheme:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_to_the_outside_is_a_whole_address(page: Path) -> None:
    for link in links(page):
        parts = urlsplit(link)
        if parts.scheme or link.startswith("//"):
            assert parts.scheme == "https", link
            assert re.fullmatch(r"(?:[\w-]+\.)+[a-z]{2,}", parts.netloc), link
