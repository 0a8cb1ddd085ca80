"""What the log says where a service takes long, or lowers a setting."""

from queue import SimpleQueue

import pytest

from orchestrator import server
from orchestrator.settings import OrchestratorSettings
from outrider.telemetry import waiting


class Lines:
    """A logger that hands its lines to the test."""

    def __init__(self) -> None:
        self.told: SimpleQueue[tuple[str, dict[str, object]]] = SimpleQueue()

    def info(self, event: str, **values: object) -> None:
        self.told.put((event, values))

    warning = info


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    lines = Lines()
    for module in (waiting, server):
        monkeypatch.setattr(module, "get_logger", lambda: lines)
    return lines


def test_a_long_wait_is_told_when_it_begins_and_as_long_as_it_lasts(lines: Lines) -> None:
    with waiting.told_while("loading_model", every_s=0.01, model="org/big"):
        assert lines.told.get(timeout=60) == ("loading_model", {"model": "org/big"})
        for _ in range(2):
            event, values = lines.told.get(timeout=60)
            assert (event, values["model"]) == ("loading_model", "org/big")
            assert isinstance(values["seconds"], int)


def test_a_wait_that_is_over_is_not_told_again_whatever_ended_it(lines: Lines) -> None:
    with pytest.raises(ValueError, match="broken"), waiting.told_while("loading_model"):
        raise ValueError("broken")
    assert lines.told.get(timeout=60) == ("loading_model", {})
    assert lines.told.empty()


def test_a_deeper_wait_than_drafts_may_be_is_told(lines: Lines) -> None:
    server._tell_lowered(OrchestratorSettings(wait_nodes=20, num_speculative_tokens=8))
    event, values = lines.told.get(timeout=60)
    assert (event, values["wait_nodes"], values["to"]) == ("wait_nodes_lowered", 20, 8)
    server._tell_lowered(OrchestratorSettings(wait_nodes=8, num_speculative_tokens=8))
    server._tell_lowered(OrchestratorSettings())
    assert lines.told.empty()
