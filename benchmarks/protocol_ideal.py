"""The scripted pair as arithmetic: how often a draft agrees, and what could be had at most.

Pure: knows laws and step times; runs no service.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from outrider.errors import InvalidArgumentError
from outrider.models.scripted import ScriptedLaw, scripted_logits

CONTEXTS = 256
BISECTIONS = 24
PRECISION = 0.002


@dataclass(frozen=True, slots=True)
class Costs:
    """Step times of the scripted pair. A draft pass takes `draft_step_ms` however many sessions
    it serves.
    """

    target_step_ms: float = 40.0
    target_row_ms: float = 0.2
    draft_step_ms: float = 4.0

    def pass_ms(self, rows: int) -> float:
        """One target pass over `rows` tokens."""
        return self.target_step_ms + self.target_row_ms * rows


@dataclass(frozen=True, slots=True)
class Ideal:
    """The most that could be had, and at which number of nodes a session and pass."""

    tokens_per_s: float
    nodes: int


def expected_tokens(acceptance: float, nodes: int, drafts: int = 1) -> float:
    """Tokens of a pass whose path may be `nodes` long, its own token counted.

    1 + sum over i = 1..nodes of 1 - (1 - a^i)^k: a draft's path stands to depth i with probability
    a^i, and one of k independent drafts' paths has to. With one draft it is Leviathan et al. 2023,
    equation 1.

    >>> expected_tokens(0.5, 2), expected_tokens(0.5, 1, drafts=2), expected_tokens(0.9, 0)
    (1.75, 1.75, 1.0)
    """
    return 1.0 + sum(standing(acceptance, depth, drafts) for depth in range(1, nodes + 1))


def standing(acceptance: float, depth: int, drafts: int = 1) -> float:
    """Probability that the path of one of `drafts` independent drafts stands to `depth`."""
    return 1 - (1 - acceptance**depth) ** drafts


def drafts_per_client(drafts: int, clients: int) -> int:
    """How many of `drafts` draft for one of `clients`: as many as there are for each, at least one
    of them where there are any. A draft has all its sessions in each pass, which takes no longer.

    >>> drafts_per_client(4, 1), drafts_per_client(4, 3), drafts_per_client(4, 64)
    (4, 1, 1)
    >>> drafts_per_client(0, 64)
    0
    """
    return max(1, drafts // clients) if drafts else 0


def ideal(costs: Costs, acceptance: float, clients: int, drafts: int, most_nodes: int) -> Ideal:
    """What a perfect scheduler would get for `clients` sessions if communication cost nothing and
    `drafts` drafts were shared out between them (`drafts_per_client`).

    Every pass has all sessions, each with its next token and a path of n nodes, and starts when the
    last one ends: messages and the services' own work take no time. Drafts are never late, so their
    step time does not count. The verifier knows beforehand which draft's path stands longest and
    computes the rows of that path only. n is the best from 0 to `most_nodes`. So per second

        clients x E(n) / (target_step + target_row x clients x (1 + n)).

    where E is that of the drafts of one session. No schedule of paths with one length for all
    passes does better; one that could tell easy tokens from hard ones and chose n by that might, a
    little, and so may drafts that propose alternatives, which the path of first choices does not
    have. With several drafts a session the bound is loose: their errors go together where the
    target itself is undecided.
    """
    each = drafts_per_client(drafts, clients)
    best = Ideal(0.0, 0)
    for nodes in range((most_nodes if drafts else 0) + 1):
        pass_ms = costs.pass_ms(clients * (1 + nodes))
        tokens_per_s = 1000 * clients * expected_tokens(acceptance, nodes, each) / pass_ms
        if tokens_per_s > best.tokens_per_s:
            best = Ideal(tokens_per_s, nodes)
    return best


def run_ahead_ideal(
    costs: Costs, acceptance: float, clients: int, drafts: int, most_nodes: int
) -> float:
    """Tokens a second that drafts of this speed could bring if communication cost nothing.

    As `ideal`, but a draft has one path, and where that does not stand it begins again: after a
    miss the pass waits while m nodes are made, after a hit (path and the target's own token stand)
    n nodes are there already, as far as one pass was long enough to make them. Hits follow one
    another as a Markov chain:

        hits h = s(m + 1) / (1 - s(n + 1) + s(m + 1)), s = `standing`
        tokens = h E(n) + (1 - h) E(m)
        time = h (pass(1 + n) + max(0, n x draft - pass(1 + n))) + (1 - h) (m x draft + pass(1 + m))

    with the best n and m, and `standing` that of the drafts of one session. A session shares its
    passes, the target's and its drafts', with others at no cost, so `clients` sessions get as many
    times that, or what `ideal` says, whichever is less. A draft that also proposes alternatives can
    do better.
    """
    each = drafts_per_client(drafts, clients)
    everywhere = ideal(costs, acceptance, clients, drafts, most_nodes).tokens_per_s
    if not drafts:
        return everywhere

    def speed(after_hit: int, after_miss: int) -> float:
        hits_stay = standing(acceptance, after_hit + 1, each)
        misses_end = standing(acceptance, after_miss + 1, each)
        hit = misses_end / (1 - hits_stay + misses_end)
        tokens = hit * expected_tokens(acceptance, after_hit, each)
        tokens += (1 - hit) * expected_tokens(acceptance, after_miss, each)
        hit_ms = max(costs.pass_ms(1 + after_hit), after_hit * costs.draft_step_ms)
        miss_ms = after_miss * costs.draft_step_ms + costs.pass_ms(1 + after_miss)
        return 1000 * tokens / (hit * hit_ms + (1 - hit) * miss_ms)

    lengths = range(most_nodes + 1)
    return min(everywhere, clients * max(speed(n, m) for n in lengths for m in lengths))


def synchronous_nodes(
    costs: Costs, acceptance: float, clients: int, rtt_ms: float, most_nodes: int
) -> int:
    """The best fixed length for draft-then-verify rounds of one draft: the draft makes n nodes,
    the way there and back is gone once, then the target passes.
    """

    def speed(nodes: int) -> float:
        drafting_ms = rtt_ms + nodes * costs.draft_step_ms
        return expected_tokens(acceptance, nodes) / (
            drafting_ms + costs.pass_ms(clients * (1 + nodes))
        )

    return max(range(1, most_nodes + 1), key=speed)


def coupled_agreement(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64]) -> float:
    """Probability that one exponential race has the same winner under p and under q.

    sum over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)): x wins both if every y's e(y) is
    above e(x) times the larger ratio (Daliri, Musco, Suresh, arXiv 2408.07978). p, q: [vocab],
    positive.

    >>> even = np.array([0.5, 0.5])
    >>> coupled_agreement(even, even), round(coupled_agreement(even, np.array([0.9, 0.1])), 3)
    (1.0, 0.6)
    """
    ratios = np.maximum(p[None, :] / p[:, None], q[None, :] / q[:, None])
    return float((1.0 / ratios.sum(axis=1)).sum())


def acceptance_of(law: ScriptedLaw, drift: float, contexts: Sequence[Sequence[int]]) -> float:
    """Mean probability, over contexts, that the draft with this drift has the target's token, at
    temperature 1 under the rule `coupled`.
    """
    p, q = (_probabilities(replace(law, drift=d), contexts) for d in (0.0, drift))
    return float(np.mean([coupled_agreement(a, b) for a, b in zip(p, q, strict=True)]))


def drift_for(wanted: float, law: ScriptedLaw) -> float:
    """The drift at which a draft of `law` is accepted with probability `wanted`, by bisection over
    contexts drawn at random.

    Raises InvalidArgumentError where no drift has that acceptance.
    """
    contexts = random_contexts(law, CONTEXTS)
    if wanted == 1.0:
        return 0.0
    least = acceptance_of(law, 1.0, contexts)
    if not least <= wanted < 1:
        raise InvalidArgumentError(
            f"an acceptance of {wanted:g} cannot be had; give {least:.2f} to 1 for this law"
        )
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        found = acceptance_of(law, middle, contexts)
        if abs(found - wanted) < PRECISION / 4:
            return middle
        low, high = (middle, high) if found > wanted else (low, middle)
    return (low + high) / 2


def random_contexts(law: ScriptedLaw, count: int) -> list[list[int]]:
    """Contexts whose tokens are uniform, the same each time; the hash makes others alike."""
    generator = np.random.default_rng(law.seed)
    drawn = generator.integers(0, law.vocab, size=(count, law.order))
    return [[int(token) for token in row] for row in drawn]


def _probabilities(law: ScriptedLaw, contexts: Sequence[Sequence[int]]) -> npt.NDArray[np.float64]:
    rows = scripted_logits(law, contexts).double().softmax(dim=-1)
    return np.asarray(rows, dtype=np.float64)
