"""Sessions that share a pass: each gets what it would get alone, whatever the others ask for."""

from collections.abc import Sequence

from draft.drafted import FirstGuesses, opening
from draft.gated import scripted

from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.plans import DraftPart, DraftPlan
from outrider.types import AcceptanceMode, Chunk, DraftOpening, SamplingParams

PLAN = DraftPlan(4, 1, part=DraftPart.TREE)
WIDE = DraftPlan(4, 3, part=DraftPart.TREE)

OPENINGS = [
    *(
        opening((1, seed), plan=plan, sampling=SamplingParams(seed=seed))
        for plan in (PLAN, WIDE)
        for seed in (4, 5, 6)
    ),
    *(
        opening((seed,), plan=WIDE, sampling=SamplingParams(temperature=0.6, top_k=4, seed=seed))
        for seed in (1, 2)
    ),
    *(opening((2, i), plan=WIDE, sampling=SamplingParams(temperature=0, seed=i)) for i in (1, 2)),
    *(
        opening((3, i), plan=WIDE, sampling=SamplingParams(seed=i, mode=mode))
        for i in (1, 2)
        for mode in AcceptanceMode
    ),
    opening((3, 4), plan=WIDE, sampling=SamplingParams(seed=3, frequency_penalty=1.5)),
    opening((3, 4), plan=WIDE, sampling=SamplingParams(seed=3), vocab_size=6),
    opening((3, 5), plan=WIDE, sampling=SamplingParams(seed=3), ends=(2,), min_tokens=3),
]


def drafter() -> Drafter:
    made = Drafter(scripted("vocab=8,tokenizer=any"))
    made.chances = FirstGuesses()
    return made


def drafted(openings: Sequence[DraftOpening], passes: int = 6) -> list[list[Chunk]]:
    """The chunks of each session of one draft, that goes on below two nodes of each in a pass."""
    one = drafter()
    sessions = [one.open(opening) for opening in openings]
    chunks: dict[DraftSession, list[Chunk]] = {session: [] for session in sessions}
    for _ in range(passes):
        tasks = [(s, task) for s in sessions if (task := s.task(100, 2)) is not None]
        for (session, _), chunk in zip(tasks, one.step(tasks), strict=True):
            assert chunk is None or isinstance(chunk, Chunk)
            if chunk is not None:
                chunks[session].append(chunk)
    return [[Chunk(c.nodes, c.rows) for c in found] for found in chunks.values()]


def test_sessions_of_one_pass_get_to_the_last_bit_what_each_gets_alone() -> None:
    together = drafted(OPENINGS)
    assert all(together)
    assert together == [drafted([opening])[0] for opening in OPENINGS]
