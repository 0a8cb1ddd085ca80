"""Which drafts help a session, and how those of one model divide the tree."""

from dataclasses import replace
from random import Random

import pytest

from orchestrator.placement import FREE_SHARE, Candidate, Share, accepted_per_pass, place, shares
from outrider.plans import DraftPart

PASS_US = 100_000.0


def drafts(count: int, **facts: float) -> list[Candidate]:
    return [Candidate(f"d{i}", "smol", 0, **facts) for i in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_a_session_alone_has_them_all(count: int) -> None:
    assert len(place(drafts(count), 1, PASS_US, 255)) == count


@pytest.mark.parametrize(
    ("count", "sessions", "each"), [(4, 64, 1), (4, 4, 1), (8, 3, 2), (0, 3, 0)]
)
def test_many_sessions_share_them(count: int, sessions: int, each: int) -> None:
    assert len(place(drafts(count), sessions, PASS_US, 255)) == each


@pytest.mark.parametrize("most", [0, 1, 2])
def test_no_more_than_the_request_allows(most: int) -> None:
    assert len(place(drafts(5), 1, PASS_US, most)) == most


def test_the_deployment_may_say_how_many_each_has() -> None:
    assert [len(place(drafts(4), 64, PASS_US, 255, each)) for each in (1, 3, 9)] == [1, 3, 4]
    assert len(place(drafts(4), 64, PASS_US, 2, 3)) == 2


def test_sessions_spread_evenly() -> None:
    loads = dict.fromkeys("abcd", 0)
    for sessions in range(1, 65):
        seen = [Candidate(name, "smol", load, step_us=4_000) for name, load in loads.items()]
        chosen = place(seen, max(4, sessions), PASS_US, 255)
        loads[chosen[0]] += 1
    assert max(loads.values()) - min(loads.values()) <= 1


def test_a_faster_draft_gets_more_sessions_than_a_slow_one() -> None:
    loads = {"fast": 0, "slow": 0}
    steps = {"fast": 4_000, "slow": 16_000}
    for _ in range(30):
        seen = [Candidate(n, n, load, step_us=steps[n]) for n, load in loads.items()]
        loads[place(seen, 30, PASS_US, 255)[0]] += 1
    assert loads["fast"] > 2 * loads["slow"] > 0


def test_a_better_draft_is_preferred_at_the_same_speed() -> None:
    seen = [
        Candidate("poor", "a", step_us=5_000, acceptance=0.4),
        Candidate("good", "b", step_us=5_000, acceptance=0.8),
    ]
    assert place(seen, 2, PASS_US, 255) == ["good"]


def test_where_drafts_of_a_model_would_say_the_same_one_of_them_helps() -> None:
    seen = [*drafts(3), Candidate("lookup", "ngram", step_us=5_000)]
    assert len(place(seen, 1, PASS_US, 255)) == 4
    assert len(place(seen, 1, PASS_US, 255, 4)) == 4
    for each in (None, 4):
        chosen = place(seen, 1, PASS_US, 255, each, divide=False)
        assert sorted(name[0] for name in chosen) == ["d", "l"]


def test_machines_of_one_model_are_shared_out_even_where_they_would_say_the_same() -> None:
    seen = [Candidate(f"{law}{i}", law, step_us=5_000) for law in "sf" for i in (1, 2)]
    assert [name[0] for name in place(seen, 2, PASS_US, 255, divide=False)] == ["s", "f"]


def test_a_draft_is_left_only_for_one_that_is_clearly_better() -> None:
    own = Candidate("own", "a", sessions=0, step_us=5_000, acceptance=0.8, helps=True)
    alike = replace(own, name="alike", acceptance=0.805, helps=False)
    better = replace(alike, name="better", acceptance=0.9)
    idle = replace(alike, name="idle")
    assert place([alike, own], 2, PASS_US, 255) == ["own"]
    assert place([better, own], 2, PASS_US, 255) == ["better"]
    shared = replace(own, sessions=7)
    assert place([idle, shared], 2, PASS_US, 255) == ["idle"]


def test_prompt_lookup_helps_everyone() -> None:
    seen = [
        Candidate("lookup", "ngram", sessions=40, step_us=50, acceptance=0.3),
        *drafts(2, step_us=5_000),
    ]
    chosen = place(seen, 40, PASS_US, 255)
    assert len(chosen) == 2
    assert "lookup" in chosen


@pytest.mark.parametrize("pass_us", [0.0, PASS_US])
def test_more_load_is_never_more_use(pass_us: float) -> None:
    random = Random(3)
    for _ in range(100):
        step, rate = random.uniform(0, 5e4), random.random()
        uses = [
            accepted_per_pass(Candidate("d", "m", sessions, step, rate), pass_us)
            for sessions in range(9)
        ]
        if pass_us:
            assert uses == sorted(uses, reverse=True)
        assert all(use <= uses[0] for use in uses)


def test_a_draft_that_helps_stays_while_it_is_about_as_quick_as_it_was() -> None:
    """Its measured step wavers; each time that it leaves and comes back costs a prefill."""
    quick = Candidate("lookup", "ngram", step_us=0.9 * FREE_SHARE * PASS_US, acceptance=0.3)
    slower = replace(quick, step_us=1.1 * FREE_SHARE * PASS_US)
    much_slower = replace(quick, step_us=3 * FREE_SHARE * PASS_US)
    model = drafts(1, step_us=5_000)

    def stays(draft: Candidate, *, helps: bool) -> bool:
        return "lookup" in place([replace(draft, helps=helps), *model], 40, PASS_US, 255)

    assert [stays(quick, helps=helps) for helps in (False, True)] == [True, True]
    assert [stays(slower, helps=helps) for helps in (False, True)] == [False, True]
    assert [stays(much_slower, helps=helps) for helps in (False, True)] == [False, False]


def test_drafts_of_one_model_divide_the_tree() -> None:
    assert shares({4: "smol", 7: "smol", 9: "smol"}) == {
        4: Share(DraftPart.CHAIN),
        7: Share(DraftPart.BRANCHES, 0, 2),
        9: Share(DraftPart.BRANCHES, 1, 2),
    }


def test_drafts_of_different_models_each_have_a_tree() -> None:
    assert set(shares({1: "smol", 2: "ngram", 3: "gemma"}).values()) == {Share()}
    assert shares({}) == {}


def test_drafts_that_draw_go_down_one_path_each() -> None:
    divided = shares({1: "smol", 2: "ngram", 3: "smol"}, draws=True)
    assert divided == dict.fromkeys((1, 2, 3), Share(DraftPart.CHAIN))


def test_a_lookup_takes_no_models_place_however_slow_the_machine_makes_it() -> None:
    lookup = Candidate("lookup", "ngram", step_us=40_000, acceptance=0.75, is_lookup=True)
    model = Candidate("model", "smol", step_us=60_000, acceptance=0.6)
    assert sorted(place([lookup, model], 1, PASS_US, 255, 1)) == ["lookup", "model"]
    assert sorted(place([lookup, model], 9, PASS_US, 255)) == ["lookup", "model"]
