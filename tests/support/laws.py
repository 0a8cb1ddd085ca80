"""The exact law of the first tokens of the scripted model, and the test of a sample against it."""

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy import stats

from outrider.models.scripted import ScriptedLaw, scripted_logits
from outrider.sampling.history import History
from outrider.sampling.processing import distribution
from outrider.types import SamplingParams

ALPHA = 1e-6
"""A sound sampler fails one run in a million."""


def joint_law(
    law: ScriptedLaw,
    prompt: Sequence[int],
    count: int,
    sampling: SamplingParams,
    history: History | None = None,
) -> dict[tuple[int, ...], float]:
    """The probability of every sequence of the first `count` tokens; none of them ends the text."""
    history = history or History.of(sampling, prompt)
    probabilities: dict[tuple[int, ...], float] = {}
    for tokens in itertools.product(range(law.vocab), repeat=count):
        probability = 1.0
        for length, token in enumerate(tokens):
            if probability == 0:
                break
            logits = scripted_logits(law, [[*prompt, *tokens[:length]]])[0]
            row = distribution(logits, sampling, history.after(tokens[:length]))
            probability *= float(row[token])
        probabilities[tokens] = probability
    return probabilities


def p_value(sample: Sequence[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """Pearson's chi-square; cells with fewer than five expected are pooled."""
    counts = Counter(sample)
    assert not set(counts) - {cell for cell, prob in law.items() if prob > 0}, "impossible tokens"
    cells = sorted(law, key=lambda cell: law[cell], reverse=True)
    expected = np.array([law[cell] for cell in cells]) * len(sample)
    observed = np.array([counts[cell] for cell in cells], dtype=float)
    large = expected >= 5
    if not large.all():
        expected = np.append(expected[large], expected[~large].sum())
        observed = np.append(observed[large], observed[~large].sum())
    if expected[-1] == 0:
        expected, observed = expected[:-1], observed[:-1]
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)
