"""`outrider ps`: a row for each service."""

import json

from running_commands import run


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
