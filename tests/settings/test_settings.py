"""Every setting of every service by flag and by environment variable, and every mistake told."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from draft_service.settings import DraftSettings
from orchestrator.settings import OrchestratorSettings
from outrider.models.options import ModelOptions
from outrider.settings import ServerSettings, read_settings
from verify_service.settings import VerifySettings

KINDS: dict[str, type[ServerSettings]] = {
    "draft": DraftSettings,
    "verify": VerifySettings,
    "orchestrator": OrchestratorSettings,
}
PREFIXES = {
    "draft": "OUTRIDER_DRAFT_",
    "verify": "OUTRIDER_VERIFY_",
    "orchestrator": "OUTRIDER_",
}

SERVER: dict[str, tuple[str, object]] = {
    "host": ("127.0.0.2", "127.0.0.2"),
    "port": ("7171", 7171),
    "tls": ("some/folder", "some/folder"),
    "allow_plaintext": ("true", True),
    "ready_file": ("some/where", Path("some/where")),
    "exit_with_stdin": ("true", True),
    "grace_s": ("2.5", 2.5),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
    "metrics_port": ("9071", 9071),
    "traces_endpoint": ("http://127.0.0.1:4317", "http://127.0.0.1:4317"),
    "traces_sample_ratio": ("0.25", 0.25),
}
MODEL: dict[str, tuple[str, object]] = {
    "model": ("scripted:vocab=8,eos=1", "scripted:vocab=8,eos=1"),
    "revision": ("v1", "v1"),
    "trust_remote_code": ("true", True),
    "dtype": ("bfloat16", "bfloat16"),
    "device": ("cuda:1", "cuda:1"),
    "device_map": ("balanced", "balanced"),
    "quantization": ('{"quant_method": "x"}', '{"quant_method": "x"}'),
    "threads": ("3", 3),
    "n_gpu_layers": ("12", 12),
    "kv_dtype": ("q8_0", "q8_0"),
    "kv_tokens": ("4096", 4096),
    "context_tokens": ("512", 512),
}
SESSIONS: dict[str, tuple[str, object]] = {
    "max_sessions": ("3", 3),
    "max_pass_tokens": ("64", 64),
    "idle_timeout_s": ("7.5", 7.5),
    "skip_memory_check": ("true", True),
}
VALUES: dict[str, dict[str, tuple[str, object]]] = {
    "draft": SERVER | MODEL | SESSIONS,
    "verify": SERVER | MODEL | SESSIONS | {"max_tree_nodes": ("99", 99)},
    "orchestrator": SERVER
    | {
        "verify": ("10.0.0.1:7071", "10.0.0.1:7071"),
        "draft": ("a=10.0.0.2:7072,10.0.0.3:7072", ["a=10.0.0.2:7072", "10.0.0.3:7072"]),
        "ray": ("local", "local"),
        "plaintext_loopback": ("true", True),
        "engines": ("2", 2),
        "max_requests": ("5", 5),
        "mode": ("block", "block"),
        "num_speculative_tokens": ("5", 5),
        "width": ("2", 2),
        "run_ahead": ("false", False),
        "drafts_per_session": ("2", 2),
        "proposal_top_k": ("16", 16),
        "adaptive": ("false", False),
        "wait_nodes": ("2", 2),
        "max_wait_ms": ("1.5", 1.5),
        "verdict_timeout_s": ("3.5", 3.5),
        "max_resumes": ("4", 4),
        "http": ("false", False),
        "http_port": ("8001", 8001),
        "http_tls": ("some/https", "some/https"),
        "http_ready_file": ("some/other", Path("some/other")),
        "served_model_name": ("gpt-4,mine", ["gpt-4", "mine"]),
        "api_key": ("abc,def", [SecretStr("abc"), SecretStr("def")]),
        "api_key_file": ("some/keys", Path("some/keys")),
        "allow_no_api_key": ("true", True),
        "default_max_tokens": ("99", 99),
        "max_body_bytes": ("4096", 4096),
        "vllm_metric_names": ("true", True),
        "cors_origin": (
            "https://a.example,https://b.example",
            ["https://a.example", "https://b.example"],
        ),
    },
}
FIELDS = [(kind, name) for kind, values in VALUES.items() for name in values]


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in os.environ:
        if name.startswith("OUTRIDER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OUTRIDER_CONFIG", "none")


def flags(name: str, text: str) -> list[str]:
    flag = name.replace("_", "-")
    if text in ("true", "false"):
        return [f"--{flag}" if text == "true" else f"--no-{flag}"]
    return [f"--{flag}", text]


def read(kind: str, *arguments: str) -> Any:
    return read_settings(KINDS[kind], arguments, "prog")


def complaint(capsys: pytest.CaptureFixture[str], kind: str, *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        read(kind, *arguments)
    assert end.value.code == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "Traceback" not in streams.err
    assert "prog: " in streams.err
    return streams.err


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_is_left_out_here(kind: str) -> None:
    assert set(VALUES[kind]) == set(KINDS[kind].model_fields)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described_and_has_a_default(kind: str) -> None:
    for name, field in KINDS[kind].model_fields.items():
        assert field.description, name
        assert not field.is_required(), name
    read(kind)


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_a_field_is_a_flag(kind: str, name: str) -> None:
    text, value = VALUES[kind][name]
    settings = read(kind, *flags(name, text))
    assert getattr(settings, name) == value
    assert settings.model_fields_set == {name}


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_a_field_is_an_environment_variable(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, value = VALUES[kind][name]
    monkeypatch.setenv(PREFIXES[kind] + name.upper(), text)
    assert getattr(read(kind), name) == value


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_a_flag_comes_before_the_environment(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, value = VALUES[kind][name]
    default = KINDS[kind].model_fields[name].default
    opposite = {"true": "false", "false": "true"}.get(text)
    other = opposite or ("h:1" if name == "draft" else str(default))
    monkeypatch.setenv(PREFIXES[kind] + name.upper(), "" if default is None else other)
    assert getattr(read(kind, *flags(name, text)), name) == value


def test_the_same_flag_means_another_variable_at_each_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTRIDER_DRAFT_PORT", "1111")
    monkeypatch.setenv("OUTRIDER_VERIFY_PORT", "2222")
    monkeypatch.setenv("OUTRIDER_PORT", "3333")
    assert [read(kind).port for kind in KINDS] == [1111, 2222, 3333]


BOUNDS: dict[str, tuple[str, str]] = {
    "port": ("-1", "65536"),
    "metrics_port": ("-1", "65536"),
    "traces_sample_ratio": ("-0.1", "1.1"),
    "grace_s": ("0", "3601"),
    "idle_timeout_s": ("0", "86401"),
    "threads": ("-1", "1025"),
    "n_gpu_layers": ("-2", "10000"),
    "kv_tokens": ("63", "67108865"),
    "context_tokens": ("-1", "16777217"),
    "max_sessions": ("0", "4097"),
    "max_pass_tokens": ("0", "65537"),
    "max_tree_nodes": ("0", "65537"),
    "engines": ("0", "65"),
    "max_requests": ("0", "65537"),
    "num_speculative_tokens": ("0", "129"),
    "width": ("0", "33"),
    "drafts_per_session": ("0", "256"),
    "proposal_top_k": ("0", "1025"),
    "wait_nodes": ("-1", "4097"),
    "max_wait_ms": ("-1", "60001"),
    "verdict_timeout_s": ("0", "86401"),
    "max_resumes": ("-1", "101"),
    "http_port": ("-1", "65536"),
    "default_max_tokens": ("0", "16777217"),
    "max_body_bytes": ("1023", "1073741825"),
}
OUT_OF_BOUNDS = [
    (kind, name, text)
    for kind, name in FIELDS
    for text in (*BOUNDS.get(name, ()), *(("nan", "x", "") if name in BOUNDS else ()))
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_bounds(kind: str) -> None:
    numbers = {
        name
        for name, (_, value) in VALUES[kind].items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    assert numbers == set(BOUNDS) & set(VALUES[kind])


@pytest.mark.parametrize(("kind", "name", "text"), OUT_OF_BOUNDS)
def test_a_bad_number_is_told_by_flag_with_what_was_got_and_wanted(
    kind: str, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = name.replace("_", "-")
    told = complaint(capsys, kind, f"--{flag}={text}")
    assert re.search(rf"--{flag} is '{text}'; give a (whole )?number .*\d", told), told


@pytest.mark.parametrize(("kind", "name"), [pair for pair in FIELDS if pair[1] in BOUNDS])
def test_a_bad_number_in_the_environment_is_told_by_its_variable(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flag, variable = f"--{name.replace('_', '-')}", PREFIXES[kind] + name.upper()
    by_flag = complaint(capsys, kind, f"{flag}=x")
    monkeypatch.setenv(variable, "x")
    assert complaint(capsys, kind) == by_flag.replace(flag, variable)


@pytest.mark.parametrize(
    ("kind", "arguments", "says"),
    [
        ("verify", ["--log-level", "loud"], "--log-level is 'loud'; give one of debug, info, "),
        ("verify", ["--log-format", "xml"], "--log-format is 'xml'; give one of auto, json, "),
        ("verify", ["--host", "example.org"], "--host: give an IP .* localhost, got 'example.org'"),
        ("verify", ["--host", ""], "--host is ''; give a text that is not empty"),
        ("verify", ["--traces-endpoint", "h:1"], "--traces-endpoint: give http://.*got 'h:1'"),
        ("draft", ["--model", ""], "--model is ''; give a text that is not empty"),
        ("orchestrator", ["--verify", "x"], "--verify: 'x' is not an address; give host:port"),
        ("draft", ["--nonsense", "3"], "unrecognized arguments: --nonsense 3"),
        ("draft", ["--kv-token", "300"], "--kv-token 300; did you mean '--kv-tokens'"),
        ("draft", ["--kv", "300"], "unrecognized arguments: --kv 300"),
        ("draft", ["stray"], "unrecognized arguments: stray"),
        ("draft", ["--port"], "argument --port: expected one argument"),
    ],
)
def test_other_mistakes_are_told_by_flag_too(
    kind: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(says, complaint(capsys, kind, *arguments))


def test_all_mistakes_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    told = complaint(capsys, "draft", "--port", "x", "--kv-tokens", "1")
    assert "--port is 'x'" in told
    assert "--kv-tokens is '1'" in told
    assert told.count("\n") == 1


def test_a_flag_without_a_value_cannot_be_given_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--adaptive" in complaint(capsys, "orchestrator", "--adaptive=maybe")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "2001:db8::1"])
def test_plain_text_beyond_loopback_has_to_be_meant(
    kind: str, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = complaint(capsys, kind, "--host", host)
    assert f"host {host} is reachable from other machines" in told
    assert "--tls" in told
    assert "--allow-plaintext" in told
    http = ("--no-http",) if kind == "orchestrator" else ()
    assert read(kind, "--host", host, "--allow-plaintext", *http).host == host


def test_a_list_of_keys_without_a_key_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert "an entry is empty" in complaint(capsys, "orchestrator", "--api-key", " , ")


def test_what_leaves_the_machine_has_no_keys() -> None:
    settings = read("orchestrator", "--api-key", "k", "--api-key-file", "f")
    assert (settings.without_secrets().api_key, settings.without_secrets().api_key_file) == (
        [],
        None,
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_leave(host: str) -> None:
    assert read("draft", "--host", host).host == host.replace("localhost", "127.0.0.1")


@pytest.mark.parametrize("kind", ["draft", "verify"])
def test_the_models_options_are_the_settings_of_the_same_names(kind: str) -> None:
    arguments = [part for name, (text, _) in MODEL.items() for part in flags(name, text)]
    options = read(kind, *arguments).model_options()
    expected = {name: value for name, (_, value) in MODEL.items() if name != "model"}
    assert options == ModelOptions(**expected)  # type: ignore[arg-type]


def test_settings_cannot_be_changed_or_extended() -> None:
    settings = DraftSettings()
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1
    with pytest.raises(ValueError, match="Extra inputs"):
        DraftSettings(nonsense=1)  # type: ignore[call-arg]
