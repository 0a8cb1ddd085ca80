"""Every value that travels, drawn at random: what the round trips are tested with."""

from hypothesis import strategies as st

from outrider.plans import MAX_DRAFT_INDEX, MAX_DRAFTED_NODES, DraftPart, DraftPlan, ReadinessPolicy
from outrider.types import (
    MAX_LOGPROBS,
    AcceptanceMode,
    Chunk,
    DraftCommit,
    DraftOpening,
    FinishReason,
    Grammar,
    ModelInfo,
    Node,
    NodeKind,
    ProposalRow,
    SamplingParams,
    StepTiming,
    StopConditions,
    TokenLogprobs,
    Verdict,
    VerifyOpening,
)

VOCAB = 50

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=5).map(tuple)
SOME_TOKENS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5).map(tuple)
NAME = st.text(min_size=1, max_size=20)

TEXT = st.text(min_size=1, max_size=8)
ALLOWED = st.integers(0, 99)
BANNED = st.integers(100, 2**32 - 1)

grammars = st.one_of(
    st.builds(Grammar, json_schema=TEXT),
    st.builds(Grammar, regex=TEXT),
    st.builds(Grammar, choice=st.lists(TEXT, min_size=1, max_size=3).map(tuple)),
)
biases = st.dictionaries(U32, st.floats(-100, 100), max_size=3)
samplings = st.builds(
    SamplingParams,
    temperature=st.floats(0, 1e6),
    top_k=U32,
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1, exclude_max=True),
    seed=U64,
    mode=st.sampled_from(AcceptanceMode),
    repetition_penalty=st.floats(0.01, 10),
    frequency_penalty=st.floats(-2, 2),
    presence_penalty=st.floats(-2, 2),
    logit_bias=biases.map(lambda biases: tuple(sorted(biases.items()))),
    allowed_token_ids=st.none() | st.frozensets(ALLOWED, min_size=1, max_size=3),
    banned_token_ids=st.frozensets(BANNED, max_size=3),
    grammar=st.none() | grammars,
)


def stops_of(least: int) -> st.SearchStrategy[StopConditions]:
    """Stop conditions with `least` tokens at least."""
    return st.builds(
        StopConditions,
        st.integers(least, 2**32 - 1),
        st.frozensets(U32, max_size=4),
        st.booleans(),
        st.integers(0, least),
    )


stops = stops_of(1)
CHANCE = st.floats(0, 1, width=32)


@st.composite
def plans_of(draw: st.DrawFn) -> DraftPlan:
    """Any plan."""
    shares = draw(st.integers(1, MAX_DRAFT_INDEX))
    return DraftPlan(
        draw(st.integers(0, 256)),
        draw(st.integers(1, 32)),
        draw(st.integers(1, 1024)),
        draw(st.integers(1, MAX_DRAFTED_NODES)),
        draw(st.integers(1, 2**26)),
        draw(CHANCE),
        draw(st.sampled_from(DraftPart)),
        draw(st.integers(0, shares - 1)),
        shares,
        draw(st.integers(0, 256)),
        draw(CHANCE),
    )


plans = plans_of()
policies = st.builds(
    ReadinessPolicy,
    st.integers(0, 256),
    st.integers(0, 60_000_000),
    st.integers(0, 4096),
    CHANCE,
)
infos = st.builds(
    ModelInfo,
    NAME,
    NAME,
    NAME,
    U32,
    U32,
    st.lists(U32, max_size=3).map(tuple),
    st.booleans(),
    st.lists(st.tuples(NAME, U32), max_size=2).map(tuple),
)
commits = st.builds(DraftCommit, U32, TOKENS, st.none() | plans, st.booleans())
draft_openings = st.builds(
    DraftOpening,
    NAME,
    st.integers(1, MAX_DRAFT_INDEX),
    SOME_TOKENS,
    TOKENS,
    samplings,
    plans,
    st.text(max_size=70),
    U32,
    st.frozensets(U32, max_size=3),
    U32,
)
verify_openings = st.builds(
    VerifyOpening,
    NAME,
    SOME_TOKENS,
    TOKENS,
    samplings,
    stops_of(6),
    policies,
    st.none() | st.integers(0, MAX_LOGPROBS),
)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    index = draw(st.integers(1, MAX_DRAFT_INDEX)) << 24
    counters = draw(st.lists(st.integers(0, 2**24 - 1), min_size=1, max_size=6, unique=True))
    nodes = tuple(
        Node(
            index | counter,
            draw(st.integers(0, 2**24 - 1) | st.sampled_from(counters).map(lambda c: index | c)),
            draw(st.integers(0, VOCAB - 1)),
            draw(CHANCE),
            draw(st.sampled_from(NodeKind)),
            draw(CHANCE),
        )
        for counter in counters
    )
    rows = tuple(
        ProposalRow(parent, (draw(st.integers(0, 20)), draw(st.integers(21, 40))), (0.25, 0.75))
        for parent in draw(st.sets(st.sampled_from([node.parent_id for node in nodes])))
    )
    return Chunk(nodes, rows, draw(U32))


logprobs = st.builds(
    TokenLogprobs,
    st.floats(max_value=0),
    st.lists(st.tuples(U32, st.floats(max_value=0)), max_size=3).map(tuple),
)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    tokens = draw(SOME_TOKENS)
    ids = draw(st.lists(U32, min_size=len(tokens), max_size=len(tokens)))
    return Verdict(
        draw(U32),
        draw(U32),
        tokens,
        tuple(ids),
        draw(U32),
        draw(st.none() | st.sampled_from(FinishReason)),
        draw(st.builds(StepTiming, U64, U64, U64, U32, U32, U64, U32, U32, U64)),
        draw(st.just(()) | st.tuples(*[logprobs] * len(tokens))),
        draw(st.booleans()),
        draw(st.booleans()),
    )
