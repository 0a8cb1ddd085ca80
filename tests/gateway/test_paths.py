"""The other paths: models, tokens, health, version, and the schema that is served."""

from typing import Any

import pytest
import schemathesis
from gateway.conftest import MODEL, Front
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from support.processes import Processes, ServiceProcess

from outrider.models.scripted import ScriptedTokenizer
from outrider.version import __version__

TOKENIZER = ScriptedTokenizer(62, None)


async def test_tokens_of_a_text_and_of_a_conversation_and_back(front: Front) -> None:
    http = front.http(await front.open(draft=None))
    text = (await http.post("/tokenize", json={"prompt": "hey", "return_token_strs": True})).json()
    assert text["tokens"] == TOKENIZER.encode("hey")
    assert (text["count"], text["max_model_len"]) == (3, 8192)
    pieces = [TOKENIZER.vocabulary.pieces[t].decode() for t in text["tokens"]]
    assert text["token_strs"] == pieces
    back = await http.post("/detokenize", json={"tokens": text["tokens"]})
    assert back.json() == {"prompt": "".join(pieces)}
    messages = [{"role": "user", "content": "hey"}]
    chat = (await http.post("/tokenize", json={"messages": messages})).json()
    assert chat["tokens"] == TOKENIZER.encode_chat([("user", "hey")])
    assert "token_strs" not in chat
    assert (await http.post("/tokenize", json={"prompt": ""})).json()["tokens"] == []
    for body, words in (
        ({}, "either prompt or messages"),
        ({"prompt": "a", "messages": messages}, "either prompt or messages"),
    ):
        refused = await http.post("/tokenize", json=body)
        assert refused.status_code == 400
        assert words in refused.json()["error"]["message"]
    for token in (-1, 62):
        refused = await http.post("/detokenize", json={"tokens": [token]})
        assert refused.status_code == 400
        assert f"token id {token}" in refused.json()["error"]["message"]


async def test_health_version_and_models(front: Front) -> None:
    http = front.http(await front.open(draft=None))
    assert (await http.get("/health")).json() == {"status": "ok"}
    assert (await http.get("/version")).json() == {"version": __version__}
    listed = (await http.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert (await http.get("/v1/models/")).json() == listed
    (model,) = listed["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == (MODEL, "model", 8192)
    assert (await http.get("/docs")).status_code == 200


@pytest.fixture(scope="module")
def endpoint(module_processes: Processes) -> ServiceProcess:
    verify = module_processes.verify(MODEL)
    folder = module_processes.folder
    service = module_processes.orchestrator(
        verify, {}, "--http-port", "0", "--http-ready-file", str(folder / "http")
    )
    assert service.address
    return service


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_that_the_schema_allows_or_forbids_breaks_it(
    endpoint: ServiceProcess, module_processes: Processes, mode: GenerationMode
) -> None:
    """Every answer fits the schema that is served, and none is a bug."""
    base = f"http://{(module_processes.folder / 'http').read_text()}"
    schema = schemathesis.openapi.from_url(f"{base}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 9
    for operation in operations:
        # What takes nothing can be asked nothing wrong.
        if mode is GenerationMode.POSITIVE or operation.body:
            check(operation, mode)


def check(operation: Any, mode: GenerationMode) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("max_tokens"), int):
            case.body["max_tokens"] = min(case.body["max_tokens"], 2)
        # Bounds that depend on one another, or on the model, no schema can tell.
        case.call_and_validate(timeout=30, excluded_checks=[positive_data_acceptance])

    ask()
