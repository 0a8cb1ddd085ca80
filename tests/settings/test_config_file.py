"""The config file: its values, where they stand among the others, and each mistake told by line."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from test_settings import FIELDS, KINDS, PREFIXES, VALUES, complaint, flags, read

from outrider import config_file
from outrider.settings_reading import find_settings


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in os.environ:
        if name.startswith("OUTRIDER_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(config_file, "default_path", lambda: tmp_path / "user" / "config.yaml")


def write(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def in_yaml(kind: str, name: str) -> str:
    """A value as a person writes it; texts that look like something else in quotes."""
    text, value = VALUES[kind][name]
    return f"'{text}'" if isinstance(value, str | Path | list) else text


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_a_field_is_a_key_below_flag_and_environment(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, value = VALUES[kind][name]
    path = write(tmp_path, f"{kind}:\n  {name}: {in_yaml(kind, name)}\n")
    monkeypatch.setenv("OUTRIDER_CONFIG", str(path))
    found = find_settings(KINDS[kind], (), "prog")
    assert getattr(found.settings, name) == value
    assert (found.origins[name].kind, found.origins[name].where) == ("file", f"{path}, line 2")
    assert [n for n in found.origins if found.is_set(n)] == [name]
    monkeypatch.setenv(PREFIXES[kind] + name.upper(), text)
    assert find_settings(KINDS[kind], (), "prog").origins[name].kind == "environment"
    by_flag = find_settings(KINDS[kind], flags(name, text), "prog")
    assert (by_flag.origins[name].kind, getattr(by_flag.settings, name)) == ("flag", value)


def test_flag_environment_file_and_default_come_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "verify:\n  port: 1\n  max_sessions: 2\n  kv_tokens: 333\n")
    monkeypatch.setenv("OUTRIDER_VERIFY_PORT", "4")
    monkeypatch.setenv("OUTRIDER_VERIFY_MAX_SESSIONS", "5")
    settings = read("verify", "--config", str(path), "--port", "6")
    assert (settings.port, settings.max_sessions, settings.kv_tokens) == (6, 5, 333)
    assert settings.max_pass_tokens == 512


def test_each_service_reads_its_own_section(tmp_path: Path) -> None:
    text = "draft:\n  port: 1\nverify: {port: 2}\norchestrator:\n  port: 3\n  draft: [a=h:1, h:2]\n"
    named = ("--config", str(write(tmp_path, text)))
    assert [read(kind, *named).port for kind in KINDS] == [1, 2, 3]
    assert read("orchestrator", *named).draft == ["a=h:1", "h:2"]


def test_the_users_own_file_is_read_unless_another_or_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read("draft").port == 7072
    write(tmp_path / "user", "draft: {port: 1}")
    other = write(tmp_path, "draft: {port: 2}")
    assert read("draft").port == 1
    assert read("draft", "--config", "none").port == 7072
    monkeypatch.setenv("OUTRIDER_CONFIG", str(other))
    assert read("draft").port == 2
    assert read("draft", "--config=none").port == 7072
    monkeypatch.setenv("OUTRIDER_CONFIG", "none")
    assert read("draft").port == 7072


@pytest.mark.parametrize("text", ["", "# nothing\n", "draft:\n", "draft: {}\nverify:\n"])
def test_an_empty_file_or_section_sets_nothing(text: str, tmp_path: Path) -> None:
    assert read("draft", "--config", str(write(tmp_path, text))).model_fields_set == set()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("draft:\n  port: x\n", "line 2: port is 'x'; give a whole number from 0 to 65535"),
        ("draft:\n\n  host: nowhere\n", "line 3: host: give an IP address, or localhost, got"),
        ("draft:\n  kv_token: 99\n", "line 2: draft has no setting 'kv_token'; did you mean 'kv_t"),
        ("draft:\n  frobnicate: 1\n", "line 2: draft has no setting 'frobnicate'; outrider config"),
        ("drafts:\n  port: 1\n", "line 1: 'drafts' is no section; .*; did you mean 'draft'?"),
        ("port: 1\n", "line 1: 'port' is no section; give the sections draft, verify, orchestr"),
        ("draft:\n  port: 1\n  port: 2\n", "line 3: draft has port twice"),
        ("draft: {}\nverify: {}\ndraft: {}\n", "line 3: the section draft is there twice"),
        ("draft:\n  - port\n", "line 2: draft has no settings by name; give key: value"),
        ("- draft\n", "line 1: the file is no list of sections"),
        ("draft:\n  port: [1\n", "line 3: this is no YAML"),
        ("draft:\n\tport: 1\n", "line 2: this is no YAML"),
        ("draft: {}\n---\nverify: {}\n", "line 2: this is no YAML"),
        ("draft:\n  port: !!python/name:os.system\n", "line 2: this is no YAML"),
        ("draft:\n  [a]: 1\n", "line 2: a key is no word"),
        ("draft:\n  model: 2026-99-99\n", "line 2: model cannot be read .month must be in 1"),
        ("draft:\n  port: !!int foo\n", "line 2: port cannot be read"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, text)
    complained = complaint(capsys, "draft", "--config", str(path))
    assert re.search(f"{re.escape(str(path))}, {told}", complained), complained
    assert complained.count("\n") == 1


def test_a_file_that_is_named_and_cannot_be_read_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin").write_bytes(b"draft: {model: \xff}")
    (tmp_path / "long").write_text("#" * (config_file.MOST_CHARACTERS + 1))
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing.yaml", "", "latin", "long", "pipe"):
        path = tmp_path / name
        told = complaint(capsys, "draft", "--config", str(path))
        assert f"the config file {path} cannot be read" in told
        assert "'none' for none" in told


def test_a_file_that_is_nested_too_deeply_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "draft:\n  model: " + "[" * 2000)
    assert f"{path}: it is nested too deeply" in complaint(capsys, "draft", "--config", str(path))


def test_a_bad_secret_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "orchestrator:\n  api_key: [hush, '']\n")
    told = complaint(capsys, "orchestrator", "--config", str(path))
    assert "line 2: api_key: an entry is empty" in told
    assert "hush" not in told


def test_help_names_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        read("verify", "--help")
    shown: Any = capsys.readouterr().out
    assert (end.value.code, "--config FILE" in shown) == (0, True)
