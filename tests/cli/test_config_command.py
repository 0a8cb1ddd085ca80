"""`outrider config`: what is effective, where it comes from, and the schema of the file."""

import json
from pathlib import Path

import pytest
import yaml

from orchestrator.cli.app import main
from orchestrator.cli.stack_flags import StackFlags, planned
from orchestrator.cli.stack_plan import StackPlan, specs_of
from outrider.errors import InvalidArgumentError
from outrider.settings import read_settings
from verify_service.settings import VerifySettings

FILE = """\
draft:
  model: org/small
verify:
  model: org/big
  kv_tokens: 4096
  threads: 3
orchestrator:
  port: 1234
  api_key: [hush]
  grace_s: 30
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["config", *arguments]) == 0
    return capsys.readouterr().out


def test_every_value_is_shown_with_where_it_comes_from(file, capsys, monkeypatch):
    monkeypatch.setenv("OUTRIDER_VERIFY_PORT", "99")
    told = json.loads(shown(capsys, "show", "--json", "--config", file))
    assert told["file"] == file
    verify = told["verify"]
    assert verify["port"] == {
        "value": 99,
        "source": "environment",
        "where": "OUTRIDER_VERIFY_PORT",
    }
    assert verify["kv_tokens"] == {"value": 4096, "source": "file", "where": f"{file}, line 5"}
    assert verify["max_sessions"] == {"value": 16, "source": "default", "where": None}
    text = shown(capsys, "show", "verify", "--config", file)
    lines = [line.split(maxsplit=2) for line in text.splitlines()]
    assert ["port", "99", "OUTRIDER_VERIFY_PORT"] in lines
    assert ["kv_tokens", "4096", f"{file}, line 5"] in lines
    assert ["max_sessions", "16", "default"] in lines
    assert "orchestrator" not in text


def test_no_form_shows_a_key(file, capsys):
    for form in ((), ("--json",), ("--yaml",)):
        assert "hush" not in shown(capsys, "show", "--config", file, *form)


def test_what_yaml_shows_is_a_file_with_the_same_values(file, tmp_path, capsys):
    again = tmp_path / "again.yaml"
    again.write_text(shown(capsys, "show", "--yaml", "--config", file), encoding="utf-8")
    settings = read_settings(VerifySettings, ("--config", str(again)), "verify")
    assert settings == read_settings(VerifySettings, ("--config", file), "verify")


def test_the_schema_knows_every_section_and_refuses_others(capsys):
    schema = json.loads(shown(capsys, "schema"))
    assert list(schema["properties"]) == ["draft", "verify", "orchestrator"]
    assert schema["additionalProperties"] is False
    verify = schema["properties"]["verify"]
    assert set(verify["properties"]) == set(VerifySettings.model_fields)
    assert verify["additionalProperties"] is False
    assert verify["properties"]["kv_tokens"]["minimum"] == 64


def test_a_bad_value_is_told_with_its_line_and_status_2(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text("verify:\n  port: x\n")
    assert main(["config", "show", "--config", str(path)]) == 2
    told = capsys.readouterr()
    assert f"{path}, line 2: port is 'x'; give a whole number from 0 to 65535" in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_a_whole_stack_takes_what_no_flag_says_from_the_file(file, monkeypatch):
    plan = planned(StackFlags(config=file))
    assert (plan.model, plan.drafts, plan.port) == ("org/big", ("org/small",), 1234)
    assert (plan.grace_s, plan.http_port) == (30, 8000)
    monkeypatch.setenv("OUTRIDER_PORT", "77")
    monkeypatch.setenv("OUTRIDER_HTTP", "false")
    plan = planned(StackFlags(model="ngram:", draft_models=("none",), config=file))
    assert (plan.model, plan.drafts, plan.port, plan.http_port) == ("ngram:", (), 77, None)
    assert planned(StackFlags(port=5, grace_s=1.5)).port == 5
    assert planned(StackFlags(port=5, grace_s=1.5)).grace_s == 1.5


def test_a_whole_stack_has_defaults_of_its_own():
    plan = planned(StackFlags())
    assert plan == StackPlan("smollm2", ("ngram:",), "127.0.0.1", 7070, http_port=8000)


def test_threads_of_the_file_are_kept_unless_they_are_shared_out_by_a_flag(file):
    def threads_of(flags: StackFlags) -> int:
        verify, _, _ = specs_of(planned(flags), [1, 2])
        return read_settings(VerifySettings, verify.arguments, "verify").threads

    assert threads_of(StackFlags(config=file)) == 3
    assert threads_of(StackFlags(config=file, threads=8)) == 6


def test_a_stack_that_cannot_be_is_refused_before_anything_starts(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"orchestrator": {"host": "0.0.0.0"}}))
    with pytest.raises(InvalidArgumentError, match="add --allow-plaintext"):
        planned(StackFlags(config=str(path)))
    with pytest.raises(InvalidArgumentError, match="mode is 'fast'"):
        planned(StackFlags(mode="fast"))
