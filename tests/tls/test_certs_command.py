"""`outrider certs`: files, modes, mistakes."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tls_issuing import Issuer

from orchestrator.cli.app import main
from outrider.identity import Role, examine, read_identity


@pytest.fixture
def ca(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A CA that was made by the command."""
    folder = tmp_path / "ca"
    assert main(["certs", "init", str(folder)]) == 0
    capsys.readouterr()
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_three_commands_make_what_two_services_need(
    ca: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = ("--host", "second", "--host", "192.168.1.7")
    assert main(["certs", "issue", str(ca), "--role", "draft", "--name", "second", *hosts]) == 0
    assert "certificate second, role draft" in capsys.readouterr().out
    assert main(["certs", "issue", str(ca), "--role", "verify"]) == 0
    for name in ("second", "verify"):
        folder = ca / name
        assert {file.name for file in folder.iterdir()} == {"ca.pem", "cert.pem", "key.pem"}
        assert mode(folder / "key.pem") == 0o600
    assert examine(read_identity(ca / "second")).roles == {Role.DRAFT}
    assert mode(ca / "ca.key") == 0o600


def test_show_tells_whose_a_certificate_is_and_how_long_it_is_valid(
    ca: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["certs", "issue", str(ca), "--role", "client", "--days", "10", "--host", "attic"])
    capsys.readouterr()
    assert main(["certs", "show", str(ca / "client")]) == 0
    told = capsys.readouterr().out
    for part in ("role client", "attic", "signed by  Outrider CA", "9 days left"):
        assert part in told
    assert main(["certs", "show", str(ca / "client" / "cert.pem"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["roles"], found["hosts"], found["days_left"]) == (["client"], ["attic"], 9)
    assert main(["certs", "show", str(ca)]) == 0
    assert capsys.readouterr().out.startswith("CA Outrider CA\n")


def test_an_expired_certificate_is_told_by_the_status_too(
    ours: Issuer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", "show", ours.expired("draft")]) == 1
    assert "EXPIRED" in capsys.readouterr().out


def test_nothing_is_overwritten_unless_told(ca: Path, capsys: pytest.CaptureFixture[str]) -> None:
    issue = ["certs", "issue", str(ca), "--role", "draft"]
    assert main(issue) == 0
    before = {file: file.read_bytes() for file in ca.rglob("*") if file.is_file()}
    assert main(["certs", "init", str(ca)]) == 2
    assert "has a CA already" in capsys.readouterr().err
    assert main(issue) == 2
    assert "--replace" in capsys.readouterr().err
    assert before == {file: file.read_bytes() for file in before}
    assert main([*issue, "--replace"]) == 0
    assert before[ca / "draft" / "cert.pem"] != (ca / "draft" / "cert.pem").read_bytes()
    assert mode(ca / "draft" / "key.pem") == 0o600
    read_identity(ca / "draft")


def test_a_node_goes_where_it_is_told(ca: Path, tmp_path: Path) -> None:
    goal = tmp_path / "deep" / "down"
    assert main(["certs", "issue", str(ca), "--role", "draft", "--out", str(goal)]) == 0
    read_identity(goal)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("issue", "CA", "--role", "king"), "--role is 'king'; give one of draft, verify"),
        (("issue", "CA", "--role", "draft", "--host", "a b"), "--host is 'a b'"),
        (("issue", "CA", "--role", "draft", "--name", "../x"), "--name is '../x'"),
        (("issue", "CA", "--role", "draft", "--days", "0"), "--days is 0"),
        (("issue", "CA", "--role", "draft", "--days", "4000"), "--days is 4000, and the CA"),
        (("issue", "CA"), "--role"),
        (("issue", "CA/none", "--role", "draft"), "there is no CA in"),
        (("init", "CA/new", "--days", "0"), "--days is 0"),
        (("init", "CA/new", "--name", ""), "--name is ''"),
        (("show", "CA/none"), "cannot be read"),
        (("show", "CA/ca.key"), "has no certificate"),
        (("frobnicate",), "frobnicate"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_told_in_one_line_with_status_2(
    arguments: tuple[str, ...], says: str, ca: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", *(part.replace("CA", str(ca), 1) for part in arguments)]) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_folder_that_cannot_be_written_is_told(
    ca: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ca / "file").write_text("")
    out = str(ca / "file" / "below")
    assert main(["certs", "issue", str(ca), "--role", "draft", "--out", out]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_the_package_that_is_missing_is_told() -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from outrider.command import main; raise SystemExit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "certs", "init", "no/folder"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cryptography is missing" in done.stderr
    assert not Path("no/folder").exists()
