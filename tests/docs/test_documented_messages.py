"""The messages that the troubleshooting page quotes are those that the program prints.

A quoted message stands in a block of its own, in the words of the program, with `<name>` or `…`
where values stand. Each of its clauses of at least three words is looked for in the source.
"""

import ast
import re
from functools import cache

import pytest
from documentation import ROOT, fences

PAGE = ROOT / "docs" / "troubleshooting.md"
PACKAGES = ("outrider", "orchestrator", "draft_service", "verify_service")
MESSAGES = [
    line for fence in fences(PAGE) if fence.language == "text" for line in fence.text.splitlines()
]


@cache
def told() -> str:
    """Every text in the source, values left out, one in a line; the set-up script as it is."""
    texts: list[str] = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.parent.name == "v1":
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    texts.append("".join(_literal(part) for part in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.append(node.value)
    texts.append((ROOT / "scripts/set_up.sh").read_text(encoding="utf-8"))
    return "\n".join(" ".join(text.split()) for text in texts)


def _literal(part: ast.expr) -> str:
    is_text = isinstance(part, ast.Constant) and isinstance(part.value, str)
    return str(part.value) if is_text else "\0"  # type: ignore[attr-defined]


def clauses(message: str) -> list[str]:
    """What of a message is in the program's own words."""
    parts = re.split(r"<[\w -]+>|…|[;:,.] |\.$", message.removeprefix("outrider: "))
    return [part.strip() for part in parts if len(part.split()) >= 3]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_one_that_the_program_prints(message: str) -> None:
    found = clauses(message)
    assert found, "quote a clause of at least three words"
    assert [clause for clause in found if clause not in told()] == []


def test_another_message_is_not_taken_for_one() -> None:
    assert clauses("cannot listen on <host> port <port>: the port is haunted; call a priest") == [
        "cannot listen on",
        "the port is haunted",
        "call a priest",
    ]
    assert "cannot listen on" in told()
    assert "the port is haunted" not in told()
