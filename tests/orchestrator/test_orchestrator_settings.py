"""Addresses, names and lists of drafts, by flag and environment; what the planner is told."""

import pytest

from orchestrator.planner import Limits
from orchestrator.settings import OrchestratorSettings, address_of, name_of
from outrider.settings import read_settings
from outrider.types import AcceptanceMode


def read(*arguments: str) -> OrchestratorSettings:
    return read_settings(OrchestratorSettings, arguments, "prog")


TWO = ["a=h:1", "b=h:2"]


@pytest.mark.parametrize(
    ("arguments", "drafts"),
    [
        (["--draft", "a=h:1", "--draft", "b=h:2"], TWO),
        (["--draft", "a=h:1,b=h:2"], TWO),
        (["--draft", " a=h:1 , b=h:2 ,"], TWO),
        (["--draft=a=h:1", "--draft=b=h:2"], TWO),
        (["--draft", "none"], []),
        (["--draft", ""], []),
    ],
)
def test_drafts_are_repeated_flags_or_separated_by_commas(
    arguments: list[str], drafts: list[str]
) -> None:
    assert read(*arguments).draft == drafts


@pytest.mark.parametrize(
    ("text", "drafts"),
    [("a=h:1,b=h:2", TWO), ("a=h:1, b=h:2", TWO), ("h:1", ["h:1"]), ("none", []), ("", [])],
)
def test_drafts_in_the_environment_are_separated_by_commas(
    text: str, drafts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_DRAFT", text)
    assert read().draft == drafts


def test_drafts_by_flag_replace_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_DRAFT", "a=h:1")
    assert read("--draft", "b=h:2").draft == ["b=h:2"]


ADDRESSES = {
    "h:1": ("h:1", "h:1"),
    "a=h:1": ("a", "h:1"),
    "old laptop=192.168.1.7:65535": ("old laptop", "192.168.1.7:65535"),
    "a=[::1]:7072": ("a", "[::1]:7072"),
    "[fe80::1%eth0]:7072": ("[fe80::1%eth0]:7072", "[fe80::1%eth0]:7072"),
    "draft-0.draft.ns.svc:7072": ("draft-0.draft.ns.svc:7072", "draft-0.draft.ns.svc:7072"),
}


@pytest.mark.parametrize("value", ADDRESSES)
def test_a_draft_has_an_address_and_a_name(value: str) -> None:
    assert (name_of(value), address_of(value)) == ADDRESSES[value]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "h",
        "h:",
        ":1",
        "h:0",
        "h:65536",
        "h:x",
        "h:-1",
        "h:²",
        "h:1:2",
        "::1:7072",
        "a=",
        "=h:1",
        " =h:1",
        "a=b=h:1",
        "http://h:1",
        "h:1/path",
        "h h:1",
        "a=h:1\n",
    ],
)
def test_what_is_no_address_is_refused_with_what_was_got_and_wanted(value: str) -> None:
    with pytest.raises(ValueError, match="is not an address; give host:port") as failure:
        address_of(value)
    assert repr(value) in str(failure.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--draft", "h:1,x"], "--draft: 'x' is not an address; give host:port or name=host:port"),
        (["--draft", "h:1", "--draft", "h:1"], "--draft: two drafts have the same name"),
        (["--draft", "a=h:1,a=h:2"], "--draft: two drafts have the same name; give name=host:port"),
        (["--verify", "h"], "--verify: 'h' is not an address"),
        (["--draft", "none,a:1"], "--draft: 'none' stands alone"),
        (["--verify", "none"], "--verify: 'none' is not an address"),
    ],
)
def test_a_mistake_in_an_address_names_its_flag(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        read(*arguments)
    assert end.value.code == 2
    assert says in capsys.readouterr().err


def test_a_mistake_in_the_environment_is_told_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUTRIDER_DRAFT", "x")
    with pytest.raises(SystemExit):
        read()
    assert "OUTRIDER_DRAFT: 'x' is not an address; give host:port" in capsys.readouterr().err


def test_a_name_before_the_verifier_is_left_out() -> None:
    assert read("--verify", "big=h:1").verify == "h:1"


def test_the_mode_of_a_deployment_is_coupled_unless_it_says_otherwise() -> None:
    assert read().acceptance_mode is AcceptanceMode.COUPLED
    assert read("--mode", "auto").acceptance_mode is AcceptanceMode.COUPLED
    for mode in AcceptanceMode:
        assert read("--mode", mode.value).acceptance_mode is mode


def test_an_unknown_mode_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        read("--mode", "fast")
    told = capsys.readouterr().err
    assert "--mode" in told
    assert all(mode.value in told for mode in AcceptanceMode)


def test_the_planner_gets_what_is_set_and_plans_what_is_not() -> None:
    assert read().limits() == Limits(16, 3, 64, None, None, True)
    settings = read(
        *("--num-speculative-tokens", "5", "--width", "2", "--proposal-top-k", "16"),
        *("--wait-nodes", "0", "--max-wait-ms", "1.5", "--no-adaptive"),
    )
    assert settings.limits() == Limits(5, 2, 16, 0, 1500, False)
