"""Every message of the protocol once, with every field set; its bytes lie in `golden/`.

Write them anew after a field was added: .venv/bin/python tests/wire/golden_messages.py
"""

from pathlib import Path

from google.protobuf.message import Message

from outrider.v1 import common_pb2 as common
from outrider.v1 import draft_pb2 as draft
from outrider.v1 import orchestrator_pb2 as orchestrator
from outrider.v1 import verify_pb2 as verify

FOLDER = Path(__file__).parent / "golden"

SAMPLING = common.SamplingParams(
    temperature=0.5,
    top_k=40,
    top_p=0.95,
    min_p=0.125,
    seed=2**63,
    mode="ACCEPTANCE_MODE_REJECTION",
    repetition_penalty=1.25,
    frequency_penalty=-0.5,
    presence_penalty=0.75,
    logit_bias=[common.LogitBias(id=3, bias=-100), common.LogitBias(id=4, bias=0.5)],
    allowed_token_ids=common.TokenIds(ids=[1, 300]),
    banned_token_ids=[2, 301],
    grammar=common.Grammar(json_schema='{"type": "object"}'),
)
STOP = common.StopConditions(max_tokens=64, stop_token_ids=[7, 9], ignore_eos=True, min_tokens=5)
CHUNK = common.DraftChunk(
    nodes=[
        common.Node(id=1 << 24, parent_id=3, token=5, q=0.75, kind="NODE_KIND_SAMPLED", chance=0.5),
        common.Node(id=1 << 24 | 1, parent_id=1 << 24, token=6, q=0.5, kind="NODE_KIND_LISTED"),
    ],
    rows=[common.ProposalRow(parent_id=3, ids=[5, 6], probs=[0.75, 0.25])],
    step_us=900,
    known_tokens=3,
    held_us=12000,
)
INFO = common.ModelInfo(
    protocol_version=3,
    model_name="scripted:vocab=16",
    backend="scripted",
    tokenizer_hash="ab" * 32,
    vocab_size=16,
    context_tokens=8192,
    eos_token_ids=[2, 3],
    max_sessions=16,
    version="0.1.0",
    takes_vocabulary=True,
    known_vocabularies=[common.KnownVocabulary(tokenizer_hash="cd" * 32, shared_tokens=12)],
)
PLAN = draft.DraftPlan(
    depth=14,
    width=2,
    proposal_top_k=64,
    max_nodes=300,
    max_bytes=70000,
    min_chance=0.25,
    part="DRAFT_PART_BRANCHES",
    share=1,
    shares=3,
    min_depth=5,
    least_sent=0.125,
)
POLICY = verify.ReadinessPolicy(min_depth=2, max_wait_us=5000, max_rows=14, min_chance=0.125)
CHAT = common.Chat(messages=[common.ChatMessage(role="user", content="hé")])
SERVICE = orchestrator.Service(
    name="a",
    address="10.0.0.7:7072",
    usable=True,
    problem="slow",
    model=INFO,
    round_trip_us=400,
)
STATS = orchestrator.GenerateStats(
    prompt_tokens=1,
    cached_tokens=2,
    emitted_tokens=3,
    target_passes=4,
    verified_tokens=5,
    accepted_tokens=6,
    drafts=[
        orchestrator.DraftStats(
            name="a",
            drafted_tokens=7,
            accepted_tokens=8,
            lost=True,
            steps=26,
            step_us=27,
            wire_rounds=28,
            wire_us=29,
            cached_tokens=32,
            paced_steps=[30, 33],
            paced_us=[31, 34],
        ),
    ],
    first_token_us=9,
    total_us=10,
    messages=11,
    wire_bytes=12,
    resumes=13,
    wait_us=[14, 15],
    pass_rows=[16, 17],
    forward_us=[18, 19],
    drafted_passes=20,
    accepted_per_position=[21, 22],
    queue_us=23,
    accept_us=24,
    reconcile_us=25,
    gap_us=[26, 27],
    batch_rows=[28, 29],
    guess_outcomes=[35, 36],
    guessed_places=[37, 38],
    found_places=[39, 40],
)
VERDICT = verify.Verdict(
    round_index=4,
    base=3,
    tokens=[5, 6, 8],
    node_ids=[1 << 24, 1 << 24 | 1, 0],
    drafted=2,
    finish_reason="FINISH_REASON_STOP",
    timing=common.StepTiming(
        wait_us=1,
        forward_us=2**40,
        accept_us=3,
        rows=3,
        batch_sessions=2,
        queue_us=4,
        batch_rows=5,
        batch_tokens=6,
        gap_us=7,
    ),
    logprobs=[
        verify.TokenLogprobs(logprob=-0.5, top_ids=[5, 6], top_logprobs=[-0.5, -2.25]),
        verify.TokenLogprobs(logprob=-1.5),
        verify.TokenLogprobs(logprob=0),
    ],
    fresh=True,
    missed=True,
)
HOST = common.HostFacts(
    version="0.1.0",
    protocol_version=3,
    versions=[common.LibraryVersion(name="python", version="3.11.2")],
    system="Linux 6.1",
    cpu="a processor",
    cores=2,
    memory_total_bytes=2**34,
    memory_available_bytes=2**33,
    gpus=[common.GpuFacts(name="a card", total_bytes=2**35, free_bytes=2**34)],
    clock_us=2**50,
    weights_bytes=2**31,
    kv_bytes_per_token=1024,
    kv_tokens=16384,
    threads=1,
    max_sessions=16,
)
DIAGNOSIS = orchestrator.ServiceDiagnosis(
    name="a",
    address="10.0.0.7:7072",
    problem="slow",
    host=HOST,
    model=INFO,
    round_trip_us=400,
    sent_bytes_per_s=2**27,
    received_bytes_per_s=2**26,
    clock_offset_us=-5,
    is_encrypted=True,
)
TOKEN_LOGPROB = orchestrator.TokenLogprob(id=5, logprob=-0.5, piece=b"\xc3")

MESSAGES: dict[str, Message] = {
    "draft_model_request": draft.DraftServiceGetModelInfoRequest(),
    "draft_model_response": draft.DraftServiceGetModelInfoResponse(model=INFO),
    "draft_open": draft.DraftRequest(
        open=draft.DraftOpen(
            session_id="s",
            draft_index=1,
            prompt_ids=[1, 2, 300],
            emitted_ids=[4, 5, 6],
            sampling=SAMPLING,
            plan=PLAN,
            tokenizer_hash="ab" * 32,
            vocab_size=16,
            end_token_ids=[2, 7],
            min_tokens=5,
        )
    ),
    "draft_branches": draft.DraftRequest(branches=CHUNK),
    "draft_commit": draft.DraftRequest(
        commit=draft.DraftCommit(base=3, tokens=[5, 6], plan=PLAN, fresh=True)
    ),
    "draft_done": draft.DraftResponse(done=draft.DraftDone(reason="its context is full")),
    "draft_vocabulary_request": draft.SetVocabularyRequest(
        tokenizer_hash="ab" * 32, pieces=[b"a", b"\xff"], control=[False, True]
    ),
    "draft_vocabulary_response": draft.SetVocabularyResponse(shared_tokens=12),
    "draft_opened": draft.DraftResponse(opened=draft.DraftOpened(cached_tokens=2)),
    "draft_chunk": draft.DraftResponse(chunk=CHUNK),
    "verify_model_request": verify.VerifyServiceGetModelInfoRequest(),
    "verify_model_response": verify.VerifyServiceGetModelInfoResponse(model=INFO),
    "vocabulary_request": verify.GetVocabularyRequest(),
    "vocabulary_response": verify.GetVocabularyResponse(
        pieces=[b"a", b"\xff"], control=[False, True]
    ),
    "tokenize_text": verify.TokenizeRequest(text="hé"),
    "tokenize_chat": verify.TokenizeRequest(chat=CHAT),
    "tokenize_response": verify.TokenizeResponse(ids=[1, 300]),
    "verify_open": verify.VerifyRequest(
        open=verify.VerifyOpen(
            session_id="s",
            prompt_ids=[1, 2, 300],
            emitted_ids=[4],
            sampling=SAMPLING,
            stop=STOP,
            policy=POLICY,
            logprobs=2,
        )
    ),
    "verify_extend": verify.VerifyRequest(extend=CHUNK),
    "verify_policy": verify.VerifyRequest(policy=POLICY),
    "verify_close": verify.VerifyRequest(close=verify.VerifyClose()),
    "verify_opened": verify.VerifyResponse(opened=verify.VerifyOpened(cached_tokens=2)),
    "verify_opened_at_end": verify.VerifyResponse(
        opened=verify.VerifyOpened(cached_tokens=2, finish_reason="FINISH_REASON_STOP")
    ),
    "verify_verdict": verify.VerifyResponse(verdict=VERDICT),
    "orchestrator_model_request": orchestrator.OrchestratorServiceGetModelInfoRequest(),
    "orchestrator_model_response": orchestrator.OrchestratorServiceGetModelInfoResponse(model=INFO),
    "generate_text": orchestrator.GenerateRequest(
        text="hé",
        sampling=SAMPLING,
        stop=STOP,
        model="m",
        draft=orchestrator.DraftOptions(max_drafts=0, num_speculative_tokens=5, width=2),
        stop_strings=["END", "é"],
        include_stop_string=True,
        logprobs=3,
        choice_index=4,
        delivered_ids=[7, 300],
    ),
    "generate_chat": orchestrator.GenerateRequest(
        chat=CHAT, sampling=common.SamplingParams(grammar=common.Grammar(regex="a+"))
    ),
    "draft_diagnose_request": draft.DraftServiceDiagnoseRequest(payload=b"ab", reply_bytes=3),
    "draft_diagnose_response": draft.DraftServiceDiagnoseResponse(host=HOST, payload=b"abc"),
    "verify_diagnose_request": verify.VerifyServiceDiagnoseRequest(payload=b"ab", reply_bytes=3),
    "verify_diagnose_response": verify.VerifyServiceDiagnoseResponse(host=HOST, payload=b"abc"),
    "diagnose_request": orchestrator.DiagnoseRequest(measure_bandwidth=True),
    "diagnose_response": orchestrator.DiagnoseResponse(
        host=HOST,
        verify=DIAGNOSIS,
        drafts=[DIAGNOSIS],
        limits=orchestrator.DraftingLimits(
            num_speculative_tokens=7,
            width=1,
            run_ahead=True,
            adaptive=True,
            wait_nodes=4,
            max_wait_us=5000,
        ),
    ),
    "generate_ids": orchestrator.GenerateRequest(
        token_ids=common.TokenIds(ids=[1, 300]),
        sampling=common.SamplingParams(
            grammar=common.Grammar(choice=common.GrammarChoice(choices=["yes", "no"]))
        ),
    ),
    "generate_started": orchestrator.GenerateResponse(
        started=orchestrator.GenerateStarted(
            request_id="r",
            seed=2**64 - 1,
            prompt_tokens=3,
            drafts=["a"],
            notices=["n"],
            mode="ACCEPTANCE_MODE_BLOCK",
            model="m",
            delivered_tokens=2,
        )
    ),
    "generate_tokens": orchestrator.GenerateResponse(
        tokens=orchestrator.GenerateTokens(
            tokens=[
                orchestrator.EmittedToken(
                    id=5, text="é", draft="a", logprob=TOKEN_LOGPROB, top_logprobs=[TOKEN_LOGPROB]
                )
            ]
        )
    ),
    "generate_finished": orchestrator.GenerateResponse(
        finished=orchestrator.GenerateFinished(
            finish_reason="FINISH_REASON_LENGTH",
            stats=STATS,
            notices=["n"],
            stop_string="END",
        )
    ),
    "cluster_request": orchestrator.GetClusterRequest(),
    "cluster_response": orchestrator.GetClusterResponse(verify=SERVICE, drafts=[SERVICE]),
}


def golden_bytes(name: str) -> bytes:
    """What was sent for this message when the file was written."""
    return (FOLDER / f"{name}.bin").read_bytes()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.bin"):
        old.unlink()
    for name, message in MESSAGES.items():
        (FOLDER / f"{name}.bin").write_bytes(message.SerializeToString(deterministic=True))
