"""The files behind the page: who gets them, with what headers, and that they need nothing else."""

import re

from gateway.conftest import Front

from orchestrator.gateway.pages import FILES, read_files

FOUND = read_files()
SOURCE = re.compile(r"""(?:src|href|from)\s*=?\s*"([^"#]+)\"""")


async def test_the_page_needs_no_key_and_is_asked_for_again_each_time(front: Front) -> None:
    http = front.http(await front.open(draft=None, api_key=["k"]))
    for path, file in FOUND.items():
        answer = await http.get(path)
        assert answer.status_code == 200, path
        assert answer.content == file.body
        assert answer.headers["content-type"] == file.media_type
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-content-type-options"] == "nosniff"
        for known in (file.etag, f'W/{file.etag}, "another"'):
            again = await http.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == file.etag
        assert (await http.get(path, headers={"If-None-Match": '"x"'})).status_code == 200
        head = await http.head(path)
        assert (head.status_code, head.content) == (200, b"")
    assert (await http.get(f"{FILES}none.js")).status_code == 401
    assert (await http.get(f"{FILES}../app.py")).status_code == 401


async def test_a_browser_is_told_to_run_nothing_but_these_files(front: Front) -> None:
    http = front.http(await front.open(draft=None))
    policy = (await http.get("/")).headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {
        "'self'"
    }
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_files_name_nothing_that_is_not_among_them() -> None:
    assert {"/", "/docs", f"{FILES}page.js", f"{FILES}page.css"} <= FOUND.keys()
    for path, file in FOUND.items():
        text = file.body.decode()
        bare = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "http:" not in bare, path
        assert "https:" not in bare, path
        assert "innerHTML" not in text
        assert " style=" not in text
        assert not re.search(r"<script(?! (type=\"module\" )?src=)", text)
        for name in SOURCE.findall(text):
            target = name.removeprefix("./").removeprefix("page/")
            assert target in ("", "docs", "openapi.json") or FILES + target in FOUND, (path, name)
