"""How far a session's drafts run ahead, how much of it a pass verifies, and how long a pass waits.

Pure: observations in, a plan out. Everything here looks at past verdicts and times only, never at a
token that is still undecided, so no plan can anticipate (exactness, trap 2).
"""

from dataclasses import dataclass, replace

from outrider.types import DraftPlan, ReadinessPolicy, Verdict

PRIOR_TESTED = 8.0
PRIOR_ACCEPTED = 6.0
MEMORY = 0.97
"""Weight that an observation keeps with each later one."""

GAIN_TO_WAIT = 1.05
"""Waiting must promise this much more speed than a bare step."""

LONGEST_WAIT_US = 1_000_000
"""A draft's own word on its speed never makes a pass wait longer."""

PROBE_CYCLE = 32
PROBE_ROUNDS = 4
"""Under break-even, drafting is tried again in the first rounds of each cycle."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the request and the deployment allow. `wait_nodes` and `max_wait_us` None: planned."""

    num_speculative_tokens: int
    width: int
    proposal_top_k: int
    wait_nodes: int | None = None
    max_wait_us: int | None = None
    adaptive: bool = True
    run_ahead: bool = True


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Least-squares line through (rows, microseconds) of past passes, older ones fading."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, rows: int, us: int) -> "PassTimes":
        """With one more pass."""
        return PassTimes(
            self.n * MEMORY + 1,
            self.x * MEMORY + rows,
            self.y * MEMORY + us,
            self.xx * MEMORY + rows * rows,
            self.xy * MEMORY + rows * us,
        )

    def predict(self, rows: int) -> float:
        """Expected microseconds of a pass with `rows` rows; at least flat, never negative."""
        if self.n == 0:
            return 0.0
        mean_x, mean_y = self.x / self.n, self.y / self.n
        spread = self.xx / self.n - mean_x**2
        slope = 0.0 if spread < 1e-6 else max(0.0, (self.xy / self.n - mean_x * mean_y) / spread)
        return max(mean_y + slope * (rows - mean_x), 0.2 * mean_y)


@dataclass(frozen=True, slots=True)
class Observations:
    """What a session has seen so far. Times in microseconds; 0: not seen yet."""

    tested: float = PRIOR_TESTED
    accepted: float = PRIOR_ACCEPTED
    rounds: int = 0
    draft_step_us: float = 0.0
    round_trip_us: float = 0.0
    passes: PassTimes = PassTimes()

    @property
    def acceptance(self) -> float:
        """Chance that a verified node whose parent stands is accepted too."""
        return min(self.accepted / self.tested, 0.999)

    def with_verdict(self, verdict: Verdict) -> "Observations":
        """After a verdict; a path that ended for lack of nodes tested nothing beyond its end."""
        accepted = sum(1 for node_id in verdict.node_ids if node_id)
        tested = accepted + (1 if verdict.drafted > accepted else 0)
        return replace(
            self,
            tested=self.tested * MEMORY + tested,
            accepted=self.accepted * MEMORY + accepted,
            rounds=self.rounds + 1,
            passes=self.passes.add(verdict.timing.rows, verdict.timing.forward_us),
        )

    def with_round_trip(self, round_trip_us: int) -> "Observations":
        """After a draft joined that is `round_trip_us` away; the nearest one counts."""
        known = self.round_trip_us
        return replace(self, round_trip_us=min(known, round_trip_us) if known else round_trip_us)

    def with_step(self, step_us: int) -> "Observations":
        """After a chunk that took `step_us` a draft pass."""
        known = self.draft_step_us
        return replace(self, draft_step_us=step_us if not known else 0.8 * known + 0.2 * step_us)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the drafts and the verifier are told."""

    draft: DraftPlan
    policy: ReadinessPolicy


def expected_tokens(acceptance: float, nodes: int) -> float:
    """Tokens of a pass over a chain of `nodes`: (1 - a^(n+1)) / (1 - a) (Leviathan et al. 2023, eq.
    1).
    """
    return (1 - acceptance ** (nodes + 1)) / (1 - acceptance)


def plan(seen: Observations, limits: Limits, has_drafts: bool) -> Plan:
    """The plan for the next round."""
    nodes = (
        _worthwhile_nodes(seen, limits)
        if has_drafts and limits.adaptive
        else (limits.num_speculative_tokens if has_drafts else 0)
    )
    min_nodes, wait_us = _wait(seen, limits, nodes)
    return Plan(
        DraftPlan(
            depth=_depth(limits) if nodes else 0,
            width=limits.width,
            proposal_top_k=limits.proposal_top_k,
        ),
        ReadinessPolicy(min_nodes, wait_us, nodes * limits.width),
    )


def _depth(limits: Limits) -> int:
    """While a pass verifies one stretch, the next one is being drafted."""
    stretches = 2 if limits.run_ahead else 1
    return min(stretches * limits.num_speculative_tokens, 256)


def _worthwhile_nodes(seen: Observations, limits: Limits) -> int:
    """Chain length with the most tokens per time of target pass; 0 under break-even."""
    most = limits.num_speculative_tokens
    if seen.rounds < 2 or seen.rounds % PROBE_CYCLE < PROBE_ROUNDS:
        return most
    return max(
        range(most + 1),
        key=lambda n: (
            expected_tokens(seen.acceptance, n)
            / max(seen.passes.predict(1 + n * limits.width), 1.0)
        ),
    )


def _wait(seen: Observations, limits: Limits, nodes: int) -> tuple[int, int]:
    """How many candidates to wait for after a miss, and how long at most (microseconds)."""
    if not nodes or limits.wait_nodes == 0:
        return 0, 0
    if limits.wait_nodes is not None and limits.max_wait_us is not None:
        return min(limits.wait_nodes, nodes), limits.max_wait_us
    if not seen.draft_step_us or not seen.passes.n:
        return 0, 0

    def wait_us(count: int) -> float:
        return seen.round_trip_us + count * seen.draft_step_us if count else 0.0

    def speed(count: int) -> float:
        pass_us = seen.passes.predict(1 + count * limits.width)
        return expected_tokens(seen.acceptance, count) / max(wait_us(count) + pass_us, 1.0)

    if limits.wait_nodes is not None:
        best = min(limits.wait_nodes, nodes)
    else:
        best = max(range(nodes + 1), key=speed)
        if speed(best) < GAIN_TO_WAIT * speed(0):
            return 0, 0
    longest = LONGEST_WAIT_US if limits.max_wait_us is None else limits.max_wait_us
    return best, min(int(1.5 * wait_us(best)) + 1000, longest)
