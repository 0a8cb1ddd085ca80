"""`outrider ps`: a row for each service."""

import json

from running_commands import run

from orchestrator.cli.ps import _print
from outrider.client import Cluster, Service


def test_the_table_has_a_row_for_each_service(address):
    shown = run("ps", "--address", address)
    header, verify, draft = shown.stdout.splitlines()
    assert header.split() == ["NAME", "ADDRESS", "USABLE", "MODEL", "CONTEXT", "ROUND", "TRIP"]
    assert verify.split()[0] == "verify"
    assert verify.split()[2:5] == ["yes", "scripted:vocab=62,step_ms=4", "8192"]
    assert draft.split()[0] == "scripted"
    assert draft.endswith(" ms")
    assert (shown.status, shown.stderr) == (0, "")


def test_json_has_the_same_and_more(address):
    cluster = json.loads(run("ps", "--address", address, "--json").stdout)
    assert cluster["verify"]["usable"] is True
    assert [draft["name"] for draft in cluster["drafts"]] == ["scripted"]
    assert cluster["drafts"][0]["model"]["vocab_size"] == 62


def test_a_draft_that_has_no_name_is_told_by_its_address_once(capsys):
    named, unnamed = (
        Service(name, "10.0.0.2:7072", True, "", None, 0) for name in ("laptop", "10.0.0.2:7072")
    )
    _print(Cluster(named, (unnamed,)))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["laptop", "10.0.0.2:7072", "yes"], ["-", "10.0.0.2:7072", "yes"]]
