"""What /metrics tells is what the answers tell."""

import asyncio
from typing import Any

import httpx
from gateway.conftest import Front
from prometheus_client.parser import text_string_to_metric_families

TEXT: dict[str, Any] = {"prompt": "hi", "max_tokens": 30, "ignore_eos": True}


async def told(http: httpx.AsyncClient) -> dict[tuple[str, str], float]:
    """Each sample by its name and the value of its label."""
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_the_counters_add_up_to_the_answers(front: Front) -> None:
    http = front.http(await front.open(vllm_metric_names=True))
    bodies = [{**TEXT, "seed": seed, "n": 2} for seed in range(3)]
    answers = await asyncio.gather(*(http.post("/v1/completions", json=b) for b in bodies))
    usages = [answer.json()["usage"] for answer in answers]
    found = await told(http)
    assert found["outrider_emitted_tokens_total", ""] == sum(
        usage["completion_tokens"] for usage in usages
    )
    details = [usage["completion_tokens_details"] for usage in usages]
    accepted = sum(d["accepted_prediction_tokens"] for d in details)
    verified = accepted + sum(d["rejected_prediction_tokens"] for d in details)
    assert found["outrider_accepted_tokens_total", ""] == accepted > 0
    assert found["outrider_draft_tokens_total", ""] == verified
    per_position = {
        name[1]: value
        for name, value in found.items()
        if name[0] == "outrider_accepted_tokens_per_position_total"
    }
    assert sum(per_position.values()) == accepted
    assert per_position["0"] <= found["outrider_drafts_total", ""]
    assert found["outrider_requests_total", "length"] == 6
    assert found["outrider_requests_running", ""] == 0
    assert found["outrider_time_to_first_token_seconds_count", ""] == 6
    assert found["outrider_draft_accepted_tokens_total", "a"] == accepted
    assert (found["outrider_service_usable", "verify"], found["outrider_service_usable", "a"]) == (
        1,
        1,
    )
    for ours, theirs in (
        ("outrider_drafts_total", "vllm:spec_decode_num_drafts_total"),
        ("outrider_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
        ("outrider_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"),
    ):
        assert found[theirs, ""] == found[ours, ""]
    assert found["vllm:spec_decode_num_accepted_tokens_per_pos_total", "0"] == per_position["0"]


async def test_what_did_not_end_well_is_counted_too(front: Front) -> None:
    http = front.http(await front.open(draft=None))
    slow = {**TEXT, "max_tokens": 6000, "stream": True}
    async with http.stream("POST", "/v1/completions", json=slow) as streaming:
        lines = streaming.aiter_lines()  # who drops them closes the stream
        assert await anext(lines)
        assert (await told(http))["outrider_requests_running", ""] == 1
    refused = await http.post("/v1/completions", json={**TEXT, "prompt": "x" * 9000})
    assert refused.status_code == 400
    for _ in range(200):
        found = await told(http)
        if not found["outrider_requests_running", ""]:
            break
        await asyncio.sleep(0.02)
    assert found["outrider_requests_total", "abandoned"] == 1
    assert found["outrider_requests_total", "error"] == 1
    assert not any(name.startswith("vllm:") for name, _ in found)
