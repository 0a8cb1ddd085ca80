"""Which processes a stack has, and how they share the machine."""

import pytest

from draft_service.settings import DraftSettings
from orchestrator.cli.stack_plan import StackPlan, draft_names, specs_of, split_threads
from orchestrator.settings import OrchestratorSettings
from outrider.settings import read_settings
from verify_service.settings import VerifySettings


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 8, 64])
@pytest.mark.parametrize("drafts", [0, 1, 2, 5])
def test_threads_fill_the_cores_and_nobody_gets_none(cores, drafts):
    verify, each = split_threads(cores, drafts)
    assert verify >= 1
    assert each >= (1 if drafts else 0)
    assert verify + drafts * each == max(cores, 1 + drafts)
    assert verify >= each


def test_the_services_accept_the_flags_that_they_are_started_with():
    plan = StackPlan("org/big", ("ngram:", "org/small", "none"), port=7070, threads=4)
    verify, drafts, orchestrator = specs_of(plan, [1001, 1002, 1003])
    settings = read_settings(VerifySettings, verify.arguments, "verify")
    assert (settings.model, settings.port, settings.threads) == ("org/big", 1001, 3)
    ngram, small = (read_settings(DraftSettings, spec.arguments, "draft") for spec in drafts)
    assert (ngram.model, ngram.port, ngram.threads) == ("ngram:", 1002, 0)
    assert (small.model, small.port, small.threads) == ("org/small", 1003, 1)
    front = read_settings(OrchestratorSettings, orchestrator.arguments, "orchestrator")
    assert (front.verify, front.port) == ("127.0.0.1:1001", 7070)
    assert front.draft == ["ngram=127.0.0.1:1002", "small=127.0.0.1:1003"]


def test_the_word_none_means_no_draft():
    _, drafts, orchestrator = specs_of(StackPlan("org/big", ("none",)), [1001])
    front = read_settings(OrchestratorSettings, orchestrator.arguments, "orchestrator")
    assert (drafts, front.draft) == ((), [])


def test_thread_pools_of_services_that_share_the_cores_do_not_spin(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    verify, drafts, _ = specs_of(StackPlan("org/big", ("org/small",)), [1, 2])
    assert {spec.environment["OMP_WAIT_POLICY"] for spec in (verify, *drafts)} == {"PASSIVE"}


@pytest.mark.parametrize(
    "models",
    [["a", "a", "a"], ["org/a-2", "a", "a"], ["ngram:", "ngram:n=2"], ["hf:org/x", "./x/", "x=,:"]],
)
def test_drafts_have_distinct_names_that_the_orchestrator_accepts(models):
    names = draft_names(models)
    assert len(set(names)) == len(models)
    draft = ",".join(f"{name}=127.0.0.1:{port}" for port, name in enumerate(names, 1000))
    settings = read_settings(OrchestratorSettings, ["--draft", draft], "orchestrator")
    assert len(settings.draft) == len(models)
